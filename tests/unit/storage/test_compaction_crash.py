"""Compaction and its swaps at every point of a crash, and what recovery believes then."""

import contextlib
import itertools
import random

import pytest

from kafkalite_core.protocol.record_batch import parse_batch_header
from kafkalite_core.storage.compaction import plan_compaction
from kafkalite_core.storage.compaction_pass import compact
from tests.unit.storage.compaction_tools import (
    PowerLoss,
    batches,
    everything,
    fill,
    finish,
    put,
    run,
    state,
)


def crashed_at(keeper, step, choose):
    """A log whose compaction lost power before disk operation `step`; (log after recovery, state before, swaps or None)."""
    keeper.disk = type(keeper.disk)()
    log = keeper.open()
    for n in range(5):
        put(log, (b"p", b"%d" % n), producer_id=5, producer_epoch=1, base_sequence=n)
    log.epochs.assign(2, log.end_offset)
    for n in range(40):
        put(log, (b"k%d" % (n % 3), b"%03d" % n + bytes(60)), leader_epoch=2)
    put(log, (b"k0", None), leader_epoch=2)
    ticket = log.begin_flush()
    ticket.run()
    log.complete_flush(ticket)
    before = state(log), log.end_offset, log.epochs.entries
    left = itertools.count(step, -1)

    def hook(_operation, _path):
        if next(left) == 0:
            raise PowerLoss

    keeper.disk.hook = hook
    swaps = None
    with contextlib.suppress(PowerLoss):
        swaps = run(log).segments_after
    keeper.disk.hook = lambda _operation, _path: None
    keeper.disk.crash(choose)
    log = keeper.open(recovery_point=before[1])
    return log, before, swaps


@pytest.mark.parametrize("kind", ["lost", "kept", "mixed"])
def test_power_loss_at_any_disk_operation_harms_nothing(keeper, kind):
    seeds = range(2) if kind == "mixed" else [0]
    swaps, step = None, 0
    sizes = set()
    while swaps is None:
        for seed in seeds:
            rng = random.Random(f"{step} {seed}")
            choose = {"lost": lambda n: 0, "kept": lambda n: 1, "mixed": rng.randrange}[kind]
            log, (folded, end, epochs), swaps = crashed_at(keeper, step, choose)
            at = f"operation {step}, seed {seed}"
            assert (state(log), log.end_offset, log.epochs.entries) == (folded, end, epochs), at
            assert not keeper.report.cut, at
            assert log.producers.entry(5).batches[-1].last_sequence == 4, at
            names = keeper.disk.list(keeper.name)
            assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))], at
            assert all(a.end_offset == b.base_offset for a, b in itertools.pairwise(log.segments)), at
            sizes.add(log.size)
            fill(log, 3, tag=b"w")
            folded = state(log)
            assert run(log).cleaned_to == log.active.base_offset, at
            assert state(log) == folded, at
        step += 1
    assert step > 40
    assert len(sizes) == swaps + 1, "either the old segments or the new one, never anything in between"


@pytest.mark.parametrize("present", [True, False])
def test_a_damaged_swap_file_never_replaces_what_is_there(keeper, present):
    log = keeper.open()
    fill(log, 30)
    ticket = log.begin_flush()
    ticket.run()
    log.complete_flush(ticket)
    expected, end = state(log), log.end_offset
    keeper.disk.kill()
    name = keeper.path(f"{0:020d}.log")
    swap = keeper.disk.open(name + ".swap", create=True)
    damaged = bytes(keeper.disk.content(name))[:-1] + b"\xff"
    swap.append(damaged)
    if not present:
        for suffix in (".log", ".index", ".timeindex"):
            keeper.disk.remove(keeper.path(f"{0:020d}{suffix}"))
    log = keeper.open(recovery_point=end)
    if present:
        assert state(log) == expected
        assert not keeper.report.cut
    else:
        assert keeper.report.cut_below_flushed
        assert [offset for offset, *_ in everything(log)] == list(range(3))
    assert not keeper.disk.exists(name + ".swap")


def test_recovery_believes_the_epoch_file_where_the_batches_are_gone(keeper):
    log = keeper.open()
    fill(log, 20)
    log.epochs.assign(2, 20)
    for n in range(20):
        put(log, (b"k%d" % (n % 4), bytes(60)), leader_epoch=2)
    log.epochs.assign(3, 40)
    for n in range(20):
        put(log, (b"k%d" % (n % 4), bytes(60)), leader_epoch=3)
    ticket = log.begin_flush()
    ticket.run()
    log.complete_flush(ticket)
    entries = log.epochs.entries
    run(log)
    assert 2 not in {parse_batch_header(batch).partition_leader_epoch for batch in batches(log)}
    keeper.disk.kill()
    log = keeper.open(recovery_point=0)
    assert keeper.report.segments_scanned == len(log.segments)
    assert log.epochs.entries == entries == [(1, 0), (2, 20), (3, 40)]
    assert [log.end_offset_for(epoch) for epoch in (1, 2, 3)] == [(1, 20), (2, 40), (3, 60)]


def test_recovery_believes_the_epoch_file_though_batches_lie_below_the_log_start(keeper):
    log = keeper.open()
    put(log, (b"only once", b"v"))
    fill(log, 10, keys=1)
    log.epochs.assign(2, 11)
    for _ in range(20):
        put(log, (b"k0", bytes(60)), leader_epoch=2)
    log.advance_start(5)
    run(log)
    flush(log)
    entries = log.epochs.entries
    keeper.disk.kill()
    log = keeper.open(recovery_point=0, start_offset=5)
    assert log.epochs.entries == entries == [(1, 5), (2, 11)]


def test_recovery_does_not_believe_an_epoch_file_that_contradicts_the_batches(keeper):
    log = keeper.open()
    fill(log, 10)
    ticket = log.begin_flush()
    ticket.run()
    log.complete_flush(ticket)
    log.epochs.assign(5, 3)
    stale = log.epochs.encode()
    keeper.disk.kill()
    file = keeper.disk.open(keeper.path("leader-epoch-checkpoint"))
    file.truncate(0)
    file.append(stale)
    assert keeper.open().epochs.entries == [(1, 0)]


@pytest.mark.parametrize("kind", ["lost", "kept"])
@pytest.mark.parametrize("offset", [2, 21, 39])
def test_what_is_cut_off_while_a_swap_is_under_way_never_comes_back(keeper, offset, kind):
    jobs, ended, settled = 0, False, 0
    while not ended:
        keeper.disk = type(keeper.disk)()
        log = keeper.open()
        fill(log, 40)
        flush(log)
        plan = plan_compaction(log, None, high_watermark=40, now_ms=0)
        work = compact(log, plan, map_bytes=1 << 20, now_ms=0)
        ended = not all(step(work) for _ in range(jobs))
        settled += log.pending_swap is not None
        log.truncate_to(offset)
        assert log.pending_swap is None
        end = log.end_offset
        assert end <= offset
        flush(log)
        expected = everything(log)
        if jobs % 2 and not ended:  # the pass goes on, and finds that it is over
            assert finish(work).cleaned_to is None
            assert everything(log) == expected
        keeper.disk.crash({"lost": lambda n: 0, "kept": lambda n: 1}[kind])
        log = keeper.open(recovery_point=end)
        assert (log.end_offset, everything(log)) == (end, expected), f"after {jobs} jobs"
        assert not keeper.report.cut_below_flushed
        jobs += 1
    assert settled >= 3


def test_a_flush_knows_of_the_names_that_a_swap_changes(keeper):
    log = keeper.open()
    fill(log, 40)
    flush(log)
    work = compact(log, plan_compaction(log, None, high_watermark=40, now_ms=0), map_bytes=1 << 20, now_ms=0)
    changes = []
    while True:
        job = next(work, None)
        changes.append(log.directory_version != log.directory_synced)
        flush(log)
        if job is None:
            break
        job()
    assert sum(changes) >= 3, "prepared, installed, completed"


def step(work):
    job = next(work, None)
    if job is not None:
        job()
    return job is not None


def flush(log):
    ticket = log.begin_flush()
    if ticket is not None:
        ticket.run()
        log.complete_flush(ticket)

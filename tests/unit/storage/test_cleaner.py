"""The cleaner on the real disk: which log is next, what a pass leaves behind, and what may happen meanwhile."""

import asyncio
import errno
import os
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kafkalite_broker.compression import compress, decompress
from kafkalite_broker.log import cleaner as cleaner_module
from kafkalite_broker.log.cleaner import BACKOFF_MIN_S, POSTPONED_S, LogCleaner
from kafkalite_broker.log.cleaner_telemetry import CleanerTelemetry
from kafkalite_core.model.config import resolve_topic_config
from kafkalite_core.model.partition import TopicRef
from kafkalite_core.protocol.record_batch import SimpleRecord, build_batch, iter_batches, iter_records
from kafkalite_core.storage.compaction_pass import CompactionResult
from kafkalite_core.storage.errors import ReadInterrupted
from kafkalite_core.storage.log_config import LogConfig

REF = TopicRef("ns", "orders", "uid-1", "5f0c1c2e-0000-4000-8000-000000000001", "orders")
COMPACTED = resolve_topic_config(
    {"cleanup.policy": "compact", "segment.bytes": "1024", "min.cleanable.dirty.ratio": "0.3", "retention.ms": "-1"}
)


def put(log, count, *, keys=3, tag="v", **fields):
    for n in range(count):
        records = [SimpleRecord(1000 + n, b"k%d" % (n % keys), f"{tag}{n}".encode() * 5)]
        log.append_as_leader(build_batch(records, **fields), leader_epoch=1, now_ms=1000 + n)


def state_of(log):
    state, count = {}, 0
    offset = log.start_offset
    while offset < log.end_offset:
        log.tail.clear()
        for buffer in log.read(offset, max_bytes=4000, end=log.end_offset, minimum_one=True).buffers:
            view = memoryview(buffer)
            for position, header in iter_batches(view):
                offset = header.next_offset
                for record in iter_records(view, position, header, decompress):
                    state[bytes(record.key)] = bytes(record.value)
                    count += 1
    return state, count


@asynccontextmanager
async def cleaning(manager, clock, *, marks=None, **config):
    fatal = []
    cleaner = LogCleaner(
        manager,
        high_watermarks=lambda: {log: log.end_offset for log in manager.logs.values()} if marks is None else marks(),
        config={"log.cleaner.backoff.ms": "0", **config},
        wall_ms=clock,
        telemetry=CleanerTelemetry(),
        on_fatal=fatal.append,
        clock=lambda: clock.mono_ms / 1000.0,
    )
    try:
        yield cleaner
    finally:
        await cleaner.stop()
    assert fatal == []


def figures(cleaner):
    return {metric.name: metric.samples[0].value for metric in cleaner._telemetry.collect()}


async def test_the_dirtiest_log_comes_first_and_none_twice(open_manager, clock):
    logs = [open_manager.obtain(REF, number, COMPACTED)[0] for number in range(3)]
    for log, count in zip(logs, (40, 60, 80), strict=True):
        put(log, count)
    async with cleaning(open_manager, clock) as cleaner:
        before = [log.size for log in logs]
        expected = [state_of(log)[0] for log in logs]
        assert await cleaner.clean_once()
        assert figures(cleaner)["kafka_log_logcleanermanager_max_dirty_percent"] == 100
        cleaned = [now.size < was for now, was in zip(logs, before, strict=True)]
        assert cleaned.count(True) == 1
        assert await cleaner.clean_once()
        assert await cleaner.clean_once()
        assert not await cleaner.clean_once()
        assert [state_of(log)[0] for log in logs] == expected
        assert all(log.size < was / 2 for log, was in zip(logs, before, strict=True))
        seen = figures(cleaner)
        assert seen["kafka_log_logcleanermanager_max_dirty_percent"] == 0
        assert 0 < seen["kafka_log_logcleaner_cleaner_recopy_percent"] < 50
        assert seen["kafka_log_logcleaner_max_clean_time_secs"] > 0
        put(logs[0], 40, tag="w")
        assert await cleaner.clean_once()
        assert not await cleaner.clean_once()


async def test_what_was_compacted_is_known_after_a_restart(open_manager, manager, clock):
    log, _ = open_manager.obtain(REF, 0, COMPACTED)
    put(log, 60, producer_id=-1)
    async with cleaning(open_manager, clock) as cleaner:
        assert await cleaner.clean_once()
    offset = open_manager.cleaner_offset(log)
    assert offset == log.active.base_offset
    content = (open_manager.disk.root / "cleaner-offset-checkpoint").read_text()
    assert content == f"0\n1\norders 0 {offset}\n"
    state = state_of(log)
    open_manager.close({log: log.end_offset}, broker_epoch=1)
    again = manager(decompress=decompress, compress=compress)
    again.open()
    log, _ = again.obtain(REF, 0, COMPACTED)
    assert again.cleaner_offset(log) == offset
    assert state_of(log) == state
    async with cleaning(again, clock) as cleaner:
        assert not await cleaner.clean_once()


async def test_what_is_written_after_a_cut_counts_as_dirty(open_manager, clock):
    log, _ = open_manager.obtain(REF, 0, COMPACTED)
    put(log, 60)
    async with cleaning(open_manager, clock) as cleaner:
        assert await cleaner.clean_once()
        job = open_manager.cleaned_job(log, 50)
        log.truncate_to(20)
        end = log.end_offset
        assert end <= 20
        job()  # taken before the cut, written after it
        assert open_manager.cleaner_offset(log) == end
        assert (open_manager.disk.root / "cleaner-offset-checkpoint").read_text() == f"0\n1\norders 0 {end}\n"
        put(log, 60, tag="w")
        assert await cleaner.clean_once()
        assert state_of(log)[1] < 30


async def test_nothing_above_the_high_watermark_is_touched(open_manager, clock):
    log, _ = open_manager.obtain(REF, 0, COMPACTED)
    put(log, 60)
    bases = [segment.base_offset for segment in log.segments]
    async with cleaning(open_manager, clock, marks=lambda: {log: bases[3] - 1}) as cleaner:
        assert await cleaner.clean_once()
        assert not await cleaner.clean_once()
    assert open_manager.cleaner_offset(log) == bases[2]
    assert [segment.base_offset for segment in log.segments][1:] == bases[2:]


async def test_logs_that_are_not_compacted_and_unknown_marks_are_left_alone(open_manager, clock):
    log, _ = open_manager.obtain(REF, 0, resolve_topic_config({"segment.bytes": "1024"}))
    put(log, 60)
    async with cleaning(open_manager, clock) as cleaner:
        assert not await cleaner.clean_once()
    log.reconfigure(LogConfig.of(COMPACTED))
    async with cleaning(open_manager, clock, marks=dict) as cleaner:
        assert not await cleaner.clean_once()
    async with cleaning(open_manager, clock, **{"log.cleaner.enable": "false"}) as cleaner:
        await asyncio.wait_for(cleaner.run(), 60)


async def test_a_policy_may_change_and_the_gaps_are_still_no_damage(open_manager, manager, clock):
    log, _ = open_manager.obtain(REF, 0, resolve_topic_config({"segment.bytes": "1024"}))
    put(log, 60)
    log.reconfigure(LogConfig.of(COMPACTED))
    async with cleaning(open_manager, clock) as cleaner:
        assert await cleaner.clean_once()
    end, state = log.end_offset, state_of(log)
    open_manager.abandon()
    for policy in ("delete", "compact", "delete"):
        (open_manager.disk.root / "recovery-point-offset-checkpoint").unlink()  # so that every batch is looked at
        again = manager(decompress=decompress)
        [report] = again.open().reports
        assert (report.cut, report.end_offset) == (False, end)
        log, _ = again.obtain(REF, 0, resolve_topic_config({"cleanup.policy": policy, "segment.bytes": "1024"}))
        assert state_of(log) == state
        again.checkpoint({})
        again.abandon()


async def test_a_follower_takes_gaps_whatever_its_policy(open_manager, manager, clock, tmp_path):
    config = resolve_topic_config({"segment.bytes": "1024"})
    log, _ = open_manager.obtain(REF, 0, config)
    frame = b"".join(
        bytes(build_batch([SimpleRecord(1, b"k", b"v" * 300)], base_offset=offset, leader_epoch=1))
        for offset in (0, 5, 6, 90)
    )
    assert log.append_as_follower(memoryview(frame), max_epoch=1, now_ms=1) == 91
    assert len(log.segments) > 1
    open_manager.abandon()
    again = manager()
    [report] = again.open().reports
    assert (report.cut, report.end_offset) == (False, 91)


async def test_a_damaged_log_waits_for_a_restart_and_others_go_on(open_manager, clock):
    logs = [open_manager.obtain(REF, number, COMPACTED)[0] for number in range(2)]
    for log in logs:
        put(log, 60)
    path = open_manager.disk.root / logs[0].segments[1].path
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    async with cleaning(open_manager, clock) as cleaner:
        assert [await cleaner.clean_once() for _ in range(3)] == [True, True, False]
        assert figures(cleaner)["kafka_log_logcleanermanager_uncleanable_partitions_count"] == 1
    assert path.read_bytes() == content
    assert open_manager.cleaner_offset(logs[0]) is None
    assert open_manager.cleaner_offset(logs[1]) == logs[1].active.base_offset
    assert not [name for name in open_manager.disk.list("orders-0") if "cleaned" in name]


async def test_a_full_disk_ends_the_pass_and_leaves_nothing_behind(open_manager, clock, monkeypatch):
    log, _ = open_manager.obtain(REF, 0, COMPACTED)
    put(log, 60)
    state = state_of(log)
    real = os.write
    full = True

    def write(descriptor, data):
        if full and ".cleaned" in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise OSError(errno.ENOSPC, "injected")
        return real(descriptor, data)

    monkeypatch.setattr("kafkalite_broker.log.disk._write", write)
    async with cleaning(open_manager, clock) as cleaner:
        assert await cleaner.clean_once()
        assert not [name for name in open_manager.disk.list("orders-0") if "cleaned" in name]
        assert state_of(log) == state
        full = False
        monkeypatch.setattr(cleaner_module, "SPARE_BYTES", 1 << 60)
        clock.mono_ms += 1000 * POSTPONED_S
        assert await cleaner.clean_once()
        assert state_of(log) == state
        monkeypatch.setattr(cleaner_module, "SPARE_BYTES", 0)
        assert not await cleaner.clean_once(), "it waits"
        assert figures(cleaner)["kafka_log_logcleanermanager_max_dirty_percent"] == 100
        clock.mono_ms += 1000 * POSTPONED_S - 1
        assert not await cleaner.clean_once(), "it waits"
        clock.mono_ms += 1
        assert await cleaner.clean_once()
        assert open_manager.cleaner_offset(log) == log.active.base_offset
    assert state_of(log)[0] == state[0]


async def test_a_log_that_finds_no_room_lets_the_others_pass(open_manager, clock, monkeypatch):
    logs = [open_manager.obtain(REF, number, COMPACTED)[0] for number in range(3)]
    for log, count in zip(logs, (30, 60, 60), strict=True):
        put(log, count)
    async with cleaning(open_manager, clock) as cleaner:
        assert await cleaner.clean_once()
        dirtiest = next(log for log in logs if open_manager.cleaner_offset(log) is not None)
        put(dirtiest, 200, tag="w")
        free_bytes = open_manager.disk.free_bytes
        large = []

        def free():
            return 0 if dirtiest.directory in cleaner._in_progress and large.append(1) is None else free_bytes()

        monkeypatch.setattr(open_manager.disk, "free_bytes", free)
        monkeypatch.setattr(cleaner_module, "SPARE_BYTES", 0)
        passes = [await cleaner.clean_once() for _ in range(4)]
        assert (passes, len(large)) == ([True, True, True, False], 1)
    assert all(open_manager.cleaner_offset(log) == log.active.base_offset for log in logs if log is not dirtiest)


async def test_a_log_whose_pass_was_broken_off_lets_the_others_pass(open_manager, clock):
    logs = [open_manager.obtain(REF, number, COMPACTED)[0] for number in range(2)]
    for log in logs:
        put(log, 60)
    async with cleaning(open_manager, clock) as cleaner:
        submit = cleaner._pool.submit
        cut = []

        def spy(job, *rest):
            if not cut:
                cut.extend(log for log in logs if log.directory in cleaner._in_progress)
                cut[0].truncate_to(40)
            return submit(job, *rest)

        cleaner._pool.submit = spy
        assert [await cleaner.clean_once() for _ in range(3)] == [True, True, False]
        assert [log for log in logs if open_manager.cleaner_offset(log) is None] == cut
        clock.mono_ms += 1000 * BACKOFF_MIN_S
        assert [await cleaner.clean_once() for _ in range(2)] == [True, False]
    assert all(open_manager.cleaner_offset(log) == log.active.base_offset for log in logs)


async def test_a_log_that_is_cut_again_and_again_waits_longer_each_time(open_manager, clock, monkeypatch):
    log, _ = open_manager.obtain(REF, 0, COMPACTED)
    put(log, 60)

    def cut(*_, **__):
        return CompactionResult(reason="the log was cut")
        yield

    async def is_broken_off_and_waits(seconds):
        assert [await cleaner.clean_once() for _ in range(2)] == [True, False]
        clock.mono_ms += 1000 * seconds - 1
        assert not await cleaner.clean_once(), f"it waits for {seconds} s"
        clock.mono_ms += 1

    async with cleaning(open_manager, clock, **{"log.cleaner.backoff.ms": "1000"}) as cleaner:
        monkeypatch.setattr(cleaner_module, "compact", cut)
        for seconds in (1, 2, 4, 8, 16, 32, 64, 128, 256, POSTPONED_S, POSTPONED_S):
            await is_broken_off_and_waits(seconds)
        monkeypatch.undo()
        assert await cleaner.clean_once()
        assert open_manager.cleaner_offset(log) == log.active.base_offset
        put(log, 200, tag="w")
        monkeypatch.setattr(cleaner_module, "compact", cut)
        await is_broken_off_and_waits(1)
        monkeypatch.undo()
        assert await cleaner.clean_once(), "a pass that came to its end makes the next wait short again"


async def test_reads_planned_before_a_swap_are_right_or_interrupted(open_manager, clock):
    log, _ = open_manager.obtain(REF, 0, COMPACTED)
    put(log, 60)
    log.tail.clear()
    plans = [log.plan_read(n, max_bytes=300, end=60, minimum_one=True) for n in range(log.active.base_offset)]
    first = plans[0].run()
    async with cleaning(open_manager, clock) as cleaner:
        assert await cleaner.clean_once()
    interrupted = 0
    for offset, plan in enumerate(plans):
        try:
            found = plan.run()
        except ReadInterrupted:
            interrupted += 1
            continue
        assert next(iter_batches(memoryview(found.buffers[0])))[1].base_offset == offset
    assert interrupted == len(plans)
    assert first.size
    for offset in range(log.end_offset):
        log.tail.clear()
        found = log.read(offset, max_bytes=300, end=60, minimum_one=True)
        assert next(iter_batches(memoryview(found.buffers[0])))[1].last_offset >= offset


@pytest.mark.parametrize("after", [1, 2, 4, 8, 12])
async def test_a_log_may_be_set_aside_cut_or_shortened_while_it_is_compacted(open_manager, clock, after):
    logs = [open_manager.obtain(REF, number, COMPACTED)[0] for number in range(3)]
    for log in logs:
        put(log, 60)
    async with cleaning(open_manager, clock) as cleaner:
        for log, act in zip(
            logs,
            (
                lambda log: open_manager.set_aside(log, delete_seen=False),
                lambda log: log.truncate_to(20),
                lambda log: (log.advance_start(30), log.retention(10**9, 60), log.purge(10**12)),
            ),
            strict=True,
        ):
            jobs = 0
            submit = cleaner._pool.submit

            def spy(job, *rest, act=act, log=log, submit=submit):
                nonlocal jobs
                jobs += 1
                if jobs == after:
                    act(log)
                return submit(job, *rest)

            cleaner._high_watermarks = lambda log=log: {log: log.end_offset}
            cleaner._pool.submit = spy
            await cleaner.clean_once()
            cleaner._pool.submit = submit
            if not log.closed:
                assert len(state_of(log)[0]) == 3
    for name in ("orders-1", "orders-2"):
        assert not [file for file in open_manager.disk.list(name) if file.endswith((".cleaned", ".swap"))]


async def test_several_threads_compact_several_logs(open_manager, clock):
    logs = [open_manager.obtain(REF, number, COMPACTED)[0] for number in range(4)]
    for log in logs:
        put(log, 60)
    async with cleaning(open_manager, clock, **{"log.cleaner.threads": "2"}) as cleaner:
        task = asyncio.create_task(cleaner.run())
        async with asyncio.timeout(20):
            while any(open_manager.cleaner_offset(log) is None for log in logs):  # noqa: ASYNC110 - no event to await
                await asyncio.sleep(0.01)
        task.cancel()
    assert all(state_of(log)[0].keys() == {b"k0", b"k1", b"k2"} for log in logs)

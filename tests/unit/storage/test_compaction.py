"""When compaction is due, what a pass takes, and what it leaves of a log."""

import itertools

import pytest

from kafkalite_core.protocol.record_batch import (
    parse_batch_header,
    patch_batch,
)
from kafkalite_core.storage import compaction_pass
from kafkalite_core.storage.compaction import plan_compaction
from kafkalite_core.storage.compaction_filter import (
    ENTRY_OVERHEAD_BYTES,
)
from kafkalite_core.storage.compaction_pass import compact
from kafkalite_core.storage.errors import CorruptMessage
from kafkalite_core.storage.log_config import LogConfig
from tests.unit.storage.compaction_tools import CONFIG, batch_of, batches, everything, fill, finish, put, run, state


def test_what_may_be_compacted_ends_at_high_watermark_active_segment_and_lag(keeper):
    log = keeper.open()
    fill(log, 20)
    ends = [segment.end_offset for segment in log.segments]
    sizes = [segment.size for segment in log.segments]
    assert len(ends) > 3

    def plan(checkpoint=None, mark=20, now=10**6):
        return plan_compaction(log, checkpoint, high_watermark=mark, now_ms=now)

    assert plan()[:4] == (0, ends[-2], 0, sum(sizes[:-1]))
    assert plan(mark=ends[1])[1] == ends[1]
    assert plan(mark=ends[1] - 1)[1] == ends[0]
    assert plan(mark=0)[:4] == (0, 0, 0, 0)
    assert plan(checkpoint=ends[0])[:4] == (ends[0], ends[-2], sizes[0], sum(sizes[1:-1]))
    assert plan(checkpoint=ends[0] + 1)[:4] == (ends[0] + 1, ends[-2], sizes[0], sum(sizes[1:-1]))
    assert plan(checkpoint=20)[:4] == (20, 20, sum(sizes[:-1]), 0)
    assert plan(checkpoint=21) == plan()
    log.advance_start(ends[0] + 1)
    assert plan(checkpoint=3).first_dirty == ends[0] + 1
    log.reconfigure(LogConfig(compacts=True, min_compaction_lag_ms=100))
    newest = log.segments[1].max_timestamp
    assert plan(now=newest + 100)[1] == ends[1]
    assert plan(now=newest + 99)[1] == max(ends[0], log.start_offset)


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_records_without_timestamps_are_as_young_as_the_last_append_to_their_segment(keeper, role):
    keeper.config = LogConfig(compacts=True, gaps=True, segment_bytes=350, min_compaction_lag_ms=100)
    log = keeper.open()
    for n in range(4):
        records, now_ms = bytearray(batch_of((b"k", bytes(60)), stamps=[-1])), 1000 + 70 * n
        if role == "leader":
            log.append_as_leader(records, leader_epoch=1, now_ms=now_ms)
        else:
            patch_batch(records, 0, n, 1)
            log.append_as_follower(memoryview(records), max_epoch=1, now_ms=now_ms)
    assert [(segment.base_offset, segment.end_offset) for segment in log.segments] == [(0, 2), (2, 4)]

    def first_uncleanable(now_ms):
        return plan_compaction(log, None, high_watermark=4, now_ms=now_ms).first_uncleanable

    assert first_uncleanable(1169) == 0, "begun 169 ms ago, written to 99 ms ago"
    assert first_uncleanable(1170) == 2


def test_a_pass_is_due_by_ratio_or_by_lag(keeper):
    log = keeper.open()
    fill(log, 20)
    ends = [segment.end_offset for segment in log.segments]

    def due(checkpoint=None, now=2000, **config):
        log.reconfigure(LogConfig(compacts=True, **config))
        return plan_compaction(log, checkpoint, high_watermark=20, now_ms=now)

    assert due(min_cleanable_dirty_ratio=0.99).due
    assert not due(min_cleanable_dirty_ratio=1.0).due
    ratio = due(ends[1]).dirty_ratio
    assert 0.1 < ratio < 0.9
    assert due(ends[1], min_cleanable_dirty_ratio=ratio - 0.01).due
    assert not due(ends[1], min_cleanable_dirty_ratio=ratio).due
    assert not due(ends[-2], min_cleanable_dirty_ratio=0.0).due
    first = log.segments[2].first_timestamp
    late = due(ends[1], min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=50, now=first + 53)
    assert (late.due, late.overdue_ms) == (True, 3)
    assert not due(ends[1], min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=50, now=first + 50).due


def test_small_segments_become_one_and_the_rest_joins_on(keeper):
    log = keeper.open()
    fill(log, 60)
    expected, before = state(log), len(log.segments)
    dirty = sum(segment.size for segment in log.segments[:-1])
    result = run(log)
    assert (result.segments_before, result.segments_after, len(log.segments)) == (before - 1, 1, 2)
    assert state(log) == expected
    assert result.cleaned_to == log.active.base_offset
    assert (result.bytes_read, result.bytes_written) == (dirty, log.segments[0].size)
    fill(log, 30, tag=b"w")
    expected = state(log)
    assert run(log, checkpoint=result.cleaned_to).reason == ""
    assert state(log) == expected
    assert all(a.end_offset == b.base_offset for a, b in itertools.pairwise(log.segments))


def test_memory_does_not_show_what_is_compacted_away(keeper):
    keeper.tail_bytes = 1 << 20
    log = keeper.open()
    fill(log, 60)
    assert len(everything(log)) == 60
    result = run(log)
    assert len(everything(log)) < 15
    fill(log, 3, tag=b"w")
    kept = log.tail.first_offset
    assert run(log, checkpoint=result.cleaned_to).reason == ""
    assert log.tail.first_offset == kept == 60


@pytest.mark.parametrize(
    ("name", "value", "segments"), [("SEGMENTS_JOINED_MAX", 2, 5), ("_RELATIVE_OFFSET_MAX", 15, 3)]
)
def test_segments_are_joined_within_limits(keeper, monkeypatch, name, value, segments):
    log = keeper.open()
    fill(log, 40, keys=3)
    bases = [segment.base_offset for segment in log.segments[:-1]]
    assert bases == list(range(0, 36, 4))
    monkeypatch.setattr(compaction_pass, name, value)
    run(log)
    assert len(log.segments) - 1 == segments
    assert {segment.base_offset for segment in log.segments} <= {*bases, log.active.base_offset}


def test_segments_are_joined_up_to_segment_bytes(keeper):
    log = keeper.open()
    for n in range(40):
        put(log, (b"k%d" % n, bytes(60)))
    run(log)
    assert len(log.segments) > 5
    assert all(segment.size <= CONFIG.segment_bytes for segment in log.segments)
    log.reconfigure(LogConfig(compacts=True, segment_bytes=1500))
    run(log, checkpoint=0)
    assert max(segment.size for segment in log.segments) > 1000
    assert len(everything(log)) == 40


def test_nothing_is_rewritten_where_nothing_changes(keeper):
    keeper.config = LogConfig(compacts=True, gaps=True, segment_bytes=300)
    log = keeper.open()
    for n in range(12):
        put(log, (b"k%d" % n, bytes(200)))
    segments = list(log.segments)
    result = run(log)
    assert (result.segments_before, result.cleaned_to) == (0, log.active.base_offset)
    assert log.segments == segments
    assert not [name for name in keeper.disk.list(keeper.name) if "cleaned" in name]


def test_a_defect_of_a_pass_leaves_nothing_behind(keeper, monkeypatch):
    log = keeper.open()
    fill(log, 20)
    expected = state(log)

    real = compaction_pass.filter_batch

    def cleaned():
        return [name for name in keeper.disk.list(keeper.name) if "cleaned" in name]

    def fail(batch, header, *rest, **options):
        if cleaned():
            raise ValueError("a defect")
        return real(batch, header, *rest, **options)

    monkeypatch.setattr(compaction_pass, "filter_batch", fail)
    with pytest.raises(ValueError, match="a defect"):
        run(log)
    assert not cleaned()
    assert state(log) == expected
    monkeypatch.undo()
    assert run(log).reason == ""
    assert state(log) == expected


def test_who_reads_from_a_replica_has_time_to_come_to_a_tombstone_whose_leader_let_it_go(keeper):
    leader = keeper.open()
    put(leader, (b"a", b"value" * 100))
    put(leader, (b"b", b"other" * 100))
    put(leader, (b"a", None))
    fill(leader, 20)
    keeper.name = "copy-0"
    copy = keeper.open()
    copy.append_as_follower(memoryview(batches(leader)[0]), max_epoch=1, now_ms=1)
    run(leader, now_ms=10)
    for batch in batches(leader):
        if parse_batch_header(batch).base_offset >= copy.end_offset:
            copy.append_as_follower(memoryview(batch), max_epoch=1, now_ms=1)
    done = run(copy, now_ms=5000).cleaned_to
    assert [(key, value) for _, _, key, value, _ in everything(copy) if key == b"a"] == [(b"a", None)]
    fill(copy, 20, tag=b"w")
    done = run(copy, checkpoint=done, now_ms=5999).cleaned_to
    assert b"a" in {record[2] for record in everything(copy)}
    fill(copy, 20, tag=b"x")
    run(copy, checkpoint=done, now_ms=6000)
    assert b"a" not in {record[2] for record in everything(copy)}


def test_the_last_batch_of_a_producer_stays_and_its_sequence_is_known(keeper):
    log = keeper.open()
    for n in range(6):
        put(log, (b"k0", b"%d" % n), producer_id=5, producer_epoch=1, base_sequence=n)
    for n in range(6):
        put(log, (b"k0", b"%d" % n), producer_id=6, producer_epoch=0, base_sequence=n)
    fill(log, 20, keys=1)
    run(log)
    left = [parse_batch_header(batch) for batch in batches(log) if parse_batch_header(batch).producer_id >= 0]
    left = [(h.producer_id, h.last_sequence, h.record_count) for h in left]
    # Between them the end of a segment, without which there would be a hole.
    assert left == [(5, 5, 0), (6, 1, 0), (6, 5, 0)]
    for name in keeper.disk.list(keeper.name):
        if name.endswith(".snapshot"):
            keeper.disk.remove(keeper.path(name))
    keeper.disk.kill()
    log = keeper.open(recovery_point=log.end_offset)
    assert [log.producers.entry(pid).batches[-1].last_sequence for pid in (5, 6)] == [5, 5]
    for now_ms in (0, 2):
        log.producers.expire(now_ms, 1)
    fill(log, 10, keys=1)
    run(log)
    assert not [batch for batch in batches(log) if parse_batch_header(batch).producer_id >= 0]


def test_a_map_that_is_too_small_takes_several_passes(keeper):
    log = keeper.open()
    fill(log, 60, keys=9)
    expected, checkpoint, passes = state(log), 0, 0
    while checkpoint < log.active.base_offset:
        result = run(log, checkpoint=checkpoint, map_bytes=3 * (ENTRY_OVERHEAD_BYTES + 2))
        assert result.cleaned_to > checkpoint
        checkpoint = result.cleaned_to
        passes += 1
        assert state(log) == expected
    assert passes > 3
    covered = [key for offset, _, key, *_ in everything(log) if offset < checkpoint]
    assert len(covered) == len(set(covered))


def test_what_lies_below_the_log_start_stays_unreadable(keeper):
    log = keeper.open()
    fill(log, 40)
    log.advance_start(17)
    expected = state(log)
    run(log)
    assert (log.start_offset, log.end_offset) == (17, 40)
    assert state(log) == expected
    assert log.epochs.entries == [(1, 17)]


def test_compacted_segments_go_by_retention_when_the_policy_says_delete_too(keeper):
    keeper.config = LogConfig(compacts=True, deletes=True, gaps=True, segment_bytes=600, retention_ms=100)
    log = keeper.open()
    fill(log, 40)
    run(log)
    assert log.retention(1000, high_watermark=40) == []
    assert len(log.retention(log.segments[0].max_timestamp + 101, high_watermark=40)) == 1
    assert log.start_offset == log.active.base_offset


def test_damage_ends_the_pass_before_anything_is_lost(keeper):
    log = keeper.open()
    fill(log, 40)
    segment = log.segments[2]
    keeper.disk.content(segment.path)[-1] ^= 1
    before = {name: bytes(keeper.disk.content(keeper.path(name))) for name in keeper.disk.list(keeper.name)}
    with pytest.raises(CorruptMessage):
        run(log)
    assert {name: bytes(keeper.disk.content(keeper.path(name))) for name in keeper.disk.list(keeper.name)} == before


def test_look_ups_by_time_pass_over_batches_without_records(keeper):
    log = keeper.open()
    for n in range(6):
        put(log, (b"p", b"%d" % n), stamp=9000 + n, producer_id=5, producer_epoch=1, base_sequence=n)
    fill(log, 20)
    put(log, (b"p", b"last"), stamp=8000)
    fill(log, 20)
    run(log)
    assert any(parse_batch_header(batch).max_timestamp == 9005 for batch in batches(log))
    newest = max((stamp, -offset) for offset, stamp, *_ in everything(log))
    assert log.max_timestamp(end=log.end_offset)[:2] == (newest[0], -newest[1])
    assert log.offset_for_timestamp(8500, end=log.end_offset) is None
    assert log.offset_for_timestamp(8000, end=log.end_offset)[:2] == (8000, 26)
    for segment in log.segments:
        assert max(segment.time_index.timestamps, default=0) <= 8000
    log.advance_start(3)  # now the batches of the first segment are looked at one by one
    assert log.max_timestamp(end=log.end_offset)[:2] == (newest[0], -newest[1])


def test_look_ups_by_time_find_a_record_that_is_there(keeper):
    keeper.config = LogConfig(compacts=True, gaps=True, segment_bytes=400, log_append_time=True)
    log = keeper.open()
    put(log, (b"a", b"1"), (b"a", b"2"), (b"b", b"3"))
    fill(log, 10, keys=1)
    run(log)
    assert everything(log)[0][0] == 1
    assert log.offset_for_timestamp(0, end=log.end_offset).offset == 1


@pytest.mark.parametrize("swapped", ["before it is read", "and gets its name later"])
def test_a_look_up_by_time_goes_on_in_the_segment_that_replaced_what_it_searched(keeper, tools, swapped):
    log = keeper.open()
    fill(log, 20)
    tools.flush(log)
    for segment in log.segments:
        segment.unload_indexes()
    sealed_end = log.active.base_offset
    wanted, newest = (log.search_by_time(stamp, end=sealed_end) for stamp in (1000, None))
    steps = wanted.plan(), newest.plan()
    if swapped == "before it is read":
        run(log)
    else:
        plan = plan_compaction(log, None, high_watermark=log.end_offset, now_ms=0)
        work = compact(log, plan, map_bytes=1 << 20, now_ms=0)
        job = next(work)
        while log.pending_swap is None or log.segments[0].path.endswith(".log"):
            job()
            job = next(work)
        for step in steps:
            step.run()
        steps = wanted.plan(), newest.plan()  # in the segment that has not got its final name yet
        finish(work, job)
    for step in steps:
        step.run()
    stamps = [(stamp, offset) for offset, stamp, *_ in everything(log) if offset < sealed_end]
    assert len(stamps) < sealed_end
    assert wanted.run()[:2] == min(stamps)
    assert newest.run()[:2] == max(stamps)

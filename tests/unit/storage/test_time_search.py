"""What a question by time reads, and what it does not: indexes of other segments, and records without end."""

import pytest

from kafkalite_core.protocol.record_batch import HEADER_SIZE, SimpleRecord, build_batch, compute_crc
from kafkalite_core.storage import timestamps
from kafkalite_core.storage.errors import ReadInterrupted
from kafkalite_core.storage.index import OffsetIndex

FUTURE = 2**62


def put(log, data):
    log.append_as_leader(data, leader_epoch=1, now_ms=1)


def lying(*stamps, base=None, newest=FUTURE):
    """A batch whose header promises what no record has."""
    data = build_batch([SimpleRecord(stamp, b"k", b"v" * 60) for stamp in stamps])
    if base is not None:
        data[27:35] = base.to_bytes(8, "big", signed=True)
    data[35:43] = newest.to_bytes(8, "big", signed=True)
    data[17:21] = compute_crc(memoryview(data), 0, len(data)).to_bytes(4, "big")
    return data


@pytest.fixture
def long_log(rig, tools):
    """Many sealed segments, none of whose indexes are in memory, with rising timestamps."""
    log = rig.open()
    tools.fill(log, 120)
    tools.flush(log)
    for segment in log.segments:
        segment.unload_indexes()
    assert len(log.segments) > 12
    return log


@pytest.fixture
def loads(monkeypatch):
    """Paths of the offset indexes that are read."""
    paths = []
    load = OffsetIndex.load

    def counting(self, size):
        paths.append(self.path)
        return load(self, size)

    monkeypatch.setattr(OffsetIndex, "load", counting)
    return paths


def test_the_newest_record_costs_the_indexes_of_one_segment(long_log, loads):
    log = long_log
    newest = log.active
    assert log.max_timestamp(end=log.end_offset) == (2190, 119, 1)
    assert loads == []  # those of the active segment are in memory
    sealed = log.segments[-2]
    assert log.max_timestamp(end=newest.base_offset).offset == newest.base_offset - 1
    assert loads == [sealed.index.path]


def test_the_newest_below_the_high_watermark_costs_a_few_headers(rig, tools, monkeypatch):
    rig.config = rig.config.__class__(segment_bytes=1 << 20, index_interval_bytes=200)
    log = rig.open()
    tools.fill(log, 500)
    walked = []
    walk = timestamps.walk_briefs

    def counting(*arguments):
        for brief in walk(*arguments):
            walked.append(brief)
            yield brief

    monkeypatch.setattr(timestamps, "walk_briefs", counting)
    assert log.max_timestamp(end=400) == (4990, 399, 1)
    assert len(walked) < 20


def test_planning_reads_nothing_and_the_indexes_are_kept(long_log, loads):
    log = long_log
    search = log.search_by_time(1500, end=log.end_offset)
    step = search.plan()
    assert loads == []
    step.run()
    assert loads == [step.loading.segment.index.path]
    assert search.plan() is None
    assert search.found == (1500, 50, 1)
    assert step.loading.segment.loaded
    assert log.offset_for_timestamp(1500, end=log.end_offset).offset == 50
    assert len(loads) == 1


def test_planning_a_cold_read_reads_no_index(long_log, loads):
    log = long_log
    plan = log.plan_read(50, max_bytes=1000, end=log.end_offset, minimum_one=True)
    assert loads == []
    assert plan.run().size > 0
    log.keep_indexes(plan.loading)
    assert len(loads) == 1
    assert plan.loading.segment.loaded
    assert log.plan_read(51, max_bytes=1000, end=log.end_offset, minimum_one=True).loading is None


def test_damaged_indexes_are_built_anew_after_a_read(long_log, rig):
    log = long_log
    plan = log.plan_read(50, max_bytes=1000, end=log.end_offset, minimum_one=True)
    segment = plan.loading.segment
    rig.disk.content(segment.index.path)[:] = b"rubbish!"
    expected = plan.run()
    log.keep_indexes(plan.loading)
    assert segment.loaded
    again = log.plan_read(50, max_bytes=1000, end=log.end_offset, minimum_one=True).run()
    assert b"".join(again.buffers) == b"".join(expected.buffers)


def test_indexes_that_were_read_before_a_cut_are_not_kept(long_log):
    log = long_log
    plan = log.plan_read(50, max_bytes=1000, end=log.end_offset, minimum_one=True)
    plan.run()
    log.truncate_to(55)
    log.keep_indexes(plan.loading)
    assert log.read(54, max_bytes=1000, end=55, minimum_one=True).size > 0
    assert log.offset_for_timestamp(1540, end=55) == (1540, 54, 1)


def test_a_search_ends_when_the_log_is_cut(long_log):
    search = long_log.search_by_time(1500, end=100)
    search.plan().run()
    long_log.truncate_to(10)
    with pytest.raises(ReadInterrupted):
        search.plan()


def test_batches_that_lie_about_their_timestamps_are_opened_a_few_times(rig):
    opened = []

    def unfold(_codec, payload):
        opened.append(len(payload))
        return payload

    rig.decompress = unfold
    log = rig.open()
    for _ in range(40):
        data = lying(0, 0)
        data[22] |= 4
        data[17:21] = compute_crc(memoryview(data), 0, len(data)).to_bytes(4, "big")
        put(log, data)
    limit = timestamps.BATCHES_OPENED_MAX
    found = log.offset_for_timestamp(1000, end=log.end_offset)
    assert found == (FUTURE, 2 * limit, 1)
    assert len(opened) == limit
    opened.clear()
    assert log.max_timestamp(end=log.end_offset) == (0, 0, 1)
    assert len(opened) == 1


def test_records_without_end_are_not_walked(rig, tools, monkeypatch):
    monkeypatch.setattr(timestamps, "RECORDS_WALKED_MAX", 10)
    log = rig.open()
    put(log, lying(*[0] * 8))
    put(log, lying(*[0] * 8))
    put(log, tools.batch(5000))
    assert log.offset_for_timestamp(5000, end=log.end_offset) == (FUTURE, 8, 1)


def test_headers_without_end_are_not_walked(rig, tools, monkeypatch):
    monkeypatch.setattr(timestamps, "BATCHES_WALKED_MAX", 7)
    log = rig.open()
    put(log, lying(0))
    tools.fill(log, 5, first_timestamp=10)
    put(log, tools.batch(5000))
    put(log, tools.batch(6000))
    assert log.offset_for_timestamp(5000, end=log.end_offset) == (5000, 6, 1)
    # Nothing new enough is before it, though it is not new enough itself.
    assert log.offset_for_timestamp(6000, end=log.end_offset) == (5000, 6, 1)


def test_a_timestamp_beyond_what_the_protocol_carries_is_cut(rig):
    log = rig.open()
    data = lying(0, 1, base=2**63 - 1, newest=2**63 - 1)
    assert len(data) > HEADER_SIZE
    put(log, data)
    assert log.max_timestamp(end=2) == (2**63 - 1, 0, 1)
    log.advance_start(1)
    assert log.offset_for_timestamp(5, end=2) == (2**63 - 1, 1, 1)

"""Appending, reading, rolling, time look-ups, retention of one log."""

import errno

import pytest

from kafkalite_core.model.config import resolve_topic_config
from kafkalite_core.model.errors import StorageError
from kafkalite_core.protocol.record_batch import parse_batch_header, validate_crc
from kafkalite_core.storage.errors import CorruptMessage, DiskFailure, OffsetOutOfRange, UnexpectedAppendOffset
from kafkalite_core.storage.flushing import names_job
from kafkalite_core.storage.log_config import LogConfig
from kafkalite_core.storage.reading import ColdRead


def test_leader_patches_offset_and_epoch_and_leaves_the_rest(rig, tools):
    log = rig.open()
    tools.fill(log, 3)
    original = tools.batch(5, 6)
    copy = bytearray(original)
    info = log.append_as_leader(copy, leader_epoch=4, now_ms=9)
    assert info == (3, 4, 6, -1)
    stored = b"".join(map(bytes, log.read(3, max_bytes=9999, end=5, minimum_one=True).buffers))
    header = parse_batch_header(stored)
    assert (header.base_offset, header.partition_leader_epoch) == (3, 4)
    assert stored[8:12] == original[8:12]
    assert stored[16:] == original[16:]
    assert validate_crc(memoryview(stored), 0, header)
    assert log.latest_epoch == 4


def test_a_read_only_batch_is_copied(rig, tools):
    log = rig.open()
    frozen = bytes(tools.batch(1))
    log.append_as_leader(memoryview(frozen), leader_epoch=1, now_ms=1)
    assert parse_batch_header(frozen).partition_leader_epoch == -1
    assert log.end_offset == 1


def test_log_append_time_is_stamped_with_a_right_crc(rig, tools):
    rig.config = LogConfig(log_append_time=True)
    log = rig.open()
    info = log.append_as_leader(tools.batch(1, 2), leader_epoch=1, now_ms=777)
    assert (info.max_timestamp, info.log_append_time) == (777, 777)
    stored = memoryview(bytes(log.read(0, max_bytes=999, end=2, minimum_one=True).buffers[0]))
    header = parse_batch_header(stored)
    assert header.is_log_append_time
    assert header.max_timestamp == 777
    assert validate_crc(stored, 0, header)
    assert log.offset_for_timestamp(700, end=2) == (777, 0, 1)


def test_reads_keep_to_their_bounds(rig, tools):
    log = rig.open()
    tools.fill(log, 4, records=2)
    size = log.segments[0].size // 4
    assert log.read(0, max_bytes=size - 1, end=8, minimum_one=False).size == 0
    assert log.read(0, max_bytes=size - 1, end=8, minimum_one=True).size == size
    assert log.read(1, max_bytes=2 * size, end=8, minimum_one=True).size == 2 * size
    assert log.read(0, max_bytes=9999, end=4, minimum_one=True).size == 2 * size
    assert log.read(8, max_bytes=9999, end=8, minimum_one=True).size == 0
    assert log.read(3, max_bytes=9999, end=2, minimum_one=True).size == 0
    for offset in (-1, 9):
        with pytest.raises(OffsetOutOfRange) as caught:
            log.read(offset, max_bytes=1, end=8, minimum_one=True)
        assert caught.value.error_code == 1


def test_a_hot_read_copies_nothing_and_a_cold_one_can_run_elsewhere(rig, tools):
    rig.tail_bytes = 10_000
    log = rig.open()
    first, second = tools.batch(1), tools.batch(2)
    log.append_as_leader(first, leader_epoch=1, now_ms=1)
    log.append_as_leader(second, leader_epoch=1, now_ms=1)
    hot = log.plan_read(0, max_bytes=9999, end=2, minimum_one=True)
    assert [id(buffer) for buffer in hot.buffers] == [id(first), id(second)]
    assert not hot.cold
    log.tail.clear()
    cold = log.plan_read(0, max_bytes=9999, end=2, minimum_one=True)
    assert isinstance(cold, ColdRead)
    result = cold.run()
    assert result.cold
    assert b"".join(map(bytes, result.buffers)) == bytes(first + second)


def test_a_cold_read_knows_its_bound_and_keeps_little_more_than_it_returns(rig, tools):
    log = rig.open()
    one = len(tools.batch(1))
    for _ in range(100):
        log.append_as_leader(tools.batch(1), leader_epoch=1, now_ms=1)
    log.tail.clear()
    plan = log.plan_read(0, max_bytes=3 * one, end=100, minimum_one=False)
    assert plan.size_bytes_max(5 * one) == 3 * one
    (found,) = plan.run().buffers
    assert len(found) == 3 * one
    assert not isinstance(found, memoryview), "a small part of what was read is copied"
    plan = log.plan_read(0, max_bytes=8 * one, end=100, minimum_one=True)
    (found,) = plan.run().buffers
    assert len(found) == 8 * one
    assert isinstance(found, memoryview), "most of it is not"
    assert plan.size_bytes_max(9 * one) == 9 * one, "the first batch may be larger than what was asked for"
    assert plan.size_bytes_max(1000 * one) == log.segments[0].size, "no more than there is"


def test_a_follower_keeps_nothing_of_an_answer_and_reads_on_across_what_it_led_before(rig, tools):
    rig.tail_bytes = 100_000
    log = rig.open()
    led = tools.batch(1)
    log.append_as_leader(led, leader_epoch=1, now_ms=1)
    answer = bytearray(tools.batch(1, base_offset=1, leader_epoch=2))
    followed = bytes(answer)
    log.append_as_follower(memoryview(answer), max_epoch=2, now_ms=1)
    answer[:] = b"another answer"  # refused while somebody keeps a view
    log.append_as_leader(again := tools.batch(1), leader_epoch=3, now_ms=1)
    for offset in range(3):
        read = log.read(offset, max_bytes=9999, end=3, minimum_one=True)
        assert b"".join(map(bytes, read.buffers)) == b"".join((bytes(led), followed, bytes(again))[offset:])


def test_a_small_batch_in_a_large_frame_does_not_keep_the_frame(rig, tools):
    rig.tail_bytes = 100_000
    log = rig.open()
    content = tools.batch(1)
    frame = bytearray(content) + bytes(2_000)  # what a client id or a refused partition takes
    log.append_as_leader(memoryview(frame)[: len(content)], leader_epoch=1, now_ms=1)
    (kept,) = log.read(0, max_bytes=9999, end=1, minimum_one=True).buffers
    assert isinstance(kept, bytes)
    assert len(kept) == len(content)


@pytest.mark.parametrize("minimum_one", [False, True])
def test_a_batch_larger_than_the_window_is_read_whole(rig, tools, minimum_one):
    rig.config = LogConfig(index_interval_bytes=1_000_000)
    log = rig.open()
    tools.fill(log, 2)
    log.append_as_leader(tools.batch(1, size=300_000), leader_epoch=1, now_ms=1)
    result = log.read(2, max_bytes=1000, end=3, minimum_one=minimum_one)
    assert result.size == (
        log.segments[0].size - 2 * (log.read(0, max_bytes=999, end=1, minimum_one=True).size) if minimum_one else 0
    )


def test_rolls_by_size_time_and_full_index(rig, tools):
    log = rig.open()
    tools.fill(log, 8)
    assert len(log.segments) == 2
    assert all(segment.size <= rig.config.segment_bytes for segment in log.segments)
    rig.name = "orders-1"
    rig.config = LogConfig(segment_ms=50)
    log = rig.open()
    tools.fill(log, 12, step=10)
    assert [segment.base_offset for segment in log.segments] == [0, 6]
    rig.name = "orders-2"
    rig.config = LogConfig(segment_index_bytes=16, index_interval_bytes=0)
    log = rig.open()
    tools.fill(log, 9)
    assert len(log.segments) > 2
    assert all(len(segment.index.offsets) <= 2 for segment in log.segments)


def test_a_follower_rolls_where_needed_and_stops_at_a_newer_epoch(rig, tools):
    log = rig.open()
    parts = [bytes(tools.batch(n, size=200, base_offset=n, leader_epoch=3)) for n in range(9)]
    newer = bytes(tools.batch(1, base_offset=9, leader_epoch=4))
    assert log.append_as_follower(memoryview(b"".join([*parts, newer])), max_epoch=3, now_ms=1) == 9
    assert tools.offsets(log) == list(range(9))
    assert all(segment.size <= 1000 for segment in log.segments)
    assert log.latest_epoch == 3


def test_a_follower_takes_a_batch_larger_than_a_segment(rig, tools):
    log = rig.open()
    parts = b"".join(bytes(tools.batch(n, size=1500, base_offset=n, leader_epoch=3)) for n in range(3))
    assert log.append_as_follower(memoryview(parts), max_epoch=3, now_ms=1) == 3
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2]


def test_a_follower_refuses_bad_batches_as_a_whole(rig, tools):
    log = rig.open()
    tools.fill(log, 2)
    good = bytes(tools.batch(1, base_offset=2, leader_epoch=1))
    bad = bytearray(tools.batch(1, base_offset=3, leader_epoch=1))
    bad[-1] ^= 1
    with pytest.raises(CorruptMessage):
        log.append_as_follower(memoryview(good + bytes(bad)), max_epoch=9, now_ms=1)
    assert log.end_offset == 2
    with pytest.raises(UnexpectedAppendOffset) as caught:
        log.append_as_follower(memoryview(bytes(tools.batch(1, base_offset=1, leader_epoch=1))), max_epoch=9, now_ms=1)
    assert (caught.value.first_offset, caught.value.end_offset) == (1, 2)
    assert log.append_as_follower(memoryview(good[:-3]), max_epoch=9, now_ms=1) == 2


def test_look_ups_by_timestamp(rig, tools):
    log = rig.open()
    tools.fill(log, 30, records=3)
    assert log.offset_for_timestamp(0, end=90) == (1000, 0, 1)
    assert log.offset_for_timestamp(1101, end=90) == (1101, 31, 1)
    assert log.offset_for_timestamp(1103, end=90) == (1110, 33, 1)
    assert log.offset_for_timestamp(1110, end=33) is None
    assert log.offset_for_timestamp(9999, end=90) is None
    assert log.max_timestamp(end=90) == (1292, 89, 1)
    assert log.max_timestamp(end=30) == (1092, 29, 1)
    assert log.max_timestamp(end=0) is None


def test_a_compressed_batch_answers_by_decompressor_or_by_its_base(rig, tools):
    compressed = tools.batch(100, 200, 300, codec=4, compress=lambda _codec, payload: payload[::-1])
    log = rig.open()
    log.append_as_leader(compressed, leader_epoch=1, now_ms=1)
    assert log.offset_for_timestamp(200, end=3) == (300, 0, 1)
    rig.decompress = lambda _codec, payload: bytes(payload)[::-1]
    rig.name = "orders-1"
    log = rig.open()
    log.append_as_leader(compressed, leader_epoch=1, now_ms=1)
    assert log.offset_for_timestamp(150, end=3) == (200, 1, 1)


def test_a_full_disk_cuts_the_partial_batch_and_the_log_goes_on(rig, tools):
    log = rig.open()
    tools.fill(log, 3)
    before = bytes(rig.disk.content(rig.path("0" * 20 + ".log")))
    rig.disk.capacity = 0
    rig.disk.capacity = 50 - rig.disk.free_bytes()
    with pytest.raises(StorageError):
        tools.fill(log, 1)
    assert bytes(rig.disk.content(rig.path("0" * 20 + ".log"))) == before
    assert tools.offsets(log) == [0, 1, 2]
    tools.flush(log)
    rig.disk.capacity = None
    tools.fill(log, 2)
    assert tools.offsets(log) == [0, 1, 2, 3, 4]


def test_no_space_at_any_operation_leaves_a_log_that_goes_on(rig, tools):
    for fail_at in range(40):
        rig.name = f"orders-{fail_at}"
        log = rig.open()
        remaining = [fail_at]

        def hook(operation, _path, remaining=remaining):
            if operation in {"append", "open"}:
                remaining[0] -= 1
                if remaining[0] == -1:
                    raise OSError(errno.ENOSPC, "injected")

        rig.disk.hook = hook
        failures = 0
        while log.end_offset < 20:
            try:
                tools.fill(log, 1)
                tools.flush(log)
            except StorageError:
                failures += 1
        rig.disk.hook = lambda *_: None
        assert failures <= 1
        tools.flush(log)
        assert tools.offsets(log) == list(range(20))
        rig.disk.kill()
        again = rig.open()
        assert tools.offsets(again) == list(range(20))
        assert not rig.report.cut


def test_any_other_write_error_is_fatal(rig, tools):
    log = rig.open()

    def fail(operation, _path):
        if operation == "append":
            raise OSError(errno.EIO, "injected")

    rig.disk.hook = fail
    with pytest.raises(DiskFailure):
        tools.fill(log, 1)


def test_retention_takes_whole_old_segments_below_the_high_watermark(rig, tools):
    rig.config = LogConfig(segment_bytes=300, retention_ms=100, file_delete_delay_ms=50)
    log = rig.open()
    tools.fill(log, 10)
    bases = [segment.base_offset for segment in log.segments]
    assert log.retention(1000, high_watermark=10) == []
    assert log.retention(1135, high_watermark=bases[1]) == [f"{0:020d}.log"]
    assert log.start_offset == bases[1]
    assert log.epochs.entries[0].start_offset == bases[1]
    assert rig.disk.exists(rig.path(f"{0:020d}.log"))
    assert log.purge(1184) == []
    assert log.purge(1185) == [f"{0:020d}.log"]
    assert not rig.disk.exists(rig.path(f"{0:020d}.log"))
    assert not rig.disk.exists(rig.path(f"{0:020d}.index"))


def test_retention_empties_an_idle_log(rig, tools):
    rig.config = LogConfig(retention_ms=100)
    log = rig.open()
    tools.fill(log, 3)
    assert len(log.retention(9999, high_watermark=3)) == 1
    assert (log.start_offset, log.end_offset) == (3, 3)
    tools.fill(log, 1)
    assert tools.offsets(log) == [3]


def retired(rig, tools):
    """A log whose first two segments wait to be purged."""
    rig.config = LogConfig(segment_bytes=300, retention_ms=-1, file_delete_delay_ms=50)
    log = rig.open()
    tools.fill(log, 12)
    tools.flush(log)
    log.advance_start(log.segments[2].base_offset)
    assert len(log.retention(2000, high_watermark=12)) == 2
    return log


@pytest.mark.parametrize("synced", [False, True])
def test_a_log_that_begins_anew_before_its_old_segments_are_purged_has_no_hole(rig, tools, synced):
    log = retired(rig, tools)
    log.reset_to(20)
    tools.fill(log, 3)
    tools.flush(log)
    assert rig.shrunk == [(rig.name, 0)]
    rig.disk.crash((lambda _n: 0) if synced else (lambda n: n - 1))
    log = rig.open()  # the checkpoint of the new log start was not written
    assert not rig.report.cut
    assert tools.offsets(log) == [20, 21, 22]


def test_what_waits_to_be_purged_is_flushed_with_what_follows(rig, tools):
    rig.config = LogConfig(segment_bytes=300, retention_ms=-1)
    log = rig.open()
    tools.fill(log, 4)
    log.advance_start(log.active.base_offset)
    assert log.retention(2000, high_watermark=4)
    tools.flush(log)
    assert log.flushed_end == 4
    rig.disk.crash()
    log = rig.open()  # the checkpoint of the log start was not written
    assert not rig.report.cut
    assert tools.offsets(log) == [0, 1, 2, 3]


@pytest.mark.parametrize(("told", "syncs_wanted"), [(0, 2), (2, 2), (4, 0)])
def test_the_purge_leaves_no_hole_if_the_power_fails(rig, tools, told, syncs_wanted):
    log = retired(rig, tools)
    assert [segment.end_offset for _, segment in log.doomed] == [2, 4]
    syncs = []
    rig.disk.hook = lambda operation, path: syncs.append(path) if operation == "sync_directory" else None
    assert len(log.purge(9999, durable_start=told)) == 2
    assert len(syncs) == syncs_wanted
    # Of the six names that were removed the three of the first segment are back, unless a sync has seen to them.
    kept = iter([0, 0, 0])
    rig.disk.crash(lambda _n: next(kept, 1))
    log = rig.open(start_offset=told)
    assert not rig.report.cut
    assert tools.offsets(log) == list(range(4, 12))


@pytest.mark.parametrize("told", [0, 4])
def test_a_flush_that_is_under_way_while_a_segment_is_purged_covers_what_follows(rig, tools, told):
    rig.config = LogConfig(segment_bytes=300, retention_ms=-1, file_delete_delay_ms=0)
    log = rig.open()
    tools.fill(log, 1)
    tools.flush(log)
    tools.fill(log, 7)
    names_job([log])()  # so the flush leaves the directory alone
    ticket = log.begin_flush()
    log.advance_start(4)
    log.retention(2000, high_watermark=8)
    log.purge(2000, durable_start=told)
    ticket.run()
    log.complete_flush(ticket)
    assert log.flushed_end == 8
    rig.disk.crash()
    log = rig.open(recovery_point=8, start_offset=told)
    assert not rig.report.cut_below_flushed
    assert tools.offsets(log) == [4, 5, 6, 7]


def test_a_log_that_begins_where_a_segment_waits_to_be_purged_keeps_the_new_one(rig, tools):
    log = retired(rig, tools)
    log.truncate_to(0)
    tools.fill(log, 1, first_timestamp=5000)
    tools.flush(log)
    assert log.purge(9999) == []
    tools.fill(log, 1)
    tools.flush(log)
    rig.disk.kill()
    log = rig.open()
    assert tools.offsets(log) == [0, 1]
    assert log.max_timestamp(end=2) == (5000, 0, 1)


def test_a_power_loss_while_a_log_begins_anew_leaves_its_beginning(rig, tools):
    log = retired(rig, tools)
    bases = [segment.base_offset for _, segment in log.doomed] + [segment.base_offset for segment in log.segments]
    removed = []

    def fail(operation, path):
        if operation == "remove" and path.endswith(".log"):
            removed.append(path)
            if len(removed) == len(bases):
                raise OSError(errno.EIO, "injected")

    rig.disk.hook = fail
    with pytest.raises(DiskFailure):
        log.reset_to(20)
    rig.disk.hook = lambda _operation, _path: None
    assert removed == [rig.path(f"{base:020d}.log") for base in reversed(bases)]
    rig.disk.crash(lambda _n: 0)
    log = rig.open()
    assert tools.offsets(log) == list(range(bases[1]))


def test_a_compacted_log_loses_nothing_by_retention(rig, tools):
    config = resolve_topic_config(
        {"cleanup.policy": "compact", "retention.ms": "1", "retention.bytes": "1", "segment.bytes": "1024"}
    )
    rig.config = LogConfig.of(config)
    log = rig.open()
    tools.fill(log, 30)
    assert len(log.segments) > 2
    assert log.retention(10**9, high_watermark=30) == []
    log.advance_start(log.segments[1].base_offset)
    assert len(log.retention(10**9, high_watermark=30)) == 1


def test_tightening_the_flush_never_takes_back_what_was_reported(rig, tools):
    rig.config = LogConfig(flush_messages=100)
    log = rig.open()
    tools.fill(log, 3)
    assert (log.flushed_end, log.recovery_point) == (3, 0)
    assert not log.reported_is_flushed
    log.reconfigure(LogConfig(flush_messages=1))
    tools.fill(log, 2)
    assert log.flushed_end == 3
    assert not log.reported_is_flushed, "three records are in memory only"
    tools.flush(log)
    assert log.flushed_end == 5
    assert log.reported_is_flushed
    tools.fill(log, 1)
    assert log.flushed_end == 5
    log.truncate_to(4)
    assert log.flushed_end == 4
    assert log.reported_is_flushed

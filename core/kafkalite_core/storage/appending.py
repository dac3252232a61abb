"""Appending batches, as leader and as follower."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from crc32c import crc32c

from kafkalite_core.model.limits import OFFSET_MAX
from kafkalite_core.protocol.record_batch import parse_batch_header, patch_batch, rewrite_log_append_time
from kafkalite_core.storage.disk import append_all
from kafkalite_core.storage.errors import CorruptMessage, UnexpectedAppendOffset
from kafkalite_core.storage.segment import HEADER, HEADER_BYTES, LENGTH_OVERHEAD_BYTES

if TYPE_CHECKING:
    from kafkalite_core.storage.disk import Buffer
    from kafkalite_core.storage.log import Log

_CRC_COVERS_FROM: Final = 21
_MAGIC: Final = 2

_PIN_RATIO: Final = 2
_PIN_OVERHEAD_BYTES: Final = 512
"""A batch whose buffer is part of something larger than so many times it, and so much more, is copied for the tail: the
tail's budget counts batches, and must not be exceeded by the frames that they came in."""


def append_as_leader(log: Log, batch: bytearray | memoryview, leader_epoch: int, now_ms: int) -> tuple[int, ...]:
    """See `Log.append_as_leader`; (base offset, last offset, largest timestamp, append time or -1)."""
    if isinstance(batch, memoryview) and batch.readonly:
        batch = bytearray(batch)
    header = parse_batch_header(batch)
    size = len(batch)
    assert size == header.batch_length + LENGTH_OVERHEAD_BYTES, "exactly one batch"
    base = log.end_offset
    last = base + header.last_offset_delta
    config = log.config
    append_time = -1
    if config.log_append_time:
        append_time = now_ms
        batch = bytearray(batch)
        header = rewrite_log_append_time(batch, 0, header, now_ms)
    patch_batch(batch, 0, base, leader_epoch)
    max_timestamp = header.max_timestamp
    segment = log.active
    if segment.wants_roll(size, last, max_timestamp, now_ms, config.segment_bytes, config.segment_ms):
        segment = log.roll(now_ms)
    segment.append(batch, last, max_timestamp, config.index_interval_bytes)
    segment.changed_ms = now_ms
    log.end_offset = last + 1
    if leader_epoch > log.epochs.latest_epoch:
        log.epochs.assign(leader_epoch, base)
    if header.producer_id >= 0:
        log.producers.record(
            header.producer_id, header.producer_epoch, header.base_sequence,
            base, header.last_offset_delta, max_timestamp,
        )  # fmt: skip
    _remember(log, base, last + 1, batch)
    if config.flush_messages > 1:
        log.update_flushed_end()
    return base, last, max_timestamp, append_time


class _Fetched(NamedTuple):
    """One checked batch of a leader's answer."""

    position: int
    size: int
    base_offset: int
    leader_epoch: int
    delta: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    sequence: int
    record_count: int

    @property
    def record_timestamp(self) -> int:
        return self.max_timestamp if self.record_count else -1


def append_as_follower(log: Log, records: memoryview, max_epoch: int, now_ms: int) -> int:
    """See `Log.append_as_follower`."""
    batches = check_batches(records, log.end_offset, max_epoch)
    if batches and len(log.tail):
        # Who leads is read from: memory is for its batches. What a follower has in memory must not end before its log.
        log.tail.clear()
    config = log.config
    if _has_gap(batches, log.end_offset):
        log.expect_gaps()
    run: list[_Fetched] = []
    room_from = log.active.size
    for batch in batches:
        last = batch.base_offset + batch.delta
        segment = log.active
        pending = room_from - segment.size
        segment_full = (segment.size or pending) and segment.size + pending + batch.size > config.segment_bytes
        if run and (
            segment_full
            or segment.wants_roll(
                batch.size, last, batch.max_timestamp, now_ms, config.segment_bytes, config.segment_ms
            )
        ):
            _write_run(log, records, run, now_ms)
            run = []
        if not run:
            segment = log.active
            if segment.wants_roll(
                batch.size, last, batch.max_timestamp, now_ms, config.segment_bytes, config.segment_ms
            ):
                log.roll(now_ms)
            room_from = log.active.size
        run.append(batch)
        room_from += batch.size
    if run:
        _write_run(log, records, run, now_ms)
    return log.end_offset


def _has_gap(batches: list[_Fetched], end_offset: int) -> bool:
    for batch in batches:
        if batch.base_offset != end_offset:
            return True
        end_offset = batch.base_offset + batch.delta + 1
    return False


def _write_run(log: Log, records: memoryview, run: list[_Fetched], now_ms: int) -> None:
    """Writes batches that lie one after another in `records` by one append to the active segment."""
    start = run[0].position
    stop = run[-1].position + run[-1].size
    segment = log.active
    append_all(segment.file, records[start:stop], segment.size, segment.path)
    segment.changed_ms = now_ms
    interval = log.config.index_interval_bytes
    for batch in run:
        next_offset = batch.base_offset + batch.delta + 1
        segment.note(segment.size, batch.size, next_offset - 1, batch.record_timestamp, interval)
        if batch.leader_epoch > log.epochs.latest_epoch:
            # Behind a gap the epoch may have begun anywhere in it. Taken too late, the end of the one before would hide
            # that another replica diverged there (KIP-101); taken too early, that replica copies a little more.
            log.epochs.assign(batch.leader_epoch, log.end_offset)
        if batch.producer_id >= 0:
            log.producers.record(
                batch.producer_id, batch.producer_epoch, batch.sequence,
                batch.base_offset, batch.delta, batch.max_timestamp,
            )  # fmt: skip
        log.end_offset = next_offset
    if log.config.flush_messages > 1:
        log.update_flushed_end()


def check_batches(records: memoryview, end_offset: int, max_epoch: int) -> list[_Fetched]:
    """The whole batches in a leader's answer, checked; see `Log.append_as_follower`."""
    batches: list[_Fetched] = []
    position, length = 0, len(records)
    expected = end_offset
    while position + HEADER_BYTES <= length:
        (
            base, batch_length, epoch, magic, crc, _, delta, _, timestamp, producer_id, producer_epoch, sequence, count
        ) = HEADER.unpack_from(records, position)  # fmt: skip
        size = batch_length + LENGTH_OVERHEAD_BYTES
        if size < HEADER_BYTES:
            raise CorruptMessage(f"batch at {base} claims {size} bytes")
        if position + size > length:
            break
        if magic != _MAGIC or delta < 0 or count < 0 or base < 0 or base > OFFSET_MAX - delta - 1:
            raise CorruptMessage(f"batch at {base}: magic {magic}, last offset delta {delta}, {count} records")
        if crc32c(records[position + _CRC_COVERS_FROM : position + size]) != crc:
            raise CorruptMessage(f"batch at {base}: wrong CRC")
        if epoch > max_epoch:
            break
        if base < expected:
            raise UnexpectedAppendOffset(base, base + delta, expected)
        batches.append(
            _Fetched(position, size, base, epoch, delta, timestamp, producer_id, producer_epoch, sequence, count)
        )
        expected = base + delta + 1
        position += size
    return batches


def _remember(log: Log, base_offset: int, next_offset: int, batch: Buffer) -> None:
    """Puts a batch into the tail, copied when it would keep a much larger buffer alive."""
    if isinstance(batch, memoryview) and len(batch.obj) > _PIN_RATIO * len(batch) + _PIN_OVERHEAD_BYTES:  # type: ignore[arg-type]
        batch = bytes(batch)
    log.tail.add(base_offset, next_offset, batch)

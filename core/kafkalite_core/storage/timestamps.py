"""Look-ups by timestamp (ListOffsets): sparse time index, then batch headers, then the records of one batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafkalite_core.protocol.errors import ProtocolError
from kafkalite_core.protocol.record_batch import iter_records, parse_batch_header

if TYPE_CHECKING:
    from kafkalite_core.storage.log import Log
    from kafkalite_core.storage.segment import BatchBrief, Segment


class TimestampedOffset(NamedTuple):
    """Answer to a look-up."""

    timestamp: int
    offset: int
    leader_epoch: int


def offset_for_timestamp(log: Log, timestamp_ms: int, end: int) -> TimestampedOffset | None:
    """See `Log.offset_for_timestamp`."""
    end = min(end, log.end_offset)
    for segment in log.segments:
        if segment.base_offset >= end:
            break
        if segment.max_timestamp < timestamp_ms or segment.end_offset <= log.start_offset:
            continue
        log.touch_indexes(segment)
        position = segment.index.lookup(max(segment.time_index.lookup(timestamp_ms), log.start_offset))
        for brief in segment.briefs(position):
            if brief.base_offset >= end:
                return None
            if brief.record_timestamp < timestamp_ms or brief.last_offset < log.start_offset:
                continue
            found = _first_record(log, segment, brief, timestamp_ms, end)
            if found is not None:
                return found
    return None


def max_timestamp(log: Log, end: int) -> TimestampedOffset | None:
    """See `Log.max_timestamp`."""
    end = min(end, log.end_offset)
    best: tuple[Segment, BatchBrief] | None = None
    best_timestamp = -1
    for segment in log.segments:
        if segment.base_offset >= end:
            break
        if segment.max_timestamp <= best_timestamp or segment.end_offset <= log.start_offset:
            continue
        whole = segment.end_offset <= end and segment.base_offset >= log.start_offset
        log.touch_indexes(segment)
        position = segment.index.lookup(segment.max_timestamp_offset) if whole else 0
        for brief in segment.briefs(position):
            if brief.base_offset >= end:
                break
            if brief.record_timestamp > best_timestamp and log.start_offset <= brief.last_offset < end:
                best, best_timestamp = (segment, brief), brief.record_timestamp
    if best is None:
        return None
    return _first_record(log, *best, best_timestamp, end)


def _first_record(
    log: Log, segment: Segment, brief: BatchBrief, timestamp_ms: int, end: int
) -> TimestampedOffset | None:
    """The first record of the batch with a timestamp that is large enough.

    The batch as a whole answers where its records can't be read (no decompressor, damaged inside).
    """
    view = memoryview(segment.pread(brief.size, brief.position))
    start = max(brief.base_offset, log.start_offset)
    try:
        header = parse_batch_header(view)
        if header.is_log_append_time and header.record_count == header.last_offset_delta + 1:
            return TimestampedOffset(brief.max_timestamp, start, brief.leader_epoch)
        for record in iter_records(view, 0, header, log.environment.decompress):
            if record.offset >= end:
                return None
            if record.timestamp >= timestamp_ms and record.offset >= start:
                return TimestampedOffset(record.timestamp, record.offset, brief.leader_epoch)
    except ProtocolError:
        return TimestampedOffset(brief.max_timestamp, start, brief.leader_epoch)
    return None

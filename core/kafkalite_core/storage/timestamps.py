"""Look-ups by timestamp (ListOffsets): sparse time index, then batch headers, then the records of one batch.

The leader has never read the records of a batch: a header may promise a timestamp that none of them has, and a batch
may unfold to millions of them. So what one question may walk is bounded, and all of it can be done on another thread.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite_core.protocol.errors import ProtocolError
from kafkalite_core.protocol.record_batch import iter_records, parse_batch_header
from kafkalite_core.storage.disk import disk_errors
from kafkalite_core.storage.errors import ReadInterrupted
from kafkalite_core.storage.segment import walk_briefs

if TYPE_CHECKING:
    from kafkalite_core.protocol.record_batch import Record
    from kafkalite_core.storage.index import OffsetIndex, TimeIndex
    from kafkalite_core.storage.log import Log
    from kafkalite_core.storage.segment import BatchBrief, Segment

BATCHES_WALKED_MAX: Final = 1 << 20
"""Batch headers that one question walks: a second or two."""

BATCHES_OPENED_MAX: Final = 8
RECORDS_WALKED_MAX: Final = 1 << 18
"""Batches whose records one question reads, and records of them all: half a second."""

_CHUNK_BYTES: Final = 64 << 10
_INT64_MAX: Final = 2**63 - 1


class TimestampedOffset(NamedTuple):
    """Answer to a look-up."""

    timestamp: int
    offset: int
    leader_epoch: int


class TimeSearch:
    """One question: the first record with a timestamp ≥ `timestamp_ms`, or, without one, the first with the largest.

    `plan` belongs to the log's thread, `SegmentSearch.run` to any; they take turns until `plan` returns None.

    Where a bound is reached, the answer is the place up to which was searched: what is wanted is not before it. A batch
    whose records cannot be read, or are too many, answers as a whole.

    Attributes:
        found: The answer; None when there is no such record.
    """

    def __init__(self, log: Log, timestamp_ms: int | None, end: int) -> None:
        self._log = log
        self._generation = log.generation
        self._step: SegmentSearch | None = None
        self._searched: set[tuple[int, int]] = set()
        self.wanted_ms = timestamp_ms
        self.start_offset = log.start_offset
        self.end_offset = min(end, log.end_offset)
        self.decompress = log.environment.decompress
        self.batches_left = BATCHES_WALKED_MAX
        self.batches_to_open = BATCHES_OPENED_MAX
        self.records_left = RECORDS_WALKED_MAX
        self.newest: tuple[int, int] | None = None
        """(negative timestamp, offset) of the batch that `found` is from: the smaller, the better."""
        self.found: TimestampedOffset | None = None

    def plan(self) -> SegmentSearch | None:
        """What is to be searched next; None: `found` is the answer. `ReadInterrupted` when the log was cut."""
        log = self._log
        step = self._step
        if step is not None:
            log.keep_indexes(step.loading)
            if not step.interrupted:
                self._searched.add(step.range)
        if log.closed or log.generation != self._generation:
            raise ReadInterrupted(f"{log.directory}: cut while it was searched")
        segment = self._next_segment()
        if segment is None:
            return None
        self._step = SegmentSearch(log, segment, self, self._range(segment))
        return self._step

    def run(self) -> TimestampedOffset | None:
        """All of it on this thread."""
        while (step := self.plan()) is not None:
            step.run()
        return self.found

    def _range(self, segment: Segment) -> tuple[int, int]:
        """What was searched; a compacted segment has the offsets of several."""
        return segment.base_offset, min(segment.end_offset, self.end_offset)

    def _next_segment(self) -> Segment | None:
        if self.batches_left <= 0:
            return None
        segments = (
            segment
            for segment in self._log.segments
            if segment.base_offset < self.end_offset
            and segment.end_offset > self.start_offset
            and self._range(segment) not in self._searched
        )
        if self.wanted_ms is not None:
            wanted_ms = self.wanted_ms
            if self.found is not None:
                return None
            return next((segment for segment in segments if segment.max_timestamp >= wanted_ms), None)
        # What is in memory of a segment is its largest timestamp or, where not all of its records count, a bound of it.
        best = min(segments, key=lambda segment: (-segment.max_timestamp, segment.base_offset), default=None)
        if best is None or best.max_timestamp < 0:
            return None
        if self.newest is not None and self.newest < (-best.max_timestamp, best.base_offset):
            return None
        return best


class SegmentSearch:
    """Searches one segment. `run` may be called on any thread, everything else is planned before.

    Attributes:
        range: Offsets that are searched.
        loading: The segment's indexes, where they are not in memory.
        interrupted: The file was closed meanwhile: the log was cut, or the segment was compacted or is gone. What has
            taken its place is searched next.
    """

    __slots__ = ("_file", "_max_timestamp", "_max_timestamp_offset", "_path", "_search", "_size", "_walks", "_whole",
                 "interrupted", "loading", "range")  # fmt: skip

    def __init__(self, log: Log, segment: Segment, search: TimeSearch, searched: tuple[int, int]) -> None:
        self._search = search
        self.range = searched
        self.interrupted = False
        self._file, self._path, self._size = segment.file, segment.path, segment.size
        self._max_timestamp, self._max_timestamp_offset = segment.max_timestamp, segment.max_timestamp_offset
        self._whole = search.start_offset <= segment.base_offset and segment.end_offset <= search.end_offset
        self.loading = log.indexes_of(segment)
        self._walks = [] if self.loading is not None else self._planned(segment.index, segment.time_index)

    def _planned(self, index: OffsetIndex, time_index: TimeIndex) -> list[tuple[int, float]]:
        """Where to walk: positions, and the timestamp with which each walk ends."""
        search = self._search
        start, end = search.start_offset, search.end_offset
        if search.wanted_ms is not None:
            return [(index.lookup(max(time_index.lookup(search.wanted_ms), start)), inf)]
        if self._whole:
            return [(index.lookup(self._max_timestamp_offset), self._max_timestamp)]
        # Both indexes get their entries together: at an entry of the one, the other one knows the newest so far.
        entry = index.last_below(end)
        newest = None if entry is None else time_index.newest_up_to(entry[0])
        if entry is None or newest is None or newest[1] < start:
            return [(index.lookup(start), inf)]
        return [(index.lookup(newest[1]), newest[0]), (entry[1], inf)]

    def run(self) -> None:
        """Searches. Raises `CorruptMessage`, `DiskFailure`."""
        try:
            self._run()
        except ReadInterrupted:
            self.interrupted = True

    def _run(self) -> None:
        loading = self.loading
        if loading is not None:
            from_the_start: list[tuple[int, float]] = [(0, inf)]
            self._walks = self._planned(loading.index, loading.time_index) if loading.run() else from_the_start
        if self._search.wanted_ms is None:
            self._find_newest()
        else:
            self._find_first(self._search.wanted_ms)

    def _find_first(self, wanted_ms: int) -> None:
        search = self._search
        for position, _ in self._walks:
            for brief in walk_briefs(self._file, self._path, position, self._size, _CHUNK_BYTES):
                if brief.base_offset >= search.end_offset:
                    return
                search.batches_left -= 1
                if search.batches_left <= 0:
                    search.found = self._as_a_whole(brief)
                elif brief.record_timestamp >= wanted_ms and brief.last_offset >= search.start_offset:
                    search.found = self._look_into(brief)
                if search.found is not None:
                    return

    def _find_newest(self) -> None:
        search = self._search
        best: BatchBrief | None = None
        key = search.newest
        for position, enough_ms in self._walks:
            for brief in walk_briefs(self._file, self._path, position, self._size, _CHUNK_BYTES):
                if brief.base_offset >= search.end_offset or search.batches_left <= 0:
                    break
                search.batches_left -= 1
                timestamp, counts = brief.record_timestamp, search.start_offset <= brief.last_offset < search.end_offset
                if timestamp >= 0 and counts and (key is None or (-timestamp, brief.base_offset) < key):
                    best, key = brief, (-timestamp, brief.base_offset)
                if timestamp >= enough_ms:
                    break
        if best is not None:
            search.newest, search.found = key, self._look_into(best) or self._as_a_whole(best)

    def _as_a_whole(self, brief: BatchBrief) -> TimestampedOffset:
        offset = max(brief.base_offset, self._search.start_offset)
        return TimestampedOffset(max(brief.max_timestamp, 0), offset, brief.leader_epoch)

    def _look_into(self, brief: BatchBrief) -> TimestampedOffset | None:
        """The first record that is new enough, or of those that count the newest; None when there is none."""
        search = self._search
        if search.batches_to_open <= 0:
            return self._as_a_whole(brief)
        search.batches_to_open -= 1
        with disk_errors(f"read {self._path}"):
            view = memoryview(self._file.pread(brief.size, brief.position))
        start, end = max(brief.base_offset, search.start_offset), search.end_offset
        enough_ms = brief.max_timestamp if search.wanted_ms is None else search.wanted_ms
        newest: Record | None = None
        try:
            header = parse_batch_header(view)
            if header.is_log_append_time and header.record_count == header.last_offset_delta + 1:
                return self._as_a_whole(brief)
            for record in iter_records(view, 0, header, search.decompress):
                search.records_left -= 1
                if search.records_left < 0:
                    return self._as_a_whole(brief)
                if record.offset >= end:
                    break
                if record.offset >= start and (newest is None or record.timestamp > newest.timestamp):
                    newest = record
                    if record.timestamp >= enough_ms:
                        break
        except ProtocolError:
            return self._as_a_whole(brief)
        if newest is None or (newest.timestamp < enough_ms and search.wanted_ms is not None):
            return None
        # A base timestamp and a delta that nobody checked may add up to more than the protocol carries.
        return TimestampedOffset(min(max(newest.timestamp, 0), _INT64_MAX), newest.offset, brief.leader_epoch)

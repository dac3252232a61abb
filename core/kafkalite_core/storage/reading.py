"""Reads: hot from the tail in memory, cold from a segment."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from kafkalite_core.storage.disk import disk_errors
from kafkalite_core.storage.errors import OffsetOutOfRange, ReadInterrupted
from kafkalite_core.storage.segment import HEADER, HEADER_BYTES, LENGTH_OVERHEAD_BYTES

if TYPE_CHECKING:
    from kafkalite_core.storage.disk import Buffer, File
    from kafkalite_core.storage.index_loading import IndexLoading
    from kafkalite_core.storage.log import Log
    from kafkalite_core.storage.segment import Segment

_WINDOW_BYTES_MIN = 65_536
_BASE_OF = attrgetter("base_offset")


class ReadResult(NamedTuple):
    """Whole batches.

    Attributes:
        buffers: The batches' bytes; never to be written to.
        size: Bytes in all.
        cold: They came from the disk and not from memory.
    """

    buffers: list[Buffer]
    size: int
    cold: bool


EMPTY = ReadResult([], 0, False)


@dataclass(frozen=True, slots=True)
class ColdRead:
    """A read that has to go to the disk. `run` may be called from any thread.

    Attributes:
        generation: Truncation generation of the log at planning; a result of another generation is thrown away.
        spans: (file, path, position to search from, end of the bytes valid at planning) of the segments in question.
        loading: The indexes of the first segment, where they are not in memory; `run` reads them before it searches,
            and whoever planned gives them to `Log.keep_indexes` afterwards.
    """

    generation: int
    spans: tuple[tuple[File, str, int, int], ...]
    offset: int
    max_bytes: int
    end: int
    minimum_one: bool
    loading: IndexLoading | None = None

    def size_bytes_max(self, batch_bytes_max: int) -> int:
        """How large the result is at most, if no batch is larger than that."""
        wanted = max(self.max_bytes, batch_bytes_max) if self.minimum_one else self.max_bytes
        return min(wanted, sum(limit - position for _, _, position, limit in self.spans))

    def run(self) -> ReadResult:
        """Reads. Raises `ReadInterrupted` (the log changed underneath: plan again) or `DiskFailure`.

        What is returned keeps at most twice its size in memory.
        """
        loading = self.loading
        indexed = 0 if loading is None or not loading.run() else loading.index.lookup(self.offset)
        for number, (file, path, position, limit) in enumerate(self.spans):
            found = self._read_span(file, path, position if number else max(position, indexed), limit)
            if found is not None:
                return found
        return ReadResult([], 0, True)

    def _read_span(self, file: File, path: str, position: int, limit: int) -> ReadResult | None:
        window = max(self.max_bytes, _WINDOW_BYTES_MIN)
        while position + HEADER_BYTES <= limit:
            with disk_errors(f"read {path}"):
                chunk = file.pread(min(window, limit - position), position)
            view = memoryview(chunk)
            start = _skip_before(view, self.offset)
            if start + HEADER_BYTES > len(chunk):
                if start == 0 or not chunk:
                    raise ReadInterrupted(f"{path}: shorter than planned")
                position += start
                continue
            size = _batch_size(view, start)
            if HEADER.unpack_from(view, start)[0] >= self.end or (size > self.max_bytes and not self.minimum_one):
                return ReadResult([], 0, True)
            if start + size > len(chunk) or (start and len(chunk) - start < self.max_bytes):
                position += start
                view = memoryview(b"")
                del chunk  # or both would be in memory
                with disk_errors(f"read {path}"):
                    chunk = file.pread(min(max(size, self.max_bytes), limit - position), position)
                if len(chunk) < size:
                    raise ReadInterrupted(f"{path}: shorter than planned")
                view, start = memoryview(chunk), 0
            stop = _whole_batches(view, start, max(size, self.max_bytes), self.end)
            found = view[start:stop]
            return ReadResult([found if 2 * len(found) >= len(chunk) else bytes(found)], stop - start, True)
        return None


def _batch_size(view: memoryview, position: int) -> int:
    size = int(HEADER.unpack_from(view, position)[1]) + LENGTH_OVERHEAD_BYTES
    if size < HEADER_BYTES:
        raise ReadInterrupted(f"batch claims {size} bytes")
    return size


def _skip_before(view: memoryview, offset: int) -> int:
    """Position of the first batch that reaches `offset`; where the next header would be when none in view does."""
    position, length = 0, len(view)
    unpack = HEADER.unpack_from
    while position + HEADER_BYTES <= length:
        fields = unpack(view, position)
        if fields[0] + fields[6] >= offset:
            break
        size = fields[1] + LENGTH_OVERHEAD_BYTES
        if size < HEADER_BYTES:
            raise ReadInterrupted(f"batch claims {size} bytes")
        position += size
    return position


def _whole_batches(view: memoryview, start: int, max_bytes: int, end: int) -> int:
    """Where whole batches from `start` stop: within `max_bytes`, none beginning at or beyond `end`."""
    position, stop = start, min(len(view), start + max_bytes)
    unpack = HEADER.unpack_from
    while position + HEADER_BYTES <= stop:
        fields = unpack(view, position)
        following = position + fields[1] + LENGTH_OVERHEAD_BYTES
        if following > stop or following <= position or fields[0] >= end:
            break
        position = following
    return position


def segment_index(segments: list[Segment], offset: int) -> int:
    """Index of the segment that holds `offset`, or would."""
    return max(bisect_right(segments, offset, key=_BASE_OF) - 1, 0)


def plan_read(log: Log, offset: int, *, max_bytes: int, end: int, minimum_one: bool) -> ReadResult | ColdRead:
    """A result when memory has it, else the read to be carried out on a thread of choice.

    Raises `OffsetOutOfRange` below the start and beyond the end of the log.
    """
    log_end = log.end_offset
    if offset < log.start_offset or offset > log_end:
        raise OffsetOutOfRange(offset, log.start_offset, log_end)
    if offset >= log_end or offset >= end:
        return EMPTY
    hot = log.tail.read(offset, max_bytes, end, minimum_one=minimum_one)
    if hot is not None:
        return ReadResult(hot[0], hot[1], False)
    segments = log.segments
    first = segment_index(segments, offset)
    loading = log.indexes_of(segments[first])
    position = segments[first].index.lookup(offset) if loading is None else 0
    spans = [(segments[first].file, segments[first].path, position, segments[first].size)]
    if offset >= segments[first].end_offset:  # compaction emptied the end of the segment: the next one answers
        spans += [(s.file, s.path, 0, s.size) for s in segments[first + 1 :] if s.size][:1]
    return ColdRead(log.generation, tuple(spans), offset, max_bytes, end, minimum_one, loading)

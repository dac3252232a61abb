"""One pass of compaction over one log, as a generator: its own code runs on the log's thread, its jobs on any.

    pass: read the keys of the dirty part -> rewrite the segments, several into one -> swap each -> next

The caller runs each job before it asks for the next one and throws a job's error back in. A job reads at most
`PIECE_BYTES`, so that neither the log's thread nor the other users of the disk wait for long. A truncation, the end of
the log or retention of a segment in question end the pass; what was swapped by then stays.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from kafkalite_core.model.errors import StorageError
from kafkalite_core.protocol.errors import ProtocolError
from kafkalite_core.protocol.record_batch import iter_batches, validate_crc
from kafkalite_core.storage.compaction_filter import KeyMap, empty_batch, filter_batch
from kafkalite_core.storage.disk import disk_errors, remove_file, sync_file
from kafkalite_core.storage.errors import CorruptMessage, DiskFailure, ReadInterrupted
from kafkalite_core.storage.segment import HEADER, HEADER_BYTES, LENGTH_OVERHEAD_BYTES, Segment
from kafkalite_core.storage.swap import CLEANED_SUFFIX, Swap

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from kafkalite_core.protocol.record_batch import BatchHeader
    from kafkalite_core.storage.compaction import CompactionPlan
    from kafkalite_core.storage.disk import File
    from kafkalite_core.storage.log import Log

PIECE_BYTES: Final = 256 << 10
"""Bytes that one job reads, one batch that is larger excepted."""

SEGMENTS_JOINED_MAX: Final = 32
"""Segments that become one at most: a swap renames every one of them on the log's thread."""

_RELATIVE_OFFSET_MAX: Final = 2**31 - 1
_POSITION_MAX: Final = 2**31 - 1

Job: TypeAlias = "Callable[[], None]"


@dataclass(slots=True)
class CompactionResult:
    """What a pass did.

    Attributes:
        cleaned_to: Where the next pass begins; None when this one did not come to its end.
        reason: Why it did not, or the empty string.
        bytes_read: Bytes of the segments rewritten.
        bytes_written: Bytes of what was left of them.
        records_read: Records of the segments rewritten.
        segments_before: Segments rewritten.
        segments_after: Segments that came in their place.
        map_bytes: Memory that the keys took.
        map_full: The keys did not all fit: the rest of the dirty part is for the next pass.
    """

    cleaned_to: int | None = None
    reason: str = ""
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    segments_before: int = 0
    segments_after: int = 0
    map_bytes: int = 0
    map_full: bool = False


class _Stopped(Exception):
    """The log was cut or closed, or retention took a segment: the pass ends."""


class _Source(NamedTuple):
    """A segment as it was when the pass began; sealed, so nothing of it changes but its presence."""

    segment: Segment
    file: File
    size: int

    def piece(self, position: int) -> Iterator[tuple[bytes, BatchHeader, int]]:
        """(batch, its header, position behind it) for whole batches from `position`. Raises `CorruptMessage`."""
        path = self.segment.path
        with disk_errors(f"read {path}"):
            chunk = self.file.pread(min(PIECE_BYTES, self.size - position), position)
            if len(chunk) >= HEADER_BYTES:
                wanted = int(HEADER.unpack_from(chunk)[1]) + LENGTH_OVERHEAD_BYTES
                if len(chunk) < wanted <= self.size - position:
                    chunk = self.file.pread(wanted, position)
        view = memoryview(chunk)
        found = False
        for at, header in iter_batches(view):
            if not validate_crc(view, at, header):
                raise CorruptMessage(f"{path} at {position + at}: wrong CRC")
            found = True
            yield chunk[at : at + header.size], header, position + at + header.size
        if not found:
            raise CorruptMessage(f"{path} at {position}: no batch")


class _Output:
    """The segment that a group of sources becomes; written by jobs, under `.cleaned` names."""

    def __init__(self, log: Log, first: Segment) -> None:
        self.segment = Segment(
            log.disk,
            log.directory,
            first.base_offset,
            index_bytes_max=log.config.segment_index_bytes,
            created_ms=first.created_ms,
            suffix=CLEANED_SUFFIX,
        )
        self.sources: list[_Source] = []
        self.changed = False
        self._log = log
        self._interval = log.config.index_interval_bytes
        self._last: BatchHeader | None = None

    def begin(self) -> None:
        """Removes what an earlier pass may have left under these names."""
        for path in (self.segment.path, self.segment.index.path, self.segment.time_index.path):
            remove_file(self._log.disk, path)

    def takes(self, source: _Source) -> bool:
        """Whether all of a further segment certainly fits."""
        segment, config = self.segment, self._log.config
        entries = source.size // max(self._interval, HEADER_BYTES) + 2
        return (
            len(self.sources) < SEGMENTS_JOINED_MAX
            and segment.size + source.size <= config.segment_bytes
            and len(segment.index.offsets) + entries <= segment.index.max_entries
            and len(segment.time_index.timestamps) + entries <= segment.time_index.max_entries
            and source.segment.end_offset - segment.base_offset <= _RELATIVE_OFFSET_MAX
        )

    def add(self, batch: bytes, header: BatchHeader, left: bytes | None) -> None:
        """Takes what is left of a batch; of one of which nothing is left only the header is remembered."""
        self.changed = self.changed or left is not batch
        if left is None:
            self._last = header
            return
        self._last = None
        if self.segment.size + len(left) > _POSITION_MAX:
            raise ProtocolError(f"{self.segment.path}: compressing again made the segment too large")
        timestamp = HEADER.unpack_from(left)[8] if HEADER.unpack_from(left)[12] else -1
        self.segment.append(left, header.last_offset, timestamp, self._interval)

    def finish(self) -> None:
        """Ends with the last batch of the sources, emptied if need be; then everything reaches the disk."""
        if self._last is not None:
            left = empty_batch(self._last)
            self.segment.append(left, self._last.last_offset, -1, self._interval)
            self._last = None
        segment = self.segment
        newest = self.sources[-1].segment
        segment.created_ms, segment.changed_ms = newest.created_ms, newest.changed_ms
        segment.seal(files=True)
        sync_file(segment.file, segment.path)
        segment.sync_indexes()
        segment.synced_size = segment.size

    @property
    def useful(self) -> bool:
        """Whether it differs from what it was made of."""
        return self.changed or len(self.sources) > 1

    def discard(self) -> None:
        """Removes its files."""
        self.segment.remove()


def compact(
    log: Log, plan: CompactionPlan, *, map_bytes: int, now_ms: int, spare_bytes: int = 0
) -> Generator[Job, None, CompactionResult]:
    """One pass; see the module.

    Args:
        log: The log; nothing else changes it by compaction meanwhile.
        plan: What to do, made in this turn of the log's thread.
        map_bytes: Memory for keys (`log.cleaner.dedupe.buffer.size`).
        now_ms: Wall clock, for delete horizons.
        spare_bytes: Free space of the disk that must remain.

    Raises (what jobs raised, thrown in): `StorageError` when the disk is full, `CorruptMessage` and `ProtocolError` for
    a log that cannot be compacted, `DiskFailure`. In all cases but the last, defects included, the log is whole, and
    what was left over of the pass is removed.
    """
    return _Pass(log, plan, map_bytes, now_ms, spare_bytes).run()


class _Pass:
    def __init__(self, log: Log, plan: CompactionPlan, map_bytes: int, now_ms: int, spare_bytes: int) -> None:
        self._log = log
        self._plan = plan
        self._now_ms = now_ms
        self._spare_bytes = spare_bytes
        self._generation = log.generation
        self._keys = KeyMap(map_bytes)
        self._keys.covered_end = plan.first_dirty
        self._result = CompactionResult()
        self._position = 0
        self._last_of: dict[int, int] = {}
        self._output: _Output | None = None
        self._sources = [
            _Source(segment, segment.file, segment.size)
            for segment in log.segments[:-1]
            if segment.end_offset <= plan.first_uncleanable
        ]

    def run(self) -> Generator[Job, None, CompactionResult]:
        result = self._result
        try:
            yield from self._read_keys()
            result.map_bytes, result.map_full = self._keys.used_bytes, self._keys.full
            rest = deque(source for source in self._sources if source.segment.base_offset < self._keys.covered_end)
            while rest:
                yield from self._join(rest)
            result.cleaned_to = self._keys.covered_end
        except (_Stopped, ReadInterrupted) as stopped:
            result.reason = str(stopped)
            yield from self._tidy()
        except DiskFailure:
            raise
        except Exception as error:
            yield from self._tidy()
            if not self._void or not isinstance(error, (StorageError, CorruptMessage, ProtocolError)):
                raise
            result.reason = str(error)  # bytes were cut off while they were read
        return result

    @property
    def _void(self) -> bool:
        return self._log.closed or self._log.generation != self._generation

    def _tidy(self) -> Generator[Job, None, None]:
        output, self._output = self._output, None
        if output is None:
            return
        yield output.segment.close if self._log.closed else output.discard

    def _job(self, job: Job) -> Generator[Job, None, None]:
        """Has a job run, and looks whether the log is still the same."""
        log = self._log

        def guarded() -> None:
            try:
                job()
            except DiskFailure as failure:
                if log.closed and isinstance(failure.__cause__, FileNotFoundError):
                    raise ReadInterrupted("the log's directory is gone") from failure
                raise

        yield guarded
        self._check()

    def _check(self) -> None:
        if self._void:
            raise _Stopped("the log was closed" if self._log.closed else "the log was cut")

    # ------------------------------------------------------------------------------------------------ keys

    def _read_keys(self) -> Generator[Job, None, None]:
        for source in self._sources:
            if source.segment.end_offset <= self._plan.first_dirty:
                continue
            self._position = 0
            while self._position < source.size and not self._keys.full:
                yield from self._job(partial(self._read_piece, source))
        if not self._keys.full:
            self._keys.covered_end = max(self._keys.covered_end, self._plan.first_uncleanable)

    def _read_piece(self, source: _Source) -> None:
        for batch, header, following in source.piece(self._position):
            if not self._keys.take(batch, header, self._plan.first_dirty, self._log.environment.decompress):
                return
            self._position = following

    # ------------------------------------------------------------------------------------------------ rewriting

    def _join(self, rest: deque[_Source]) -> Generator[Job, None, None]:
        """Makes one segment of the first of the rest and of as many more as fit, and swaps it in."""
        log = self._log
        producers = log.producers
        self._last_of = {
            producer_id: entry.batches[-1].last_offset for producer_id, entry in producers.items() if entry.batches
        }
        output = self._output = _Output(log, rest[0].segment)
        yield from self._job(output.begin)
        while rest and (not output.sources or output.takes(rest[0])):
            source = rest.popleft()
            output.sources.append(source)
            yield from self._job(partial(self._look_for_room, source.size))
            self._position = 0
            while self._position < source.size:
                yield from self._job(partial(self._copy_piece, source, output))
            self._result.bytes_read += source.size
        yield from self._job(output.finish)
        self._result.bytes_written += output.segment.size
        if output.useful:
            yield from self._swap(output)
        else:
            self._output = None
            yield from self._job(output.discard)

    def _look_for_room(self, size: int) -> None:
        with disk_errors("look for free space"):
            free = self._log.disk.free_bytes()
        if free < size + self._spare_bytes:
            raise StorageError(f"{free} bytes are free, too few to compact {size}")

    def _copy_piece(self, source: _Source, output: _Output) -> None:
        environment = self._log.environment
        retention_ms = self._log.config.delete_retention_ms
        for batch, header, following in source.piece(self._position):
            last_of_producer = header.producer_id >= 0 and self._last_of.get(header.producer_id) == header.last_offset
            left = filter_batch(
                batch,
                header,
                self._keys,
                first_dirty=self._plan.first_dirty,
                now_ms=self._now_ms,
                delete_retention_ms=retention_ms,
                keep_header=last_of_producer,
                decompress=environment.decompress,
                compress=environment.compress,
            )
            output.add(batch, header, left)
            self._result.records_read += header.record_count
            self._position = following

    def _swap(self, output: _Output) -> Generator[Job, None, None]:
        log = self._log
        log.expect_gaps()
        swap = Swap(log, output.segment, [source.segment for source in output.sources])
        if not swap.prepare():
            raise _Stopped("retention took a segment")
        self._output = None
        yield swap.sync
        if not swap.install():
            raise _Stopped("the log was closed, cut or shortened")
        yield swap.sync
        yield swap.remove_replaced
        swap.complete()
        yield swap.sync
        self._check()
        self._result.segments_before += len(output.sources)
        self._result.segments_after += 1

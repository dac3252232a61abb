"""One segment of a log: `<base offset>.log` with its two indexes, named and laid out as Kafka's."""

from __future__ import annotations

from contextlib import suppress
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite_core.model.errors import StorageError
from kafkalite_core.storage.disk import append_all, disk_errors, join, remove_file, sync_file
from kafkalite_core.storage.errors import CorruptMessage
from kafkalite_core.storage.index import OffsetIndex, TimeIndex

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalite_core.storage.disk import Buffer, Disk, File

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"
DELETED_SUFFIX: Final = ".deleted"

HEADER: Final = Struct(">qiibIhiqqqhii")
"""The 61 bytes of a batch header, in the order of their fields."""

HEADER_BYTES: Final = HEADER.size
LENGTH_OVERHEAD_BYTES: Final = 12
"""Bytes before and including the field batchLength, which it does not count."""

_RELATIVE_OFFSET_MAX: Final = 2**31 - 1
_SCAN_CHUNK_BYTES: Final = 1 << 20


def file_name(offset: int, suffix: str) -> str:
    """`<offset in 20 digits><suffix>`."""
    return f"{offset:020d}{suffix}"


def offset_of(name: str) -> int | None:
    """The offset in a file name of a segment or snapshot, or None."""
    stem = name.partition(".")[0]
    return int(stem) if len(stem) == 20 and stem.isascii() and stem.isdigit() else None


class BatchBrief(NamedTuple):
    """Where a batch lies in its segment, and what look-ups ask of it."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def record_timestamp(self) -> int:
        """The largest timestamp of its records; -1 when compaction has left none, though the header keeps it."""
        return self.max_timestamp if self.record_count else -1


def walk_briefs(file: File, path: str, position: int, stop: int, chunk_bytes: int) -> Iterator[BatchBrief]:
    """The batches of a `.log` file from `position` (a batch boundary) to `stop`, on any thread."""
    chunk, chunk_at = b"", position
    while position + HEADER_BYTES <= stop:
        inside = position - chunk_at
        if inside + HEADER_BYTES > len(chunk):
            with disk_errors(f"read {path}"):
                chunk, chunk_at, inside = file.pread(chunk_bytes, position), position, 0
            if len(chunk) < HEADER_BYTES:
                return
        base, length, epoch, _, _, _, delta, _, timestamp, *rest = HEADER.unpack_from(chunk, inside)
        size = length + LENGTH_OVERHEAD_BYTES
        if size < HEADER_BYTES or position + size > stop:
            raise CorruptMessage(f"{path}: batch at {position} claims {size} bytes")
        yield BatchBrief(position, size, base, base + delta, epoch, timestamp, *rest)
        position += size


class Segment:
    """One segment. `end_offset` and `size` are kept in memory; `synced_size` is what the disk surely has of it, and
    where `indexes_unsynced` it may not have the indexes of a sealed one. Where not `index_files`, a full disk had no
    room for these: they are in memory only, or built anew by who reads them.

    Args:
        disk: The disk.
        directory: The log's directory.
        base_offset: Offset of the first record (or of the log end when the segment was begun).
        index_bytes_max: `segment.index.bytes`.
        created_ms: When the segment was begun, or last changed before the start of the process; for `segment.ms` where
            records bear no timestamp.
        suffix: Behind the names of all its files; compaction writes a segment under other names first.

    Attributes:
        changed_ms: When the last batch was appended, as far as known; for `retention.ms` where records bear no
            timestamp.
    """

    __slots__ = (
        "_disk",
        "_file",
        "_since_index",
        "base_offset",
        "changed_ms",
        "created_ms",
        "end_offset",
        "first_timestamp",
        "index",
        "index_files",
        "indexes_unsynced",
        "loaded",
        "max_timestamp",
        "max_timestamp_offset",
        "path",
        "sealed",
        "size",
        "synced_size",
        "time_index",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        *,
        index_bytes_max: int,
        created_ms: int,
        suffix: str = "",
    ) -> None:
        self._disk = disk
        self._file: File | None = None
        self._since_index = 0
        self.path = join(directory, file_name(base_offset, LOG_SUFFIX) + suffix)
        self.base_offset = base_offset
        self.end_offset = base_offset
        self.size = 0
        self.synced_size = 0
        self.sealed = False
        self.indexes_unsynced = False
        self.index_files = True
        self.loaded = True
        self.created_ms = self.changed_ms = created_ms
        self.first_timestamp = -1
        self.max_timestamp = -1
        self.max_timestamp_offset = -1
        index_path = join(directory, file_name(base_offset, INDEX_SUFFIX) + suffix)
        time_path = join(directory, file_name(base_offset, TIME_INDEX_SUFFIX) + suffix)
        self.index = OffsetIndex(disk, index_path, base_offset, index_bytes_max)
        self.time_index = TimeIndex(disk, time_path, base_offset, index_bytes_max)

    @property
    def file(self) -> File:
        """The open `.log` file (made when absent)."""
        file = self._file
        if file is None:
            with disk_errors(f"open {self.path}"):
                file = self._file = self._disk.open(self.path, create=True)
        return file

    def wants_roll(
        self, size: int, last_offset: int, max_timestamp: int, now_ms: int, segment_bytes: int, segment_ms: int
    ) -> bool:
        """Whether a batch of `size` bytes belongs into a new segment (`segment.bytes`, `segment.ms`, full index,
        or an offset too far from the base: KAFKA-6264).
        """  # fmt: skip
        if not self.size:
            return last_offset - self.base_offset > _RELATIVE_OFFSET_MAX
        if self.size + size > segment_bytes or last_offset - self.base_offset > _RELATIVE_OFFSET_MAX:
            return True
        if self.first_timestamp >= 0 and max_timestamp >= 0:
            waited = max_timestamp - self.first_timestamp
        else:
            waited = now_ms - self.created_ms
        return waited > segment_ms or self.index.full or self.time_index.full

    def append(self, data: Buffer, last_offset: int, max_timestamp: int, index_interval: int) -> None:
        """Appends one batch. Raises `StorageError` (nothing was written) or `DiskFailure`."""
        position = self.size
        file = self._file
        append_all(self.file if file is None else file, data, position, self.path)
        self.note(position, len(data), last_offset, max_timestamp, index_interval)

    def note(self, position: int, size: int, last_offset: int, max_timestamp: int, index_interval: int) -> None:
        """Keeps the books of a batch that was written at `position`, the end of the segment.

        `max_timestamp` is -1 for a batch without records: nobody looks for it by time.
        """
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if position == 0:
            self.first_timestamp = max_timestamp
        if self._since_index > index_interval:
            self.index.add(last_offset, position)
            self.time_index.add(self.max_timestamp, self.max_timestamp_offset)
            self._since_index = 0
        self._since_index += size
        self.size = position + size
        self.end_offset = last_offset + 1

    def seal(self, *, files: bool = False) -> None:
        """The segment takes no more batches: its indexes are completed, and stored if there is room for their `files`;
        where these are asked for, a full disk is a `StorageError`.
        """  # fmt: skip
        self.time_index.add(self.max_timestamp, self.max_timestamp_offset)
        if files:
            self.write_indexes()
        else:
            self.store_indexes()
        self.sealed = True

    def write_indexes(self) -> None:
        """Writes what the indexes have in memory only. Raises `StorageError`, `DiskFailure`."""
        if self.loaded:
            self.indexes_unsynced = True
            self.index.write()
            self.time_index.write()
            self.index_files = True

    def store_indexes(self) -> None:
        """As `write_indexes`, but on a full disk both files go instead, and what is in memory does.

        They are only a cache, which a start or a read builds anew. A start that needed room for them would fail on a
        full disk time after time, and retention, which makes room, never run.
        """
        try:
            self.write_indexes()
        except StorageError:
            self._discard_indexes()

    def sync_indexes(self) -> None:
        """The index files, if there are any, reach the disk (blocking)."""
        if self.index_files:
            sync_file(self.index.file(), self.index.path)
            sync_file(self.time_index.file(), self.time_index.path)

    def _discard_indexes(self) -> None:
        """Half an index is none. Nothing opens the files again before they are written anew: an empty one passes for
        an index that has no entries.
        """  # fmt: skip
        self.index.discard()
        self.time_index.discard()
        self.indexes_unsynced = self.index_files = False

    def briefs(
        self, position: int, limit: int | None = None, *, chunk_bytes: int = _SCAN_CHUNK_BYTES
    ) -> Iterator[BatchBrief]:
        """The batches from `position` (a batch boundary) to `limit` or the end, without checks of content."""
        return walk_briefs(self.file, self.path, position, self.size if limit is None else limit, chunk_bytes)

    def pread(self, size: int, position: int) -> bytes:
        """Bytes of the `.log` file."""
        with disk_errors(f"read {self.path}"):
            return self.file.pread(size, position)

    def find(self, offset: int) -> BatchBrief | None:
        """The first batch whose last offset is at or beyond `offset`."""
        self.load_indexes()
        for brief in self.briefs(self.index.lookup(offset)):
            if brief.last_offset >= offset:
                return brief
        return None

    def load_indexes(self) -> None:
        """Reads the indexes of a sealed segment; builds them anew when they are damaged, also on a full disk: who is in
        the middle of a cut could neither go on without them nor go back.
        """  # fmt: skip
        if self.loaded:
            return
        self.loaded = True
        if self.index.load(self.size) and self.time_index.load():
            return
        try:
            self.rebuild_indexes()
        except StorageError:
            # What is in memory does, be it nothing at all. Without files the next one to read them builds them anew.
            self._discard_indexes()

    def take_indexes(self, index: OffsetIndex, time_index: TimeIndex) -> None:
        """Takes indexes that were read on another thread."""
        self.index.adopt(index)
        self.time_index.adopt(time_index)
        self.loaded = True

    def unload_indexes(self) -> bool:
        """Gives back the memory of a sealed segment's indexes; False while they cannot be read again."""
        if self.sealed and self.loaded and self.synced_size == self.size:
            self.index.forget()
            self.time_index.forget()
            self.loaded = False
        return not self.loaded

    def rebuild_indexes(self, index_interval: int = 4096) -> None:
        """Builds indexes, end offset and timestamps from the headers in the file."""
        size = self.size
        self.start_over()
        for brief in self.briefs(0, size):
            self.note(brief.position, brief.size, brief.last_offset, brief.record_timestamp, index_interval)
        if self.sealed:
            self.seal()

    def start_over(self) -> None:
        """Forgets what is known of the content, indexes on disk included; the `.log` file stays."""
        self.index.reset()
        self.time_index.reset()
        self.loaded = True
        self.size = 0
        self.end_offset = self.base_offset
        self.first_timestamp = self.max_timestamp = self.max_timestamp_offset = -1
        self._since_index = 0

    def truncate_to(self, offset: int) -> None:
        """Cuts off every batch that holds an offset at or beyond `offset`; the segment is active again."""
        self.load_indexes()
        brief = self.find(offset)
        size = brief.position if brief is not None else self.size
        if size == self.size:
            self.sealed = False
            return
        with disk_errors(f"truncate {self.path}"):
            self.file.truncate(size)
        # Before anything is appended over it: after a power loss new batches could be followed by old ones, whose
        # offsets and sums fit, and this log would seem to hold what the leader has.
        sync_file(self.file, self.path)
        self.size = self.synced_size = size
        self.sealed = False
        self.index.truncate(size)
        start = self.index.positions[-1] if self.index.positions else 0
        self.end_offset = self.base_offset
        for brief in self.briefs(start):
            self.end_offset = brief.last_offset + 1
        self._since_index = size - start
        self.time_index.truncate(self.end_offset)
        self._restore_timestamps()

    def _restore_timestamps(self) -> None:
        """The largest timestamp after a cut: the last entry of the time index, or one of the batches after it."""
        self.max_timestamp = self.max_timestamp_offset = -1
        position = 0
        if self.time_index.timestamps:
            self.max_timestamp = self.time_index.timestamps[-1]
            self.max_timestamp_offset = self.base_offset + self.time_index.offsets[-1]
            position = self.index.lookup(self.max_timestamp_offset)
        if not self.size:
            self.first_timestamp = -1
        for brief in self.briefs(position):
            if brief.record_timestamp > self.max_timestamp:
                self.max_timestamp = brief.record_timestamp
                self.max_timestamp_offset = brief.last_offset

    def load(self, *, active: bool) -> bool:
        """Takes up a segment that was closed cleanly: end offset, timestamps, and of the active one the indexes.

        A broker has thousands of sealed segments, whose indexes together need gigabytes: reads load what they need.

        False when the indexes or the file are damaged and the segment has to be scanned.
        """
        with disk_errors(f"open {self.path}"):
            self.size = self.file.size()
        if not (self.index.load(self.size) and self.time_index.load()):
            return False
        start = self.index.positions[-1] if self.index.positions else 0
        try:
            first = next(self.briefs(0, chunk_bytes=HEADER_BYTES), None)
            self.first_timestamp = -1 if first is None else first.record_timestamp
            reached = start
            for brief in self.briefs(start):
                self.end_offset = brief.last_offset + 1
                reached = brief.position + brief.size
            if reached != self.size:
                return False
            self._since_index = self.size - start
            self._restore_timestamps()
        except CorruptMessage:
            return False
        self.sealed = not active
        self.synced_size = self.size
        self.loaded = True
        self.unload_indexes()
        return True

    def close(self) -> None:
        """Closes the files."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self.index.close()
        self.time_index.close()

    def rename_log(self, path: str) -> None:
        """Gives the `.log` file another name; reads that hold the old one are interrupted. `StorageError` as always."""
        with disk_errors(f"rename {self.path}"):
            self._disk.rename(self.path, path)
        self.path = path
        if self._file is not None:
            self._file.close()
            self._file = None

    def rename_indexes(self, directory: str) -> None:
        """Gives both indexes their final names; also where there are no files, which may be made later."""
        for index, suffix in ((self.index, INDEX_SUFFIX), (self.time_index, TIME_INDEX_SUFFIX)):
            path = join(directory, file_name(self.base_offset, suffix))
            if self.index_files:
                with disk_errors(f"rename {index.path}"):
                    self._disk.rename(index.path, path)
            index.close()
            index.path = path

    def remove(self) -> None:
        """Removes the files, the `.log` last, so that a half-done removal is a segment without indexes."""
        self.close()
        remove_file(self._disk, self.index.path)
        remove_file(self._disk, self.time_index.path)
        remove_file(self._disk, self.path)

    def give_up(self) -> str:
        """As `remove`, but the `.log` is there under another name, which is returned: a start removes it.

        A disk that has no room for the name loses it at once.
        """
        self.close()
        remove_file(self._disk, self.index.path)
        remove_file(self._disk, self.time_index.path)
        path = self.path + DELETED_SUFFIX
        try:
            with disk_errors(f"rename {self.path}"), suppress(FileNotFoundError):
                self._disk.rename(self.path, path)
        except StorageError:
            remove_file(self._disk, self.path)
        return path

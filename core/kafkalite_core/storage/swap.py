"""Putting a compacted segment in the place of those it was made from, so that a crash at any point harms nothing.

    A.log.cleaned              written and synced; whoever finds it at a start removes it
    A.log.swap                 renamed and synced: from here on a start finishes the swap instead
    X.log.deleted              all that it replaces, indexes too, renamed and synced; removed later
    A.log                      renamed: an ordinary segment again

Renames are the log's thread's business, so that no read, append, truncation or retention sees a half-done swap; the
directory is synced on another thread between them. The last batch of the replaced segments is always kept, with or
without records: so the segments of a log join without holes, and the end of the `.swap` file says what it replaces.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from kafkalite_core.model.errors import StorageError
from kafkalite_core.storage.disk import disk_errors, join, remove_file, sync_directory
from kafkalite_core.storage.errors import CorruptMessage, DiskFailure
from kafkalite_core.storage.segment import (
    DELETED_SUFFIX,
    HEADER,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    Segment,
    file_name,
    offset_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalite_core.storage.disk import Disk
    from kafkalite_core.storage.log import Log

CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
LEFT_OVER_SUFFIXES: Final = (".tmp", CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX)
"""Files that a start removes, after `finish_swaps`."""

_CRC_POSITION: Final = 17
_CRC_START: Final = 21


class _State(Enum):
    CLEANED = auto()
    PREPARED = auto()
    INSTALLED = auto()
    DONE = auto()
    DISCARDED = auto()


class Swap:
    """One swap. `sync` and `remove_replaced` run on any thread, everything else on the log's.

    Order: `prepare`, `sync`, `install`, `sync`, `remove_replaced`, `complete`, `sync`. A truncation in between calls
    `settle`; then the remaining steps do nothing.

    Args:
        log: The log.
        segment: The compacted segment, sealed, its three files synced under `.cleaned` names.
        replaced: The segments it was made from, neighbours, none of them active.
    """

    def __init__(self, log: Log, segment: Segment, replaced: Sequence[Segment]) -> None:
        self._log = log
        self._generation = log.generation
        self._segment = segment
        self._replaced = list(replaced)
        self._state = _State.CLEANED
        self._final_path = join(log.directory, file_name(segment.base_offset, LOG_SUFFIX))

    def prepare(self) -> bool:
        """Renames `.cleaned` to `.swap`; False when the segments are no longer those of the log. `StorageError`."""
        assert self._log.pending_swap is None
        if self._slot() is None:
            return False
        self._segment.rename_log(self._final_path + SWAP_SUFFIX)
        self._log.directory_version += 1
        self._state = _State.PREPARED
        self._log.pending_swap = self
        return True

    def install(self) -> bool:
        """The log reads the new segment from now on; False when a cut or retention came first.

        All of the old files get other names, or the process dies.
        """
        if self._state is not _State.PREPARED:
            return False
        slot = self._slot()
        if slot is None:
            self._discard()
            return False
        log = self._log
        log.segments[slot : slot + len(self._replaced)] = [self._segment]
        log.forget_loaded()
        log.touch_indexes(self._segment)
        hot = log.tail.first_offset
        if hot is not None and hot < self._segment.end_offset:
            log.tail.clear()  # memory would go on showing what is compacted away
        self._state = _State.INSTALLED
        log.directory_version += 1
        try:
            for old in self._replaced:
                old.close()
                old.rename_log(old.path + DELETED_SUFFIX)
                for index in (old.index, old.time_index):
                    self._set_aside(index.path)
        except StorageError as error:
            raise DiskFailure(f"swap of {self._final_path} cannot go on: {error}") from error
        return True

    def complete(self) -> None:
        """Gives the new segment its final name, unless retention has removed it meanwhile."""
        if self._state is not _State.INSTALLED:
            return
        log = self._log
        self._state = _State.DONE
        log.pending_swap = None
        if log.closed or not any(segment is self._segment for segment in self._live()):
            return
        log.directory_version += 1
        try:
            self._segment.rename_indexes(log.directory)
            self._segment.rename_log(self._final_path)
        except StorageError as error:
            raise DiskFailure(f"swap of {self._final_path} cannot be completed: {error}") from error

    def settle(self) -> None:
        """The log is about to be cut: what is only prepared is taken back, what is installed is completed (blocking).

        Durable when it returns: otherwise a start would finish the swap and bring back what was cut off.
        """
        log = self._log
        if self._state is _State.PREPARED:
            self._discard()
        elif self._state is _State.INSTALLED:
            sync_directory(log.disk, log.directory)
            self.complete()
        sync_directory(log.disk, log.directory)

    def sync(self) -> None:
        """The renames reach the disk. Nothing where the log was given up meanwhile, directory and all."""
        try:
            sync_directory(self._log.disk, self._log.directory)
        except DiskFailure as failure:
            if not (self._log.closed and isinstance(failure.__cause__, FileNotFoundError)):
                raise

    def remove_replaced(self) -> None:
        """Gives the space of the old segments back."""
        for old in self._replaced:
            if old.path.endswith(DELETED_SUFFIX):
                for path in (old.path, old.index.path + DELETED_SUFFIX, old.time_index.path + DELETED_SUFFIX):
                    remove_file(self._log.disk, path)

    def _set_aside(self, path: str) -> None:
        disk = self._log.disk
        with disk_errors(f"rename {path}"):
            if disk.exists(path):
                disk.rename(path, path + DELETED_SUFFIX)

    def _slot(self) -> int | None:
        """Where the segments to be replaced are in the log; None when they are not there as they were."""
        log = self._log
        if log.closed or log.generation != self._generation:
            return None
        for slot, segment in enumerate(log.segments):
            if segment is self._replaced[0]:
                found = log.segments[slot : slot + len(self._replaced)]
                same = len(found) == len(self._replaced) and all(
                    a is b for a, b in zip(found, self._replaced, strict=True)
                )
                return slot if same and found[-1] is not log.active else None
        return None

    def _live(self) -> list[Segment]:
        return [*self._log.segments, *(segment for _, segment in self._log.doomed)]

    def _discard(self) -> None:
        self._state = _State.DISCARDED
        self._log.pending_swap = None
        if not self._log.closed:
            self._segment.remove()


def finish_swaps(disk: Disk, directory: str, *, index_bytes_max: int, index_interval: int) -> None:
    """At a start: finishes every swap that a crash interrupted after its `.swap` file was there.

    Such a file was synced before it got its name. Should it be damaged all the same, the segment that it would have
    replaced stays; where that is gone, the file takes its place and recovery cuts it at the damage.
    """
    with disk_errors(f"list {directory}"):
        names = disk.list(directory)
    for name in names:
        base = offset_of(name)
        if base is None or name != file_name(base, LOG_SUFFIX) + SWAP_SUFFIX:
            continue
        path = join(directory, file_name(base, LOG_SUFFIX))
        segment = Segment(
            disk, directory, base, index_bytes_max=index_bytes_max, created_ms=0, suffix=SWAP_SUFFIX
        )  # fmt: skip
        whole = _read_through(segment, index_interval)
        if whole:
            _remove_replaced(disk, directory, disk.list(directory), base, segment.end_offset)
            segment.store_indexes()
            segment.sync_indexes()
            sync_directory(disk, directory)
            segment.rename_indexes(directory)
        if whole or not disk.exists(path):
            segment.rename_log(path)
        segment.close()
        sync_directory(disk, directory)


def _remove_replaced(disk: Disk, directory: str, names: list[str], base: int, end: int) -> None:
    """Removes what the `.swap` file at `base` replaces: segments and indexes of [base, end), whatever their suffix."""
    for name in names:
        offset = offset_of(name)
        if offset is None or not base <= offset < end or name.endswith(SNAPSHOT_SUFFIX):
            continue
        if name != file_name(base, LOG_SUFFIX) + SWAP_SUFFIX:
            remove_file(disk, join(directory, name))
    sync_directory(disk, directory)


def _read_through(segment: Segment, index_interval: int) -> bool:
    """Checks every batch of a file and builds its indexes in memory; whether all of it is right."""
    with disk_errors(f"open {segment.path}"):
        size = segment.file.size()
    try:
        for brief in segment.briefs(0, size):
            batch = memoryview(segment.pread(brief.size, brief.position))
            if batch[16] != 2 or crc32c(batch[_CRC_START:]) != HEADER.unpack_from(batch)[4]:
                return False
            if brief.base_offset < segment.end_offset or brief.last_offset < brief.base_offset:
                return False
            segment.note(brief.position, brief.size, brief.last_offset, brief.record_timestamp, index_interval)
    except CorruptMessage:
        return False
    segment.time_index.add(segment.max_timestamp, segment.max_timestamp_offset)
    return segment.size == size and size > 0

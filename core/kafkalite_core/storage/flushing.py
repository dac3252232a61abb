"""Which bytes of a log are surely on disk: flush tickets and their completion (R11, S8)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from kafkalite_core.model.errors import StorageError
from kafkalite_core.storage import epoch_cache
from kafkalite_core.storage.disk import join, remove_file, replace_file, sync_directory, sync_file
from kafkalite_core.storage.errors import DiskFailure, ReadInterrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkalite_core.storage.disk import File
    from kafkalite_core.storage.log import Log
    from kafkalite_core.storage.segment import Segment


@dataclass(frozen=True, slots=True)
class FlushTicket:
    """One flush of one log. `run` may be called from any thread; everything else belongs to the log's thread.

    `run` only syncs. So one `syncfs` of the whole volume, begun after the ticket was taken, does the same.

    Attributes:
        log: The log.
        generation: Truncation generation of the log when the flush began (S8).
        end_offset: The log end that the flush covers.
        segments: (segment, its size, whether with its indexes) for every segment with bytes that were not synced.
        files: Files to sync, with their paths.
        small_files: More of them, opened for this ticket only.
        directories: Directories to sync, whose entries changed.
        directory_version: Version of the directory's entries that the flush covers.
    """

    log: Log
    generation: int
    end_offset: int
    segments: tuple[tuple[Segment, int, bool], ...]
    files: tuple[tuple[File, str], ...]
    small_files: tuple[tuple[File, str], ...]
    directories: tuple[str, ...]
    directory_version: int

    def run(self) -> None:
        """Syncs everything; when it returns, the disk has it. `DiskFailure` on any error: the process ends (R12).

        Files and directories that a truncation, retention or a deletion took away meanwhile are no error.
        """
        log = self.log
        for file, path in (*self.files, *self.small_files):
            with suppress(ReadInterrupted):
                sync_file(file, path)
        for directory in self.directories:
            try:
                sync_directory(log.disk, directory)
            except DiskFailure as failure:
                if not (log.closed and isinstance(failure.__cause__, FileNotFoundError)):
                    raise


def begin_flush(log: Log) -> FlushTicket | None:
    """What has to be synced so that everything appended so far is on disk; None when all of it is."""
    files: list[tuple[File, str]] = []
    segments = _dirty_segments(log, files)
    _write_epochs(log)
    directory_dirty = log.directory_version != log.directory_synced
    if not segments and not directory_dirty and not log.unsynced_files and log.recovery_point == log.end_offset:
        return None
    small_files = tuple(log.unsynced_files.values())
    log.unsynced_files.clear()
    directories = (log.directory,) if directory_dirty else ()
    if log.parent_unsynced:
        directories = (*directories, "")
    return FlushTicket(
        log,
        log.generation,
        log.end_offset,
        tuple(segments),
        tuple(files),
        small_files,
        directories,
        log.directory_version,
    )


def names_job(logs: Iterable[Log]) -> Callable[[], None]:
    """Makes the names of segments that were begun durable, on whatever thread; their bytes may follow when they will.

    So the next segment need not wait for the disk (`Log.roll`). With strict flush the flushes have seen to it.
    Raises `DiskFailure`.
    """
    due = [
        FlushTicket(log, log.generation, 0, (), (), (), (log.directory,), log.directory_version)
        for log in logs
        if log.begun_unsynced
    ]

    def run() -> None:
        for ticket in due:
            ticket.run()
            # Two threads may do so: at worst the lower number stays, and the directory is synced once more.
            ticket.log.directory_synced = max(ticket.log.directory_synced, ticket.directory_version)

    return run


def _dirty_segments(log: Log, files: list[tuple[File, str]]) -> list[tuple[Segment, int, bool]]:
    """From the last one to the one before the recovery point: what lies below it is on disk.

    One that is synced says nothing of those before it: a cut syncs the segment that it cuts, and no other. One that
    waits to be purged counts: until the checkpoint of the log start says so, a start takes it for a part of the log,
    and cuts off what lies behind a part of it that is not there.
    """
    segments: list[tuple[Segment, int, bool]] = []
    for segment in chain(reversed(log.segments), (doomed for _, doomed in reversed(log.doomed))):
        dirty = segment.indexes_unsynced or segment.synced_size != segment.size
        indexes = segment.sealed and segment.index_files and dirty
        if segment.synced_size == segment.size and not indexes:
            if segment.base_offset < log.recovery_point:
                break
            continue
        segments.append((segment, segment.size, indexes))
        files.append((segment.file, segment.path))
        if indexes:
            files.append((segment.index.file(), segment.index.path))
            files.append((segment.time_index.file(), segment.time_index.path))
    return segments


def _write_epochs(log: Log) -> None:
    """Writes the epoch checkpoint, to be synced by the flush. Without it a start reads all batches, which say the same.

    So a power loss before the sync may leave a part of the new file in the place of the old one. And on a full disk the
    old one goes: of what the flush covers only the segment at its end is read at a start, and an epoch that the file
    does not have would be missing ever after.

    The batches of a compacted log, some of which are gone, may say that an epoch began earlier than it did, never that
    it began later: whoever diverged is cut too far rather than not far enough (KIP-101), and copies that again.
    """
    if log.epochs.version == log.epochs_written:
        return
    path = join(log.directory, epoch_cache.FILE_NAME)
    try:
        replace_file(log.disk, path, log.epochs.encode(), durable=False)
        log.sync_later(path)
    except StorageError as error:
        if log.disk.exists(path):
            try:
                remove_file(log.disk, path)
            except StorageError:
                raise DiskFailure(f"{path} is neither replaced nor removed: {error}") from error
            log.directory_version += 1
        return
    log.epochs_written = log.epochs.version


def complete_flush(log: Log, ticket: FlushTicket) -> None:
    """The ticket ran without error: its bytes are on disk. A ticket from before a truncation says nothing (S8)."""
    for file, _ in ticket.small_files:
        file.close()
    if ticket.generation != log.generation:
        return
    if "" in ticket.directories:
        log.parent_unsynced = False
    for segment, size, indexes in ticket.segments:
        segment.synced_size = max(segment.synced_size, min(size, segment.size))
        if indexes:
            segment.indexes_unsynced = False
    log.directory_synced = max(log.directory_synced, ticket.directory_version)
    log.recovery_point = max(log.recovery_point, ticket.end_offset)
    log.update_flushed_end()

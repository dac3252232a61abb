"""Which bytes of a log are surely on disk: flush tickets and their completion (R11, S8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalite_core.storage import epoch_cache
from kafkalite_core.storage.disk import join, replace_file, sync_directory, sync_file

if TYPE_CHECKING:
    from kafkalite_core.storage.disk import Disk, File
    from kafkalite_core.storage.log import Log
    from kafkalite_core.storage.segment import Segment


@dataclass(frozen=True, slots=True)
class FlushTicket:
    """One flush of one log. `run` may be called from any thread; everything else belongs to the log's thread.

    Attributes:
        generation: Truncation generation of the log when the flush began (S8).
        end_offset: The log end that the flush covers.
        segments: (segment, its size) for every segment with bytes that were not synced.
        files: Files to sync, with their paths.
        directory: The log's directory, to be synced; None when no entry changed.
        epochs: The epoch checkpoint to write, or None when it is unchanged.
        epochs_version: Version of the epoch cache that `epochs` holds.
        directory_version: Version of the directory's entries that the flush covers.
    """

    disk: Disk
    directory_path: str
    generation: int
    end_offset: int
    segments: tuple[tuple[Segment, int], ...]
    files: tuple[tuple[File, str], ...]
    directory: str | None
    epochs: bytes | None
    epochs_version: int
    directory_version: int

    def run(self) -> None:
        """Syncs everything; when it returns, the disk has it. `DiskFailure` on any error: the process ends (R12).

        `StorageError` when there is no room for the epoch checkpoint; the data are synced by then, but the flush as
        a whole did not happen.
        """
        for file, path in self.files:
            sync_file(file, path)
        if self.directory is not None:
            sync_directory(self.disk, self.directory)
        if self.epochs is not None:
            replace_file(self.disk, join(self.directory_path, epoch_cache.FILE_NAME), self.epochs)

    def prepare_volume_sync(self) -> None:
        """Writes what `run` writes but syncs nothing: the caller syncs the whole volume afterwards."""
        if self.epochs is not None:
            path = join(self.directory_path, epoch_cache.FILE_NAME)
            replace_file(self.disk, path, self.epochs, durable=False)


def begin_flush(log: Log) -> FlushTicket | None:
    """What has to be synced so that everything appended so far is on disk; None when all of it is."""
    segments: list[tuple[Segment, int]] = []
    files: list[tuple[File, str]] = []
    for segment in reversed(log.segments):
        if segment.synced_size == segment.size and segment.sealed:
            break  # segments are sealed and synced in order
        if segment.synced_size == segment.size:
            continue
        segments.append((segment, segment.size))
        files.append((segment.file, segment.path))
        if segment.sealed:
            files.append((segment.index.file(), segment.index.path))
            files.append((segment.time_index.file(), segment.time_index.path))
    epochs_dirty = log.epochs.version != log.epochs_synced
    directory_dirty = log.directory_version != log.directory_synced
    if not segments and not epochs_dirty and not directory_dirty and log.recovery_point == log.end_offset:
        return None
    return FlushTicket(
        log.disk,
        log.directory,
        log.generation,
        log.end_offset,
        tuple(segments),
        tuple(files),
        log.directory if directory_dirty else None,
        log.epochs.encode() if epochs_dirty else None,
        log.epochs.version,
        log.directory_version,
    )


def complete_flush(log: Log, ticket: FlushTicket) -> None:
    """The ticket ran without error: its bytes are on disk. A ticket from before a truncation says nothing (S8)."""
    if ticket.generation != log.generation:
        return
    for segment, size in ticket.segments:
        segment.synced_size = max(segment.synced_size, min(size, segment.size))
    log.epochs_synced = max(log.epochs_synced, ticket.epochs_version)
    log.directory_synced = max(log.directory_synced, ticket.directory_version)
    log.recovery_point = max(log.recovery_point, ticket.end_offset)
    log.update_flushed_end()

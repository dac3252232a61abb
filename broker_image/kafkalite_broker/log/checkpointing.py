"""The checkpoints of a data directory as several threads use them, and the metadata beside each log."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from kafkalite_core.model.errors import StorageError
from kafkalite_core.storage.checkpoints import (
    CLEANER,
    HIGH_WATERMARK,
    LOG_START,
    RECOVERY_POINT,
    OffsetCheckpoint,
    recovery_points_of,
)
from kafkalite_core.storage.errors import CorruptCheckpoint
from kafkalite_core.storage.partition_metadata import directory_name, parse_directory_name
from kafkalite_core.storage.replay import checkpoint_producers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalite_core.model.partition import TopicPartition
    from kafkalite_core.storage.disk import Disk
    from kafkalite_core.storage.log import Log


class CheckpointValues(NamedTuple):
    """What is to be written, and when it was taken."""

    recovery_points: dict[TopicPartition, int]
    high_watermarks: dict[TopicPartition, int]
    log_starts: dict[TopicPartition, int]
    taken_at: tuple[int, int, int]


class Checkpoints:
    """Recovery points, high watermarks, log starts and cleaner offsets of one data directory.

    Methods may be called on any thread.
    """

    def __init__(self, disk: Disk) -> None:
        self._lock = threading.Lock()
        self.recovery_points = OffsetCheckpoint(disk, RECOVERY_POINT)
        self.high_watermarks = OffsetCheckpoint(disk, HIGH_WATERMARK)
        self.log_starts = OffsetCheckpoint(disk, LOG_START)
        self.cleaner_offsets = OffsetCheckpoint(disk, CLEANER)
        self._cleaned: dict[TopicPartition, int] = {}
        """Where passes of compaction ended whose jobs have not written it; none once the log is set aside."""

    @property
    def _all(self) -> tuple[OffsetCheckpoint, OffsetCheckpoint, OffsetCheckpoint]:
        return self.recovery_points, self.high_watermarks, self.log_starts

    def load(self) -> bool:
        """Reads the files; False when the recovery points are lost, so that flushed ends are not known (R9)."""
        known = False
        for checkpoint in (*self._all, self.cleaner_offsets):
            try:
                found = checkpoint.load()
            except CorruptCheckpoint:
                found = False
            if checkpoint is self.recovery_points:
                known = found
        return known

    def take(self, logs: Mapping[TopicPartition, Log], high_watermarks: Mapping[Log, int]) -> CheckpointValues:
        """The values of now. A log without a high watermark keeps the one that is on disk.

        What the open logs know of producers is written here if need be. Raises `DiskFailure`.
        """
        for log in logs.values():
            if not log.closed:
                checkpoint_producers(log)
        taken_at = (self.recovery_points.take(), self.high_watermarks.take(), self.log_starts.take())
        known = self.high_watermarks.values
        marks = {key: high_watermarks.get(log, known.get(key, log.start_offset)) for key, log in logs.items()}
        return CheckpointValues(
            recovery_points_of(logs),
            marks,
            {key: log.start_offset for key, log in logs.items()},
            taken_at,
        )

    def write(self, values: CheckpointValues, *, force: bool = False) -> None:
        """Writes what changed. A full disk leaves the old files, which are safe; `DiskFailure` otherwise."""
        with self._lock:
            for checkpoint, mapping, taken_at in zip(self._all, values[:3], values.taken_at, strict=True):
                with suppress(StorageError):
                    checkpoint.write(mapping, taken_at, force=force)
            with suppress(StorageError):
                self._write_cleaned({})

    def _write_cleaned(self, news: Mapping[TopicPartition, int]) -> None:
        checkpoint = self.cleaner_offsets
        checkpoint.write({**checkpoint.values, **news}, checkpoint.take())

    def before_shrink(self, directory: str, offset: int) -> None:
        """A log is about to be cut to `offset`, or begun anew: no file says more than that any longer.

        A high watermark that outlived the records which it was about would call others committed.
        """
        key = parse_directory_name(directory)
        assert key is not None, directory
        with self._lock:
            if key in self._cleaned:
                self._cleaned[key] = min(self._cleaned[key], offset)
            for checkpoint in (*self._all, self.cleaner_offsets):
                checkpoint.lower(key, offset)

    def recovered(self, ends: Mapping[TopicPartition, int]) -> None:
        """What recovery has cut off is judged: with the next write no file tells of it any more."""
        with self._lock:
            for checkpoint in (*self._all, self.cleaner_offsets):
                checkpoint.cap(ends)

    def keep_start(self, key: TopicPartition, start_offset: int) -> None:
        """The checkpoint alone is about to tell where a log begins. Durable; `StorageError`: nothing has changed."""
        with self._lock:
            self.log_starts.begin(key, start_offset)

    def begin(self, key: TopicPartition, start_offset: int) -> None:
        """A directory is about to become a log that begins at this offset; nothing else is known of it. Durable.

        Raises `StorageError`: nothing is to be done with the directory. Without it the next start would show what had
        been deleted, or take for a hole what a power loss has left of it.
        """
        self.before_shrink(directory_name(*key), 0)
        with self._lock:
            self.log_starts.begin(key, start_offset)

    def purge(self, logs: Mapping[TopicPartition, Log], now_ms: int) -> None:
        """Removes the files of segments that retention took out long enough ago, see `Log.purge`."""
        durable_starts = self.log_starts.values
        for key, log in logs.items():
            log.purge(now_ms, durable_start=durable_starts.get(key, 0))

    def forget(self, key: TopicPartition) -> None:
        """A log is set aside; the next write leaves it out."""
        with self._lock:
            self._cleaned.pop(key, None)
            for checkpoint in (*self._all, self.cleaner_offsets):
                checkpoint.forget(key)

    def named_without_log(self, logs: Mapping[TopicPartition, Log]) -> set[TopicPartition]:
        """What the next start would miss, and call the disk one that loses logs, had it no directory (R9).

        Not only forgotten logs: a new one of the same name counts once its own directory is on disk.
        """
        return set(self.recovery_points.stored) - set(recovery_points_of(logs))

    def cleaned_job(self, key: TopicPartition, offset: int) -> Callable[[], None]:
        """A pass of compaction ended at this offset now; the job writes that, or less if the log is cut before."""
        self._cleaned[key] = offset

        def write() -> None:
            with self._lock:
                if key in self._cleaned:
                    self._write_cleaned({key: self._cleaned.pop(key)})

        return write

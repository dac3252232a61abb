"""The checkpoints of a data directory as several threads use them, and the metadata beside each log."""

from __future__ import annotations

import threading
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
from kafkalite_core.storage.partition_metadata import parse_directory_name

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
        """The values of now. A log without a high watermark keeps the one that is on disk."""
        known = self.high_watermarks.values
        marks = {key: high_watermarks.get(log, known.get(key, log.start_offset)) for key, log in logs.items()}
        return CheckpointValues(
            recovery_points_of(logs),
            marks,
            {key: log.start_offset for key, log in logs.items()},
            (self.recovery_points.sequence, self.high_watermarks.sequence, self.log_starts.sequence),
        )

    def write(self, values: CheckpointValues, *, force: bool = False) -> None:
        """Writes what changed. A full disk leaves the old files, which are safe; `DiskFailure` otherwise."""
        with self._lock:
            for checkpoint, mapping, taken_at in zip(self._all, values[:3], values.taken_at, strict=True):
                try:
                    checkpoint.write(mapping, taken_at, force=force)
                except StorageError:
                    continue

    def before_shrink(self, directory: str, offset: int) -> None:
        """A log is about to be cut to `offset`, or begun anew: no file says more than that any longer.

        A high watermark that outlived the records which it was about would call others committed.
        """
        key = parse_directory_name(directory)
        assert key is not None, directory
        with self._lock:
            for checkpoint in (*self._all, self.cleaner_offsets):
                checkpoint.lower(key, offset)

    def purge(self, logs: Mapping[TopicPartition, Log], now_ms: int) -> None:
        """Removes the files of segments that retention took out long enough ago, see `Log.purge`."""
        durable_starts = self.log_starts.values
        for key, log in logs.items():
            log.purge(now_ms, durable_start=durable_starts.get(key, 0))

    def forget(self, key: TopicPartition) -> None:
        """A log is set aside; the next write leaves it out."""
        with self._lock:
            for checkpoint in (*self._all, self.cleaner_offsets):
                checkpoint.forget(key)

    def cleaned_job(self, key: TopicPartition, offset: int) -> Callable[[], None]:
        """A pass of compaction ended at this offset now; the job writes that, unless the log is cut before."""
        checkpoint = self.cleaner_offsets
        taken_at = checkpoint.sequence

        def write() -> None:
            with self._lock:
                checkpoint.write({**checkpoint.values, key: offset}, taken_at)

        return write

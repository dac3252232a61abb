"""How far the recovery of all logs has come, told by several threads; and what it found."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kafkalite_broker.log.directory import each
from kafkalite_core.storage.log_config import LogConfig
from kafkalite_core.storage.partition_metadata import directory_name, sync_metadata
from kafkalite_core.storage.recovery import load_log

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from kafkalite_broker.log.checkpointing import Checkpoints
    from kafkalite_broker.log.directory import DataDirectory
    from kafkalite_core.model.partition import TopicPartition
    from kafkalite_core.storage.identity import DirectoryFindings
    from kafkalite_core.storage.log import Log, LogEnvironment
    from kafkalite_core.storage.partition_metadata import PartitionMetadata
    from kafkalite_core.storage.recovery import RecoveryProgress, RecoveryReport

FoundLog: TypeAlias = "tuple[Log, PartitionMetadata, RecoveryReport]"


class Left(NamedTuple):
    """What is left to be done.

    Attributes:
        logs: That are not recovered yet.
        segments: Still to be scanned of those that are under way.
    """

    logs: int
    segments: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What opening the data directory found; goes into `identity.restart_verdict`.

    Attributes:
        findings: Of the directory as a whole.
        reports: One per log.
    """

    findings: DirectoryFindings
    reports: tuple[RecoveryReport, ...]


class RecoveryTally:
    """Logs still to be recovered, of `total`, and segments still to be scanned over all that are under way."""

    def __init__(self, total: int, on_progress: Callable[[Left], None] | None) -> None:
        self._on_progress = on_progress
        self._logs = total
        self._remaining: dict[str, int] = {}
        self._lock = threading.Lock()

    def follow(
        self, name: str, loading: Generator[RecoveryProgress, None, tuple[Log, RecoveryReport]]
    ) -> tuple[Log, RecoveryReport]:
        """The result of loading one log, while its progress is told."""
        while True:
            try:
                self.update(name, next(loading).remaining_segments)
            except StopIteration as done:
                self.update(name, 0, done=True)
                result: tuple[Log, RecoveryReport] = done.value
                return result

    def update(self, name: str, remaining: int, *, done: bool = False) -> None:
        """One log has `remaining` segments left, or is `done`."""
        if self._on_progress is None:
            return
        with self._lock:
            self._logs -= done
            self._remaining[name] = remaining
            left = Left(self._logs, sum(self._remaining.values()))
        self._on_progress(left)


def recover_logs(
    disk: DataDirectory,
    directories: Mapping[TopicPartition, PartitionMetadata],
    environment: LogEnvironment,
    checkpoints: Checkpoints,
    *,
    clean: bool,
    now_ms: int,
    threads: int,
    on_progress: Callable[[Left], None] | None,
) -> Iterator[FoundLog]:
    """The logs in these directories, in that order; `clean`: the stop was. Raises `DiskFailure`, `StorageError`."""
    progress = RecoveryTally(len(directories), on_progress)

    def recover(key: TopicPartition) -> FoundLog:
        name = directory_name(*key)
        kept = directories[key]
        recovery_point = max(checkpoints.recovery_points.values.get(key, 0), kept.kept_recovery_point)
        whole = clean and not kept.marked  # a clean stop closes the logs in use only
        if not whole:
            sync_metadata(disk, name, flushed=recovery_point > 0)
        # The topic's configuration is not known yet; only whether offsets may have gaps matters here.
        loading = load_log(
            disk,
            name,
            LogConfig(gaps=kept.compacted),
            environment,
            now_ms=now_ms,
            clean=whole,
            recovery_point=recovery_point,
            start_offset=max(checkpoints.log_starts.values.get(key, 0), kept.kept_start),
        )
        log, report = progress.follow(name, loading)
        return log, kept, report

    yield from each(recover, directories, threads, "recovery")

"""The logs of one data directory: what the broker's log manager does, on a simulated disk and in one thread."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kafkalite_core.model.errors import StorageError
from kafkalite_core.model.partition import TopicPartition
from kafkalite_core.storage.checkpoints import (
    HIGH_WATERMARK,
    LOG_START,
    RECOVERY_POINT,
    OffsetCheckpoint,
    recovery_points_of,
)
from kafkalite_core.storage.errors import CorruptCheckpoint
from kafkalite_core.storage.identity import (
    CleanShutdown,
    DirectoryFindings,
    Identity,
    directory_findings,
    establish_identity,
    leave_clean_shutdown,
    settle_identity,
    take_clean_shutdown,
)
from kafkalite_core.storage.log import LogEnvironment
from kafkalite_core.storage.log_config import LogConfig
from kafkalite_core.storage.partition_metadata import (
    FILE_NAME,
    STRAY_SUFFIX,
    PartitionMetadata,
    Stray,
    adoptable,
    directory_name,
    parse_directory_name,
    read_metadata,
    stray_name,
    sync_metadata,
    write_metadata,
)
from kafkalite_core.storage.recovery import open_log
from kafkalite_core.storage.stray_ends import noted_of_stray, recovered_metadata
from kafkalite_core.storage.tail import TailBudget

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalite_core.model.config import TopicConfig
    from kafkalite_core.model.partition import Seen, TopicRef
    from kafkalite_core.storage.log import Log
    from kafkalite_core.storage.recovery import RecoveryReport
    from tests.simulation.disk import SimDisk


class Logs:
    """See the module. Raises what the core's storage raises."""

    def __init__(
        self, disk: SimDisk, *, broker_id: int, cluster_id: str, wall_ms: Callable[[], int], tail_bytes: int
    ) -> None:
        self.disk = disk
        self.identity: Identity
        self._shutdown = CleanShutdown(None, None)
        self._broker_id = broker_id
        self._cluster_id = cluster_id
        self._wall_ms = wall_ms
        self._recovery_points = OffsetCheckpoint(disk, RECOVERY_POINT)
        self._high_watermarks = OffsetCheckpoint(disk, HIGH_WATERMARK)
        self._log_starts = OffsetCheckpoint(disk, LOG_START)
        self._environment = LogEnvironment(TailBudget(tail_bytes), self._before_shrink)
        self.logs: dict[TopicPartition, Log] = {}
        self.reports: list[RecoveryReport] = []
        self._metadata: dict[Log, PartitionMetadata] = {}
        self._dirty: dict[Log, None] = {}
        self.unclaimed: dict[TopicPartition, Log] = {}
        self.strays: dict[str, Stray] = {}
        self._strays_made = 0

    # ------------------------------------------------------------------------------------------------ opening

    def open(self, incarnation: str) -> DirectoryFindings:
        """Identity, clean marker, checkpoints, recovery of every log."""
        disk = self.disk
        new_directory_id = f"d-{incarnation}"
        found = establish_identity(
            disk, cluster_id=self._cluster_id, broker_id=self._broker_id, new_directory_id=new_directory_id
        )
        self.identity = found.identity
        shutdown = self._shutdown = take_clean_shutdown(disk, incarnation)
        known = self._load_checkpoints()
        expected = set(self._recovery_points.values)
        directories = self._find_directories()
        for key, metadata in directories.items():
            self._recover(key, metadata, clean=shutdown.epoch is not None)
        set_aside = {stray.metadata.key for stray in self.strays.values() if stray.metadata is not None}
        missing = expected - set(self.logs) - set_aside
        findings = directory_findings(
            found,
            shutdown,
            cut_below_flushed=[report.cut_below_flushed for report in self.reports],
            flushed_ends_known=known,
            missing=missing,
        )
        self.identity, findings = settle_identity(disk, self.identity, findings, f"{new_directory_id}-renewed")
        for checkpoint in (self._recovery_points, self._high_watermarks, self._log_starts):
            checkpoint.cap({key: log.end_offset for key, log in self.logs.items()})
        self._write_checkpoints({}, force=True)
        return findings

    def _load_checkpoints(self) -> bool:
        known = False
        for checkpoint in (self._recovery_points, self._high_watermarks, self._log_starts):
            try:
                found = checkpoint.load()
            except CorruptCheckpoint:
                found = False
            if checkpoint is self._recovery_points:
                known = found
        return known

    def _find_directories(self) -> dict[TopicPartition, PartitionMetadata]:
        disk = self.disk
        found: dict[TopicPartition, PartitionMetadata] = {}
        for name in disk.list(""):
            if name.endswith(STRAY_SUFFIX):
                known = recovered_metadata(disk, name, now_ms=self._wall_ms())
                self.strays[name] = Stray(name, known, disk.tree_bytes(name))
                continue
            key = parse_directory_name(name)
            if key is None or not disk.is_directory(name):
                continue
            metadata = read_metadata(disk, name)
            if metadata is not None and metadata.key == key:
                found[key] = metadata
            elif disk.tree_bytes(name):
                self._stray(name, metadata)
            else:
                disk.remove_tree(name)
        return found

    def _recover(self, key: TopicPartition, metadata: PartitionMetadata, *, clean: bool) -> None:
        name = directory_name(*key)
        recovery_point = max(self._recovery_points.values.get(key, 0), metadata.kept_recovery_point)
        clean = clean and not metadata.marked
        if not clean:
            sync_metadata(self.disk, name, flushed=recovery_point > 0)
        log, report = open_log(
            self.disk,
            name,
            LogConfig(gaps=metadata.compacted),
            self._environment,
            now_ms=self._wall_ms(),
            clean=clean,
            recovery_point=recovery_point,
            start_offset=max(self._log_starts.values.get(key, 0), metadata.kept_start),
        )
        self.logs[key] = self.unclaimed[key] = log
        self._metadata[log] = metadata
        self.reports.append(report)
        self.disk.directory(name).tag = (metadata.topic_id, key.partition)

    # ------------------------------------------------------------------------------------------------ logs

    def obtain(self, ref: TopicRef, number: int, config: TopicConfig, deletion_policy: str) -> tuple[Log, int]:
        """The log of a partition, and its checkpointed high watermark: recovered, adopted or new."""
        key = TopicPartition(ref.name, number)
        log = self.logs.get(key)
        if log is not None and self._metadata[log].topic_id != ref.topic_id:
            self.set_aside(log, delete_seen=False)
            log = None
        log_config = LogConfig.of(config)
        if log is None:
            log = self._adopt(ref, number, log_config) or self._create(ref, number, log_config)
            self.logs[key] = self.unclaimed[key] = log
        else:
            log.reconfigure(log_config)
        compacted = self._metadata[log].compacted or log_config.compacts
        known = self._metadata[log].in_use(ref.uid)
        wanted = replace(known, deletion_policy=deletion_policy, compacted=compacted)
        if self._metadata[log].marked:
            self._log_starts.begin(key, log.start_offset)
        if wanted != self._metadata[log]:
            self._note(log, wanted)
        self.unclaimed.pop(key, None)
        mark = self._high_watermarks.values.get(key, log.start_offset)
        return log, min(max(mark, log.start_offset), log.end_offset)

    def _create(self, ref: TopicRef, number: int, config: LogConfig) -> Log:
        name = directory_name(ref.name, number)
        self._clear_way(name, ref.topic_id)
        self._before_shrink(name, 0)
        metadata = PartitionMetadata(
            topic=ref.name, partition=number, topic_id=ref.topic_id, uid=ref.uid, compacted=config.compacts
        )
        log, _ = open_log(self.disk, name, config, self._environment, now_ms=self._wall_ms())
        write_metadata(self.disk, name, metadata, durable=False)
        log.sync_later(f"{name}/{FILE_NAME}")
        self._metadata[log] = metadata
        self.disk.directory(name).tag = (ref.topic_id, number)
        return log

    def _clear_way(self, name: str, topic_id: str) -> None:
        """What is in the way of a new log is set aside, never taken over (S12)."""
        if not self.disk.exists(name):
            return
        metadata = read_metadata(self.disk, name)
        if not self.disk.tree_bytes(name):
            self.disk.remove_tree(name)
        elif metadata is None or metadata.topic_id != topic_id:
            self._stray(name, metadata)

    def _adopt(self, ref: TopicRef, number: int, config: LogConfig) -> Log | None:
        name = directory_name(ref.name, number)
        metadata = read_metadata(self.disk, name) if self.disk.exists(name) else None
        if metadata is None or metadata.topic_id != ref.topic_id:
            stray = adoptable(self.strays.values(), ref.name, number, ref.topic_id)
            if stray is None or stray.metadata is None:
                return None
            metadata = stray.metadata
            self._clear_way(name, ref.topic_id)
            self._begin(name, metadata.kept_start)
            self.disk.rename(stray.directory, name)
            self.disk.sync_directory("")
            del self.strays[stray.directory]
        else:
            self._begin(name, metadata.kept_start)
        start = metadata.kept_start
        log, _ = open_log(self.disk, name, config, self._environment, now_ms=self._wall_ms(), start_offset=start)
        self._metadata[log] = metadata
        self.disk.directory(name).tag = (ref.topic_id, number)
        return log

    def seen(self, ref: TopicRef, number: int, *, set_aside: bool = False) -> Seen | None:
        """The highest epochs that the log (or stray) of this very partition has noted, and the ISR (S11)."""
        if set_aside:
            stray = adoptable(self.strays.values(), ref.name, number, ref.topic_id)
            return None if stray is None or stray.metadata is None else stray.metadata.newest
        log = self.logs.get(TopicPartition(ref.name, number))
        if log is None or self._metadata[log].topic_id != ref.topic_id:
            return None
        return self._metadata[log].newest

    def set_aside(self, log: Log, *, delete_seen: bool, moved_away: bool = False) -> None:
        """The log is wanted no more: its directory becomes a stray (S10)."""
        metadata = noted_of_stray(log, self._metadata[log], delete_seen=delete_seen, moved_away=moved_away)
        self._metadata[log] = metadata
        key = metadata.key
        self.unclaimed[key] = log
        metadata = self._mark(log.directory, metadata)  # no room: it stays as it is, unclaimed
        log.abandon()
        del self.unclaimed[key], self.logs[key], self._metadata[log]
        self._dirty.pop(log, None)
        for checkpoint in (self._recovery_points, self._high_watermarks, self._log_starts):
            checkpoint.forget(key)
        self._rename(log.directory, metadata, log.flushed_end)

    def _stray(self, name: str, metadata: PartitionMetadata | None) -> None:
        self._rename(name, None if metadata is None else self._mark(name, metadata), -1)

    def _mark(self, name: str, metadata: PartitionMetadata) -> PartitionMetadata:
        metadata = replace(metadata, stray_since_ms=self._wall_ms())
        write_metadata(self.disk, name, metadata)
        return metadata

    def _rename(self, name: str, metadata: PartitionMetadata | None, end_offset: int) -> None:
        while True:
            self._strays_made += 1
            target = stray_name(name, f"{self._strays_made:08x}")
            if not self.disk.exists(target):
                break
        self.disk.rename(name, target)
        self.strays[target] = Stray(target, metadata, self.disk.tree_bytes(target), end_offset)

    def set_unclaimed_aside(self, moved_away: Callable[[str, str, int], bool]) -> None:
        """Logs that no topic of the metadata claims; on a full disk later."""
        for log in list(self.unclaimed.values()):
            known = self._metadata[log]
            moved = moved_away(known.topic, known.topic_id, known.partition)
            self.set_aside(log, delete_seen=False, moved_away=moved)

    def note_epochs(self, log: Log, seen: Seen, broker_epoch: int) -> None:
        """The highest epochs seen, for the next checkpoint (S11)."""
        known = self._metadata[log]
        noted = known.noting(seen, broker_epoch=broker_epoch, relaxed_flush=log.config.relaxed_flush)
        if noted is not known:
            self._note(log, noted)

    def _note(self, log: Log, metadata: PartitionMetadata) -> None:
        if self._metadata[log].marked:
            write_metadata(self.disk, log.directory, metadata)
        else:
            self._dirty[log] = None
        self._metadata[log] = metadata

    # ------------------------------------------------------------------------------------------------ housekeeping

    def checkpoint(self, high_watermarks: Mapping[Log, int]) -> None:
        """All checkpoints, and the metadata that changed."""
        dirty, self._dirty = self._dirty, {}
        self._write_checkpoints(high_watermarks)
        for log in dirty:
            if not log.closed:
                try:
                    write_metadata(self.disk, log.directory, self._metadata[log])
                except StorageError:
                    self._dirty[log] = None

    def _write_checkpoints(self, high_watermarks: Mapping[Log, int], *, force: bool = False) -> None:
        known = self._high_watermarks.values
        taken_at = [each.take() for each in (self._recovery_points, self._high_watermarks, self._log_starts)]
        marks = {key: high_watermarks.get(log, known.get(key, log.start_offset)) for key, log in self.logs.items()}
        for checkpoint, values, number in (
            (self._recovery_points, recovery_points_of(self.logs), taken_at[0]),
            (self._high_watermarks, marks, taken_at[1]),
            (self._log_starts, {key: log.start_offset for key, log in self.logs.items()}, taken_at[2]),
        ):
            try:
                checkpoint.write(values, number, force=force)
            except StorageError:
                continue

    def _before_shrink(self, directory: str, offset: int) -> None:
        key = parse_directory_name(directory)
        assert key is not None, directory
        for checkpoint in (self._recovery_points, self._high_watermarks, self._log_starts):
            checkpoint.lower(key, offset)

    def _begin(self, directory: str, start_offset: int) -> None:
        self._before_shrink(directory, 0)
        key = parse_directory_name(directory)
        assert key is not None, directory
        self._log_starts.begin(key, start_offset)

    def retention_pass(self, high_watermarks: Mapping[Log, int], deletable: Mapping[Log, int]) -> None:
        """Retention by time and size; `deletable`: the logs from which something may be taken."""
        now_ms = self._wall_ms()
        retired = [log.retention(now_ms, mark) for log, mark in deletable.items()]
        if any(retired):
            self.checkpoint(high_watermarks)
        for key, log in self.logs.items():
            log.purge(now_ms, durable_start=self._log_starts.values.get(key, 0))

    def highest_producer_id(self) -> int:
        """The greatest producer id in any log (S11)."""
        return max((log.producers.highest_producer_id for log in self.logs.values()), default=-1)

    def close(self, high_watermarks: Mapping[Log, int], *, broker_epoch: int) -> None:
        """Clean shutdown."""
        self.checkpoint(high_watermarks)
        for log in self.logs.values():
            log.close(high_watermark=min(high_watermarks.get(log, log.start_offset), log.end_offset))
        self._write_checkpoints(high_watermarks, force=True)
        leave_clean_shutdown(self.disk, broker_epoch, self._shutdown)

"""All logs of a broker: opening the data directory, handing out logs, checkpoints, retention, strays, clean close."""

from __future__ import annotations

import uuid
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from kafkalite_broker.clock import now_ms
from kafkalite_broker.log.checkpointing import Checkpoints
from kafkalite_broker.log.directory import each
from kafkalite_broker.log.metadata_files import MetadataFiles
from kafkalite_broker.log.recovery_tally import Recovered, recover_logs
from kafkalite_broker.log.removals import Removals, at_once
from kafkalite_broker.log.strays import StrayDirectories
from kafkalite_core.model.partition import TopicPartition
from kafkalite_core.storage.errors import DiskFailure
from kafkalite_core.storage.flushing import complete_flush
from kafkalite_core.storage.identity import (
    CleanShutdown,
    Identity,
    directory_findings,
    establish_identity,
    leave_clean_shutdown,
    settle_identity,
    take_clean_shutdown,
)
from kafkalite_core.storage.log import Log, LogEnvironment
from kafkalite_core.storage.log_config import LogConfig
from kafkalite_core.storage.partition_metadata import (
    FILE_NAME,
    PartitionMetadata,
    directory_name,
    parse_directory_name,
    write_metadata,
)
from kafkalite_core.storage.recovery import open_log
from kafkalite_core.storage.reserve import Reserve
from kafkalite_core.storage.stray_ends import flush_of_stray, noted_of_stray
from kafkalite_core.storage.tail import TailBudget

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from kafkalite_broker.log.directory import DataDirectory, Held
    from kafkalite_broker.log.recovery_tally import Left
    from kafkalite_broker.log.strays import StrayRules
    from kafkalite_core.model.config import TopicConfig
    from kafkalite_core.model.partition import Seen, TopicRef
    from kafkalite_core.protocol.record_batch import Compress, Decompress
    from kafkalite_core.storage.partition_metadata import Stray

RESERVE_BYTES: Final = 16 << 20
DAY_MS: Final = 86_400_000


class LogManager:
    """One data directory. `open` may run on any thread; everything after it on the loop's thread, jobs excepted.

    Args:
        disk: The data directory.
        cluster_id: `status.clusterId`.
        broker_id: Broker id.
        wall_ms: Wall clock.
        mono_ms: Monotonic clock.
        incarnation: Of this process.
        tail_bytes: `kafkalite.log.tail.cache.bytes`.
        decompress: For look-ups by timestamp inside compressed batches, and for compaction.
        compress: For compaction.
        reserve_bytes: Size of the preallocated reserve.
        unique_hex: 32 hexadecimal digits that are never given again.
        start_removals: Where large files are removed, see `Removals`.
    """

    def __init__(
        self,
        disk: DataDirectory,
        *,
        cluster_id: str,
        broker_id: int,
        wall_ms: Callable[[], int],
        mono_ms: Callable[[], float] = now_ms,
        incarnation: str = "",
        tail_bytes: int = 67_108_864,
        decompress: Decompress | None = None,
        compress: Compress | None = None,
        reserve_bytes: int = RESERVE_BYTES,
        unique_hex: Callable[[], str] = lambda: uuid.uuid4().hex,
        start_removals: Callable[[Callable[[], None]], None] = at_once,
    ) -> None:
        self.disk = disk
        self.identity: Identity
        self.reserve = Reserve(self.disk, reserve_bytes)
        self._full = False
        self._cluster_id = cluster_id
        self._broker_id = broker_id
        self._wall_ms = wall_ms
        self._mono_ms = mono_ms
        self._incarnation = incarnation
        self._closed = CleanShutdown(None, None)
        self._lock: Held | None = None
        self._checkpoints = Checkpoints(self.disk)
        self.removals = Removals(self.disk, start_removals)
        self._environment = LogEnvironment(
            TailBudget(tail_bytes),
            self._checkpoints.before_shrink,
            decompress,
            compress,
            self.allow_gaps,
            self.removals.remove,
        )
        self._logs: dict[TopicPartition, Log] = {}
        self._metadata = MetadataFiles(self.disk)
        self._unclaimed: dict[TopicPartition, Log] = {}
        self._unique_hex = unique_hex
        self._strays = StrayDirectories(self.disk, wall_ms, mono_ms, unique_hex, self.removals)

    # ------------------------------------------------------------------------------------------------ opening

    def lock(self) -> None:
        """Takes the directory's lock. Raises `DirectoryLocked`. Nothing is read or written before."""
        if self._lock is None:
            self._lock = self.disk.take()

    def open(self, *, threads: int = 4, on_progress: Callable[[Left], None] | None = None) -> Recovered:
        """Lock, identity, clean marker, checkpoints, recovery of every log (blocking).

        `on_progress` is called with the logs and segments that are left, from the recovery threads.
        Raises `DirectoryLocked`, `ForeignDirectory`, `DiskFailure`, `StorageError`.
        """
        self.lock()
        found = establish_identity(
            self.disk, cluster_id=self._cluster_id, broker_id=self._broker_id, new_directory_id=self._new_id()
        )
        self.identity = found.identity
        self.reserve.lend()
        closed = self._closed = take_clean_shutdown(self.disk, self._incarnation)
        flushed_ends_known = self._checkpoints.load()
        expected = set(self._checkpoints.recovery_points.values)
        whole = self._strays.find(threads)
        directories = self._strays.find_logs()
        loaded = []
        for log, metadata, report in recover_logs(
            self.disk,
            directories,
            self._environment,
            self._checkpoints,
            clean=closed.epoch is not None,
            now_ms=self._wall_ms(),
            threads=threads,
            on_progress=on_progress,
        ):
            self._logs[metadata.key] = self._unclaimed[metadata.key] = log
            self._metadata.opened(log, metadata)
            loaded.append(report)
        cut = [report.cut_below_flushed for report in loaded]
        if any(cut) or not whole:
            self._strays.verify(threads)  # of one loss the disk is distrusted once
            cut.append(not whole)
        findings = directory_findings(
            found,
            closed,
            cut_below_flushed=cut,
            flushed_ends_known=flushed_ends_known,
            missing=expected - set(self._logs) - self._strays.partitions(),
        )
        self.identity, findings = settle_identity(self.disk, self.identity, findings, self._new_id())
        self._strays.note_losses()
        self._metadata.note_losses()
        self._checkpoints.recovered({key: log.end_offset for key, log in self._logs.items()})
        self._checkpoints.write(self._checkpoints.take(self._logs, {}), force=True)
        self._strays.end_removals(self._checkpoints.named_without_log(self._logs))
        self._full = not self.reserve.ensure()
        return Recovered(findings=findings, reports=tuple(loaded))

    def _new_id(self) -> str:
        return str(uuid.UUID(self._unique_hex()))

    # ------------------------------------------------------------------------------------------------ logs

    @property
    def logs(self) -> Mapping[TopicPartition, Log]:
        """All open logs, claimed or not."""
        return self._logs

    def obtain(
        self, ref: TopicRef, number: int, config: TopicConfig, *, deletion_policy: str = "Delete"
    ) -> tuple[Log, int]:
        """The log of a partition, and its checkpointed high watermark.

        One that was recovered under this topic id, else an adopted stray, else a new one. A log of the same name but
        another topic id is set aside first (S10, S12). Raises `StorageError`, `DiskFailure`.
        """
        key = TopicPartition(ref.name, number)
        log = self._logs.get(key)
        if log is not None and self._metadata[log].topic_id != ref.topic_id:
            self.set_aside(log, delete_seen=False)
            log = None
        log_config = LogConfig.of(config)
        if log is None:
            log = self._adopt(ref, number, log_config) or self._create(ref, number, log_config)
            self._logs[key] = self._unclaimed[key] = log
        else:
            log.reconfigure(log_config)
        known = self._metadata[log]
        # Once compacted, always compacted: the gaps stay when the policy changes.
        compacted = known.compacted or log_config.compacts
        wanted = replace(known.in_use(ref.uid), deletion_policy=deletion_policy, compacted=compacted)
        if known.marked:
            self._checkpoints.keep_start(key, log.start_offset)
        if wanted != known:
            self._metadata.note(log, wanted)
        self._unclaimed.pop(key, None)
        mark = self._checkpoints.high_watermarks.values.get(key, log.start_offset)
        return log, min(max(mark, log.start_offset), log.end_offset)

    def _create(self, ref: TopicRef, number: int, config: LogConfig) -> Log:
        name = directory_name(ref.name, number)
        self._strays.clear_way(name, ref.topic_id)
        self._checkpoints.before_shrink(name, 0)  # of a predecessor the files may still tell
        metadata = PartitionMetadata(
            topic=ref.name, partition=number, topic_id=ref.topic_id, uid=ref.uid, compacted=config.compacts
        )
        log, _ = open_log(self.disk, name, config, self._environment, now_ms=self._wall_ms())
        # Synced with the first flush, so before any data count; a power loss earlier leaves an empty log to no one.
        write_metadata(self.disk, name, metadata, durable=False)
        log.sync_later(f"{name}/{FILE_NAME}")
        self._metadata.opened(log, metadata)
        return log

    def _adopt(self, ref: TopicRef, number: int, config: LogConfig) -> Log | None:
        found = self._strays.find_own(ref, number)
        if found is None:
            return None
        directory, metadata = found
        name = directory_name(ref.name, number)
        if directory != name:
            self._strays.clear_way(name, ref.topic_id)
        self._checkpoints.begin(metadata.key, metadata.kept_start)
        self._strays.give_back(directory, name)
        log_config = replace(config, gaps=metadata.compacted)
        start, now_ms = metadata.kept_start, self._wall_ms()
        log, _ = open_log(self.disk, name, log_config, self._environment, now_ms=now_ms, start_offset=start)
        if log.end_offset < metadata.kept_recovery_point:
            # It was called in sync for what it has lost. The mark tells the next start, which distrusts the disk.
            raise DiskFailure(f"{name}: {metadata.kept_recovery_point} was flushed, and {log.end_offset} is left")
        self._strays.adopted(name)
        self._metadata.opened(log, metadata)
        return log

    def allow_gaps(self, directory: str) -> None:
        """See `MetadataFiles.allow_gaps`; a directory that is no log is none of whose gaps anybody would ask."""
        key = parse_directory_name(directory)
        log = None if key is None else self._logs.get(key)
        if log is not None:
            self._metadata.allow_gaps(log)

    # ------------------------------------------------------------------------------------------------ compaction

    def cleaner_offset(self, log: Log) -> int | None:
        """Where the last pass of compaction over a log ended; None before the first."""
        return self._checkpoints.cleaner_offsets.values.get(self._metadata[log].key)

    def cleaned_job(self, log: Log, offset: int) -> Callable[[], None]:
        """A pass over a log has ended at this offset now; the job writes the checkpoint, on whatever thread."""
        return self._checkpoints.cleaned_job(self._metadata[log].key, offset)

    def unclaimed(self) -> list[tuple[Log, PartitionMetadata]]:
        """Logs that nobody asks for, recovered or left for want of room: strays, once the metadata are known."""
        return [(log, self._metadata[log]) for log in self._unclaimed.values()]

    def metadata(self, log: Log) -> PartitionMetadata:
        """Whose data the log holds, and the highest epochs seen."""
        return self._metadata[log]

    def note_epochs(self, log: Log, seen: Seen, broker_epoch: int) -> None:
        """Remembers the highest epochs seen, and the ISR (S11); they reach the disk with the next checkpoint."""
        known = self._metadata[log]
        noted = known.noting(seen, broker_epoch=broker_epoch, relaxed_flush=log.config.relaxed_flush)
        if noted is not known:
            self._metadata.note(log, noted)

    def seen(self, ref: TopicRef, number: int, *, set_aside: bool = False) -> Seen | None:
        """The highest epochs that the log (or stray) of this very partition has noted, and the ISR; or None (S11)."""
        if set_aside:
            return self._strays.seen(ref, number)
        known = None if (log := self._logs.get(TopicPartition(ref.name, number))) is None else self._metadata[log]
        return None if known is None or known.topic_id != ref.topic_id else known.newest

    # ------------------------------------------------------------------------------------------------ strays

    def unclaim(self, log: Log) -> None:
        """Nobody uses the log any more: it is to be set aside."""
        self._unclaimed[self._metadata[log].key] = log

    def set_aside(self, log: Log, *, delete_seen: bool, moved_away: bool = False) -> Stray:
        """Its directory becomes a stray, nothing is deleted (S10). `StorageError`, no room: it stays, unclaimed."""
        steps = self.setting_aside(log, delete_seen=delete_seen, moved_away=moved_away)
        while True:
            try:
                next(steps)()
            except StopIteration as done:
                stray: Stray = done.value
                return stray

    def setting_aside(
        self, log: Log, *, delete_seen: bool, moved_away: bool
    ) -> Generator[Callable[[], None], None, Stray]:
        """`set_aside`, step by step: what it yields waits for the disk, on whatever thread.

        Meanwhile nobody writes into the log, cuts it, or obtains another one of its name.
        """
        self.unclaim(log)
        ticket = flush_of_stray(log, self._metadata[log], delete_seen=delete_seen)
        if ticket is not None:
            yield ticket.run
            complete_flush(log, ticket)
        noted = noted_of_stray(log, self._metadata[log], delete_seen=delete_seen, moved_away=moved_away)
        self._metadata.remember(log, noted)
        yield partial(self._metadata.mark, log, self._wall_ms())
        with self._metadata.writing:
            log.abandon()
            del self._unclaimed[noted.key], self._logs[noted.key]
            metadata = self._metadata.closed(log)
            self._checkpoints.forget(noted.key)
            return self._strays.rename(log.directory, metadata, end_offset=noted.end_offset)

    def make_way(self, key: TopicPartition) -> None:
        """No checkpoint tells of a log that was set aside any more (blocking, on whatever thread). `StorageError`."""
        self._checkpoints.before_shrink(directory_name(*key), 0)

    def strays(self) -> list[Stray]:
        """Directories that were set aside."""
        return self._strays.all()

    def listed_strays(self) -> list[Stray]:
        """Those that the broker's status names, since they may be taken over."""
        return self._strays.listed()

    @property
    def strays_leaving(self) -> bool:
        """Whether some are listed no more, and removed by a later call of `remove_strays`."""
        return self._strays.leaving

    @property
    def strays_due(self) -> bool:
        """Whether a call that follows a new list of the topics removes some."""
        return self._strays.due

    def remove_strays(self, rules: StrayRules) -> list[tuple[str, str]]:
        """Removes the strays whose time has come, and on a full disk the oldest; (name, reason).

        None that the store names: the status is to be written afterwards. See `StrayDirectories.remove`. Whose they
        were is on disk until a checkpoint leaves them out, and the next call. Raises `StorageError`, `DiskFailure`.
        """
        wanted = max(2 * self.reserve.size - self.disk.free_bytes(), 0) if self._full else 0
        removed = self._strays.remove(rules, now_ms=self._mono_ms(), bytes_wanted=wanted)
        self._strays.end_removals(self._checkpoints.named_without_log(self._logs))
        return removed

    # ------------------------------------------------------------------------------------------------ housekeeping

    def checkpoint_job(self, high_watermarks: Mapping[Log, int]) -> Callable[[], None]:
        """Takes the checkpoints' values now; the job writes them, on whatever thread."""
        values = self._checkpoints.take(self._logs, high_watermarks)
        write_metadata_files = self._metadata.job()

        def write() -> None:
            self._checkpoints.write(values)
            write_metadata_files()

        return write

    def checkpoint(self, high_watermarks: Mapping[Log, int]) -> None:
        """`checkpoint_job`, carried out at once (blocking)."""
        self.checkpoint_job(high_watermarks)()

    def logs_to_flush(self) -> list[Log]:
        """Logs with relaxed flush whose sealed segments are not on disk; recovery would have to scan them."""
        return [log for log in self._logs.values() if log.recovery_point < log.active.base_offset]

    def retention_pass(
        self, high_watermarks: Mapping[Log, int], *, producer_expiration_ms: int = DAY_MS
    ) -> dict[str, list[str]]:
        """Retention by time and size over the logs that are named; the segments taken out, by log directory.

        The log starts are durable before a file is removed, if the disk has room. Idle producers expire here as well.
        """
        now_ms, mono_ms = self._wall_ms(), self._mono_ms()
        retired: dict[str, list[str]] = {}
        for log in self._logs.values():
            log.producers.expire(mono_ms, producer_expiration_ms)
            mark = high_watermarks.get(log)
            if mark is not None:
                names = log.retention(now_ms, mark)
                if names:
                    retired[log.directory] = names
        if retired:
            self.checkpoint(high_watermarks)
        self._checkpoints.purge(self._logs, now_ms)
        if self.reserve.ensure():
            self._full = False
        return retired

    def make_room(self, high_watermarks: Mapping[Log, int]) -> None:
        """The disk is full: the reserve is given up, retention runs; `remove_strays` takes the oldest from now on.

        Until a later `retention_pass` takes the reserve again, when twice its size is free.
        """
        self._full = True
        self.reserve.release()
        now_ms = self._wall_ms()
        retired = [log.retention(now_ms, mark) for log, mark in high_watermarks.items()]
        if any(retired):
            self.checkpoint(high_watermarks)
        self._checkpoints.purge(self._logs, now_ms)

    def highest_producer_id(self) -> int:
        """The greatest producer id in any log, -1 for none (S11)."""
        return max((log.producers.highest_producer_id for log in self._logs.values()), default=-1)

    # ------------------------------------------------------------------------------------------------ closing

    def close(self, high_watermarks: Mapping[Log, int], *, broker_epoch: int | None, threads: int = 4) -> bool:
        """Clean shutdown: logs closed and synced, checkpoints, then the marker (blocking), or False: no room for it."""
        self.reserve.lend()
        checkpoint = self.checkpoint_job(high_watermarks)

        def close_log(log: Log) -> None:
            log.close(high_watermark=min(high_watermarks.get(log, log.start_offset), log.end_offset))

        checkpoint()
        for _ in each(close_log, self._logs.values(), threads, "close"):
            pass
        self._checkpoints.write(self._checkpoints.take(self._logs, high_watermarks), force=True)
        clean = leave_clean_shutdown(self.disk, broker_epoch, self._closed)
        self.abandon()
        return clean

    def abandon(self) -> None:
        """Closes the files and gives up the lock, writing nothing."""
        self.removals.close()
        for log in self._logs.values():
            if not log.closed:
                log.abandon()
        self._logs.clear()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

"""One partition's log: segments, epochs, producers, and the tail of recent batches in memory.

All methods are called on one thread; only `FlushTicket.run`, `ColdRead.run` and the steps of a `TimeSearch` may run
elsewhere. Batches are stored as they came: the leader patches base offset and leader epoch, both outside the CRC, and
walks no records.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite_core.model.errors import StorageError
from kafkalite_core.storage import appending, flushing, reading, replay, retention, truncation
from kafkalite_core.storage.disk import disk_errors, remove_file, sync_directory
from kafkalite_core.storage.epoch_cache import EpochCache
from kafkalite_core.storage.index_loading import IndexLoading
from kafkalite_core.storage.producer_state import ProducerStates
from kafkalite_core.storage.segment import SNAPSHOT_SUFFIX, Segment, offset_of
from kafkalite_core.storage.tail import Tail, TailBudget
from kafkalite_core.storage.timestamps import TimeSearch

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite_core.protocol.record_batch import Compress, Decompress
    from kafkalite_core.storage.disk import Disk, File
    from kafkalite_core.storage.flushing import FlushTicket
    from kafkalite_core.storage.log_config import LogConfig
    from kafkalite_core.storage.reading import ColdRead, ReadResult
    from kafkalite_core.storage.swap import Swap
    from kafkalite_core.storage.timestamps import TimestampedOffset

INDEXES_LOADED_MAX: Final = 8
"""Sealed segments per log whose indexes are kept in memory."""


class AppendInfo(NamedTuple):
    """What became of a batch.

    Attributes:
        base_offset: Offset of its first record.
        last_offset: Offset of its last record.
        max_timestamp: Its largest timestamp.
        log_append_time: The time stamped on it when the topic has LogAppendTime, else -1.
    """

    base_offset: int
    last_offset: int
    max_timestamp: int
    log_append_time: int


class LogEnvironment(NamedTuple):
    """What all logs of one data directory share.

    Attributes:
        tail_budget: Bound of the tails of all logs together.
        before_shrink: Called with (log directory, offset) before bytes below the checkpointed recovery point are cut;
            returns when the checkpoint on disk is not above the offset. Without it a crash right after a truncation
            would look like lost data.
        decompress: (codec, payload) → records' bytes of a compressed batch, or None where it can't be done.
        compress: (codec, records' bytes) → payload of a compressed batch, or None where it can't be done.
        before_gaps: Called with the log directory before missing offsets are written; returns when recovery will accept
            them.
        remove_later: Called with a file that nobody looks for under its name any more, and its size in bytes. Without
            it the file is removed at once.
    """

    tail_budget: TailBudget
    before_shrink: Callable[[str, int], None] | None = None
    decompress: Decompress | None = None
    compress: Compress | None = None
    before_gaps: Callable[[str], None] | None = None
    remove_later: Callable[[str, int], None] | None = None


class Log:
    """See the module. Made by `recovery.load_log` (or `Log.open`).

    Attributes:
        start_offset: First offset that may be read.
        end_offset: Offset of the next record.
        flushed_end: Everything below is on disk; the log end itself under relaxed flush (S8).
        recovery_point: Everything below is on disk, whatever the flush configuration.
        snapshot_size: Size of the active segment when the producers in it were last written, 0 before that.
        generation: Rises with every truncation; flush tickets and cold reads of an older one are void (S8).
        pending_swap: The replacement of segments by a compacted one that is under way, or None.
    """

    def __init__(
        self, disk: Disk, directory: str, config: LogConfig, environment: LogEnvironment, *, start_offset: int
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.config = config
        self.environment = environment
        self.segments: list[Segment] = []
        self.active: Segment
        self.epochs = EpochCache()
        self.producers = ProducerStates()
        self.snapshot_size = 0
        self.tail = Tail(environment.tail_budget)
        self.start_offset = start_offset
        self.end_offset = start_offset
        self.flushed_end = start_offset
        self.recovery_point = start_offset
        self.generation = 0
        self.directory_version = 0
        self.directory_synced = 0
        self._active_version = 0
        self.epochs_written = 0
        self.unsynced_files: dict[str, tuple[File, str]] = {}
        self.parent_unsynced = False
        self.closed = False
        self.doomed: list[tuple[int, Segment]] = []
        self.pending_swap: Swap | None = None
        self._relaxed = config.relaxed_flush
        self._frozen_end = -1
        self._loaded: OrderedDict[int, Segment] = OrderedDict()

    def __repr__(self) -> str:
        return f"Log({self.directory!r}, [{self.start_offset}, {self.end_offset}), flushed {self.flushed_end})"

    # ------------------------------------------------------------------------------------------------ configuration

    @property
    def stamps_append_time(self) -> bool:
        """Whether `message.timestamp.type` is LogAppendTime."""
        return self.config.log_append_time

    def reconfigure(self, config: LogConfig) -> None:
        """Takes a new configuration.

        Tightening `flush.messages` to 1 never takes back what was reported as flushed: `flushed_end` stands still
        where it is until the disk has caught up with it (S4).
        """
        self.config = config
        if self._relaxed and not config.relaxed_flush:
            self._frozen_end = self.end_offset
        self._relaxed = config.relaxed_flush
        self.update_flushed_end()

    @property
    def reported_is_flushed(self) -> bool:
        """Whether all that was ever reported as flushed is on disk, and no relaxed flush reports more (S4)."""
        return not self._relaxed and self._frozen_end < 0

    def update_flushed_end(self) -> None:
        """Derives `flushed_end` from recovery point, log end and configuration."""
        if self._relaxed:
            self.flushed_end = self.end_offset
            return
        self._frozen_end = min(self._frozen_end, self.end_offset)
        if self.recovery_point >= self._frozen_end:
            self._frozen_end = -1
        self.flushed_end = max(self.recovery_point, self._frozen_end)

    # ------------------------------------------------------------------------------------------------ appending

    def append_as_leader(self, batch: bytearray | memoryview, *, leader_epoch: int, now_ms: int) -> AppendInfo:
        """Appends one batch v2 that was validated before, at the log end.

        Patches base offset and leader epoch into the buffer, which belongs to the log from now on: the caller never
        writes into it again. Raises `StorageError` (disk full; the log is as before) or `DiskFailure`.
        """
        return AppendInfo(*appending.append_as_leader(self, batch, leader_epoch, now_ms))

    def append_as_follower(self, records: memoryview, *, max_epoch: int, now_ms: int) -> int:
        """Appends a leader's batches verbatim; returns the new end offset.

        Everything is checked first: length, magic, CRC, offsets contiguous or ahead. An incomplete batch at the end
        and everything from the first batch with an epoch above `max_epoch` on is left out (KAFKA-18723). Raises
        `CorruptMessage` or `UnexpectedAppendOffset` (nothing was appended), `StorageError` (a whole number of batches
        was), `DiskFailure`. No view of `records` is kept; what is read of it later comes from the file.
        """
        return appending.append_as_follower(self, records, max_epoch, now_ms)

    def roll(self, now_ms: int) -> Segment:
        """Begins a new segment at the log end; the state of the producers is written beside it.

        Its predecessor is in the directory for sure by then (blocking, if neither a flush nor a checkpoint has seen to
        it). Otherwise a power loss could take the first segment and leave the second one: as if retention had taken it,
        a log without its beginning, which would never be copied again.
        """
        old = self.active
        if self.begun_unsynced:
            sync_directory(self.disk, self.directory)
            self.directory_synced = self.directory_version
        try:
            old.seal()
            segment = self._new_segment(self.end_offset, now_ms)
        except StorageError:
            old.sealed = False
            raise
        replay.write_snapshot(self)
        self._loaded[old.base_offset] = old
        self._trim_indexes()
        return segment

    def _new_segment(self, base_offset: int, now_ms: int) -> Segment:
        segment = Segment(
            self.disk,
            self.directory,
            base_offset,
            index_bytes_max=self.config.segment_index_bytes,
            created_ms=now_ms,
        )
        segment.file.size()  # makes the file
        self.directory_version += 1
        self._active_version = self.directory_version
        self.segments.append(segment)
        self.active = segment
        return segment

    # ------------------------------------------------------------------------------------------------ reading

    def plan_read(self, offset: int, *, max_bytes: int, end: int, minimum_one: bool) -> ReadResult | ColdRead:
        """As `read`, but a read that has to go to the disk is returned as a `ColdRead` to be run on another thread."""
        return reading.plan_read(self, offset, max_bytes=max_bytes, end=end, minimum_one=minimum_one)

    def read(self, offset: int, *, max_bytes: int, end: int, minimum_one: bool) -> ReadResult:
        """Whole batches from the one that holds `offset`, none beginning at or beyond `end`, at most `max_bytes`.

        With `minimum_one` the first batch is returned even when it is larger. Raises `OffsetOutOfRange`.
        """
        plan = reading.plan_read(self, offset, max_bytes=max_bytes, end=end, minimum_one=minimum_one)
        if isinstance(plan, reading.ReadResult):
            return plan
        result = plan.run()
        self.keep_indexes(plan.loading)
        return result

    def search_by_time(self, timestamp_ms: int | None, *, end: int) -> TimeSearch:
        """A look-up whose steps may run on another thread: by time, or of the newest record (None)."""
        return TimeSearch(self, timestamp_ms, end)

    def offset_for_timestamp(self, timestamp_ms: int, *, end: int) -> TimestampedOffset | None:
        """The first record below `end` with a timestamp ≥ `timestamp_ms`: (timestamp, offset, leader epoch)."""
        return TimeSearch(self, timestamp_ms, end).run()

    def max_timestamp(self, *, end: int) -> TimestampedOffset | None:
        """The first record below `end` that has the largest timestamp (ListOffsets -3, KIP-734)."""
        return TimeSearch(self, None, end).run()

    def indexes_of(self, segment: Segment) -> IndexLoading | None:
        """None when the indexes of a segment are in memory; otherwise what reads them on a thread of choice."""
        if not segment.loaded:
            return IndexLoading(segment, self.generation)
        self.touch_indexes(segment)
        return None

    def keep_indexes(self, loading: IndexLoading | None) -> None:
        """Indexes were read on another thread: the next reads need not. Damaged ones are built anew."""
        if loading is None or loading.whole is None or loading.generation != self.generation or self.closed:
            return
        segment = loading.segment
        if segment.loaded or not any(one is segment for one in self.segments):
            return
        if loading.whole:
            segment.take_indexes(loading.index, loading.time_index)
        self.touch_indexes(segment)

    def touch_indexes(self, segment: Segment) -> None:
        """Makes the indexes of a segment available; those of the segment not used for longest are let go."""
        segment.load_indexes()
        if segment.sealed:
            self._loaded.pop(segment.base_offset, None)
            self._loaded[segment.base_offset] = segment
            self._trim_indexes()

    def _trim_indexes(self) -> None:
        excess = len(self._loaded) - INDEXES_LOADED_MAX
        if excess <= 0:
            return
        for base, segment in list(self._loaded.items()):
            if segment.unload_indexes():  # else it waits for a flush, and is looked at again
                del self._loaded[base]
                excess -= 1
                if excess <= 0:
                    return

    @property
    def size(self) -> int:
        """Bytes in all segments."""
        return sum(segment.size for segment in self.segments)

    # ------------------------------------------------------------------------------------------------ flushing

    @property
    def begun_unsynced(self) -> bool:
        """Records are in a segment whose name the disk may not have; the next segment waits for that."""
        return self.active.size > 0 and self.directory_synced < self._active_version

    @property
    def latest_epoch(self) -> int:
        """Newest leader epoch in the log, or -1."""
        return self.epochs.latest_epoch

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        """`EpochCache.end_offset_for` with this log's end."""
        return self.epochs.end_offset_for(epoch, self.end_offset)

    def begin_flush(self) -> FlushTicket | None:
        """What has to be synced now; None when everything is on disk. See `FlushTicket.run`."""
        return flushing.begin_flush(self)

    def complete_flush(self, ticket: FlushTicket) -> None:
        """The ticket ran without error. Ignored when the log was truncated since (S8)."""
        flushing.complete_flush(self, ticket)

    def sync_later(self, path: str) -> None:
        """A small file of the log was written without a sync: the next flush covers it and its directory entry."""
        with disk_errors(f"open {path}"):
            file = self.disk.open(path)
        replaced = self.unsynced_files.pop(path, None)
        if replaced is not None:
            replaced[0].close()
        self.unsynced_files[path] = (file, path)
        self.directory_version += 1

    # ------------------------------------------------------------------------------------------------ cutting

    def truncate_to(self, offset: int) -> None:
        """Cuts the log's end to `offset`; the epoch cache follows even when there is nothing to cut (KIP-101).

        A batch that holds `offset` inside goes as a whole. Raises `StorageError` when the disk has no room for the
        checkpoints that must be lowered first (the log is as before), or `DiskFailure`.
        """
        truncation.truncate_to(self, offset)

    def reset_to(self, offset: int, *, now_ms: int = 0) -> None:
        """Drops everything and starts anew at `offset`. Raises as `truncate_to` does."""
        truncation.reset_to(self, offset, now_ms)

    def advance_start(self, offset: int) -> None:
        """Moves the log start (DeleteRecords, a follower's leader). Never beyond the log end."""
        truncation.advance_start(self, offset)

    def retention(self, now_ms: int, high_watermark: int) -> list[str]:
        """Takes segments out of the log by time and size; returns the names of their files.

        The log start moves at once. The files go with `purge` later, when the caller has tried to checkpoint the log
        start.
        """
        names = retention.retire_segments(self, now_ms, high_watermark)
        for base in [base for base in self._loaded if base < self.segments[0].base_offset]:
            del self._loaded[base]
        return names

    def purge(self, now_ms: int, *, durable_start: int = 0) -> list[str]:
        """Removes the files of segments that `retention` took out `file.delete.delay.ms` ago; their names.

        `durable_start`: The log start in the checkpoint on disk. It lags behind where a full disk has no room for it.
        """
        return retention.purge(self, now_ms, durable_start)

    def remove_file(self, path: str, size_bytes: int) -> None:
        """Has a file removed that belongs to no log any more."""
        if self.environment.remove_later is None:
            remove_file(self.disk, path)
        else:
            self.environment.remove_later(path, size_bytes)

    # ------------------------------------------------------------------------------------------------ compacting

    def expect_gaps(self) -> None:
        """Offsets are about to be missing: returns when a later recovery will accept that."""
        before_gaps = self.environment.before_gaps
        if before_gaps is not None:
            before_gaps(self.directory)

    def settle_swap(self) -> None:
        """Ends a pending swap of segments at once, one way or the other (blocking): the log is about to be cut."""
        if self.pending_swap is not None:
            self.pending_swap.settle()

    def forget_loaded(self) -> None:
        """No segment's index counts as loaded that is not in the log any more."""
        live = {id(segment) for segment in self.segments}
        self._loaded = OrderedDict((b, s) for b, s in self._loaded.items() if id(s) in live and s.sealed)

    def restart_active(self, base_offset: int, now_ms: int) -> None:
        """Begins the first segment of an empty log."""
        assert not self.segments
        self._new_segment(base_offset, now_ms)

    # ------------------------------------------------------------------------------------------------ closing

    def close(self, *, high_watermark: int) -> None:
        """Clean close: indexes, epochs and producers are written, as far as there is room, and everything is synced
        (blocking).

        `high_watermark` must not lie beyond the log end; it goes to the checkpoint of the data directory.
        """
        assert high_watermark <= self.end_offset
        self.active.store_indexes()
        self.active.sync_indexes()
        replay.write_snapshot(self, durable=True)
        self.directory_version += 1
        ticket = flushing.begin_flush(self)
        if ticket is not None:
            ticket.run()
            self.complete_flush(ticket)
        self.abandon()

    def abandon(self) -> None:
        """Closes the files and forgets the tail, writing nothing."""
        self.closed = True
        self.tail.clear()
        self.generation += 1
        for file, _ in self.unsynced_files.values():
            file.close()
        self.unsynced_files.clear()
        for segment in self.segments:
            segment.close()
        for _, segment in self.doomed:
            segment.close()

    # ------------------------------------------------------------------------------------------------ snapshots

    def snapshots(self) -> list[int]:
        """Offsets of the producer snapshots on disk, rising."""
        with disk_errors(f"list {self.directory}"):
            names = self.disk.list(self.directory)
        offsets = [offset_of(name) for name in names if name.endswith(SNAPSHOT_SUFFIX)]
        return sorted(offset for offset in offsets if offset is not None)

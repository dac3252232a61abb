"""Opening a log: after a clean shutdown its indexes are believed, after any other the bytes are read again.

Recovery scans every segment from the one that holds the recovery point, checks each batch (length, magic, CRC, rising
offsets), cuts at the first bad one and removes all later segments. What survives is synced before it counts as
flushed. A cut below the checkpointed flushed end means that the disk lost what it had promised: the report says so,
and the directory is no longer trusted (S2, R9).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from kafkalite_core.storage import epoch_cache, replay
from kafkalite_core.storage.disk import disk_errors, join, read_file, remove_file, sync_directory, sync_file
from kafkalite_core.storage.epoch_cache import EpochCache
from kafkalite_core.storage.errors import CorruptCheckpoint, CorruptMessage
from kafkalite_core.storage.log import Log, LogEnvironment
from kafkalite_core.storage.segment import (
    HEADER,
    HEADER_BYTES,
    INDEX_SUFFIX,
    LENGTH_OVERHEAD_BYTES,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    Segment,
    file_name,
    offset_of,
)
from kafkalite_core.storage.swap import LEFT_OVER_SUFFIXES, finish_swaps
from kafkalite_core.storage.truncation import drop_snapshots_after

if TYPE_CHECKING:
    from collections.abc import Generator

    from kafkalite_core.storage.disk import Disk
    from kafkalite_core.storage.log_config import LogConfig

_CHUNK_BYTES = 4 << 20
_CRC_FROM = 21


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryReport:
    """How the opening of one log went.

    Attributes:
        directory: The log's directory.
        end_offset: The log end found.
        cut: Bytes were cut off or segments removed.
        cut_below_flushed: It was cut, or ends, below the checkpointed flushed end: acknowledged data may be gone (S2).
        segments_scanned: Segments whose every batch was checked.
        bytes_scanned: Bytes of them.
        reason: Why it was cut, or the empty string.
    """

    directory: str
    end_offset: int
    cut: bool
    cut_below_flushed: bool
    segments_scanned: int
    bytes_scanned: int
    reason: str = ""


class RecoveryProgress(NamedTuple):
    """Yielded before each segment that is scanned."""

    directory: str
    remaining_segments: int


def open_log(
    disk: Disk,
    directory: str,
    config: LogConfig,
    environment: LogEnvironment,
    *,
    now_ms: int,
    clean: bool = False,
    recovery_point: int = 0,
    start_offset: int = 0,
) -> tuple[Log, RecoveryReport]:
    """`load_log` without a look at its progress."""
    loading = load_log(
        disk,
        directory,
        config,
        environment,
        now_ms=now_ms,
        clean=clean,
        recovery_point=recovery_point,
        start_offset=start_offset,
    )
    while True:
        try:
            next(loading)
        except StopIteration as done:
            result: tuple[Log, RecoveryReport] = done.value
            return result


def load_log(
    disk: Disk,
    directory: str,
    config: LogConfig,
    environment: LogEnvironment,
    *,
    now_ms: int,
    clean: bool,
    recovery_point: int,
    start_offset: int,
) -> Generator[RecoveryProgress, None, tuple[Log, RecoveryReport]]:
    """Opens the log in `directory`, which is made when absent.

    Args:
        disk: The data directory.
        directory: Name of the log's directory in it.
        config: The topic's configuration.
        environment: What the logs of the data directory share.
        now_ms: Wall clock.
        clean: The last shutdown was clean: nothing is scanned unless an index is damaged.
        recovery_point: Checkpointed flushed end of this log, 0 when there is none.
        start_offset: Checkpointed log start.
    """
    log = Log(disk, directory, config, environment, start_offset=start_offset)
    with disk_errors(f"make {directory}"):
        if not disk.exists(directory):
            disk.makedirs(directory)
            log.parent_unsynced = True
    bases = _tidy(log)
    segments = [_segment_found(log, base, now_ms) for base in bases]
    epochs_known = _load_epochs(log, bases)
    loading = _Loading(log, segments, clean=clean, epochs_known=epochs_known, recovery_point=recovery_point)
    yield from loading.run()
    # Damage below the log start costs what follows it as well: the log begins anew there, and nothing shows it then.
    flushed_found = loading.found_end if loading.reason else max(loading.found_end, start_offset)
    _settle(log, loading, start_offset, now_ms)
    report = RecoveryReport(
        directory=directory,
        end_offset=log.end_offset,
        cut=bool(loading.reason),
        cut_below_flushed=flushed_found < recovery_point,
        segments_scanned=loading.segments_scanned,
        bytes_scanned=loading.bytes_scanned,
        reason=loading.reason,
    )
    return log, report


def _segment_found(log: Log, base_offset: int, now_ms: int) -> Segment:
    """A segment that was there before. It is as old as the last change of its file, if its records bear no timestamps:
    were it new with every start, it would never be too old (`retention.ms`). A clock that was set back makes it new.
    """
    segment = Segment(
        log.disk, log.directory, base_offset, index_bytes_max=log.config.segment_index_bytes, created_ms=now_ms
    )  # fmt: skip
    with disk_errors(f"look at {segment.path}"):
        segment.created_ms = segment.changed_ms = min(segment.file.modified_ms(), now_ms)
    return segment


def _tidy(log: Log) -> list[int]:
    """Removes what a crash left half-made, swaps excepted, which are finished; base offsets of the segments, rising."""
    config = log.config
    finish_swaps(
        log.disk,
        log.directory,
        index_bytes_max=config.segment_index_bytes,
        index_interval=config.index_interval_bytes,
    )
    with disk_errors(f"list {log.directory}"):
        names = log.disk.list(log.directory)
    bases = {offset_of(name) for name in names if name.endswith(LOG_SUFFIX)} - {None}
    for name in names:
        orphan = name.endswith((INDEX_SUFFIX, TIME_INDEX_SUFFIX)) and offset_of(name) not in bases
        if orphan or name.endswith(LEFT_OVER_SUFFIXES):
            remove_file(log.disk, join(log.directory, name))
    return sorted(base for base in bases if base is not None)


def _load_epochs(log: Log, bases: list[int]) -> bool:
    """Reads the epoch checkpoint; False when it does not do: then a scan of the log fills the cache.

    That is when it is missing, damaged, or of a log that begins behind this one: the checkpoint of the log start had
    not been written when the process died.
    """
    data = read_file(log.disk, join(log.directory, epoch_cache.FILE_NAME))
    if data is None:
        return False
    try:
        epochs = EpochCache.decode(data)
    except CorruptCheckpoint:
        return False
    if len(epochs) and bases and epochs.entries[0].start_offset > max(log.start_offset, bases[0]):
        return False
    log.epochs = epochs
    log.epochs_written = epochs.version
    return True


class _Loading:
    """The work on the segments of one log, in order."""

    def __init__(
        self, log: Log, segments: list[Segment], *, clean: bool, epochs_known: bool, recovery_point: int
    ) -> None:
        self.log = log
        self.segments = segments
        self.recovery_point = recovery_point
        self.segments_scanned = 0
        self.bytes_scanned = 0
        self.reason = ""
        self.found_end = 0
        self.closed_cleanly = clean
        self.clean = clean and epochs_known
        self.epochs_confirmed = 0
        self.epoch_before = -1

    def run(self) -> Generator[RecoveryProgress, None, None]:
        log = self.log
        first = self._first_to_scan()
        for slot, segment in enumerate(self.segments):
            active = slot == len(self.segments) - 1
            if slot < first and segment.load(active=active):
                log.segments.append(segment)
                if self._hole_before(slot):
                    break
                continue
            first = min(first, slot)  # its epochs are found again only if all that follows is scanned too
            yield RecoveryProgress(log.directory, len(self.segments) - slot)
            if self._hole_before(slot, appended=False):
                break
            self._begin_epochs(segment)
            self._scan(segment)
            log.segments.append(segment)
            if not active:
                segment.seal()
            if self.reason:
                self._drop(slot + 1)
                break
        if log.segments:
            self.found_end = log.segments[-1].end_offset

    def _first_to_scan(self) -> int:
        """Index of the first segment to scan: the one that holds the recovery point; none after a clean shutdown."""
        if self.clean:
            return len(self.segments)
        if not len(self.log.epochs):
            return 0
        below = [slot for slot, segment in enumerate(self.segments) if segment.base_offset <= self.recovery_point]
        return below[-1] if below else 0

    def _hole_before(self, slot: int, *, appended: bool = True) -> bool:
        """No log has a hole between segments, compacted or not; what lies behind one is removed."""
        if slot == 0:
            return False
        before, segment = self.segments[slot - 1], self.segments[slot]
        if before.end_offset == segment.base_offset:
            return False
        if segment.base_offset <= self.log.start_offset:
            return False  # what precedes is below the log start and goes anyway
        self.reason = f"hole between {before.end_offset} and {segment.base_offset}"
        if appended:
            self.log.segments.pop()
        self._drop(slot)
        return True

    def _drop(self, slot: int) -> None:
        """Removes the segments from `slot` on, the last one first, each durably."""
        for segment in reversed(self.segments[slot:]):
            segment.remove()
            sync_directory(self.log.disk, self.log.directory)
        del self.segments[slot:]

    def _scan(self, segment: Segment) -> None:
        """Checks every batch, rebuilding indexes and epochs; cuts at the first bad one."""
        file = segment.file
        # A page whose write-back failed is marked clean though the disk does not have it: read from the disk itself.
        sync_file(file, segment.path)
        with disk_errors(f"recover {segment.path}"):
            file.drop_cached(0)
            size = file.size()
        segment.start_over()
        problem = ""
        position = 0
        window = memoryview(b"")
        window_at = 0
        while position < size and not problem:
            inside = position - window_at
            if inside + HEADER_BYTES > len(window) or inside + _size_at(window, inside) > len(window):
                window, window_at, inside = memoryview(segment.pread(_CHUNK_BYTES, position)), position, 0
                wanted = _size_at(window, 0) if len(window) >= HEADER_BYTES else 0
                if len(window) < wanted <= size - position:
                    window = memoryview(segment.pread(wanted, position))
            problem = self._check(segment, window[inside:])
            if not problem:
                position = segment.size
        self.segments_scanned += 1
        self.bytes_scanned += size
        if problem:
            self.reason = f"{segment.path} at {position}: {problem}"
            with disk_errors(f"truncate {segment.path}"):
                file.truncate(position)
            segment.synced_size = -1  # the cut has to be synced, even to an empty file

    def _check(self, segment: Segment, view: memoryview) -> str:
        """Takes the batch at the beginning of `view` into the books, or says what is wrong with it."""
        if len(view) < HEADER_BYTES:
            return "incomplete header"
        base, length, epoch, magic, crc, _, delta, _, timestamp, *_, count = HEADER.unpack_from(view)
        size = length + LENGTH_OVERHEAD_BYTES
        if magic != 2 or size < HEADER_BYTES or delta < 0:
            return f"no batch (magic {magic}, {size} bytes, delta {delta})"
        if size > len(view):
            return f"incomplete batch of {size} bytes"
        if base < segment.end_offset:
            return f"offset {base} after {segment.end_offset - 1}"
        if base + delta - segment.base_offset > 2**31 - 1:
            return f"offset {base + delta} is too far from the base"
        if base != segment.end_offset and not self.log.config.gaps:
            return f"offset {base} where {segment.end_offset} is due"
        if crc32c(view[_CRC_FROM:size]) != crc:
            return "wrong CRC"
        if 0 <= epoch < self.epoch_before:
            return f"leader epoch {epoch} after {self.epoch_before}: left over from before a cut"
        self.epoch_before = max(self.epoch_before, epoch)
        interval = self.log.config.index_interval_bytes
        self._note_epoch(epoch, base, segment.end_offset)
        segment.note(segment.size, size, base + delta, timestamp if count else -1, interval)
        return ""

    def _begin_epochs(self, segment: Segment) -> None:
        """Where every batch is there, the batches say all about epochs; where some are missing, the file knows more.

        The first batches of an epoch may have been compacted away. Taken from what is left, the epoch before it would
        seem to end later than it did, and a replica that diverged there would not be cut (KIP-101).
        """
        if self.log.config.gaps:
            self.epochs_confirmed = max(self.epochs_confirmed, segment.base_offset)
        else:
            self.log.epochs.truncate_from_end(segment.base_offset)

    def _note_epoch(self, epoch: int, base_offset: int, end_before: int) -> None:
        """A batch was found. Entries that contradict it, and are younger than the last batch that agreed, are wrong.

        An epoch that nobody knew begins behind the batch before, as in `append_as_follower`.
        """
        if epoch < 0:
            return
        epochs = self.log.epochs
        known = epochs.epoch_at(base_offset)
        below_start = known < 0 and base_offset < self.log.start_offset  # entries begin at the log start
        if self.log.config.gaps and known != epoch and not below_start:
            epochs.truncate_from_end(self.epochs_confirmed)
        epochs.assign(epoch, end_before)
        self.epochs_confirmed = base_offset + 1


def _size_at(view: memoryview, position: int) -> int:
    return max(int(HEADER.unpack_from(view, position)[1]) + LENGTH_OVERHEAD_BYTES, HEADER_BYTES)


def _settle(log: Log, loading: _Loading, start_offset: int, now_ms: int) -> None:
    """Log start, epochs and producers; what was found is synced before it is reported as flushed."""
    if log.segments and loading.found_end < start_offset:
        loading.reason = loading.reason or f"log end {loading.found_end} below the log start {start_offset}"
        for segment in reversed(log.segments):
            segment.remove()
            sync_directory(log.disk, log.directory)
        log.segments.clear()
        drop_snapshots_after(log, -1)  # what followed them is gone
    while len(log.segments) > 1 and log.segments[0].end_offset <= start_offset:
        log.segments.pop(0).remove()  # retention had taken it out before the crash
        log.directory_version += 1
    if log.segments:
        log.active = log.segments[-1]
        log.active.load_indexes()  # it was not the last one where those behind it had to go
        log.active.sealed = False
        log.start_offset = max(start_offset, log.segments[0].base_offset)
    else:
        log.restart_active(start_offset, now_ms)
    log.end_offset = log.active.end_offset
    log.epochs.truncate_from_start(log.start_offset)
    log.epochs.truncate_from_end(log.end_offset)
    _load_producers(log, doubtful=loading.segments_scanned > 0 and not loading.closed_cleanly)
    log.recovery_point = min(log.start_offset, log.end_offset)
    if not log.parent_unsynced or start_offset:  # a log begun just now at 0 reports nothing as flushed
        _sync(log, clean=loading.clean)
    for segment in log.segments[:-1]:
        segment.unload_indexes()
    log.update_flushed_end()


def _load_producers(log: Log, *, doubtful: bool) -> None:
    """From the newest snapshot and what follows it; snapshots beyond the log end are remnants.

    `doubtful`: Those in the active segment may be of what was cut off it before the process died. Where it was closed
    they are of what is there, whatever had to be scanned for want of an index, and may know more than the log does.
    """
    for snapshot in log.snapshots():
        if snapshot > log.end_offset or (doubtful and snapshot > log.active.base_offset):
            remove_file(log.disk, join(log.directory, file_name(snapshot, SNAPSHOT_SUFFIX)))
            log.directory_version += 1
    try:
        replay.rebuild_producers(log)
    except CorruptMessage:  # below the recovery point a damaged header surfaces when it is read
        log.producers.clear()


def _sync(log: Log, *, clean: bool) -> None:
    """Everything recovered reaches the disk, names included: only then it counts as flushed."""
    if not clean:
        log.directory_version += 1
        log.parent_unsynced = True  # nobody knows whether the entry of the directory was ever synced
    for segment in log.segments:
        if segment.synced_size != segment.size:
            segment.store_indexes()
            segment.sync_indexes()
            log.directory_version += 1
    ticket = log.begin_flush()
    if ticket is not None:
        ticket.run()
        log.complete_flush(ticket)

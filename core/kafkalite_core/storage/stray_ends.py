"""How far the log of a directory that is set aside reaches: what is noted of it is true, also after a power loss (S10).

Whoever adopts a lost topic goes by it: the log that reaches furthest stays, others are cut, and who is said to have it
counts. With relaxed flush a log has an end that no disk has. So

    set aside  =>  the disk has all of it, unless the topic was deleted as its policy says
    listed by a later process  =>  the end was flushed before it was noted, or has been read from the log since

Deleted data are given up, and are adopted only by who asks for it. A broker that is told of the end of a thousand
partitions does not wait for the disk a thousand times.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from kafkalite_core.model.errors import StorageError
from kafkalite_core.model.limits import STRAYS_LISTED_MAX
from kafkalite_core.model.topic import Stray
from kafkalite_core.storage.epoch_cache import epoch_of_records
from kafkalite_core.storage.flushing import begin_flush, complete_flush
from kafkalite_core.storage.log import LogEnvironment
from kafkalite_core.storage.log_config import LogConfig
from kafkalite_core.storage.partition_metadata import read_metadata, write_metadata
from kafkalite_core.storage.recovery import open_log
from kafkalite_core.storage.tail import TailBudget

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite_core.storage.disk import Disk
    from kafkalite_core.storage.flushing import FlushTicket
    from kafkalite_core.storage.log import Log
    from kafkalite_core.storage.partition_metadata import PartitionMetadata
    from kafkalite_core.storage.partition_metadata import Stray as StrayDirectory


def flush_of_stray(log: Log, metadata: PartitionMetadata, *, delete_seen: bool) -> FlushTicket | None:
    """What the disk has to have of a relaxed log that is about to be set aside, unless its topic was deleted."""
    deleted = metadata.deletion_policy == "Delete" and (delete_seen or metadata.delete_seen)
    return begin_flush(log) if log.recovery_point < log.flushed_end and not deleted else None


def noted_of_stray(
    log: Log, metadata: PartitionMetadata, *, delete_seen: bool, moved_away: bool = False
) -> PartitionMetadata:
    """What the metadata shall say of a log that is about to be set aside; a relaxed one is flushed (blocking), unless
    the `flush_of_stray` is complete.

    Raises `DiskFailure`.
    """
    ticket = flush_of_stray(log, metadata, delete_seen=delete_seen)
    if ticket is not None:
        ticket.run()
        complete_flush(log, ticket)
    return _noted(log, metadata, delete_seen=delete_seen, moved_away=moved_away)


def _noted(log: Log, metadata: PartitionMetadata, *, delete_seen: bool, moved_away: bool) -> PartitionMetadata:
    return metadata.of_stray(
        newest_epoch=log.latest_epoch,
        start_offset=log.start_offset,
        log_epoch=epoch_of_records(log.epochs, log.start_offset, log.flushed_end),
        end_offset=log.flushed_end,
        recovery_point=log.recovery_point,
        relaxed_flush=log.config.relaxed_flush,
        delete_seen=delete_seen,
        moved_away=moved_away,
    )


def recovered_metadata(
    disk: Disk, directory: str, *, now_ms: int, thoroughly: bool = False
) -> tuple[PartitionMetadata | None, bool]:
    """The metadata of a stray that an earlier process made, true of its log, and whether the disk has lost some of it.

    None when they can't be read. A log that no disk had all of when it was set aside is recovered like one in use, from
    where the disk had it on, after a clean stop too: that closes the logs in use only. What is found is synced and
    noted, so this happens once; who has lost some is to be noted when the disk is distrusted for it. `thoroughly`:
    whatever is noted, and from the first batch on. Raises `DiskFailure`, `StorageError`.
    """
    metadata = read_metadata(disk, directory)
    if metadata is None or not (thoroughly or metadata.recovery_point < metadata.end_offset):
        return metadata, False
    log, report = open_log(
        disk,
        directory,
        LogConfig(gaps=metadata.compacted),
        LogEnvironment(TailBudget(0)),
        now_ms=now_ms,
        recovery_point=0 if thoroughly else max(metadata.recovery_point, 0),
        start_offset=max(metadata.start_offset, 0),
    )
    log.abandon()
    cut = report.end_offset < metadata.recovery_point
    metadata = _noted(log, metadata, delete_seen=False, moved_away=False)
    if not cut:
        with suppress(StorageError):  # the disk is full: it is read once more after the next start
            write_metadata(disk, directory, metadata)
    return metadata, cut


def listed(strays: Iterable[StrayDirectory]) -> list[Stray]:
    """What a broker's status says of its strays: of the youngest, oldest first, where there are more than it may list.

    None of those whose metadata can't be read.
    """
    known = [(stray.metadata.stray_since_ms, stray) for stray in strays if stray.metadata is not None]
    known.sort(key=lambda each: each[0])
    return [
        listed_of(stray.metadata, end_offset=stray.end_offset)
        for _, stray in known[-STRAYS_LISTED_MAX:]
        if stray.metadata is not None
    ]


def unlisted(strays: Iterable[StrayDirectory]) -> int:
    """How many that were not given up have no room in the list, as `listed` makes it."""
    known = sorted((each.metadata for each in strays if each.metadata is not None), key=lambda one: one.stray_since_ms)
    return sum(not metadata.given_up for metadata in known[:-STRAYS_LISTED_MAX])


def listed_of(metadata: PartitionMetadata, *, end_offset: int) -> Stray:
    """What a broker's status says of a stray. `end_offset`: flushed end of its log, -1 where it is not known."""
    return Stray(
        topic=metadata.topic,
        topic_id=metadata.topic_id,
        partition=metadata.partition,
        leader_epoch=metadata.leader_epoch,
        partition_epoch=metadata.partition_epoch,
        end_offset=max(end_offset, metadata.end_offset),
        log_epoch=metadata.log_epoch if metadata.end_offset >= 0 else None,
        deleted=metadata.deleted,
        isr=metadata.isr,
        isr_epoch=metadata.isr_epoch,
        isr_leader_epoch=metadata.isr_leader_epoch,
        relaxed_flush=metadata.relaxed_flush,
    )

"""The state of producers: snapshots of it, and how it is built anew from one and the batch headers behind it."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from kafkalite_core.model.errors import StorageError
from kafkalite_core.storage.disk import join, read_file, remove_file, replace_file
from kafkalite_core.storage.errors import CorruptCheckpoint
from kafkalite_core.storage.producer_state import ProducerStates
from kafkalite_core.storage.segment import SNAPSHOT_SUFFIX, file_name

if TYPE_CHECKING:
    from kafkalite_core.storage.log import Log
    from kafkalite_core.storage.segment import BatchBrief

SNAPSHOT_EVERY_BYTES: Final = 8 << 20
"""Bytes of the active segment between two snapshots: what a cut may have the log's thread read, at a time when many
partitions are cut at once (half of the segment where segments are small)."""

PRODUCERS_PER_SNAPSHOT: Final = 1024
"""With so many producers more a snapshot, which has to be worth its size, is written that much more seldom."""

READ_PER_CUT: Final = 4
"""A cut reads so many times as many records as it cuts off at most, besides those since the last snapshot."""


def rebuild_producers(log: Log) -> None:
    """Sets `log.producers` to the state at the log end.

    The newest readable snapshot at or below that offset is the base; a damaged one is passed over.
    """
    log.producers, start = load_snapshot(log)
    for segment in log.segments:
        if segment.end_offset <= start:
            continue
        log.touch_indexes(segment)
        for brief in segment.briefs(segment.index.lookup(start)):
            if brief.last_offset >= start:
                record_brief(log, brief)
    active = log.active
    log.snapshot_size = active.index.lookup(start) if start > active.base_offset else 0


def record_brief(log: Log, brief: BatchBrief) -> None:
    """Remembers the producer of one batch of the log."""
    if brief.producer_id >= 0:
        delta = brief.last_offset - brief.base_offset
        log.producers.record(
            brief.producer_id, brief.producer_epoch, brief.base_sequence, brief.base_offset, delta, brief.max_timestamp
        )


def load_snapshot(log: Log) -> tuple[ProducerStates, int]:
    """(state, offset) of the newest readable snapshot of what is in the log; an empty state at its first segment.

    One from before the first segment does not do: what came between the two is not known any more, and a producer
    would seem to have sent less than it did. It is no producer of this log then, and may go on anywhere.
    """
    first = log.segments[0].base_offset
    for offset in reversed(log.snapshots()):
        if not first <= offset <= log.end_offset:
            continue
        data = read_file(log.disk, join(log.directory, file_name(offset, SNAPSHOT_SUFFIX)))
        try:
            if data is not None:
                return ProducerStates.decode(data), offset
        except CorruptCheckpoint:
            continue
    return ProducerStates(), first


def checkpoint_producers(log: Log) -> None:
    """Writes a snapshot if much was appended since the last one, so that a cut has to read little. Called regularly.

    No flush waits for it: the next start removes those of an active segment that it has to scan. Raises `DiskFailure`.
    """
    every = min(SNAPSHOT_EVERY_BYTES, log.config.segment_bytes // 2)
    if log.active.size - log.snapshot_size >= every * (1 + len(log.producers) // PRODUCERS_PER_SNAPSHOT):
        _write(log, durable=False)


def write_snapshot(log: Log, *, durable: bool = False) -> None:
    """Writes a snapshot of now and removes those that are of little use. Raises `DiskFailure`.

    On a full disk there is none: an older one and the log say the same.
    """
    if _write(log, durable=durable):
        log.directory_version += 1
        for offset in superfluous(log.snapshots(), log.segments[0].base_offset, log.end_offset):
            remove_file(log.disk, join(log.directory, file_name(offset, SNAPSHOT_SUFFIX)))


def _write(log: Log, *, durable: bool) -> bool:
    log.snapshot_size = log.active.size  # also on a full disk: not at every call
    path = join(log.directory, file_name(log.end_offset, SNAPSHOT_SUFFIX))
    try:
        replace_file(log.disk, path, log.producers.encode(), durable=durable)
    except StorageError:
        return False
    return True


def superfluous(snapshots: list[int], first: int, end: int) -> list[int]:
    """Snapshots from before the first segment, and those whose neighbours do as well.

    They do where a cut below the younger one has the log read from the older one at most `READ_PER_CUT` times what it
    cuts off. As the log grows it is less still; and of three that stay the oldest is that many times as far from the
    end as the youngest, so there are a few dozens at most.
    """
    gone = [offset for offset in snapshots if offset < first]
    rest = [offset for offset in snapshots if offset >= first]
    older = rest[0] if rest else first
    for offset, younger in pairwise(rest[1:]):
        if end - older <= READ_PER_CUT * (end - younger):
            gone.append(offset)
        else:
            older = offset
    return gone

"""The state of producers, built anew from the last snapshot and the batch headers behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.storage.disk import join, read_file
from kafkalite_core.storage.errors import CorruptCheckpoint
from kafkalite_core.storage.producer_state import ProducerStates
from kafkalite_core.storage.segment import SNAPSHOT_SUFFIX, file_name

if TYPE_CHECKING:
    from kafkalite_core.storage.log import Log
    from kafkalite_core.storage.segment import BatchBrief


def rebuild_producers(log: Log, *, upto: int | None = None) -> None:
    """Sets `log.producers` to the state at `upto` (default: the log end).

    The newest readable snapshot at or below that offset is the base; a damaged one is passed over.
    """
    end = log.end_offset if upto is None else upto
    log.producers, start = load_snapshot(log, end)
    for segment in log.segments:
        if segment.end_offset <= start or segment.base_offset >= end:
            continue
        for brief in segment.briefs(0):
            if brief.last_offset < start or brief.base_offset >= end:
                continue
            record_brief(log, brief)


def record_brief(log: Log, brief: BatchBrief) -> None:
    """Remembers the producer of one batch of the log."""
    if brief.producer_id >= 0:
        delta = brief.last_offset - brief.base_offset
        log.producers.record(
            brief.producer_id, brief.producer_epoch, brief.base_sequence, brief.base_offset, delta, brief.max_timestamp
        )


def load_snapshot(log: Log, end: int) -> tuple[ProducerStates, int]:
    """(state, offset) of the newest readable snapshot at or below `end`; an empty state at the log's first segment."""
    for offset in reversed(log.snapshots()):
        if offset > end:
            continue
        data = read_file(log.disk, join(log.directory, file_name(offset, SNAPSHOT_SUFFIX)))
        try:
            if data is not None:
                return ProducerStates.decode(data), offset
        except CorruptCheckpoint:
            continue
    return ProducerStates(), log.segments[0].base_offset if log.segments else log.start_offset

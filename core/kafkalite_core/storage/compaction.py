"""Which part of a log compaction may take, and whether it is due (`cleanup.policy=compact`), as Kafka's log cleaner.

    | compacted before | to be compacted | not yet: too young, above the high watermark, active |
    0                  firstDirty        firstUncleanable                                logEnd

Only whole, non-active segments below the high watermark are rewritten. Every replica compacts its log by itself;
offsets never change, so replicas stay comparable offset by offset though their files differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kafkalite_core.storage.log import Log
    from kafkalite_core.storage.segment import Segment


class CompactionPlan(NamedTuple):
    """What a pass over one log would do.

    Attributes:
        first_dirty: Records below it were compacted before.
        first_uncleanable: Records from here on stay as they are.
        clean_bytes: Bytes of the segments below `first_dirty`.
        dirty_bytes: Bytes of the segments between the two.
        overdue_ms: By how much `max.compaction.lag.ms` is exceeded, 0 when it is not.
        due: A pass is worth its while: dirty ratio > `min.cleanable.dirty.ratio`, or overdue.
    """

    first_dirty: int
    first_uncleanable: int
    clean_bytes: int
    dirty_bytes: int
    overdue_ms: int
    due: bool

    @property
    def dirty_ratio(self) -> float:
        """Share of the dirty bytes in all that a pass would read, 0 to 1."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def plan_compaction(log: Log, checkpoint: int | None, *, high_watermark: int, now_ms: int) -> CompactionPlan:
    """Judges one log.

    Args:
        log: The log; its policy is not looked at.
        checkpoint: Where the last pass ended, None before the first. One outside of the log is as good as none.
        high_watermark: Nothing above it is touched.
        now_ms: Wall clock.
    """
    config = log.config
    start = log.start_offset
    first_dirty = checkpoint if checkpoint is not None and start <= checkpoint <= log.end_offset else start
    first_uncleanable = log.segments[0].base_offset
    clean_bytes = dirty_bytes = 0
    earliest = -1
    for segment in log.segments[:-1]:
        if segment.end_offset <= first_dirty:
            clean_bytes += segment.size
            first_uncleanable = segment.end_offset
            continue
        if segment.first_timestamp > 0 and (earliest < 0 or segment.first_timestamp < earliest):
            earliest = segment.first_timestamp
        young = config.min_compaction_lag_ms > 0 and _newest(segment) > now_ms - config.min_compaction_lag_ms
        if segment.end_offset > high_watermark or young:
            break
        dirty_bytes += segment.size
        first_uncleanable = segment.end_offset
    overdue_ms = max(now_ms - config.max_compaction_lag_ms - earliest, 0) if earliest >= 0 else 0
    plan = CompactionPlan(
        first_dirty, max(first_dirty, first_uncleanable), clean_bytes, dirty_bytes, overdue_ms, due=False
    )
    wanted = overdue_ms > 0 or plan.dirty_ratio > config.min_cleanable_dirty_ratio
    return plan._replace(due=dirty_bytes > 0 and wanted)


def _newest(segment: Segment) -> int:
    """Largest timestamp of a segment; when it was last appended to, where its records bear none, as in Kafka."""
    return segment.max_timestamp if segment.max_timestamp >= 0 else segment.changed_ms

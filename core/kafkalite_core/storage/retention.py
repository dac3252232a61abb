"""Which segments are old or large enough to go (`retention.ms`, `retention.bytes`), and their removal.

Only whole, non-active segments whose end is ≤ the high watermark (KAFKA-5634). A compact-only log loses none by time
or size, but those below the log start always go.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from kafkalite_core.model.errors import StorageError
from kafkalite_core.storage.disk import sync_directory
from kafkalite_core.storage.segment import LOG_SUFFIX, file_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalite_core.storage.log import Log
    from kafkalite_core.storage.log_config import LogConfig
    from kafkalite_core.storage.segment import Segment


class SegmentFacts(NamedTuple):
    """What retention asks of one segment."""

    end_offset: int
    size: int
    max_timestamp: int
    changed_ms: int

    def age_ms(self, now_ms: int) -> int:
        """Since its newest record; since its last append where its records bear no timestamp, as in Kafka."""
        return now_ms - (self.max_timestamp if self.max_timestamp >= 0 else self.changed_ms)


class RetentionVerdict(NamedTuple):
    """How many of the oldest segments go, and why each."""

    segments: int
    reasons: tuple[str, ...]


def decide_retention(
    segments: Sequence[SegmentFacts], config: LogConfig, *, start_offset: int, high_watermark: int, now_ms: int
) -> RetentionVerdict:
    """Judges from the oldest segment on; the first that stays ends it. `segments[-1]` is the active one.

    goes <=> end ≤ highWatermark and (end ≤ logStart or deletes and (age > retention.ms
             or total - size ≥ retention.bytes)). A timestamp in the future keeps a segment.
    """
    reasons: list[str] = []
    total = sum(segment.size for segment in segments)
    for segment in segments[:-1]:
        if segment.end_offset > high_watermark:
            break
        age = segment.age_ms(now_ms)
        if segment.end_offset <= start_offset:
            reasons.append("below log start")
        elif not config.deletes:
            break
        elif config.retention_ms >= 0 and age > config.retention_ms:
            reasons.append(f"age {age} ms > retention.ms {config.retention_ms}")
        elif config.retention_bytes >= 0 and total - segment.size >= config.retention_bytes:
            reasons.append(f"log of {total} bytes > retention.bytes {config.retention_bytes}")
        else:
            break
        total -= segment.size
    return RetentionVerdict(len(reasons), tuple(reasons))


def retire_segments(log: Log, now_ms: int, high_watermark: int) -> list[str]:
    """See `Log.retention`. Rolls the active segment first when all of it is too old (as Kafka does)."""
    active = log.active
    config = log.config
    if (
        active.size
        and config.deletes
        and config.retention_ms >= 0
        and active.end_offset <= high_watermark
        and _facts(active).age_ms(now_ms) > config.retention_ms
    ):
        with suppress(StorageError):  # no room for the next segment: the older ones go all the same
            log.roll(now_ms)
    facts = [_facts(segment) for segment in log.segments]
    verdict = decide_retention(
        facts, config, start_offset=log.start_offset, high_watermark=high_watermark, now_ms=now_ms
    )
    if not verdict.segments:
        return []
    retired = log.segments[: verdict.segments]
    del log.segments[: verdict.segments]
    log.doomed.extend((now_ms, segment) for segment in retired)
    log.advance_start(log.segments[0].base_offset)
    return [file_name(segment.base_offset, LOG_SUFFIX) for segment in retired]


def _facts(segment: Segment) -> SegmentFacts:
    return SegmentFacts(segment.end_offset, segment.size, segment.max_timestamp, segment.changed_ms)


def purge(log: Log, now_ms: int, durable_start: int) -> list[str]:
    """See `Log.purge`. Oldest first.

    Never is a segment lost before its successor is there for sure. While the checkpoint does not tell that the log
    begins behind it, it is gone for sure before anything else is done: a start would take what a power loss left of it
    for a part of the log, find a hole behind that, and cut off what follows. No flush under way syncs it any more.

    What is gone has another name, and goes when `LogEnvironment.remove_later` gets to it: a large file takes seconds.
    """
    removed: list[str] = []
    while log.doomed and now_ms - log.doomed[0][0] >= log.config.file_delete_delay_ms:
        _, segment = log.doomed.pop(0)
        told = segment.end_offset <= durable_start
        if log.directory_version != log.directory_synced and not (removed and told):
            sync_directory(log.disk, log.directory)
            log.directory_synced = log.directory_version
        left = segment.give_up()
        log.directory_version += 1
        if not told:
            sync_directory(log.disk, log.directory)
            log.directory_synced = log.directory_version
        log.remove_file(left, segment.size)
        removed.append(file_name(segment.base_offset, LOG_SUFFIX))
    return removed

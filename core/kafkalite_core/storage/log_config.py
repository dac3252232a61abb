"""The part of a topic's configuration that its logs follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalite_core.model.config import TopicConfig

INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Times in ms, sizes in bytes, -1 for no limit; the defaults are Kafka's, but every batch is flushed.

    Attributes:
        segment_bytes: `segment.bytes`.
        segment_ms: `segment.ms`.
        segment_index_bytes: `segment.index.bytes`.
        index_interval_bytes: `index.interval.bytes`.
        flush_messages: `flush.messages`; above 1 acknowledgements do not wait for the disk.
        retention_ms: `retention.ms`.
        retention_bytes: `retention.bytes`.
        file_delete_delay_ms: `file.delete.delay.ms`.
        deletes: `cleanup.policy` has `delete`.
        compacts: `cleanup.policy` has `compact`.
        gaps: Recovery accepts missing offsets between batches: the log, or its leader's, was compacted at some time.
        delete_retention_ms: `delete.retention.ms`.
        min_compaction_lag_ms: `min.compaction.lag.ms`.
        max_compaction_lag_ms: `max.compaction.lag.ms`.
        min_cleanable_dirty_ratio: `min.cleanable.dirty.ratio`.
        log_append_time: `message.timestamp.type` is `LogAppendTime`.
    """

    segment_bytes: int = 1_073_741_824
    segment_ms: int = 604_800_000
    segment_index_bytes: int = 10_485_760
    index_interval_bytes: int = 4096
    flush_messages: int = 1
    retention_ms: int = 604_800_000
    retention_bytes: int = -1
    file_delete_delay_ms: int = 60_000
    deletes: bool = True
    compacts: bool = False
    gaps: bool = False
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = 2**63 - 1
    min_cleanable_dirty_ratio: float = 0.5
    log_append_time: bool = False

    @property
    def relaxed_flush(self) -> bool:
        """Acknowledgements do not wait for the disk (S2, S8)."""
        return self.flush_messages > 1

    @classmethod
    def of(cls, config: TopicConfig) -> LogConfig:
        """From the resolved configuration of a topic.

        A compacted log begins a new segment after `max.compaction.lag.ms` at the latest (KIP-354), since the active one
        is never compacted.
        """
        compacts = "compact" in config.cleanup_policy
        return cls(
            segment_bytes=min(config.segment_bytes, INT32_MAX),
            segment_ms=min(config.segment_ms, config.max_compaction_lag_ms) if compacts else config.segment_ms,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            flush_messages=config.flush_messages,
            retention_ms=config.retention_ms,
            retention_bytes=config.retention_bytes,
            file_delete_delay_ms=config.file_delete_delay_ms,
            deletes="delete" in config.cleanup_policy,
            compacts=compacts,
            delete_retention_ms=config.delete_retention_ms,
            min_compaction_lag_ms=config.min_compaction_lag_ms,
            max_compaction_lag_ms=config.max_compaction_lag_ms,
            min_cleanable_dirty_ratio=config.min_cleanable_dirty_ratio,
            log_append_time=config.message_timestamp_type == "LogAppendTime",
        )

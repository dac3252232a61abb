"""What leader, follower and ISR changes of one replica share: identity, log, metadata, high watermark, effects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite_core.model.cluster import entry_counts, entry_lost
from kafkalite_core.model.limits import NO_LEADER
from kafkalite_core.replica.events import (
    Decided,
    FetchPositionChanged,
    FlushWanted,
    HighWatermarkAdvanced,
    LogEndAdvanced,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite_core.model.cluster import Broker
    from kafkalite_core.model.config import TopicConfig
    from kafkalite_core.model.partition import IsrEntry, Partition, TopicRef
    from kafkalite_core.replica.events import Effect
    from kafkalite_core.replica.log_port import ReplicaLog

# Effects and events without content are made once: they are on the way of every batch.
FLUSH_WANTED: Final = FlushWanted()
LOG_END_ADVANCED: Final = LogEndAdvanced()
HIGH_WATERMARK_ADVANCED: Final = HighWatermarkAdvanced()
FETCH_POSITION_CHANGED: Final = FetchPositionChanged()

STORAGE_RETRY_MS: Final = 1000.0
"""How long a full disk is left alone before one more append is tried."""

STORAGE_HAND_OVER_INTERVAL_MS: Final = 30_000.0
"""A full disk gives leadership away at most this often: two full disks must not pass it to and fro."""


class ReplicaState:
    """The common state of one replica. The parts write to it; only `Replica` is seen from outside.

    Attributes:
        broker_id: This broker.
        number: Partition number.
        ref: Incarnation of the topic (S12).
        log: The log.
        lag_time_max_ms: `replica.lag.time.max.ms`.
        lag_max_messages: `replica.lag.max.messages`; 0 for no such limit.
        high_watermark: Offsets below it are committed.
        partition: The newest committed entry seen; None before the first and when the partition is gone.
        brokers: Every known broker.
        broker_epoch: This broker's own epoch, -1 while it is not registered.
        relaxed_flush: What was acknowledged may not be on disk: entries are judged by that.
        keeps_latest_only: The topic is compacted and never loses records otherwise.
        storage_full_until_ms: No append before this time; 0 when the disk took the last one.
        storage_hand_over_after_ms: A full disk may give leadership away again from then on.
        effects: Effects of the step under way, in order.
    """

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "brokers",
        "effects",
        "high_watermark",
        "keeps_latest_only",
        "lag_max_messages",
        "lag_time_max_ms",
        "log",
        "number",
        "partition",
        "ref",
        "relaxed_flush",
        "storage_full_until_ms",
        "storage_hand_over_after_ms",
    )

    def __init__(
        self, *, broker_id: int, number: int, ref: TopicRef, log: ReplicaLog, high_watermark: int, lag_time_max_ms: int
    ) -> None:
        self.broker_id = broker_id
        self.number = number
        self.ref = ref
        self.log = log
        self.lag_time_max_ms = lag_time_max_ms
        self.lag_max_messages = 0
        # A stale checkpoint is safe: truncation uses epochs, never the high watermark (R3).
        self.high_watermark = min(max(high_watermark, log.start_offset), log.end_offset)
        self.partition: Partition | None = None
        self.brokers: Mapping[int, Broker] = {}
        self.broker_epoch = -1
        self.relaxed_flush = False
        self.keeps_latest_only = False
        self.storage_full_until_ms = 0.0
        self.storage_hand_over_after_ms = 0.0
        self.effects: list[Effect] = []

    def take_config(self, config: TopicConfig, *, flush_lag_known: bool) -> None:
        """The topic's configuration in force."""
        self.relaxed_flush = config.relaxed_flush or flush_lag_known
        self.keeps_latest_only = "delete" not in config.cleanup_policy

    def counts(self, entry: IsrEntry) -> bool:
        """Whether an ISR entry stands for data that its broker still has (S2); this incarnation's own always does."""
        if entry.id == self.broker_id:
            return entry.epoch == self.broker_epoch
        return entry_counts(entry, self.brokers, relaxed_flush=self.relaxed_flush)

    def lost(self, entry: IsrEntry) -> bool:
        """Whether an entry is known to stand for data that its broker does not have any more."""
        if entry.id == self.broker_id:
            return entry.epoch != self.broker_epoch
        return entry_lost(entry, self.brokers, relaxed_flush=self.relaxed_flush)

    def registered_epoch(self, broker_id: int) -> int:
        """The newest broker epoch known of a broker, or -1."""
        broker = self.brokers.get(broker_id)
        return -1 if broker is None else broker.epoch

    def alive(self, broker_id: int) -> bool:
        """Registered, caught up with metadata and not fenced; no, when nothing is known."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.alive

    @property
    def leader_epoch(self) -> int:
        """The newest leader epoch seen, or -1."""
        return -1 if self.partition is None else self.partition.leader_epoch

    @property
    def leader_id(self) -> int:
        """The leader according to the newest entry seen, or -1."""
        return NO_LEADER if self.partition is None else self.partition.leader

    def want_flush(self) -> None:
        """Ask for a flush when the log has bytes that are not on disk."""
        if self.log.flushed_end < self.log.end_offset:
            self.effects.append(FLUSH_WANTED)

    def decided(self, event: str, **facts: object) -> None:
        """Record a decision with its inputs."""
        self.effects.append(Decided(event=event, facts=facts))

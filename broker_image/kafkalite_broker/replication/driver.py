"""One partition on this broker: the replica, its log, and who waits for it. Carries out the replica's effects."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from kafkalite_broker.clock import now_ms
from kafkalite_core.replica import events
from kafkalite_core.replica.events import FetchAnswered, FlushCompleted, MetadataChanged, Role, Tick
from kafkalite_core.storage.log_config import LogConfig
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from kafkalite_broker.telemetry import PartitionTelemetry
    from kafkalite_core.model.config import TopicConfig
    from kafkalite_core.model.partition import TopicRef
    from kafkalite_core.replica.events import (
        Effect,
        Event,
        FetchRequested,
        FetchResponded,
        ProduceRequested,
        ProposePartition,
    )
    from kafkalite_core.replica.replica import Replica
    from kafkalite_core.storage.log import Log

    class Waiting(Protocol):
        """A fetch that waits for this partition."""

        def wake(self, driver: PartitionDriver) -> None:
            """Something moved in this partition: look at it again."""

    class Session(Waiting, Protocol):
        """A follower's fetch session that has this partition."""

        def note(self, driver: PartitionDriver) -> None:
            """The high watermark moved: tell it with the next answer."""

    class Surroundings(Protocol):
        """What a driver asks of the broker around it."""

        def mark_dirty(self, driver: PartitionDriver) -> None:
            """Flush the log soon."""

        def propose(self, driver: PartitionDriver, proposal: ProposePartition) -> None:
            """Compare-and-swap; the answer comes back as an event."""

        def role_changed(self, driver: PartitionDriver) -> None:
            """Leader, leader epoch or role differ now."""

        def position_changed(self, driver: PartitionDriver) -> None:
            """The follower's fetch position differs now."""

        def disk_full(self) -> None:
            """An append found no room."""


TICK = Tick()
FLUSH_COMPLETED = FlushCompleted()

DISK_FULL_EVENTS = frozenset({"storage_full", "append_failed"})
"""Decisions of leaders and followers after which it is worth looking for room."""

ALARMING_EVENTS = frozenset({"store_went_back"})
"""Decisions that somebody has to know of."""

log_events = get_logger(__name__)


class PartitionDriver:
    """Drives one replica. Everything happens on the event loop's thread.

    Args:
        ref: The topic's incarnation.
        number: Partition number.
        replica: The state machine.
        log: Its log.
        config: The topic's configuration in force.
        surroundings: The broker's side of the effects.
        telemetry: Counters of this partition's topic.
    """

    def __init__(
        self,
        ref: TopicRef,
        number: int,
        replica: Replica,
        log: Log,
        config: TopicConfig,
        surroundings: Surroundings,
        telemetry: PartitionTelemetry,
    ) -> None:
        self.ref = ref
        self.topic_uuid = UUID(ref.topic_id)
        self.number = number
        self.replica = replica
        self.log = log
        self.config = config
        self.telemetry = telemetry
        self._surroundings = surroundings
        self._end_waiters: set[Waiting] = set()
        self._high_watermark_waiters: set[Waiting] = set()
        self._sessions: set[Session] = set()
        self._fetch_answer: FetchAnswered | None = None
        self._leader_high_watermark = 0
        self._carry_out: dict[type, Callable[..., None]] = {
            events.ProduceAnswered: self._produce_answered,
            events.FetchAnswered: self._fetch_answered,
            events.DeleteRecordsAnswered: self._deletion_answered,
            events.FlushWanted: self._flush_wanted,
            events.LogEndAdvanced: self._log_end_advanced,
            events.HighWatermarkAdvanced: self._high_watermark_advanced,
            events.RoleChanged: self._role_changed,
            events.FetchPositionChanged: self._fetch_position_changed,
            events.ProposePartition: self._propose,
            events.IsrChanged: self._isr_changed,
            events.Decided: self._decided,
        }

    @property
    def name(self) -> str:
        """`topic-partition`, for logs."""
        return f"{self.ref.name}-{self.number}"

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads the partition."""
        return self.replica.role is Role.LEADER

    @property
    def follower_lag(self) -> int:
        """Committed records that are missing here, as the leader that it follows told last; else 0."""
        if self.replica.role is not Role.FOLLOWER:
            return 0
        return max(self._leader_high_watermark - self.log.end_offset, 0)

    def step(self, event: Event) -> None:
        """Feed an event to the replica and carry out what follows."""
        for effect in self.replica.step(now_ms(), event):
            self._carry_out[type(effect)](effect)

    def produce(self, event: ProduceRequested) -> None:
        """A client's batch. It counts when it is appended: what is sent again and is in the log does not (S9)."""
        end_offset = self.log.end_offset
        effects = self.replica.step(now_ms(), event)
        if self.log.end_offset > end_offset:
            self.telemetry.appended(event.header.record_count, len(event.batch))
        for effect in effects:
            self._carry_out[type(effect)](effect)

    def fetch(self, event: FetchRequested) -> FetchAnswered:
        """A fetch's question; its answer comes in the same step."""
        self.step(event)
        answer, self._fetch_answer = self._fetch_answer, None
        assert answer is not None, "the replica left a fetch without an answer"
        return answer

    def fetched(self, event: FetchResponded) -> None:
        """The leader's answer to this broker's own fetch."""
        if not event.error_code and event.diverging is None and event.leader_epoch == self.replica.leader_epoch:
            self._leader_high_watermark = event.high_watermark
        self.step(event)

    def metadata_changed(self, event: MetadataChanged) -> None:
        """The committed state, the brokers or the configuration changed."""
        if event.config != self.config:
            self.config = event.config
            self.log.reconfigure(LogConfig.of(event.config))
        self.step(event)

    def tick(self) -> None:
        """Time went by."""
        self.step(TICK)

    def flushed(self) -> None:
        """A flush that covered the log is complete."""
        self.step(FLUSH_COMPLETED)

    def wait(self, waiter: Waiting, *, for_log_end: bool) -> None:
        """Wake the waiter when the log end (followers) or the high watermark (consumers) moves, or the role changes."""
        (self._end_waiters if for_log_end else self._high_watermark_waiters).add(waiter)

    def stop_waiting(self, waiter: Waiting) -> None:
        """Forget a waiter."""
        self._end_waiters.discard(waiter)
        self._high_watermark_waiters.discard(waiter)

    def follow(self, session: Session) -> None:
        """Tell a follower's session whenever the log end or the high watermark moves, or the role changes."""
        self._sessions.add(session)

    def unfollow(self, session: Session) -> None:
        """Forget a session."""
        self._sessions.discard(session)

    def wake_all(self) -> None:
        """Have everyone that waits look again."""
        for waiter in (*self._end_waiters, *self._high_watermark_waiters, *self._sessions):
            waiter.wake(self)

    # ------------------------------------------------------------ effects

    def _produce_answered(self, effect: events.ProduceAnswered) -> None:
        effect.token.produce_answered(effect)  # type: ignore[attr-defined]

    def _fetch_answered(self, effect: FetchAnswered) -> None:
        self._fetch_answer = effect

    def _deletion_answered(self, effect: events.DeleteRecordsAnswered) -> None:
        effect.token.deletion_answered(effect)  # type: ignore[attr-defined]

    def _flush_wanted(self, _effect: Effect) -> None:
        self._surroundings.mark_dirty(self)

    def _log_end_advanced(self, _effect: Effect) -> None:
        for waiter in self._end_waiters:
            waiter.wake(self)
        for session in self._sessions:
            session.wake(self)

    def _high_watermark_advanced(self, _effect: Effect) -> None:
        for waiter in self._high_watermark_waiters:
            waiter.wake(self)
        # A follower learns of the new high watermark with the next data, or when its wait is over.
        for session in self._sessions:
            session.note(self)

    def _role_changed(self, effect: events.RoleChanged) -> None:
        log_events.info(
            "role changed",
            partition=self.name,
            role=str(effect.role),
            leader=effect.leader,
            leader_epoch=effect.leader_epoch,
            log_end=self.log.end_offset,
            high_watermark=self.replica.high_watermark,
        )
        self._leader_high_watermark = 0
        self._surroundings.role_changed(self)
        self.wake_all()

    def _fetch_position_changed(self, _effect: Effect) -> None:
        self._surroundings.position_changed(self)

    def _propose(self, effect: ProposePartition) -> None:
        self._surroundings.propose(self, effect)

    def _isr_changed(self, effect: events.IsrChanged) -> None:
        self.telemetry.isr_changed(shrunk=len(effect.shrunk), expanded=len(effect.expanded))

    def _decided(self, effect: events.Decided) -> None:
        tell = log_events.error if effect.event in ALARMING_EVENTS else log_events.info
        tell(effect.event.replace("_", " "), partition=self.name, **dict(effect.facts))
        if effect.event in DISK_FULL_EVENTS:
            self._surroundings.disk_full()

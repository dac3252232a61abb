"""One partition on one broker: the production `Replica` on the production `Log`, its effects carried out."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafkalite_broker.replication.driver import DISK_FULL_EVENTS
from kafkalite_core.replica import events
from kafkalite_core.replica.events import FetchAnswered, FlushCompleted, MetadataChanged, ProposalAnswered, Role, Tick
from kafkalite_core.storage.errors import OffsetOutOfRange, ReadInterrupted
from kafkalite_core.storage.log_config import LogConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite_core.model.config import TopicConfig
    from kafkalite_core.model.partition import TopicRef
    from kafkalite_core.replica.events import Effect, Event, FetchPosition, FetchRequested
    from kafkalite_core.replica.replica import Replica
    from kafkalite_core.storage.log import Log
    from tests.simulation.oracles.ledger import Ledger
    from tests.simulation.partitions import Partitions
    from tests.simulation.sessions import LeaderSide

TICK = Tick()
FLUSH_COMPLETED = FlushCompleted()
CHANGES_MEMBERS = frozenset({MetadataChanged, ProposalAnswered})


class Asked(NamedTuple):
    """One partition of a fetch request on its way to the leader."""

    topic_id: str
    topic: str
    number: int
    position: FetchPosition


class Given(NamedTuple):
    """Its answer."""

    asked: Asked
    answer: FetchAnswered
    records: bytes


class Produce:
    """A batch that a client sent; told the end once."""

    __slots__ = ("acks", "answered", "batch_next", "count", "reply")

    def __init__(self, acks: int, count: int, reply: Callable[[int, str, int, int], None]) -> None:
        self.acks = acks
        self.count = count
        self.reply = reply
        self.answered = False


class Driver:
    """See the module."""

    __slots__ = (
        "_answer",
        "_effect",
        "config",
        "delayed",
        "ledger",
        "log",
        "name",
        "number",
        "parked",
        "partitions",
        "ref",
        "replica",
        "sessions",
        "waiting",
    )

    def __init__(
        self,
        partitions: Partitions,
        ref: TopicRef,
        number: int,
        replica: Replica,
        log: Log,
        config: TopicConfig,
        ledger: Ledger,
    ) -> None:
        self.partitions = partitions
        self.ref = ref
        self.number = number
        self.name = f"{ref.name}-{number}"
        self.replica = replica
        self.log = log
        self.config = config
        self.ledger = ledger
        self.parked = 0
        self.sessions: dict[LeaderSide, tuple[str, int]] = {}
        self.waiting: list[Callable[[], None]] = []
        self._answer: FetchAnswered | None = None
        self._effect: dict[type, Callable[..., None]] = {
            events.ProduceAnswered: self._produce_answered,
            FetchAnswered: self._fetch_answered,
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
    def is_leader(self) -> bool:
        """Whether this broker leads the partition."""
        return self.replica.role is Role.LEADER

    def step(self, event: Event) -> None:
        """Feed an event to the replica and carry out what follows; the process may die between any two effects."""
        broker = self.partitions.broker
        for effect in self.replica.step(broker.mono_ms(), event):
            if broker.fuse:
                broker.burn()
            self._effect[type(effect)](effect)
        if type(event) in CHANGES_MEMBERS:
            self.ledger.members_changed(self)

    def fetch(self, event: FetchRequested) -> FetchAnswered:
        """A fetch's question and its answer."""
        self.step(event)
        answer, self._answer = self._answer, None
        assert answer is not None, "the replica left a fetch without an answer"
        return answer

    def read(self, answer: FetchAnswered, max_bytes: int) -> bytes:
        """The bytes that an answer allows."""
        if answer.error_code or answer.diverging is not None or answer.read_from >= answer.read_end:
            return b""
        try:
            result = self.log.read(answer.read_from, max_bytes=max_bytes, end=answer.read_end, minimum_one=True)
        except (OffsetOutOfRange, ReadInterrupted):
            return b""
        return b"".join(result.buffers)

    def metadata_changed(self, event: MetadataChanged) -> None:
        """The committed state, the brokers or the configuration changed."""
        if event.config is not self.config:
            self.config = event.config
            self.log.reconfigure(LogConfig.of(event.config))
        self.step(event)

    def wake(self) -> None:
        """Whoever waits for data looks again, after this event."""
        for side, key in list(self.sessions.items()):
            side.wake(key)
        if self.waiting:
            waiting, self.waiting = self.waiting, []
            broker = self.partitions.broker
            for look in waiting:
                broker.world.at(0.0, broker.process, look)

    # ------------------------------------------------------------ effects

    def _produce_answered(self, effect: events.ProduceAnswered) -> None:
        produce = effect.token
        assert isinstance(produce, Produce)
        assert not produce.answered, "a request was answered twice"
        produce.answered = True
        self.parked -= 1
        if not effect.error_code and produce.acks:
            self.ledger.acknowledged(self, effect.base_offset, effect.base_offset + produce.count, produce.acks)
        produce.reply(effect.error_code, self.ref.topic_id, effect.base_offset, self.replica.leader_epoch)

    def _fetch_answered(self, effect: FetchAnswered) -> None:
        self._answer = effect

    def _deletion_answered(self, effect: events.DeleteRecordsAnswered) -> None:
        effect.token(effect)  # type: ignore[operator]

    def _flush_wanted(self, _effect: Effect) -> None:
        self.partitions.flusher.mark_dirty(self.log)

    def _log_end_advanced(self, _effect: Effect) -> None:
        self.wake()

    def _high_watermark_advanced(self, _effect: Effect) -> None:
        self.ledger.high_watermark_advanced(self)
        for side, key in self.sessions.items():
            side.note(key)

    def _role_changed(self, effect: events.RoleChanged) -> None:
        broker = self.partitions.broker
        if broker.world.tracing:
            broker.trace(
                f"{self.name} {effect.role.value} of epoch {effect.leader_epoch} (leader {effect.leader}) "
                f"log [{self.log.start_offset},{self.log.end_offset}) flushed {self.log.flushed_end} "
                f"hw {self.replica.high_watermark}"
            )
        self.ledger.role_changed(self)
        self.partitions.role_changed(self)
        self.wake()

    def _fetch_position_changed(self, _effect: Effect) -> None:
        self.partitions.position_changed(self)

    def _propose(self, effect: events.ProposePartition) -> None:
        self.partitions.propose(self, effect)

    def _isr_changed(self, _effect: Effect) -> None:
        """A counter in production."""

    def _decided(self, effect: events.Decided) -> None:
        broker = self.partitions.broker
        if broker.world.tracing and effect.event != "replica_role":
            broker.trace(f"{self.name} {effect.event}: {dict(effect.facts)}")
        if effect.event in DISK_FULL_EVENTS:
            broker.disk_full()

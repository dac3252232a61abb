"""Carries out the replicas' compare-and-swaps on partition entries (S5, R6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite_core.membership.settlement import Attempt, Entry, Settled, Settlement
from kafkalite_core.replica.events import CasOutcome, ProposalAnswered
from kafkalite_core.resources import patches
from tests.simulation.api import Outcome
from tests.simulation.oracles.decided_on import DecidedOn
from tests.simulation.parsed import topic_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite_core.model.partition import Partition, TopicRef
    from kafkalite_core.replica.events import ProposePartition
    from tests.simulation.broker import Broker

ATTEMPTS_MAX = 3
BACK_OFF_MIN_MS = 50.0
BACK_OFF_MAX_MS = 2000.0

ATTEMPT_OF = {
    Outcome.OK: Attempt.APPLIED,
    Outcome.NOT_FOUND: Attempt.GONE,
    Outcome.CONFLICT: Attempt.NOT_APPLIED,
    Outcome.INVALID: Attempt.REFUSED,
    Outcome.THROTTLED: Attempt.NOT_APPLIED,
    Outcome.REFUSED: Attempt.NOT_APPLIED,
    Outcome.AMBIGUOUS: Attempt.AMBIGUOUS,
}


class PartitionWriter:
    """Sends proposals and settles their outcome over all attempts."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.unsettled: dict[tuple[str, int], Settlement] = {}
        self.failures: dict[tuple[str, int], int] = {}

    def propose(
        self, ref: TopicRef, number: int, proposal: ProposePartition, answer: Callable[[ProposalAnswered], None]
    ) -> None:
        """Begin; `answer` is called once, later."""
        Swap(self, ref, number, proposal, answer).attempt()

    def settlement(self, key: tuple[str, int], proposal: ProposePartition) -> Settlement:
        """What is unknown of an earlier sending of the same patch stays unknown (R6)."""
        earlier = self.unsettled.pop(key, None)
        if earlier is not None and earlier.is_same(proposal.expected, proposal.proposed):
            return earlier
        return Settlement(proposal.expected, proposal.proposed)

    def back_off_ms(self, key: tuple[str, int]) -> float:
        """Exponential with jitter."""
        failures = self.failures[key] = self.failures.get(key, 0) + 1
        ceiling = min(BACK_OFF_MAX_MS, BACK_OFF_MIN_MS * 2.0 ** min(failures, 16))
        return ceiling * (0.5 + 0.5 * self.broker.chance())


class Swap:
    """One proposal on its way."""

    __slots__ = ("_answer", "_attempts", "_key", "_number", "_proposal", "_ref", "_settlement", "_writer")

    def __init__(
        self,
        writer: PartitionWriter,
        ref: TopicRef,
        number: int,
        proposal: ProposePartition,
        answer: Callable[[ProposalAnswered], None],
    ) -> None:
        self._writer = writer
        self._ref = ref
        self._number = number
        self._proposal = proposal
        self._answer = answer
        self._key = (ref.uid, number)
        self._settlement = writer.settlement(self._key, proposal)
        self._attempts = 0

    def attempt(self) -> None:
        """Send it, unless the watch was faster."""
        broker, settlement = self._writer.broker, self._settlement
        self._attempts += 1
        known = broker.cache.partition(self._ref, self._number)
        if known is not None and known.partition_epoch > settlement.expected.partition_epoch:
            outcome = settlement.settle(Attempt.NOT_APPLIED, known)
            broker.world.at(0.0, broker.process, self._ended, outcome, known)
            return
        decided_on = DecidedOn(self._ref, {self._number: settlement.expected})
        broker.call("patch", "topics", self._ref.object_name, self._operations(), decided_on, answer=self._sent)

    def _operations(self) -> list[dict[str, Any]]:
        settlement = self._settlement
        return patches.leader_proposal(self._ref, self._number, settlement.expected, settlement.proposed)

    def _sent(self, outcome: Outcome, result: Any) -> None:
        attempt = ATTEMPT_OF[outcome]
        if attempt is Attempt.APPLIED:
            self._writer.broker.link.absorb_topic(result)
            self._settled(self._settlement.settle(attempt), self._settlement.proposed)
        elif self._settlement.needs_read(attempt):
            self._writer.broker.call("get", "topics", self._ref.object_name, answer=self._read)
        else:
            self._settled(self._settlement.settle(attempt), None)

    def _read(self, outcome: Outcome, result: Any) -> None:
        entry: Partition | Entry = Entry.UNREAD
        if outcome is Outcome.NOT_FOUND:
            entry = Entry.GONE
        elif outcome is Outcome.OK:
            topic = topic_of(result)
            if topic.ref.uid != self._ref.uid:
                entry = Entry.GONE
            else:
                self._writer.broker.link.absorb_topic(result)
                entry = topic.partitions.get(self._number, Entry.UNREAD)
        outcome_of_all = self._settlement.settle(Attempt.REFUSED, entry)
        self._settled(outcome_of_all, None if isinstance(entry, Entry) else entry)

    def _settled(self, outcome: Settled, entry: Partition | None) -> None:
        writer, broker = self._writer, self._writer.broker
        if outcome in {Settled.APPLIED, Settled.REJECTED}:
            writer.failures.pop(self._key, None)
            self._ended(outcome, entry)
            return
        pause = writer.back_off_ms(self._key)
        if self._attempts < ATTEMPTS_MAX:
            broker.world.at(pause, broker.process, self.attempt)
        else:
            broker.world.at(pause, broker.process, self._ended, outcome, entry)

    def _ended(self, outcome: Settled, entry: Partition | None) -> None:
        if self._settlement.ambiguous:
            self._writer.unsettled[self._key] = self._settlement
        self._answer(
            ProposalAnswered(proposal_id=self._proposal.proposal_id, outcome=CasOutcome(outcome.value), observed=entry)
        )

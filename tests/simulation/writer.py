"""Carries out the replicas' compare-and-swaps on partition entries (S5, R6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite_core.membership.outbox import Outbox, Swap
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
    """Sends proposals, those of one topic together, and settles their outcome over all attempts."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.unsettled: dict[tuple[str, int], Settlement] = {}
        self.failures: dict[tuple[str, int], int] = {}
        self._mails: dict[TopicRef, Mail] = {}

    def propose(
        self, ref: TopicRef, number: int, proposal: ProposePartition, answer: Callable[[ProposalAnswered], None]
    ) -> None:
        """Begin; `answer` is called once, later."""
        Proposal(self, ref, number, proposal, answer).attempt()

    def send(self, proposal: Proposal) -> None:
        """It is told how that ended, by `Proposal.sent`."""
        ref = proposal.ref
        mail = self._mails.get(ref)
        if mail is None:
            mail = self._mails[ref] = Mail(self.broker, ref, lambda: self._mails.pop(ref))
        mail.add(proposal)

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


class Mail:
    """The patches of one topic, one after another, until nothing waits."""

    __slots__ = ("_broker", "_done", "_outbox", "_patch", "_ref")

    def __init__(self, broker: Broker, ref: TopicRef, done: Callable[[], object]) -> None:
        self._broker = broker
        self._ref = ref
        self._done = done
        self._outbox: Outbox[Proposal] = Outbox()
        self._patch: list[Swap[Proposal]] = []
        broker.world.at(0.0, broker.process, self._next)

    def add(self, proposal: Proposal) -> None:
        """To the next patch."""
        self._outbox.add(Swap(proposal.number, proposal.settlement, proposal))

    def _next(self) -> None:
        for swap, known in self._outbox.overtaken(lambda number: self._broker.cache.partition(self._ref, number)):
            swap.owner.sent(Attempt.NOT_APPLIED, known)
        self._patch = self._outbox.take()
        if not self._patch:
            self._done()
            return
        changes = {swap.number: swap.change for swap in self._patch}
        operations = patches.leader_proposals(self._ref, changes)
        decided_on = DecidedOn(self._ref, {number: change.expected for number, change in changes.items()})
        self._broker.call("patch", "topics", self._ref.object_name, operations, decided_on, answer=self._sent)

    def _sent(self, outcome: Outcome, result: Any) -> None:
        attempt = ATTEMPT_OF[outcome]
        if attempt is Attempt.APPLIED:
            self._broker.link.absorb_topic(result)
        if any(swap.settlement.needs_read(attempt) for swap in self._patch):
            self._broker.call("get", "topics", self._ref.object_name, answer=self._read)
            return
        patch, self._patch = self._patch, []
        for swap in patch:
            swap.owner.sent(attempt, swap.settlement.proposed if attempt is Attempt.APPLIED else Entry.UNREAD)
        self._next()

    def _read(self, outcome: Outcome, result: Any) -> None:
        entries: dict[int, Partition] | Entry = Entry.UNREAD
        if outcome is Outcome.NOT_FOUND:
            entries = Entry.GONE
        elif outcome is Outcome.OK:
            topic = topic_of(result)
            entries = Entry.GONE if topic.ref.uid != self._ref.uid else topic.partitions
            if entries is not Entry.GONE:
                self._broker.link.absorb_topic(result)

        over = self._outbox.refused(self._patch, entries)
        if not over:
            self._broker.world.effects["patch_in_halves"] += 1
        for swap, found in over:
            swap.owner.sent(Attempt.REFUSED, found)
        self._next()


class Proposal:
    """One proposal on its way."""

    __slots__ = ("_answer", "_attempts", "_key", "_proposal", "_writer", "number", "ref", "settlement")

    def __init__(
        self,
        writer: PartitionWriter,
        ref: TopicRef,
        number: int,
        proposal: ProposePartition,
        answer: Callable[[ProposalAnswered], None],
    ) -> None:
        self._writer = writer
        self.ref = ref
        self.number = number
        self._proposal = proposal
        self._answer = answer
        self._key = (ref.uid, number)
        self.settlement = writer.settlement(self._key, proposal)
        self._attempts = 0

    def attempt(self) -> None:
        """Send it."""
        self._attempts += 1
        self._writer.send(self)

    def sent(self, attempt: Attempt, entry: Partition | Entry) -> None:
        """How it ended, and the entry as written or as read since."""
        outcome = self.settlement.settle(attempt, entry)
        self._settled(outcome, None if isinstance(entry, Entry) else entry)

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
        if self.settlement.ambiguous:
            self._writer.unsettled[self._key] = self.settlement
        self._answer(
            ProposalAnswered(proposal_id=self._proposal.proposal_id, outcome=CasOutcome(outcome.value), observed=entry)
        )

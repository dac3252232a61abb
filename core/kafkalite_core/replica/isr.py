"""Changes of the ISR: which are wanted (R5, S3), and the one that is in flight with its unsettled outcome (R6, S5)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kafkalite_core.model.cluster import BrokerState
from kafkalite_core.model.partition import IsrEntry
from kafkalite_core.replica.events import CasOutcome, IsrChanged, ProposePartition

if TYPE_CHECKING:
    from kafkalite_core.model.partition import Partition
    from kafkalite_core.replica.events import ProposalAnswered
    from kafkalite_core.replica.followers import Followers
    from kafkalite_core.replica.state import ReplicaState

BACK_OFF_MIN_MS: Final = 100.0
BACK_OFF_MAX_MS: Final = 5_000.0
_BACK_OFF_DOUBLINGS_MAX: Final = 6
ADDITIONS_PAUSE_MS: Final = 500.0
"""Nobody is put into the ISR for so long after the controller took a member out of it. It may know what this broker has
not heard yet, such as that a broker is fenced; without a pause the two would undo each other's changes at the speed of
the API server until it has."""


def back_off_ms(failures: int) -> float:
    """Delay after the n-th failure in a row (n ≥ 1). Without jitter: leaders of a partition do not compete."""
    return min(BACK_OFF_MIN_MS * 2.0 ** min(failures - 1, _BACK_OFF_DOUBLINGS_MAX), BACK_OFF_MAX_MS)


def may_join(
    state: ReplicaState, followers: Followers, broker_id: int, epoch: int, epoch_start: int, now_ms: float
) -> bool:
    """Whether one incarnation of a replica may be put into the ISR (R5, KAFKA-7128, KIP-841, KIP-903).

    joins <=> it is the registered, live incarnation and fetched in this leader epoch from an offset that is at least
    the high watermark and at least the start of the leader's epoch. One that fell silent does not join: below min ISR
    the high watermark stands still, so it would be taken in again as soon as it was thrown out.
    """
    if state.registered_epoch(broker_id) != epoch or not state.alive(broker_id):
        return False
    progress = followers.get(broker_id, epoch)
    if progress is None or not progress.fetched or now_ms - progress.fetch_ms > state.lag_time_max_ms:
        return False
    if not progress.within(state.log.flushed_end, state.lag_max_messages):
        return False
    return progress.end_offset >= max(state.high_watermark, epoch_start)


def why_leave(state: ReplicaState, followers: Followers, entry: IsrEntry, now_ms: float) -> str:
    """Why a member should leave the ISR, or the empty string."""
    broker = state.brokers.get(entry.id)
    registration = None if broker is None else broker.registration
    if registration is not None:
        if registration.broker_epoch > entry.epoch and not state.counts(entry):
            return "lost what it had"
        if registration.broker_epoch == entry.epoch and registration.state is BrokerState.SHUTTING_DOWN:
            return "is shutting down"
    progress = followers.get(entry.id, entry.epoch)
    if progress is None or not progress.caught_up(state.log.flushed_end, now_ms, state.lag_time_max_ms):
        return "lags"
    if not progress.within(state.log.flushed_end, state.lag_max_messages):
        return f"lags by more than {state.lag_max_messages} records"
    return ""


def wanted_isr(
    state: ReplicaState,
    followers: Followers,
    partition: Partition,
    epoch_start: int,
    now_ms: float,
    *,
    may_add: bool = True,
) -> tuple[tuple[IsrEntry, ...], str]:
    """The ISR as it should be, and why. Equal to the present one when nothing is to be done.

    Stale pairs whose new incarnation has caught up are replaced, members that lag leave, replicas that caught up join:
    all in one change. This broker itself always stays. Without `may_add` nobody joins, and a pair that would be
    replaced stays.
    """
    members: list[IsrEntry] = []
    reasons: list[str] = []
    for entry in partition.isr:
        registered = state.registered_epoch(entry.id)
        if entry.id == state.broker_id:
            members.append(entry)
        elif registered > entry.epoch and may_join(state, followers, entry.id, registered, epoch_start, now_ms):
            members.append(IsrEntry(entry.id, registered) if may_add else entry)
            if may_add:
                reasons.append(f"broker {entry.id} is in sync as epoch {registered} in the place of {entry.epoch}")
        elif why := why_leave(state, followers, entry, now_ms):
            reasons.append(f"broker {entry.id} {why}")
        else:
            members.append(entry)
    present = partition.isr_ids()
    for broker_id in partition.replicas:
        if broker_id in present or broker_id == state.broker_id or not may_add:
            continue
        registered = state.registered_epoch(broker_id)
        if may_join(state, followers, broker_id, registered, epoch_start, now_ms):
            members.append(IsrEntry(broker_id, registered))
            reasons.append(f"broker {broker_id} caught up")
    return tuple(members), "; ".join(reasons)


class Pending:
    """A proposal whose outcome is not settled.

    Attributes:
        expected: The committed entry that every attempt replaces.
        attempts: Every patch sent, by proposal id; any of them may be the committed state now.
        current_id: The attempt made last.
        bump_id: The attempt that only raises `partition_epoch`, or 0.
        reason: Of the first attempt.
        in_flight: The last attempt is not answered.
        ambiguous: Some attempt may have been applied or may still be.
        refused: An attempt was refused.
        retry_ms: When the next attempt is made.
    """

    __slots__ = ("ambiguous", "attempts", "bump_id", "current_id", "expected", "in_flight", "reason", "refused",
                 "retry_ms")  # fmt: skip

    def __init__(self, proposal_id: int, expected: Partition, proposed: Partition, reason: str) -> None:
        self.expected = expected
        self.attempts = {proposal_id: proposed}
        self.current_id = proposal_id
        self.bump_id = 0
        self.reason = reason
        self.in_flight = True
        self.ambiguous = False
        self.refused = False
        self.retry_ms = 0.0


class IsrChanges:
    """At most one change of the entry in flight; its members stay in the maximal ISR until it is settled.

    Settled <=> `partition_epoch` is known to have moved past the precondition of every attempt (then a delayed one can
    no longer be applied), or no attempt was ever applied and none will be. A plain read settles nothing (R6): it is
    another compare-and-swap with the same precondition that does, the same patch again or a mere raise of the epoch.
    """

    __slots__ = ("_failures", "_next_id", "_state", "additions_blocked_until_ms", "blocked_until_ms", "pending")

    def __init__(self, state: ReplicaState) -> None:
        self._state = state
        self._next_id = 1
        self._failures = 0
        self.pending: Pending | None = None
        self.blocked_until_ms = 0.0
        self.additions_blocked_until_ms = 0.0

    def maximal_isr(self, committed: Partition) -> tuple[IsrEntry, ...]:
        """The committed ISR and every member of an unsettled proposal (R4, S5), in a steady order."""
        members = dict.fromkeys(committed.isr)
        if self.pending is not None:
            members.update(dict.fromkeys(self.pending.expected.isr))
            for proposed in self.pending.attempts.values():
                members.update(dict.fromkeys(proposed.isr))
        return tuple(members)

    def propose(self, expected: Partition, proposed: Partition, reason: str) -> None:
        """Send a change; none may be pending."""
        assert self.pending is None
        self.pending = Pending(self._new_id(), expected, proposed, reason)
        self._send(self.pending, reason)

    def retry(self, now_ms: float, wanted: Partition) -> None:
        """Try to settle what is unsettled: by the same patch if it is still wanted and was never refused, else by a
        change that only raises `partition_epoch`.
        """
        pending = self.pending
        if pending is None or pending.in_flight or now_ms < pending.retry_ms:
            return
        same = next((key for key, entry in pending.attempts.items() if entry == wanted and key != pending.bump_id), 0)
        if same and not pending.refused:
            pending.current_id = same
            self._send(pending, pending.reason)
            return
        if not pending.bump_id:
            pending.bump_id = self._new_id()
            pending.attempts[pending.bump_id] = replace(
                pending.expected, partition_epoch=pending.expected.partition_epoch + 1
            )
        pending.current_id = pending.bump_id
        self._send(pending, "settle an earlier proposal whose outcome is unknown")

    def answered(self, now_ms: float, event: ProposalAnswered) -> Partition | None:
        """Take an answer; returns an entry that is known to be or have been committed, if there is one."""
        pending = self.pending
        if pending is None or event.proposal_id not in pending.attempts:
            return event.observed
        if event.outcome is CasOutcome.APPLIED:
            proposed = pending.attempts[event.proposal_id]
            observed = event.observed
            newer = observed is not None and observed.partition_epoch > proposed.partition_epoch
            return observed if newer else proposed
        self._failures += 1
        pending.retry_ms = self.blocked_until_ms = now_ms + back_off_ms(self._failures)
        if event.proposal_id == pending.current_id:
            pending.in_flight = False
        if event.outcome is CasOutcome.NOT_ATTEMPTED:
            if not pending.ambiguous:
                self.pending = None
            return event.observed
        # A refusal says that this attempt was not applied, but an earlier one of the same patch may have been (R6).
        pending.ambiguous = True
        if event.outcome is CasOutcome.REJECTED:
            pending.refused = True
        return event.observed

    def followed(self, now_ms: float, before: Partition | None, partition: Partition) -> None:
        """`partition` is the newest entry known after `before`: see `committed`; a member taken out is noted."""
        own = self.committed(partition)
        if own or before is None or before.leader_epoch != partition.leader_epoch:
            return
        if partition.leader != self._state.broker_id:
            return
        if any(entry not in partition.isr for entry in before.isr):
            self.additions_blocked_until_ms = now_ms + ADDITIONS_PAUSE_MS

    def committed(self, partition: Partition) -> bool:
        """`partition` is committed: settles what it has moved past. Returns whether it is what was proposed here."""
        pending = self.pending
        if pending is None or partition.partition_epoch <= pending.expected.partition_epoch:
            return False
        self.pending = None
        applied = next((key for key, entry in pending.attempts.items() if entry == partition), 0)
        if applied and applied != pending.bump_id:
            self._failures, self.blocked_until_ms = 0, 0.0
            before, after = pending.expected.isr_ids(), partition.isr_ids()
            shrunk = tuple(broker_id for broker_id in before if broker_id not in after)
            expanded = tuple(broker_id for broker_id in after if broker_id not in before)
            if shrunk or expanded:
                self._state.effects.append(IsrChanged(shrunk=shrunk, expanded=expanded))
        return bool(applied)

    def _new_id(self) -> int:
        proposal_id = self._next_id
        self._next_id += 1
        return proposal_id

    def _send(self, pending: Pending, reason: str) -> None:
        pending.in_flight = True
        self._state.effects.append(
            ProposePartition(
                proposal_id=pending.current_id,
                expected=pending.expected,
                proposed=pending.attempts[pending.current_id],
                reason=reason,
            )
        )

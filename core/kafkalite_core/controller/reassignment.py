"""Moving the replicas of one partition (KIP-455): begin, change one's mind, cancel, complete.

Of an entry of `status.partitions` let

    target = replicas - removing      what the partition shall have
    origin = replicas - adding        what it had, and has again when the move is cancelled

A new target T becomes, in one compare-and-swap,

    replicas' = T ++ leaving, removing' = leaving, adding' = T - origin
    leaving   = the replicas that are not in T, without those that were being added and hold nothing yet

so a replica in the ISR or the ELR leaves only by completion, never by a change of mind. Cancelling is the new target
`origin`. With staying = isr - removing, a move

    completes <=>  staying contains every replica that is being added,
                   |staying| >= max(1, min ISR of the target)      what is left takes writes with acks=all,
                   and if T has fewer replicas than the origin, staying contains all of T (KAFKA-15665), which is not
                   asked when a move is cancelled: with what had been added T would seem to have fewer

Then replicas' = T, isr' = staying, and if the leader leaves, the first of T in staying leads. Every change that takes a
replica from the list raises leaderEpoch, so that its fetches are fenced (R2). While it lasts the effective min ISR is
that of the smaller of origin and target: what a move adds is asked for only when it is there.

Nothing happens while an election is due: `decide` comes first, so every member of the ISR counts and is alive here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kafkalite_core.controller.election import Verdict, leader_is_valid
from kafkalite_core.model.cluster import entry_counts, entry_lost
from kafkalite_core.model.eligible import with_eligible
from kafkalite_core.model.limits import NO_LEADER
from kafkalite_core.model.partition import PartitionChange

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from kafkalite_core.model.cluster import Broker
    from kafkalite_core.model.partition import Partition


@dataclass(frozen=True, slots=True)
class Completion:
    """What a partition becomes when its move is over; without `entry`, `reason` says what it waits for."""

    entry: Partition | None
    reason: str


def target_of(entry: Partition) -> tuple[int, ...]:
    """The replicas that the partition shall have when nothing is left to be moved."""
    return tuple(broker_id for broker_id in entry.replicas if broker_id not in entry.removing)


def origin_of(entry: Partition) -> tuple[int, ...]:
    """The replicas that it had before the move, in the order that a cancellation restores."""
    return tuple(broker_id for broker_id in entry.replicas if broker_id not in entry.adding)


def is_moving(entry: Partition) -> bool:
    """Whether a move is under way."""
    return bool(entry.adding or entry.removing)


def counted_replicas(entry: Partition) -> int:
    """How many replicas bound the effective min ISR: the fewer of origin and target."""
    return min(len(entry.replicas) - len(entry.adding), len(entry.replicas) - len(entry.removing))


def retargeted(entry: Partition, target: tuple[int, ...]) -> Partition:
    """The entry with another target; its ISR, leader and epochs as they are. See the module."""
    assert target, "a partition has at least one replica"
    assert len(set(target)) == len(target), "no replica comes twice"
    origin = origin_of(entry)
    holding = {member.id for member in (*entry.isr, *entry.elr)}
    leaving = tuple(i for i in entry.replicas if i not in target and (i in origin or i in holding))
    adding = tuple(i for i in target if i not in origin)
    return replace(entry, replicas=target + leaving, adding=adding, removing=leaving)


def completion(
    entry: Partition,
    brokers: Mapping[int, Broker],
    *,
    relaxed_flush: bool,
    min_isr: int,
    cancels: bool = False,
    silent: Collection[int] = (),
) -> Completion:
    """Whether the move of an entry is over, and what becomes of it; `min_isr` is that of its target.

    `cancels`: Its target is what there was before another move, which ends here.
    Nobody among `silent` is given the leadership, who might not hear of it for a while: whoever leads goes on (R16).
    """
    target = target_of(entry)
    staying = tuple(member for member in entry.isr if member.id not in entry.removing)
    ids = {
        member.id
        for member in staying
        if entry_counts(member, brokers, relaxed_flush=relaxed_flush) and brokers[member.id].alive
    }
    missing = [i for i in entry.adding if i not in ids]
    if missing:
        return Completion(None, f"waiting for {_brokers(missing)} to be in sync")
    outside = [i for i in target if i not in ids]
    shrinks = not cancels and len(target) < len(entry.replicas) - len(entry.adding)
    if len(ids) < max(1, min_isr) or (shrinks and outside):
        return Completion(None, f"waiting for {_brokers(outside)} to be in sync before the others leave")
    if not entry.removing:
        return Completion(replace(entry, adding=()), f"{_brokers(entry.adding)} added")
    if not leader_is_valid(entry, brokers):
        return Completion(None, "waiting for a leader")
    leader = entry.leader
    if leader not in ids:
        named = [i for i in target if i in ids and entry.isr_epoch_of(i) == brokers[i].epoch]
        if not named:
            return Completion(None, "waiting for the ISR to name the present epochs of its members")
        leader = next((i for i in named if i not in silent), NO_LEADER)
        if leader == NO_LEADER:
            return Completion(None, f"waiting to hear from {_brokers(named)}, for another leader")
    done = replace(
        entry,
        leader=leader,
        replicas=target,
        isr=staying,
        adding=(),
        removing=(),
    )
    added = f", {_brokers(entry.adding)} added" if entry.adding else ""
    return Completion(done, f"{_brokers(entry.removing)} removed{added}")


def move(
    entry: Partition,
    target: tuple[int, ...] | None,
    brokers: Mapping[int, Broker],
    *,
    relaxed_flush: bool,
    min_isr_of: Callable[[int], int],
    silent: Collection[int] = (),
) -> Verdict:
    """One step: take up another target (None: the one there is) and complete, together where both are possible.

    `min_isr_of` gives the effective min ISR of so many replicas. Without a change the reason says what is waited for;
    it is empty when nothing moves. `silent`: see `completion`.
    """
    if entry.has_leader and not leader_is_valid(entry, brokers):
        return Verdict(change=None, reason="waiting for an election")
    anew = target is not None and target != target_of(entry)
    wanted = retargeted(entry, target) if anew and target is not None else entry
    reason = _begun(entry, wanted) if anew else ""
    if is_moving(wanted):
        min_isr = min_isr_of(len(target_of(wanted)))
        cancels = anew and set(target_of(wanted)) == set(origin_of(entry))
        done = completion(wanted, brokers, relaxed_flush=relaxed_flush, min_isr=min_isr, cancels=cancels, silent=silent)
        if done.entry is not None:
            reason = f"replicas are {list(target_of(wanted))}: {done.reason}"
            wanted = done.entry
        elif not anew:
            return Verdict(change=None, reason=done.reason)
    if wanted == entry:
        return Verdict(change=None, reason="")
    left = not set(entry.replicas) <= set(wanted.replicas)
    wanted = replace(
        wanted,
        min_isr=min_isr_of(counted_replicas(wanted)),
        leader_epoch=entry.leader_epoch + left,
        partition_epoch=entry.partition_epoch + 1,
    )
    wanted = with_eligible(
        entry,
        wanted,
        lambda m: entry_counts(m, brokers, relaxed_flush=relaxed_flush),
        lambda m: entry_lost(m, brokers, relaxed_flush=relaxed_flush),
    )
    return Verdict(change=PartitionChange(entry, wanted), reason=reason, elected=left)


def _begun(entry: Partition, wanted: Partition) -> str:
    before, target = list(target_of(entry)), list(target_of(wanted))
    if not is_moving(wanted):
        if is_moving(entry):
            return f"the move to {before} is cancelled, replicas are {target}"
        return f"replicas {before} are reordered to {target}"
    words = [f"replicas {list(origin_of(entry))} move to {target}"]
    if wanted.adding:
        words.append(f"{_brokers(wanted.adding)} being added")
    if wanted.removing:
        words.append(f"{_brokers(wanted.removing)} to be removed")
    return ", ".join(words)


def _brokers(ids: tuple[int, ...] | list[int]) -> str:
    return f"broker{'s' if len(ids) != 1 else ''} {', '.join(map(str, ids))}"

"""Who leads a partition, and who stays in its ISR.

Let C(X) = {m in X: m counts (S2)} and L(X) = {m in C(X): the broker of m is alive}. What `decide` proposes satisfies:

    leader' != -1, clean   =>  leader' in L(isr), or L(isr) is empty and leader' in L(elr) (KIP-966)
                                                       every acknowledged record is on every member of the ISR (R4) and
                                                       of the ELR (R10), and a member that counts has lost nothing since
    leader' == leader and leaderEpoch' == leaderEpoch
                           =>  the pair of the leader holds its present broker epoch        leadership belongs to an
                                                                                            incarnation (S1)
    ids(isr') is a subset of ids(isr), or {leader'} when that is elected from the ELR;
    isr' holds a member of C(isr) whenever C(isr) is not empty (the last one stays)
    elr' is what `model.eligible` says; it is empty after an unclean election
    partitionEpoch' = partitionEpoch + 1, leaderEpoch' = leaderEpoch + 1 iff a leader (or none) is chosen anew (R1)

With both L empty nobody is elected: leader' = -1, and every member of C stays as well as those that are not registered,
so that whichever of them comes back first with its disk can lead. What is unknown counts against a broker: an
unregistered, fenced or not yet running one is not alive.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kafkalite_core.model.cluster import BrokerState, entry_counts, entry_lost
from kafkalite_core.model.eligible import with_eligible
from kafkalite_core.model.limits import NO_LEADER
from kafkalite_core.model.partition import IsrEntry, PartitionChange

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kafkalite_core.model.cluster import Broker
    from kafkalite_core.model.partition import Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is to become of a partition, and why.

    Attributes:
        change: None when it stays as it is.
        reason: Sentence for logs and Events.
        elected: A leader, or none, was chosen anew.
        unclean: The new leader may lack acknowledged records.
    """

    change: PartitionChange | None
    reason: str
    elected: bool = False
    unclean: bool = False


def leader_is_valid(entry: Partition, brokers: Mapping[int, Broker]) -> bool:
    """The leader is alive and its pair holds exactly its present broker epoch (S1)."""
    return may_lead(entry, entry.leader, brokers)


def decide(
    entry: Partition,
    brokers: Mapping[int, Broker],
    *,
    relaxed_flush: bool,
    unclean_allowed: bool,
    min_isr: int,
    silent: Collection[int] = (),
) -> Verdict:
    """The one decision on a partition: keep, shrink, elect, or declare it offline. See the theorem above.

    `min_isr` is the effective min ISR that the entry shall carry (S4); it is changed along with the rest. Of several
    candidates one that is not among `silent` is elected, if there is one: it will hear of it.
    """

    def counts(member: IsrEntry) -> bool:
        return entry_counts(member, brokers, relaxed_flush=relaxed_flush)

    def lost(member: IsrEntry) -> bool:
        return entry_lost(member, brokers, relaxed_flush=relaxed_flush)

    def alive(members: tuple[IsrEntry, ...]) -> list[IsrEntry]:
        return [member for member in members if counts(member) and brokers[member.id].alive]

    living = alive(entry.isr)
    refreshed = tuple(IsrEntry(member.id, brokers[member.id].epoch) for member in living)
    if leader_is_valid(entry, brokers) and any(member.id == entry.leader for member in living):
        proposed = with_eligible(entry, replace(entry, isr=refreshed, min_isr=min_isr), counts, lost)
        return _verdict(entry, proposed, _shrink_reason(entry, proposed, brokers))
    if living:
        leader = _first_of(entry, living, silent)
        proposed = with_eligible(entry, replace(entry, leader=leader, isr=refreshed, min_isr=min_isr), counts, lost)
        loss = _loss_reason(entry, brokers)
        reason = f"{loss}; broker {leader} is the first live member of the ISR{_of_those(silent)}"
        return _verdict(entry, proposed, reason, elected=True)
    if eligible := alive(entry.elr):
        leader = _first_of(entry, eligible, silent)
        isr = (IsrEntry(leader, brokers[leader].epoch),)
        proposed = with_eligible(entry, replace(entry, leader=leader, isr=isr, min_isr=min_isr), counts, lost)
        reason = (
            f"{_loss_reason(entry, brokers)}; no live member of the ISR, and broker {leader} is the first live "
            f"eligible replica{_of_those(silent)}: it holds every committed record"
        )
        return _verdict(entry, proposed, reason, elected=True)
    if unclean_allowed and (unclean := _unclean(entry, brokers, min_isr, silent)) is not None:
        return unclean
    left = tuple(member for member in entry.isr if not lost(member))
    proposed = with_eligible(
        entry, replace(entry, leader=NO_LEADER, isr=left or entry.isr, min_isr=min_isr), counts, lost
    )
    reason = f"{_loss_reason(entry, brokers)}; {no_candidate_reason(entry, brokers, relaxed_flush=relaxed_flush)}"
    return _verdict(entry, proposed, reason, elected=entry.has_leader)


def _first_of(entry: Partition, members: list[IsrEntry], silent: Collection[int]) -> int:
    """The member that comes first in the order of preference, of those that are heard if there are any."""
    ids = {member.id for member in members}
    ids = ids.difference(silent) or ids
    return next(broker_id for broker_id in entry.replicas if broker_id in ids)


def _of_those(silent: Collection[int]) -> str:
    """That the order of preference alone did not decide; empty when it did."""
    return f" (not heard at present: {', '.join(map(str, sorted(silent)))})" if silent else ""


def _unclean(entry: Partition, brokers: Mapping[int, Broker], min_isr: int, silent: Collection[int]) -> Verdict | None:
    """The first live replica leads, whatever it lacks; it says so until its own first change (KIP-704)."""
    living = [IsrEntry(i, brokers[i].epoch) for i in entry.replicas if i in brokers and brokers[i].alive]
    if not living:
        return None
    leader = _first_of(entry, living, silent)
    isr = (IsrEntry(leader, brokers[leader].epoch),)
    proposed = replace(entry, leader=leader, isr=isr, elr=(), min_isr=min_isr, recovering=True)
    reason = (
        f"{_loss_reason(entry, brokers)}; no live member of the ISR and no eligible replica, and the topic "
        f"allows the unclean election of broker {leader}{_of_those(silent)}, which may lack acknowledged records"
    )
    return _verdict(entry, proposed, reason, elected=True, unclean=True)


def _verdict(
    entry: Partition, proposed: Partition, reason: str, *, elected: bool = False, unclean: bool = False
) -> Verdict:
    if not elected and proposed == entry:
        return Verdict(change=None, reason=reason)
    proposed = replace(
        proposed,
        leader_epoch=entry.leader_epoch + 1 if elected else entry.leader_epoch,
        partition_epoch=entry.partition_epoch + 1,
    )
    return Verdict(change=PartitionChange(entry, proposed), reason=reason, elected=elected, unclean=unclean)


def prefer(entry: Partition, brokers: Mapping[int, Broker], *, silent: Collection[int] = ()) -> Verdict:
    """Give the leadership to the first replica, if it could lead at once; the ISR stays as it is.

    Not to one among `silent`: it might not hear of it for a while, and the leader that there is can stay.
    """
    preferred = entry.replicas[0] if entry.replicas else NO_LEADER
    if entry.leader == preferred or not leader_is_valid(entry, brokers):
        return Verdict(change=None, reason="nothing to balance")
    if (broker := brokers.get(preferred)) is not None and broker.leaving:
        return Verdict(change=None, reason=f"the preferred leader {preferred} leaves the cluster")
    if not may_lead(entry, preferred, brokers):
        return Verdict(change=None, reason=f"the preferred leader {preferred} is not in sync")
    if preferred in silent:
        return Verdict(change=None, reason=f"the preferred leader {preferred} is not heard at present")
    return hand_over(entry, preferred, f"broker {preferred} is the preferred leader and in sync")


def may_lead(entry: Partition, broker_id: int, brokers: Mapping[int, Broker]) -> bool:
    """The broker is alive and in the ISR with its present epoch: it could lead at once."""
    broker = brokers.get(broker_id)
    return broker is not None and broker.alive and entry.isr_epoch_of(broker_id) == broker.epoch


def hand_over(entry: Partition, broker_id: int, reason: str) -> Verdict:
    """Give the leadership of a leader that is valid to a broker that `may_lead`; the ISR stays as it is."""
    return _verdict(entry, replace(entry, leader=broker_id), reason, elected=True)


def describe_broker(broker_id: int, brokers: Mapping[int, Broker]) -> str:
    """State of a broker in a few words."""
    broker = brokers.get(broker_id)
    if broker is None or broker.registration is None:
        return f"broker {broker_id} is not registered"
    if broker.fenced:
        return f"broker {broker_id} is fenced"
    if broker.registration.state is BrokerState.SHUTTING_DOWN:
        return f"broker {broker_id} is shutting down"
    if not broker.alive:
        return f"broker {broker_id} is {broker.registration.state.value}"
    return f"broker {broker_id} runs with epoch {broker.epoch}"


def _loss_reason(entry: Partition, brokers: Mapping[int, Broker]) -> str:
    if not entry.has_leader:
        return "there is no leader"
    broker = brokers.get(entry.leader)
    if broker is not None and broker.alive:
        return f"leader {entry.leader} restarted: its epoch is {broker.epoch}, not {entry.isr_epoch_of(entry.leader)}"
    return f"leader lost: {describe_broker(entry.leader, brokers)}"


def no_candidate_reason(entry: Partition, brokers: Mapping[int, Broker], *, relaxed_flush: bool) -> str:
    """Why nobody of the ISR (and of the ELR) can lead, member by member."""
    words: list[str] = []
    for member in (*entry.isr, *entry.elr):
        broker = brokers.get(member.id)
        if broker is not None and broker.alive and not entry_counts(member, brokers, relaxed_flush=relaxed_flush):
            words.append(f"broker {member.id} came back without its data")
        else:
            words.append(describe_broker(member.id, brokers))
    whose = "the ISR or eligible replica" if entry.elr else "the ISR"
    return f"no live member of {whose}: " + ", ".join(words)


def _shrink_reason(entry: Partition, proposed: Partition, brokers: Mapping[int, Broker]) -> str:
    isr = proposed.isr
    staying = {member.id for member in isr}
    gone = [describe_broker(member.id, brokers) for member in entry.isr if member.id not in staying]
    if gone:
        eligible = [str(broker_id) for broker_id in proposed.elr_ids()]
        more = f"; below min.insync.replicas, eligible to lead: {', '.join(eligible)}" if eligible else ""
        return f"removed from the ISR: {', '.join(gone)}{more}"
    if isr != entry.isr:
        return "the ISR names the present epochs of its members"
    if proposed.min_isr != entry.min_isr:
        return "the effective min.insync.replicas changed"
    return "the eligible replicas changed: the ISR suffices, or one of them lost its data"

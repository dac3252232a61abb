"""A broker whose node or volume is gone for good gets a new pod and a new, empty volume: who, when, and what waits why.

Who is asked for: a broker that a person has declared gone (`kafkalite.io/replace`); with `spec.nodeLoss: replace` also
one that is fenced and whose node is gone or not ready for `spec.nodeLossSeconds`, or whose claim has lost its volume.

    a claim or pod is deleted  =>  its uid stands in `status.replacing`, written by the controller of this epoch before
                               =>  the broker is fenced, and was fenced again each time it came back with that disk
                               =>  every partition that has it among its replicas
                                     has a leader, and the broker is neither that nor in the ISR
                                     keeps min(min.insync.replicas, its other replicas) living members in its ISR; of
                                     two that are not in it, and that a person has declared gone, neither asks for
                                     the other one
                                   or somebody allows an unclean election of it: then nobody else has what is lost
                               =>  no other broker is being replaced, nor restarted by a roll, nor is anything unknown
                                   (but one of a roll's batch that is away, and is to be replaced as well)

So every acknowledged record is on as many other disks as if the broker were down for a while. It counts as down when it
is fenced, and as an empty disk afterwards (`trustedSince`, R9). Its id stays: StatefulSets have no other, and with as
many brokers as replicas there is nobody else to take what it held.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import isinf
from typing import TYPE_CHECKING

from kafkalite_core.controller.actions import EndReplaceRequest, Fence, ReplaceBroker
from kafkalite_core.controller.configs import relaxed_flush
from kafkalite_core.controller.election import describe_broker, hand_over, leader_is_valid, may_lead
from kafkalite_core.controller.lost_nodes import claim_of, node_of, overdue, unreachable, why_lost
from kafkalite_core.controller.replacement_telling import conditions_of
from kafkalite_core.controller.restart_safety import Guarded, Safety
from kafkalite_core.controller.store_recovery import StoreRecovery
from kafkalite_core.controller.strays import why_kept
from kafkalite_core.model.pods import Blocked
from kafkalite_core.model.replacement import Phase, Replacing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kafkalite_core.controller.election import Verdict
    from kafkalite_core.controller.restart_safety import Key
    from kafkalite_core.controller.snapshot import Snapshot, TopicView
    from kafkalite_core.model.cluster import Broker
    from kafkalite_core.model.partition import Partition
    from kafkalite_core.model.topic import Condition

CLAIMS_FRESH_S = 15.0
"""No claim is noted that was read longer ago."""

BLOCKED_MAX = 32
LISTED_MAX = 3
IDLE = Replacing()


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """What a round does about it.

    Attributes:
        status: What `status.replacing` shall say.
        moves: Leaderships that are handed over first, by topic uid and partition number.
        fence: The broker, which is still there, or there again.
        step: What is to be deleted now.
        end: The request that has been fulfilled.
        conditions: The condition `Replacing` by broker id, see `replacement_telling.conditions_of`.
    """

    status: Replacing
    moves: Mapping[tuple[str, int], Verdict] = field(default_factory=dict)
    fence: Fence | None = None
    step: ReplaceBroker | None = None
    end: EndReplaceRequest | None = None
    conditions: Mapping[int, Condition] = field(default_factory=dict)

    def balanced(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot for preferred leaders: a broker that is about to go gets no leadership back."""
        return replace(snapshot, balance_due=False) if self.status.phase is Phase.REMOVING else snapshot


def replacement(snapshot: Snapshot, now: float) -> Replacement:
    """The decision. `now` is in seconds of the observer's monotonic clock."""
    if snapshot.cluster.deleting:
        return Replacement(status=snapshot.replacing)
    this = _Round(snapshot, now)
    found = this.decide()
    return replace(found, conditions=conditions_of(snapshot, found.status, this.others(found.status)))


def objections(snapshot: Snapshot, broker_id: int) -> list[Blocked]:
    """What partitions have against the loss of the broker's disk, once a person declares it gone."""
    against = _Partitions(snapshot).objections(broker_id, declared=True)
    return [Blocked("", f"{key[0]}-{key[1]}", why) for key, why in against]


class _Partitions:
    """The rule about partitions."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._brokers = snapshot.brokers
        self._views: dict[Key, TopicView] = {}
        self.safety = Safety(self._guarded(), snapshot.brokers)

    def _guarded(self) -> Iterator[Guarded]:
        for view in self._snapshot.placed_topics():
            relaxed = relaxed_flush(self._snapshot, view)
            for number, entry in view.topic.partitions.items():
                key = (view.spec.topic_name, number)
                self._views[key] = view
                yield Guarded(key, entry, relaxed)

    def objections(self, broker_id: int, *, declared: bool) -> list[tuple[Key, str]]:
        """`declared`: A person has declared the broker gone, or is about to."""
        recovery = StoreRecovery(self._snapshot)
        found = []
        for each in self.safety.of(broker_id):
            view = self._views[each.key]
            if recovery.decide(view, each.key[1], each.entry, min_isr=each.entry.min_isr) is not None:
                found.append((each.key, "is older in the store than brokers know (StoreWentBack)"))
            elif why := self._objection(broker_id, each, declared):
                found.append((each.key, why))
        return found

    def _objection(self, broker_id: int, each: Guarded, declared: bool) -> str:
        entry, living = each.entry, self.safety.living(each.key)
        left = living - {broker_id}
        others = [i for i in entry.replicas if i != broker_id]
        awaited = others
        if declared and broker_id not in living:
            # Two that are gone for good would wait for one another. Who is in sync still goes after who is away.
            awaited = [i for i in others if i in left or not self._declared_gone(i)]
        asked = min(max(1, entry.min_isr), max(1, len(awaited)))
        if len(left) >= asked:
            return ""
        away = ", ".join(describe_broker(i, self._brokers) for i in others if i not in left)
        if left:
            return f"would keep {len(left)} of min.insync.replicas {entry.min_isr} in sync: {away}"
        if self.consented(each):
            return ""
        name = self._views[each.key].topic.ref.object_name
        return (
            f"would lose its last copy of acknowledged records ({away or 'it has no other replica'}): bring a broker "
            f"of its ISR back, or accept the loss: kubectl annotate klt {name} kafkalite.io/elect-unclean={each.key[1]}"
        )

    def _declared_gone(self, broker_id: int) -> bool:
        broker = self._brokers.get(broker_id)
        return broker is not None and bool(broker.replace_request) and not broker.alive

    def consented(self, each: Guarded) -> bool:
        """Somebody allows an unclean election of the partition: what nobody else has may be lost."""
        view = self._views[each.key]
        return each.key[1] in view.elect_unclean or self._snapshot.topic_config(view).unclean_leader_election_enable

    def settled(self, broker_id: int) -> bool:
        """The broker is in no ISR any more, but where nobody else is (and `objections` has asked for consent)."""
        for each in self.safety.of(broker_id):
            held = broker_id in each.entry.isr_ids() or not each.entry.has_leader
            if held and self.safety.living(each.key) - {broker_id}:
                return False
        return True

    def moves(self, broker_id: int) -> dict[tuple[str, int], Verdict]:
        """Leaderships of a broker that still serves, to members of the ISR: clients wait for no election."""
        moves: dict[tuple[str, int], Verdict] = {}
        for each in self.safety.of(broker_id):
            entry = each.entry
            if entry.leader != broker_id or not leader_is_valid(entry, self._brokers):
                continue
            able = [i for i in entry.replicas if i != broker_id and may_lead(entry, i, self._brokers)]
            able = [i for i in able if i in self.safety.living(each.key)]
            if able:
                to = min(able, key=lambda i: (self._brokers[i].leaving, able.index(i)))
                reason = f"broker {broker_id} is about to be replaced; broker {to} is in sync"
                moves[self._views[each.key].topic.ref.uid, each.key[1]] = hand_over(entry, to, reason)
        return moves

    def progress(self, broker: Broker) -> tuple[int, int]:
        """Partitions that have it among their replicas, and how many of them have it in their ISR."""
        entries: list[Partition] = [each.entry for each in self.safety.of(broker.id)]
        mine = [e for e in entries if broker.id in e.replicas and broker.id not in (*e.adding, *e.removing)]
        return len(mine), sum(entry.isr_epoch_of(broker.id) == broker.epoch for entry in mine)


class _Round:
    """One decision."""

    def __init__(self, snapshot: Snapshot, now: float) -> None:
        self._snapshot = snapshot
        self._now = now
        self._known: list[_Partitions] = []

    @property
    def _partitions(self) -> _Partitions:
        if not self._known:  # as a rule nobody is to be replaced, and nobody looks at them
            self._known.append(_Partitions(self._snapshot))
        return self._known[0]

    def decide(self) -> Replacement:
        before = self._snapshot.replacing
        broker = self._snapshot.brokers.get(before.broker)
        if broker is not None and before.phase is Phase.REMOVING:
            return self._removing(before, broker)
        if broker is not None and before.phase is Phase.REBUILDING and not self._cause(broker):
            return Replacement(status=self._rebuilding(before, broker))
        return self._chosen()

    def others(self, status: Replacing) -> dict[int, str]:
        """Why others are to be replaced while one is, by broker id. They wait for it, whatever else."""
        if status.phase not in {Phase.REMOVING, Phase.REBUILDING}:
            return {}
        causes = {i: self._cause(each) for i, each in self._snapshot.brokers.items() if i != status.broker}
        return {i: cause for i, cause in causes.items() if cause}

    # -- who ----------------------------------------------------------------------------------------------------

    def _cause(self, broker: Broker) -> str:
        """Why it is to be replaced; empty when nobody asks for it."""
        if broker.replace_request:
            return "kafkalite.io/replace is set"
        return why_lost(self._snapshot, broker, self._now)

    def _chosen(self) -> Replacement:
        """The first broker that is asked for and that nothing speaks against, or else the first; noted only."""
        waiting: Replacing | None = None
        for broker_id, broker in sorted(self._snapshot.brokers.items()):
            cause = self._cause(broker)
            if not cause:
                continue
            claim = claim_of(self._snapshot, broker_id)
            blocked = self._blocked(broker)
            if claim is None:  # a later one would have to be deleted without having been noted
                blocked += (Blocked(broker.object_name, "", "its claim is not there, or was not read yet"),)
            if blocked:
                found = Replacing(phase=Phase.WAITING, broker=broker_id, cause=cause, blocked_by=blocked)
                waiting = waiting or found
                continue
            if claim is None or self._snapshot.claims_age_s > CLAIMS_FRESH_S:
                return Replacement(status=self._snapshot.replacing)
            pod = self._snapshot.pods.get(broker_id)
            status = Replacing(
                phase=Phase.REMOVING,
                broker=broker_id,
                cause=cause,
                directory_id=broker.registration.directory_id if broker.registration is not None else "",
                claim_uid=claim.uid,
                pod_uid=pod.uid if pod is not None else "",
            )
            return Replacement(status=status)
        return Replacement(status=waiting or IDLE)

    # -- what speaks against it -------------------------------------------------------------------------------

    def _blocked(self, broker: Broker) -> tuple[Blocked, ...]:
        pod = self._snapshot.pods.get(broker.id)
        name = pod.name if pod is not None else broker.object_name
        found = [Blocked(name, "", why) for why in self._obstacles(broker, name)]
        against = self._partitions.objections(broker.id, declared=bool(broker.replace_request))
        found += [Blocked(name, f"{key[0]}-{key[1]}", why) for key, why in against]
        return tuple(found[:BLOCKED_MAX])

    def _obstacles(self, broker: Broker, pod: str) -> Iterator[str]:
        """What speaks against it, partitions aside."""
        snapshot = self._snapshot
        if snapshot.cluster.paused:
            yield "kafkalite.io/paused is set on the cluster"
        if broker.id >= snapshot.cluster.replicas:
            yield "it leaves the cluster: its replicas move to those that stay"
        if not snapshot.complete:
            yield "some topic cannot be read, so nobody knows where its replicas are"
        restarting = [name for name in snapshot.rolling.restarting if name != pod and not self._never_back(name)]
        if restarting:
            yield f"a rolling restart is under way: {', '.join(restarting[:LISTED_MAX])}"
        if not broker.replace_request:
            kept = why_kept(snapshot, broker)
            if kept:
                yield (
                    f"its volume is not given up, {kept}: "
                    f"kubectl annotate klb {broker.object_name} kafkalite.io/replace=true gives them up"
                )

    def _never_back(self, pod: str) -> bool:
        """A pod of a roll's batch whose broker is away and is to be replaced as well.

        The roll waits for it until it has its new volume: two that are lost together would wait for one another.
        """
        broker = self._snapshot.brokers.get(int(pod.rpartition("-")[2]))
        return broker is not None and not broker.alive and bool(self._cause(broker))

    # -- what is done -----------------------------------------------------------------------------------------

    def _removing(self, before: Replacing, broker: Broker) -> Replacement:
        registration = broker.registration
        if registration is not None and registration.directory_id != before.directory_id:
            if broker.replace_request:
                end = EndReplaceRequest(broker=broker, request=broker.replace_request)
                return Replacement(status=replace(before, blocked_by=()), end=end)
            return Replacement(status=self._rebuilding(before, broker))
        if isinf(self._snapshot.claims_age_s):
            return Replacement(status=before)  # which claims are there was not read: none of them counts as deleted
        if not self._begun(before) and not self._cause(broker):
            return self._chosen()  # the node is back, or the annotation was taken away
        step = self._step(before, broker)
        if step is None and broker.fenced:
            return Replacement(status=replace(before, blocked_by=()))
        blocked = self._blocked(broker)
        if blocked:
            return Replacement(status=replace(before, blocked_by=blocked))
        status = replace(before, blocked_by=())
        moves = self._partitions.moves(broker.id)
        if moves:
            return Replacement(status=status, moves=moves)
        if not broker.fenced:
            message = f"it is replaced: {before.cause}"
            return Replacement(
                status=status, fence=Fence(broker=broker, reason="Replaced", message=message, by_expiry=False)
            )
        return Replacement(status=status, step=step if self._partitions.settled(broker.id) else None)

    def _begun(self, before: Replacing) -> bool:
        """Whether something was deleted, as far as is known."""
        claim = claim_of(self._snapshot, before.broker)
        return claim is None or claim.uid != before.claim_uid or claim.deleting

    def _step(self, before: Replacing, broker: Broker) -> ReplaceBroker | None:
        """What is left of the old claim and of pods that may use it."""
        claim, pod = claim_of(self._snapshot, broker.id), self._snapshot.pods.get(broker.id)
        if claim is not None and claim.uid != before.claim_uid:
            claim = None
        if pod is not None and claim is None and pod.uid != before.pod_uid:
            pod = None
        force = pod is not None and (
            unreachable(self._snapshot.nodes.get(node_of(self._snapshot, broker.id))) or overdue(pod, self._now)
        )
        if claim is not None and claim.deleting:
            claim = None
        if pod is not None and pod.deleting and not force:
            pod = None
        if claim is None and pod is None:
            return None
        return ReplaceBroker(
            uid=self._snapshot.cluster.uid,
            broker=broker,
            cause=before.cause,
            claim=claim.name if claim is not None else "",
            claim_uid=claim.uid if claim is not None else "",
            pod=pod.name if pod is not None else "",
            pod_uid=pod.uid if pod is not None else "",
            force=force,
        )

    def _rebuilding(self, before: Replacing, broker: Broker) -> Replacing:
        replicas, in_sync = self._partitions.progress(broker)
        if replicas == in_sync and broker.alive:
            return IDLE
        return Replacing(
            phase=Phase.REBUILDING,
            broker=broker.id,
            cause=before.cause,
            directory_id=broker.registration.directory_id if broker.registration is not None else "",
            replicas=replicas,
            in_sync=in_sync,
        )

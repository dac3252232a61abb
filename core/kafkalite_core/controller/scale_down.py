"""Fewer brokers: those with ids from `spec.replicas` of the cluster on leave it, the highest id first, one by one.

    leaves(i)   <=>  i >= spec.replicas
    removed(i)   =>  leaves(i), i is the highest id there is, no partition of any topic has i among its replicas (nor
                     adding, nor removing: they are subsets), broker i holds nothing that the store lost (S11), and
                     no topic is about to take over data of a lost one that broker i may hold (S10)

A broker that leaves takes no replica; leaders are handed to replicas that stay and are in sync; then its replicas move
as in every reassignment (`reassignments`), as many at a time. StatefulSets give up their highest ordinal only, so an
empty broker below one that is not empty waits. Raising `spec.replicas` again takes back what is under way.

If what stays is too few for the replicas of some topic, or the cluster is paused, nothing moves and nobody is removed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kafkalite_core.controller.actions import RemoveBroker
from kafkalite_core.controller.adoption import taking_over
from kafkalite_core.controller.election import Verdict, leader_is_valid, may_lead
from kafkalite_core.controller.election import hand_over as lead
from kafkalite_core.controller.lost_nodes import what_to_do
from kafkalite_core.controller.obstacle import Obstacle
from kafkalite_core.controller.strays import why_kept

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kafkalite_core.controller.snapshot import Snapshot, TopicView
    from kafkalite_core.model.cluster import Broker
    from kafkalite_core.model.partition import Partition

LISTED_MAX = 5
"""Topics named in one message; the rest is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """Who leaves, and whether replicas may move for it.

    Attributes:
        ids: Brokers that take no new replicas.
        acts: Replicas move away from them.
        too_wide: By name of the topics that want more replicas than brokers stay: how many.
    """

    ids: frozenset[int]
    acts: bool = True
    too_wide: Mapping[str, int]

    @property
    def evacuated(self) -> frozenset[int]:
        """Brokers whose replicas move away now."""
        return self.ids if self.acts else frozenset()


def leaving_of(snapshot: Snapshot) -> Leaving:
    """Who leaves the cluster."""
    ids = frozenset(i for i in snapshot.brokers if i >= snapshot.cluster.replicas)
    too_wide = _too_wide(snapshot, ids) if ids else {}
    return Leaving(ids=ids, acts=not snapshot.cluster.paused and not too_wide, too_wide=too_wide)


def with_leaving(snapshot: Snapshot) -> Snapshot:
    """The snapshot with `leaving` set on those brokers: every rule that places replicas or prefers leaders asks it."""
    ids = [i for i in snapshot.brokers if i >= snapshot.cluster.replicas]
    if not ids:
        return snapshot
    return replace(
        snapshot, brokers={**snapshot.brokers, **{i: replace(snapshot.brokers[i], leaving=True) for i in ids}}
    )


def _too_wide(snapshot: Snapshot, ids: frozenset[int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for view in snapshot.placed_topics():
        width = _width(view)
        if width > snapshot.cluster.replicas and not ids.isdisjoint(view.facts.held):
            found[view.spec.topic_name] = width
    return found


def _width(view: TopicView) -> int:
    lists = view.spec.replica_assignment
    return max(len(lists[number]) if number in lists else view.spec.replicas for number in view.topic.partitions)


# -- leaders ----------------------------------------------------------------------------------------------------


def hand_over(entry: Partition, brokers: Mapping[int, Broker], *, silent: Collection[int] = ()) -> Verdict:
    """A leader that leaves gives way to the first replica that stays and could lead at once; the ISR stays.

    Not to one among `silent`, who might not hear of it for a while (R16).
    """
    leader = brokers.get(entry.leader)
    if leader is None or not leader.leaving or not leader_is_valid(entry, brokers):
        return Verdict(change=None, reason="")
    for broker_id in entry.replicas:
        if may_lead(entry, broker_id, brokers) and not brokers[broker_id].leaving and broker_id not in silent:
            reason = f"leader {entry.leader} leaves the cluster; broker {broker_id} is in sync and stays"
            return lead(entry, broker_id, reason)
    reason = f"nobody who stays is in sync yet, and heard, to lead instead of broker {entry.leader}"
    return Verdict(change=None, reason=reason)


# -- brokers ----------------------------------------------------------------------------------------------------


def wanted_brokers(snapshot: Snapshot) -> list[int]:
    """Broker ids whose pods shall run: those asked for, and up to the highest one that may not be removed yet."""
    removed = removals(snapshot)
    return list(range(removed[0].remaining if removed else _pods(snapshot)))


def _pods(snapshot: Snapshot, without: int = -1) -> int:
    """How many pods shall run when that broker is gone.

    None is made to fill the ids below a broker that never ran and holds nothing: somebody's manifest made its object.
    """
    ran = {i for i, broker in snapshot.brokers.items() if broker.registration is not None or broker.holdings}
    return max({snapshot.cluster.replicas, *(i + 1 for i in {*ran, *snapshot.replicas_held()} - {without})})


def removals(snapshot: Snapshot) -> list[RemoveBroker]:
    """The broker that may be removed now, if there is one."""
    highest = _highest(snapshot)
    broker = snapshot.brokers.get(highest)
    if highest < snapshot.cluster.replicas or broker is None or _why_kept(snapshot, broker):
        return []
    if snapshot.cluster.deleting:
        return []  # the garbage collector does it
    remaining = _pods(snapshot, without=broker.id)
    return [RemoveBroker(broker=broker, unclaimed=why_kept(snapshot, broker), remaining=remaining)]


def _highest(snapshot: Snapshot) -> int:
    """The highest broker id that exists or holds a replica; -1 for none."""
    return max({*snapshot.brokers, *snapshot.replicas_held()}, default=-1)


def _why_kept(snapshot: Snapshot, broker: Broker) -> str:
    """Why a broker that leaves cannot be removed yet; empty when it can."""
    if snapshot.cluster.paused:
        return "the cluster is paused"
    held = snapshot.replicas_held()[broker.id]
    if held:
        return f"{_count(held, 'replica')} left on broker {broker.id}"
    if broker.holdings:
        return f"broker {broker.id} knows more of some partitions than the store shows (StoreWentBack)"
    awaited = taking_over(snapshot, broker.id)
    if awaited:
        return (
            f"broker {broker.id} may hold data that {_listed(awaited)} will take over as soon as "
            f"{'it is' if len(awaited) == 1 else 'they are'} placed"
        )
    if not snapshot.complete:
        return "some topic cannot be read, so nobody knows where its replicas are"
    return "" if leaving_of(snapshot).acts else "topics have too many replicas"


# -- what to tell -----------------------------------------------------------------------------------------------


def scale_down_progress(snapshot: Snapshot, now: float = 0.0) -> Obstacle | None:
    """What `Progressing` of the cluster says while brokers leave it; None when nobody does."""
    leaving = leaving_of(snapshot)
    held = snapshot.replicas_held()
    ids = sorted({*leaving.ids, *(i for i in held if i >= snapshot.cluster.replicas)})
    if not ids:
        return None
    wanted = snapshot.cluster.replicas
    if leaving.too_wide:
        return Obstacle("NotEnoughBrokers", _too_few(wanted, leaving))
    words = f"spec.replicas is {wanted}, {_brokers(ids)} leave{'s' if len(ids) == 1 else ''}: "
    if snapshot.cluster.paused:
        message = f"{words}waiting until the annotation kafkalite.io/paused is removed"
        return Obstacle("ScalingDown", message, waiting=True)
    last = snapshot.brokers.get(ids[-1])
    why = _why_kept(snapshot, last) if last is not None else f"broker {ids[-1]} is not known"
    if why:
        left = [f"{_count(held[i], 'replica')} left on broker {i}" for i in ids if held[i]]
        moving = sum(
            not leaving.ids.isdisjoint(entry.replicas)
            for view in snapshot.topics.values()
            for entry in view.facts.moving
        )
        parts = [*left, *([] if held[ids[-1]] else [why])]
        words += "; ".join(parts) + (f" ({_count(moving, 'partition')} moving)" if moving else "")
        words += _paused_topics(snapshot, leaving.ids)
    else:
        words += what_to_do(snapshot, ids[-1], now) or f"broker {ids[-1]} is empty and is removed"
    return Obstacle("ScalingDown", words, waiting=True)


def _too_few(wanted: int, leaving: Leaving) -> str:
    topics = [f"{name} ({width})" for name, width in sorted(leaving.too_wide.items())]
    return (
        f"{_brokers(sorted(leaving.ids))} cannot leave, nothing is moved: {wanted} would stay, and these topics "
        f"have more replicas: {_listed(topics)}; lower their spec.replicas, or set spec.replicas "
        f"of the cluster to {max(leaving.too_wide.values())}"
    )


def _paused_topics(snapshot: Snapshot, ids: frozenset[int]) -> str:
    paused = sorted(
        view.spec.topic_name for view in snapshot.placed_topics() if view.paused and not ids.isdisjoint(view.facts.held)
    )
    if not paused:
        return ""
    return f"; paused, and not moved before kafkalite.io/paused is removed: {_listed(paused)}"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - LISTED_MAX} more" if len(names) > LISTED_MAX else ""
    return f"{', '.join(names[:LISTED_MAX])}{more}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _brokers(ids: list[int]) -> str:
    return f"broker{'' if len(ids) == 1 else 's'} {', '.join(map(str, ids))}"

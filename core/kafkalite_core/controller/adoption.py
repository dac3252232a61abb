"""Adoption: a topic that is made anew takes over what brokers still hold of a lost one of its name (S10)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kafkalite_core.controller.configs import effective_min_isr, relaxed_flush
from kafkalite_core.controller.fencing import heard
from kafkalite_core.controller.newest_isr import holders_of_the_most, holding_as_stray, in_sync_lost
from kafkalite_core.controller.noticing import has_noticed, unnoticed
from kafkalite_core.controller.obstacle import Obstacle
from kafkalite_core.controller.reassignment_targets import takes_replicas
from kafkalite_core.controller.strays import given_up
from kafkalite_core.model.limits import EPOCHS_AHEAD, PARTITIONS_PER_TOPIC_MAX
from kafkalite_core.model.partition import IsrEntry, Partition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkalite_core.controller.placement import Load
    from kafkalite_core.controller.snapshot import Snapshot, TopicView
    from kafkalite_core.model.cluster import Broker
    from kafkalite_core.model.topic import Stray

LISTED_MAX = 5
"""How many partitions, and how many topic ids, a message names: it has 1,024 characters at most."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """What is taken over.

    Attributes:
        entries: By partition number, of the partitions that brokers list.
        unclean: Partitions of which nobody has what those in sync had: a person has accepted the loss.
        count: How many partitions the topic had at least.
        epochs: Leader epoch and partition epoch above all that any broker knows of the topic; (0, 0) of a new one.
    """

    entries: dict[int, Partition] = field(default_factory=dict)
    unclean: frozenset[int] = frozenset()
    count: int = 0
    epochs: tuple[int, int] = (0, 0)

    def above(self, entry: Partition) -> Partition:
        """A partition that nobody lists: it begins empty, but no epoch of that topic id is used twice, should its data
        turn up after all.
        """
        return replace(entry, leader_epoch=self.epochs[0], partition_epoch=self.epochs[1])


def held_of(snapshot: Snapshot, view: TopicView) -> tuple[str, list[tuple[int, Stray]]]:
    """The topic id to adopt ("" for none) and who holds what of it: the id that is asked for, or the one with the
    highest leader epoch.

    A topic whose deletion any broker saw was given up on purpose: it is adopted only when the new one says so.
    """
    if view.adopt_strays is False:
        return "", []
    abandoned = set() if view.adopt_strays else given_up(snapshot, view.spec.topic_name)
    taken = {other.topic.ref.topic_id for other in snapshot.topics.values()} | abandoned
    found = [
        (broker_id, stray)
        for broker_id, broker in sorted(snapshot.brokers.items())
        for stray in listed_by(broker)
        if stray.topic == view.spec.topic_name
        and stray.topic_id not in taken
        and view.adopt_topic_id in {"", stray.topic_id}
    ]
    if not found:
        return "", []
    topic_id = max(found, key=lambda item: (item[1].leader_epoch, item[1].end_offset, item[1].topic_id))[1].topic_id
    return topic_id, [item for item in found if item[1].topic_id == topic_id]


def taking_over(snapshot: Snapshot, broker_id: int) -> list[str]:
    """Names of topics that are still to be placed, and may do so on what that broker holds of them.

    Also while it lists nothing of them: as long as others do, or the observer saw it have replicas of the deleted one,
    it has perhaps not heard of the loss. Its log may be the one that has the most.
    """
    return sorted(
        view.spec.topic_name
        for view in snapshot.topics.values()
        if not (view.placed or view.topic.deleting or view.adopt_strays is False)
        and (broker_id in view.left_by or held_of(snapshot, view)[1])
    )


def told_of(snapshot: Snapshot, topic_id: str) -> dict[int, list[Stray]]:
    """What brokers remember of a topic that lost its whole status, and have no replica of (S11): by partition."""
    told: dict[int, list[Stray]] = {}
    for broker in snapshot.brokers.values():
        for holding in broker.holdings:
            if holding.topic_id == topic_id and not holding.hosted:
                told.setdefault(holding.partition, []).append(holding_as_stray(holding))
    return told


def epochs_above(known: Iterable[Stray], seen: Iterable[tuple[int, int]] = ()) -> tuple[int, int]:
    """(leader epoch, partition epoch) above all that any broker knows of any partition of the topic, listed or not.

    `seen`: such pairs that the observer has seen itself.
    """
    pairs = [*((max(stray.leader_epoch, stray.reach[0]), stray.partition_epoch) for stray in known), *seen]
    return max(pair[0] for pair in pairs) + EPOCHS_AHEAD, max(pair[1] for pair in pairs) + EPOCHS_AHEAD


def listed_by(broker: Broker) -> tuple[Stray, ...]:
    """All data of lost topics that the broker says it has: set aside, or in use and more than the store shows."""
    return (*broker.strays, *(holding_as_stray(holding) for holding in broker.holdings if holding.hosted))


def _may_hold_more(snapshot: Snapshot, view: TopicView, broker_id: int, now: float) -> bool:
    """Whether an absent broker is worth waiting for: it comes back, or its last list of strays names the topic.

    A broker that was scaled away is kept as an object; unless it listed data of this topic it would block for ever.
    One that is not fenced, but was not heard, is absent as well: where all are silent nobody is fenced, and what the
    store shows of them is what processes wrote that have ended since.
    """
    broker = snapshot.brokers.get(broker_id)
    if broker is None:  # the store went back to before its object was made, and the operator makes it again
        return broker_id < snapshot.cluster.replicas
    if broker.alive and heard(snapshot, broker, now):
        return False
    return broker_id < snapshot.cluster.replicas or any(
        held.topic == view.spec.topic_name for held in listed_by(broker)
    )


def _unnoticed(snapshot: Snapshot, view: TopicView, strays: list[tuple[int, Stray]], now: float) -> Obstacle | None:
    """Who may still serve the lost topic: a live broker that has perhaps not heard of the loss.

    It may lead in an epoch above all that is listed, and hold more.
    """
    if view.adopt_strays is False:
        return None
    listed = {broker_id for broker_id, _ in strays}
    asked = {broker_id for broker_id, broker in snapshot.brokers.items() if broker.alive}
    if not strays and not view.adopt_strays:
        # A topic that is made again in the moment of its deletion: nobody has set its data aside so far.
        asked &= view.left_by
    late = sorted(i for i in asked if not has_noticed(snapshot, view, i, lists=i in listed, now=now))
    if not late:
        return None
    return Obstacle("WaitingForBrokers", f"{_held(strays)}; {unnoticed(snapshot, late, now)}", waiting=True)


def _held(strays: list[tuple[int, Stray]]) -> str:
    if strays:
        return "brokers hold data of a lost topic of this name"
    return "data of a lost topic of this name are to be taken over"


def _ids_listed(snapshot: Snapshot, view: TopicView) -> list[str]:
    name = view.spec.topic_name
    return sorted(
        {one.topic_id for broker in snapshot.brokers.values() for one in listed_by(broker) if one.topic == name}
    )


def _nothing_of(snapshot: Snapshot, view: TopicView) -> Obstacle:
    ids = _ids_listed(snapshot, view)
    message = (
        f"no broker holds data of topic id {view.adopt_topic_id!r} that are another topic's no more; of this name they "
        f"list {', '.join(ids) or 'none'}. Set the annotation kafkalite.io/adopt-strays to one of these ids, to "
        '"true" (the one with the highest leader epoch) or to "false" (to start empty)'
    )
    return Obstacle("NothingToAdopt", message, passing=True)


def _absent(snapshot: Snapshot, view: TopicView, strays: list[tuple[int, Stray]], now: float) -> Obstacle | None:
    expected = {*snapshot.brokers, *range(snapshot.cluster.replicas)}
    absent = sorted(broker_id for broker_id in expected if _may_hold_more(snapshot, view, broker_id, now))
    if not absent:
        return None
    message = (
        f"{_held(strays)}; waiting for brokers {absent}, which may hold more. "
        'To start empty instead, set the annotation kafkalite.io/adopt-strays: "false"'
    )
    return Obstacle("WaitingForBrokers", message, waiting=True)


def _in_sync_lost(snapshot: Snapshot, view: TopicView, topic_id: str, lost: Mapping[int, list[int]]) -> Obstacle:
    """A person has to say whether what is left is good enough, as in a recovery of the store (S11)."""
    others = [each for each in _ids_listed(snapshot, view) if each != topic_id]
    choice = f" Of this name there is also {', '.join(others[:LISTED_MAX])} for adopt-strays." if others else ""
    message = (
        f"brokers hold data of topic id {topic_id}, but as far as they know all who were in sync list none of it any "
        f"more or came back without their data ({who_was_in_sync(lost)}), so acknowledged records "
        "may be missing. If one of their disks can be had, put it back first. Then take over what reaches furthest, "
        'by the annotation kafkalite.io/recover-store: "true", or start empty, by kafkalite.io/adopt-strays: "false".'
    )
    return Obstacle("InSyncLost", f"{message}{choice}", passing=True)


def who_was_in_sync(lost: Mapping[int, list[int]]) -> str:
    """What `in_sync_lost_of` found, for people; bounded."""
    shown = [f"partition {n}: {f'brokers {ids}' if ids else 'nobody lists it'}" for n, ids in sorted(lost.items())]
    more = f" and {len(shown) - LISTED_MAX} more" if len(shown) > LISTED_MAX else ""
    return f"{'; '.join(shown[:LISTED_MAX])}{more}"


def adopt(
    snapshot: Snapshot, view: TopicView, strays: list[tuple[int, Stray]], load: Load, now: float
) -> Adopted | Obstacle:
    """Entries whose ISR is the holders of the most (`holders_of_the_most`), with epochs above all that brokers know.

    Who asks for the data is waited with for every broker also while none lists any: all that do may be away. `strays`
    is what `held_of` found; `load` is added to.
    """
    unnoticed = _unnoticed(snapshot, view, strays, now)
    if unnoticed is not None:
        return unnoticed
    if not strays and not view.adopt_strays:
        return Adopted()
    absent = _absent(snapshot, view, strays, now)
    if absent is not None:
        return absent
    if not strays:
        return _nothing_of(snapshot, view) if view.adopt_topic_id else Adopted()
    held: dict[int, dict[int, Stray]] = {}
    for broker_id, stray in strays:
        held.setdefault(stray.partition, {})[broker_id] = stray
    topic_id = strays[0][1].topic_id
    told = told_of(snapshot, topic_id)
    count = min(max({*held, *told}) + 1, PARTITIONS_PER_TOPIC_MAX)
    lost = in_sync_lost_of(held, told, snapshot.brokers, range(count))
    if lost and not view.recovery_request:
        return _in_sync_lost(snapshot, view, topic_id, lost)
    epochs = epochs_above([*(stray for _, stray in strays), *(stray for each in told.values() for stray in each)])
    entries = {
        number: entry_of_holders(snapshot, view, holders, told.get(number, []), epochs, load)
        for number, holders in sorted(held.items())
    }
    return Adopted(entries, frozenset(lost), count, epochs)


def in_sync_lost_of(
    held: Mapping[int, Mapping[int, Stray]],
    told: Mapping[int, list[Stray]],
    brokers: Mapping[int, Broker],
    numbers: Iterable[int],
) -> dict[int, list[int]]:
    """By partition the newest ISR that is known, where nobody of it has what it had; empty where nobody lists any.

    `numbers`: every partition below the highest that is known was there, too.
    """
    found: dict[int, list[int]] = {}
    for number in numbers:
        holders = held.get(number, {})
        members = in_sync_lost(holders, brokers, told.get(number, []))
        if members or not holders:
            found[number] = members
    return found


def entry_of_holders(
    snapshot: Snapshot,
    view: TopicView,
    holders: dict[int, Stray],
    told: list[Stray],
    epochs: tuple[int, int],
    load: Load,
) -> Partition:
    """A partition that is taken over: in sync is who holds the most of it, and others are to copy that."""
    brokers = snapshot.brokers
    most = holders_of_the_most(holders, brokers, told, relaxed_flush=relaxed_flush(snapshot, view))
    isr = [i for i in holders if i in most]
    rest = sorted((i for i in holders if i not in most), key=lambda i: holders[i].reach, reverse=True)
    others = [i for i, broker in brokers.items() if i not in holders and takes_replicas(broker)]
    others.sort(key=lambda i: (load.replicas[i], i))
    replicas = tuple([*isr, *rest, *others][: max(view.spec.replicas, len(isr))])
    load.add(replicas)
    return Partition(
        leader=isr[0],
        leader_epoch=epochs[0],
        partition_epoch=epochs[1],
        min_isr=effective_min_isr(snapshot, view, len(replicas)),
        replicas=replicas,
        isr=tuple(IsrEntry(i, brokers[i].epoch) for i in isr),
    )

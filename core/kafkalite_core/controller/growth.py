"""First placement of a topic, adoption of what brokers still hold of it (S10), and more partitions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kafkalite_core.controller.actions import AddPartitions, CreateTopicStatus
from kafkalite_core.controller.configs import effective_min_isr, relaxed_flush
from kafkalite_core.controller.fencing import heard
from kafkalite_core.controller.newest_isr import holders_of_the_most, holding_as_stray
from kafkalite_core.controller.placement import Load, place
from kafkalite_core.controller.reassignment_targets import takes_replicas
from kafkalite_core.controller.strays import given_up
from kafkalite_core.model.config import check_topic_config
from kafkalite_core.model.limits import PARTITIONS_PER_TOPIC_MAX, REPLICAS_PER_PARTITION_MAX, TOPIC_NAME_LENGTH_MAX
from kafkalite_core.model.partition import IsrEntry, Partition
from kafkalite_core.model.topic import OFFSETS_TOPIC, Stray

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalite_core.controller.snapshot import Snapshot, TopicView
    from kafkalite_core.model.cluster import Broker

PLACEMENT_GRACE_S = 10.0
"""A new topic waits this long for brokers that are starting, so that it is spread over all of them."""


ADOPTION_GRACE_S = 15.0
"""Within this time a broker that is heard notices that an object is gone, or that the store went back in time: a watch
that tells nothing is given up after 10 s."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a topic cannot be placed (or grown) now. `waiting`: it resolves itself; otherwise the user has to act."""

    reason: str
    message: str
    waiting: bool = False


def topic_load(snapshot: Snapshot) -> Load:
    """Replicas of all topics of the cluster, those under way at the place where they go."""
    load = Load()
    for view in snapshot.placed_topics():
        load.add_all(view.facts.load)
    return load


def name_owner(snapshot: Snapshot, view: TopicView) -> TopicView:
    """Which of the objects that claim one topic name has it: one with data before one without, then the oldest."""
    uid = snapshot.owners.get(view.spec.topic_name)
    return view if uid is None else snapshot.topics[uid]


def owners_of(snapshot: Snapshot) -> dict[str, str]:
    """By topic name the uid of the object that has it; only of names that several objects claim."""
    if len({view.spec.topic_name for view in snapshot.topics.values()}) == len(snapshot.topics):
        return {}
    claims: dict[str, list[TopicView]] = {}
    for view in snapshot.topics.values():
        claims.setdefault(view.spec.topic_name, []).append(view)
    return {
        name: min(views, key=lambda other: (not other.placed, other.created, other.topic.ref.uid)).topic.ref.uid
        for name, views in claims.items()
        if len(views) > 1
    }


def spec_problem(snapshot: Snapshot, view: TopicView) -> Obstacle | None:
    """What is wrong with the wish itself, whatever the brokers do."""
    spec = view.spec
    owner = name_owner(snapshot, view)
    if owner.topic.ref.uid != view.topic.ref.uid:
        message = (
            f"the topic name {spec.topic_name!r} belongs to the older object {owner.topic.ref.object_name!r}; "
            "delete one of the two, or create this one with another spec.topicName"
        )
        return Obstacle("ResourceConflict", message)
    if len(spec.topic_name) > TOPIC_NAME_LENGTH_MAX:
        return Obstacle(
            "InvalidName", f"a topic name has at most {TOPIC_NAME_LENGTH_MAX} characters; set spec.topicName"
        )
    if spec.partitions > PARTITIONS_PER_TOPIC_MAX:
        message = f"{spec.partitions} partitions are more than the {PARTITIONS_PER_TOPIC_MAX} that one topic can have"
        return Obstacle("TooManyPartitions", f"{message}; lower spec.partitions or use several topics")
    if spec.replicas > min(snapshot.cluster.replicas, REPLICAS_PER_PARTITION_MAX) and not view.placed:
        message = (
            f"{spec.replicas} replicas need {spec.replicas} brokers, but the cluster has {snapshot.cluster.replicas}"
        )
        return Obstacle("NotEnoughBrokers", f"{message}; lower spec.replicas or raise the cluster's spec.replicas")
    problems = check_topic_config(spec.config, replicas=spec.replicas)
    if problems and not view.placed:
        return Obstacle("InvalidConfig", f"correct spec.config: {'; '.join(problems)}")
    return _assignment_problem(snapshot, view)


def _assignment_problem(snapshot: Snapshot, view: TopicView) -> Obstacle | None:
    known = set(range(snapshot.cluster.replicas))
    for number, replicas in sorted(view.spec.replica_assignment.items()):
        if number in view.topic.partitions:
            continue
        if not replicas or len(set(replicas)) != len(replicas):
            text = f"partition {number} names a broker twice, or none"
        elif not set(replicas) <= known:
            beyond = sorted(set(replicas) - known)
            text = f"partition {number} names brokers {beyond}, and the cluster has {snapshot.cluster.replicas}"
        else:
            continue
        return Obstacle("InvalidReplicaAssignment", f"correct spec.replicaAssignment: {text}")
    return None


def plan_placement(
    snapshot: Snapshot, view: TopicView, loads: Callable[[], Load], now: float
) -> CreateTopicStatus | AddPartitions | Obstacle | None:
    """What to do for the partitions that a topic wants and does not have; None when it has them all.

    `loads()` is the load of the brokers, which what is placed in this plan is added to.
    """
    missing = [number for number in range(view.spec.partitions) if number not in view.topic.partitions]
    if view.topic.deleting or (view.placed and not missing):
        return None
    problem = spec_problem(snapshot, view)
    if problem is not None:
        return problem
    if view.placed and view.spec.topic_name == OFFSETS_TOPIC:
        message = (
            f"{OFFSETS_TOPIC} keeps its {len(view.topic.partitions)} partitions: with more of them groups would look "
            "for their offsets in other partitions"
        )
        return Obstacle("NotSupported", message)
    if view.paused:
        return Obstacle("ReconciliationPaused", "remove the annotation kafkalite.io/paused to go on", waiting=True)
    waiting = _wait_for_brokers(snapshot, view, now)
    if waiting is not None:
        return waiting
    ref = view.topic.ref
    if view.placed:
        entries = _entries(snapshot, view, loads(), missing, {})
        if isinstance(entries, Obstacle):
            return entries
        reason = f"partitions {missing[0]} to {missing[-1]} added"
        return AddPartitions(topic=ref, resource_version=view.topic.resource_version, partitions=entries, reason=reason)
    topic_id, strays = _strays(snapshot, view)
    wanted = sorted({*missing, *(stray.partition for _, stray in strays)})
    load = loads()
    adopted = _unnoticed(snapshot, view, strays, now) or _adopt(snapshot, view, strays, load, now)
    if isinstance(adopted, Obstacle):
        return adopted
    entries = _entries(snapshot, view, load, wanted, adopted)
    if isinstance(entries, Obstacle):
        return entries
    if strays:
        entries = {number: adopted.get(number) or _above(strays, entry) for number, entry in entries.items()}
    reason = f"placed on brokers {sorted({i for entry in entries.values() for i in entry.replicas})}"
    if strays:
        held = sorted({broker_id for broker_id, _ in strays})
        reason = f"took over the data of topic id {topic_id} that brokers {held} still hold"
    elif given_up(snapshot, view.spec.topic_name):
        reason = f"{reason}; begins empty, data of a deleted topic of this name are left to their retention"
    return CreateTopicStatus(
        topic=ref,
        resource_version=view.topic.resource_version,
        has_status=view.has_status,
        partitions=entries,
        topic_id=topic_id,
        reason=reason,
    )


def _wait_for_brokers(snapshot: Snapshot, view: TopicView, now: float) -> Obstacle | None:
    starting = [
        broker_id
        for broker_id in range(snapshot.cluster.replicas)
        if broker_id not in snapshot.brokers
        or snapshot.brokers[broker_id].registration is None
        or (snapshot.brokers[broker_id].reachable and not snapshot.brokers[broker_id].alive)
    ]
    alive = sum(broker.alive for broker in snapshot.brokers.values())
    patient = now - view.first_seen < PLACEMENT_GRACE_S
    if alive == 0 or (starting and patient):
        message = f"waiting for brokers: {alive} of {snapshot.cluster.replicas} are running"
        return Obstacle("WaitingForBrokers", message, waiting=True)
    return None


def _racks(brokers: Mapping[int, Broker]) -> dict[int, str]:
    return {
        broker_id: broker.registration.rack
        for broker_id, broker in brokers.items()
        if takes_replicas(broker) and broker.registration is not None
    }


def _absent_racks(snapshot: Snapshot, load: Load, count: int) -> dict[int, str]:
    """Up to `count` brokers that are down for now: a new topic does not wait for them, its ISR does without them."""
    absent = {
        broker_id: broker.registration.rack
        for broker_id, broker in snapshot.brokers.items()
        if not broker.alive
        and not broker.cordoned
        and broker.registration is not None
        and broker_id < snapshot.cluster.replicas
    }
    chosen = sorted(absent, key=lambda broker_id: (load.replicas[broker_id], broker_id))[: max(count, 0)]
    return {broker_id: absent[broker_id] for broker_id in chosen}


def _entries(
    snapshot: Snapshot, view: TopicView, load: Load, numbers: list[int], adopted: dict[int, Partition]
) -> dict[int, Partition] | Obstacle:
    """Entries for the partitions `numbers`; those in `adopted` are taken as they are."""
    entries: dict[int, Partition] = dict(adopted)
    racks = _racks(snapshot.brokers)
    racks |= _absent_racks(snapshot, load, view.spec.replicas - len(racks))
    for number in numbers:
        if number in entries:
            continue
        replicas = view.spec.replica_assignment.get(number)
        if replicas is None:
            if view.spec.replicas > len(racks):
                message = (
                    f"{view.spec.replicas} replicas need {view.spec.replicas} brokers that are not cordoned and have "
                    f"been running; there are {len(racks)} ({sorted(racks)})"
                )
                return Obstacle("WaitingForBrokers", message, waiting=True)
            replicas = place(racks, load, first_number=number, partitions=1, replicas=view.spec.replicas)[number]
        else:
            load.add(replicas)
        entry = _fresh(snapshot, view, replicas)
        if entry is None:
            message = f"partition {number}: none of the assigned brokers {list(replicas)} is running"
            return Obstacle("WaitingForBrokers", message, waiting=True)
        entries[number] = entry
    return entries


def _fresh(snapshot: Snapshot, view: TopicView, replicas: tuple[int, ...]) -> Partition | None:
    """A new, empty partition: the ISR is whoever runs, the leader is the first of them."""
    isr = tuple(
        IsrEntry(broker_id, snapshot.brokers[broker_id].epoch)
        for broker_id in replicas
        if broker_id in snapshot.brokers and snapshot.brokers[broker_id].alive
    )
    if not isr:
        return None
    return Partition(
        leader=isr[0].id,
        leader_epoch=0,
        partition_epoch=0,
        min_isr=effective_min_isr(snapshot, view, len(replicas)),
        replicas=replicas,
        isr=isr,
    )


def _strays(snapshot: Snapshot, view: TopicView) -> tuple[str, list[tuple[int, Stray]]]:
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
        for stray in _listed(broker)
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
        and (broker_id in view.left_by or _strays(snapshot, view)[1])
    )


def _epochs_above(strays: list[tuple[int, Stray]]) -> tuple[int, int]:
    """(leader epoch, partition epoch) above all that any disk knows of any partition of the topic."""
    leader_epoch = max(max(stray.leader_epoch, stray.reach[0]) for _, stray in strays) + 1
    return leader_epoch, max(stray.partition_epoch for _, stray in strays) + 1


def _above(strays: list[tuple[int, Stray]], entry: Partition) -> Partition:
    """A partition of an adopted topic that nobody lists: it begins empty, but no epoch of that topic id is used twice,
    should its data turn up after all.
    """
    leader_epoch, partition_epoch = _epochs_above(strays)
    return replace(entry, leader_epoch=leader_epoch, partition_epoch=partition_epoch)


def _listed(broker: Broker) -> tuple[Stray, ...]:
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
    return broker_id < snapshot.cluster.replicas or any(held.topic == view.spec.topic_name for held in _listed(broker))


def _unnoticed(snapshot: Snapshot, view: TopicView, strays: list[tuple[int, Stray]], now: float) -> Obstacle | None:
    """Who may still serve the lost topic: a live broker that lists nothing of it has perhaps not heard of the loss.

    It may lead in an epoch above all that is listed, and hold more. One that lists some of it knows that it is gone.
    """
    if view.adopt_strays is False:
        return None
    listed = {broker_id for broker_id, _ in strays}
    silent = sorted(i for i, broker in snapshot.brokers.items() if broker.alive and i not in listed)
    if not strays and not view.adopt_strays:
        # A topic that is made again in the moment of its deletion: nobody has set its data aside so far.
        silent = sorted(view.left_by.intersection(silent))
    if not silent or now - view.first_seen >= ADOPTION_GRACE_S:
        return None
    message = f"{_held(strays)}; brokers {silent} list none, and have up to {ADOPTION_GRACE_S:.0f} s to notice the loss"
    return Obstacle("WaitingForBrokers", message, waiting=True)


def _held(strays: list[tuple[int, Stray]]) -> str:
    if strays:
        return "brokers hold data of a lost topic of this name"
    return "data of a lost topic of this name are to be taken over"


def _nothing_of(snapshot: Snapshot, view: TopicView) -> Obstacle:
    name = view.spec.topic_name
    ids = sorted({one.topic_id for broker in snapshot.brokers.values() for one in _listed(broker) if one.topic == name})
    message = (
        f"no broker holds data of topic id {view.adopt_topic_id!r} that are another topic's no more; of this name they "
        f"list {', '.join(ids) or 'none'}. Set the annotation kafkalite.io/adopt-strays to one of these ids, to "
        '"true" (the one with the highest leader epoch) or to "false" (to start empty)'
    )
    return Obstacle("NothingToAdopt", message)


def _adopt(
    snapshot: Snapshot, view: TopicView, strays: list[tuple[int, Stray]], load: Load, now: float
) -> dict[int, Partition] | Obstacle:
    """Entries whose ISR is the holders of the most (`holders_of_the_most`), with epochs above all that disks know.

    Who asks for the data is waited with for every broker also while none lists any: all that do may be away.
    """
    if not strays and not view.adopt_strays:
        return {}
    expected = {*snapshot.brokers, *range(snapshot.cluster.replicas)}
    absent = sorted(broker_id for broker_id in expected if _may_hold_more(snapshot, view, broker_id, now))
    if absent:
        message = (
            f"{_held(strays)}; waiting for brokers {absent}, which may hold more. "
            'To start empty instead, set the annotation kafkalite.io/adopt-strays: "false"'
        )
        return Obstacle("WaitingForBrokers", message, waiting=True)
    if not strays:
        return _nothing_of(snapshot, view) if view.adopt_topic_id else {}
    leader_epoch, partition_epoch = _epochs_above(strays)
    racks = _racks(snapshot.brokers)
    entries: dict[int, Partition] = {}
    for number in sorted({stray.partition for _, stray in strays}):
        holders = {broker_id: stray for broker_id, stray in strays if stray.partition == number}
        most = holders_of_the_most(holders, snapshot.brokers, relaxed_flush=relaxed_flush(snapshot, view))
        isr = [i for i in holders if i in most]
        rest = sorted((i for i in holders if i not in isr), key=lambda i: holders[i].reach, reverse=True)
        others = sorted((i for i in racks if i not in holders), key=lambda i: (load.replicas[i], i))
        replicas = tuple([*isr, *rest, *others][: max(view.spec.replicas, len(isr))])
        load.add(replicas)
        entries[number] = Partition(
            leader=isr[0],
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
            min_isr=effective_min_isr(snapshot, view, len(replicas)),
            replicas=replicas,
            isr=tuple(IsrEntry(i, snapshot.brokers[i].epoch) for i in isr),
        )
    return entries

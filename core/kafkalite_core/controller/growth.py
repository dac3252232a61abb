"""First placement of a topic, with what brokers still hold of it (S10), and more partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.controller.actions import AddPartitions, CreateTopicStatus
from kafkalite_core.controller.adoption import adopt, held_of
from kafkalite_core.controller.configs import effective_min_isr
from kafkalite_core.controller.obstacle import Obstacle
from kafkalite_core.controller.placement import Load, place
from kafkalite_core.controller.reassignment_targets import takes_replicas
from kafkalite_core.controller.regrowth import regrow
from kafkalite_core.controller.strays import given_up
from kafkalite_core.model.config import check_topic_config
from kafkalite_core.model.limits import PARTITIONS_PER_TOPIC_MAX, REPLICAS_PER_PARTITION_MAX, TOPIC_NAME_LENGTH_MAX
from kafkalite_core.model.partition import IsrEntry, Partition
from kafkalite_core.model.topic import OFFSETS_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalite_core.controller.snapshot import Snapshot, TopicView
    from kafkalite_core.model.cluster import Broker

PLACEMENT_GRACE_S = 10.0
"""A new topic waits this long for brokers that are starting, so that it is spread over all of them."""


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
        return _grow(snapshot, view, loads(), missing, now)
    topic_id, strays = held_of(snapshot, view)
    load = loads()
    adopted = adopt(snapshot, view, strays, load, now)
    if isinstance(adopted, Obstacle):
        return adopted
    wanted = sorted({*missing, *range(adopted.count), *adopted.entries})
    entries = _entries(snapshot, view, load, wanted, adopted.entries)
    if isinstance(entries, Obstacle):
        return entries
    if strays:
        entries = {number: adopted.entries.get(number) or adopted.above(entry) for number, entry in entries.items()}
    reason = f"placed on brokers {sorted({i for entry in entries.values() for i in entry.replicas})}"
    if strays:
        held = sorted({broker_id for broker_id, _ in strays})
        reason = f"took over the data of topic id {topic_id} that brokers {held} still hold"
        empty = sorted(entries.keys() - adopted.entries.keys())
        if empty:
            reason += f"; partitions {empty}, which nobody lists, begin empty"
        if adopted.unclean:
            reason += f"; nobody who was in sync has those of partitions {sorted(adopted.unclean)} any more, which "
            reason += "kafkalite.io/recover-store accepts"
    elif given_up(snapshot, view.spec.topic_name):
        reason = f"{reason}; begins empty, data of a deleted topic of this name are left to their retention"
    return CreateTopicStatus(
        topic=ref,
        resource_version=view.topic.resource_version,
        has_status=view.has_status,
        partitions=entries,
        topic_id=topic_id,
        reason=reason,
        unclean=adopted.unclean,
    )


def _grow(snapshot: Snapshot, view: TopicView, load: Load, missing: list[int], now: float) -> AddPartitions | Obstacle:
    lost = regrow(snapshot, view, missing, load, now)
    if isinstance(lost, Obstacle):
        return lost
    entries = _entries(snapshot, view, load, missing, lost.entries)
    if isinstance(entries, Obstacle):
        return entries
    reason = f"partitions {missing[0]} to {missing[-1]} added"
    if lost.entries:
        reason += f"; brokers still held the data of {sorted(lost.entries)}, from before the store went back in time"
    if lost.unclean:
        reason += f"; acknowledged records of {sorted(lost.unclean)} may be missing, which kafkalite.io/recover-store "
        reason += "accepts"
    return AddPartitions(
        topic=view.topic.ref,
        resource_version=view.topic.resource_version,
        partitions={number: lost.entries.get(number) or lost.above(entry) for number, entry in entries.items()},
        reason=reason,
        taken_over=frozenset(lost.entries),
        unclean=lost.unclean,
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

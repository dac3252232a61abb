"""Conditions of topics and clusters: what is, why, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.controller.configs import flush_settled, relaxed_flush, was_relaxed
from kafkalite_core.controller.election import describe_broker, no_candidate_reason
from kafkalite_core.controller.growth import spec_problem
from kafkalite_core.controller.lost_nodes import node_trouble, remedy, why_stuck
from kafkalite_core.controller.obstacle import Obstacle
from kafkalite_core.controller.reassignment import target_of
from kafkalite_core.controller.recovering import describe_recovery, recovers
from kafkalite_core.controller.scale_down import scale_down_progress
from kafkalite_core.model.cluster import entry_counts, entry_lost
from kafkalite_core.model.config import check_broker_config, check_topic_config
from kafkalite_core.model.topic import FLUSH_CONDITION, FLUSH_DONE, FLUSH_RELAXED, FLUSH_TIGHTENING, Condition

if TYPE_CHECKING:
    from kafkalite_core.controller.snapshot import Snapshot, TopicView
    from kafkalite_core.model.partition import Partition

LISTED_MAX = 5
"""Partitions or brokers named in one message; the rest is counted."""


def _condition(type_: str, status: bool, reason: str, message: str = "") -> Condition:
    return Condition(type=type_, status="True" if status else "False", reason=reason, message=message)


def _listed(items: list[str]) -> str:
    rest = len(items) - LISTED_MAX
    return "; ".join(items[:LISTED_MAX]) + (f"; and {rest} more" if rest > 0 else "")


def topic_conditions(
    snapshot: Snapshot, view: TopicView, obstacle: Obstacle | None, now: float, behind: list[str] | None = None
) -> tuple[Condition, ...]:
    """Ready, Healthy, Progressing and ReconciliationPaused of a topic (and `DurableFlush` where it matters).

    `behind`: partitions of which the store shows less than is known, and what they wait for (S11).
    """
    conditions: tuple[Condition, ...] = (
        _ready(snapshot, view, obstacle, behind or []),
        _healthy(snapshot, view, obstacle),
        _progressing(snapshot, view, obstacle),
        _paused(view.paused, TOPIC_WAITS),
    )
    if snapshot.topic_config(view).relaxed_flush:
        message = "flush.messages is above 1: acknowledged records may be lost when brokers lose power at once"
        return (*conditions, _condition(FLUSH_CONDITION, False, FLUSH_RELAXED, message))
    if was_relaxed(view):
        settled = flush_settled(snapshot, view, now)
        message = "" if settled else "flush.messages was tightened; waiting until every in-sync replica has flushed"
        reason = FLUSH_DONE if settled else FLUSH_TIGHTENING
        return (*conditions, _condition(FLUSH_CONDITION, settled, reason, message))
    return conditions


def _ready(snapshot: Snapshot, view: TopicView, obstacle: Obstacle | None, behind: list[str]) -> Condition:
    if not view.placed:
        reason, message = (obstacle.reason, obstacle.message) if obstacle else ("Placing", "the topic is being placed")
        return _condition("Ready", False, reason, message)
    if behind:
        remedy = (
            "To go on with what is there, and lose what only missing brokers or lost disks have, set the annotation "
            'kafkalite.io/recover-store: "true"'
        )
        return _condition("Ready", False, "StoreWentBack", f"{_listed(behind)}. {remedy}")
    relaxed = relaxed_flush(snapshot, view)
    offline = [
        f"partition {number}: {no_candidate_reason(entry, snapshot.brokers, relaxed_flush=relaxed)}"
        for number, entry in sorted(view.topic.partitions.items())
        if not entry.has_leader
    ]
    if offline:
        remedy = "bring one of these brokers back"
        return _condition("Ready", False, "OfflinePartitions", f"{_listed(offline)}. To serve again, {remedy}")
    return _condition("Ready", True, "Serving", f"all {len(view.topic.partitions)} partitions have a leader")


def _healthy(snapshot: Snapshot, view: TopicView, obstacle: Obstacle | None) -> Condition:
    if not view.placed:
        return _condition("Healthy", False, obstacle.reason if obstacle else "Placing", "the topic is not placed yet")
    problems = check_topic_config(view.spec.config, replicas=view.spec.replicas)
    if problems:
        message = f"these keys are not in force, correct spec.config: {'; '.join(problems)}"
        return _condition("Healthy", False, "InvalidConfig", message)
    recovering = [
        f"partition {number}: broker {entry.leader if entry.has_leader else entry.isr[0].id}"
        for number, entry in sorted(view.topic.partitions.items())
        if entry.recovering
    ]
    if recovering:
        message = f"elected although acknowledged records may be missing, not yet confirmed: {_listed(recovering)}"
        return _condition("Healthy", False, "UncleanElection", message)
    behind = _behind(snapshot, view)
    if behind:
        message = f"replicas not in sync: {_listed(behind)}"
        if not all(broker.alive for broker in snapshot.brokers.values()):
            message += f". The conditions of the KafkaLiteCluster {view.spec.cluster} tell what keeps a broker away"
        return _condition("Healthy", False, "UnderReplicated", message)
    return _condition("Healthy", True, "InSync", "every replica is in sync")


def _behind(snapshot: Snapshot, view: TopicView) -> list[str]:
    """For every partition with replicas that are not in sync: which they are, and who may lead besides the ISR."""
    relaxed = relaxed_flush(snapshot, view)
    behind: list[str] = []
    for number, entry in sorted(view.topic.partitions.items()):
        counting = {m.id for m in entry.isr if entry_counts(m, snapshot.brokers, relaxed_flush=relaxed)}
        # What a reassignment adds is not missed before it is there.
        missing = [broker_id for broker_id in entry.replicas if broker_id not in {*counting, *entry.adding}]
        if not missing:
            continue
        text = f"partition {number}: {', '.join(_why_missing(entry, i, snapshot, relaxed=relaxed) for i in missing)}"
        if len(counting) < entry.min_isr:
            text += f" (below min.insync.replicas {entry.min_isr}"
            text += f", eligible to lead: {', '.join(map(str, entry.elr_ids()))})" if entry.elr else ")"
        behind.append(text)
    return behind


def _why_missing(entry: Partition, broker_id: int, snapshot: Snapshot, *, relaxed: bool) -> str:
    """In a few words. What keeps a broker away itself is told by the cluster's conditions, and not once a topic."""
    broker = snapshot.brokers.get(broker_id)
    if broker is None or not broker.alive:
        return describe_broker(broker_id, snapshot.brokers)
    known = [member for member in (*entry.isr, *entry.elr) if member.id == broker_id]
    if any(entry_lost(member, snapshot.brokers, relaxed_flush=relaxed) for member in known):
        return f"broker {broker_id} came back without all of its data, and copies it"
    if not entry.has_leader:
        return f"broker {broker_id} runs, and there is no leader to copy from"
    return f"broker {broker_id} runs, and copies from the leader, broker {entry.leader}"


def _progressing(snapshot: Snapshot, view: TopicView, obstacle: Obstacle | None) -> Condition:
    spec = view.spec
    if obstacle is not None:
        return _condition("Progressing", obstacle.waiting, obstacle.reason, obstacle.message)
    if not view.placed:
        return _condition("Progressing", True, "Placing", "the topic is being placed")
    if len(view.topic.partitions) > spec.partitions:
        message = (
            f"the topic has {len(view.topic.partitions)} partitions and cannot shrink; set spec.partitions to that"
        )
        return _condition("Progressing", False, "NotSupported", message)
    pinned = [
        str(number)
        for number, entry in sorted(view.topic.partitions.items())
        if number in spec.replica_assignment and len(target_of(entry)) != spec.replicas
    ]
    if pinned:
        message = (
            f"partitions {', '.join(pinned)} have the replicas that spec.replicaAssignment names; remove them there to "
            f"give them the {spec.replicas} of spec.replicas"
        )
        return _condition("Progressing", False, "Stable", message)
    beyond = sorted({i for ids in spec.replica_assignment.values() for i in ids if i >= snapshot.cluster.replicas})
    if beyond:
        message = (
            f"spec.replicaAssignment names brokers {beyond}, and the cluster has {snapshot.cluster.replicas}: others "
            "stand in for them until they come back; name others to make that last"
        )
        return _condition("Progressing", False, "Stable", message)
    return _condition("Progressing", False, "Stable", "nothing is left to do")


TOPIC_WAITS = "placement, growth, moves and min.insync.replicas wait"
CLUSTER_WAITS = (
    "restarts, removals and replacements of brokers wait, and changes of pods, volumes, Services and ConfigMaps"
)


def _paused(paused: bool, waits: str, problem: str = "") -> Condition:
    if problem:
        message = f"{waits}; elections and fencing go on. Correct spec.template: {problem}"
        return _condition("ReconciliationPaused", True, "NotUnderstood", message)
    if paused:
        message = f"{waits}; elections and fencing go on. Remove kafkalite.io/paused"
        return _condition("ReconciliationPaused", True, "Annotation", message)
    return _condition("ReconciliationPaused", False, "NotPaused")


def orphan_conditions(view: TopicView, *, cluster_follows: bool, refused: str = "") -> tuple[Condition, ...]:
    """Conditions of a topic whose `KafkaLiteCluster` does not exist; `cluster_follows`: it is about to be made.

    `refused`: what the API server has against that.
    """
    name = view.spec.cluster
    if cluster_follows and refused:
        message = (
            f"the API server refuses the default cluster {name!r}: {refused}. Correct the default of the operator "
            "(defaultCluster.spec of the chart), or create that KafkaLiteCluster yourself"
        )
        obstacle = Obstacle("DefaultClusterRefused", message)
    elif cluster_follows:
        obstacle = Obstacle("WaitingForCluster", f"the default cluster {name!r} is being made", waiting=True)
    else:
        message = (
            f"there is no KafkaLiteCluster {name!r} in this namespace; create it or name another in spec.clusterRef"
        )
        obstacle = Obstacle("ClusterNotFound", message)
    failed = _condition("Ready", False, obstacle.reason, obstacle.message)
    return (
        failed,
        _condition("Healthy", False, obstacle.reason, obstacle.message),
        _condition("Progressing", obstacle.waiting, obstacle.reason, obstacle.message),
        _paused(view.paused, TOPIC_WAITS),
    )


def problem_of(snapshot: Snapshot, view: TopicView) -> Obstacle | None:
    """What the user has to correct, for a topic that is placed already and has all partitions it wants."""
    problem = spec_problem(snapshot, view)
    return problem if problem is not None and problem.reason != "InvalidReplicaAssignment" else None


def _how_absent(snapshot: Snapshot, broker_id: int, trouble: str, now: float) -> str:
    if trouble:
        return f"{describe_broker(broker_id, snapshot.brokers)}: {trouble}"
    if recovers(snapshot, broker_id, now):
        return describe_recovery(snapshot.brokers[broker_id])
    stuck = why_stuck(snapshot, broker_id)
    return describe_broker(broker_id, snapshot.brokers) + (f": {stuck}" if stuck else "")


def cluster_conditions(snapshot: Snapshot, now: float = 0.0) -> tuple[Condition, ...]:
    """Ready, Healthy, Progressing and ReconciliationPaused of the cluster."""
    cluster = snapshot.cluster
    wanted = range(cluster.replicas)
    absent = [i for i in wanted if i not in snapshot.brokers or not snapshot.brokers[i].alive]
    running = cluster.replicas - len(absent)
    troubled = {i: trouble for i in absent if i in snapshot.brokers and (trouble := node_trouble(snapshot, i, now))}
    absent.sort(key=lambda i: i not in troubled)
    states = _listed([_how_absent(snapshot, i, troubled.get(i, ""), now) for i in absent])
    count = f"{running} of {cluster.replicas} brokers run"
    if running:
        ready = _condition("Ready", True, "Serving", count)
    else:
        ready = _condition("Ready", False, "NoBrokers", f"{count}: {states}")
    problems = check_broker_config(cluster.config)
    if problems:
        healthy = _condition("Healthy", False, "InvalidConfig", f"correct spec.config: {'; '.join(problems)}")
    elif troubled:
        healthy = _condition("Healthy", False, "NodeLost", f"{states}. {remedy(snapshot, list(troubled))}")
    elif absent:
        healthy = _condition("Healthy", False, "BrokersMissing", states)
    else:
        healthy = _condition("Healthy", True, "AllBrokersRun")
    leaving = scale_down_progress(snapshot, now)
    starting = [i for i in sorted(absent) if i not in snapshot.brokers or snapshot.brokers[i].registration is None]
    if leaving is not None:
        progressing = _condition("Progressing", leaving.waiting, leaving.reason, leaving.message)
    elif starting:
        progressing = _condition("Progressing", True, "StartingBrokers", f"waiting for brokers {starting}")
    else:
        progressing = _condition("Progressing", False, "Stable", "nothing is left to do")
    return (ready, healthy, progressing, _paused(cluster.paused, CLUSTER_WAITS, cluster.template_problem))

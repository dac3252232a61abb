"""`plan`: one snapshot in, everything that has to be done now out. Applied to its own result it returns nothing.

Order matters: a broker is fenced before anything is decided about its partitions (R15), so while there is somebody to
fence nothing else is planned; the elections follow on the snapshot that shows the fence.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from operator import itemgetter
from typing import TYPE_CHECKING

from kafkalite_core.controller.actions import (
    AddPartitions,
    ChangePartitions,
    CreateBroker,
    CreateTopicStatus,
    ReadBrokers,
    ReadClusters,
    ResizePods,
    RestartPods,
    UpdateBrokerStatus,
    UpdateClusterStatus,
    UpdateTopicStatus,
)
from kafkalite_core.controller.at_rest import AtRest
from kafkalite_core.controller.conditions import cluster_conditions, problem_of, topic_conditions
from kafkalite_core.controller.configs import effective_min_isr, flush_settles, relaxed_flush
from kafkalite_core.controller.election import Verdict, decide, prefer
from kafkalite_core.controller.fencing import judge, silent
from kafkalite_core.controller.growth import owners_of, plan_placement, topic_load
from kafkalite_core.controller.noticing import noticed_at
from kafkalite_core.controller.obstacle import Obstacle
from kafkalite_core.controller.partition_health import counts_to_tell, health_condition
from kafkalite_core.controller.preferred import balance
from kafkalite_core.controller.reassignment import counted_replicas
from kafkalite_core.controller.reassignments import Reassignments
from kafkalite_core.controller.regrowth import told_before
from kafkalite_core.controller.replacement import Replacement, replacement
from kafkalite_core.controller.replacement_telling import CLUSTER
from kafkalite_core.controller.resizing import resizes, resizing_condition
from kafkalite_core.controller.rolling import Roll, roll, rolling_condition
from kafkalite_core.controller.scale_down import removals, wanted_brokers, with_leaving
from kafkalite_core.controller.store_recovery import StoreRecovery
from kafkalite_core.controller.volumes import volumes_condition
from kafkalite_core.controller.wishes import complete_elections, may_be_unclean
from kafkalite_core.model.config import resolve_topic_config
from kafkalite_core.model.partition import in_sync

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalite_core.controller.actions import Action
    from kafkalite_core.controller.placement import Load
    from kafkalite_core.controller.snapshot import Snapshot, TopicView
    from kafkalite_core.model.partition_counts import PartitionCounts
    from kafkalite_core.model.topic import Condition

BROKERS_FRESH_S = 1.0
"""Nobody is elected on a state of the brokers that was read consistently longer ago than this (R14, threat 4).

Where the API server is so slow that no read is younger when its answer comes, an answer has that time from when it
came, or nobody would be elected for as long as it is slow. What an operator that stood still finds in its socket is no
such answer: the read before it was quick (`Snapshot.brokers_read_s`).

So it is with the clusters where nothing but their configuration permits an unclean election. A patch tests whatever of
its topic permits one; the cluster is another object, and who has withdrawn the permission there counts on it.
"""


def plan(snapshot: Snapshot, now: float, rest: AtRest | None = None) -> list[Action]:
    """What to do now, most urgent first. `now` is in seconds of the observer's monotonic clock.

    `rest` is the memory of earlier plans for this cluster; with it a plan is the same and costs what has changed.
    """
    snapshot = with_leaving(replace(snapshot, owners=owners_of(snapshot)))
    fences = judge(snapshot, now)
    if fences:
        return [*fences]
    replaced = replacement(snapshot, now)
    if replaced.fence is not None:
        return [replaced.fence]
    rest = AtRest() if rest is None else rest
    unheard = silent(snapshot, now)
    avoided = _avoided(snapshot, unheard)
    rest.begin(snapshot, avoided)
    moves = Reassignments(snapshot, unheard)
    recovery = StoreRecovery(snapshot)
    restarts = roll(snapshot, now)
    handed = {**balance(replaced.balanced(restarts.balanced(snapshot))), **restarts.moves, **replaced.moves}
    given = _given_to_who_hears(handed, unheard)
    changes = _partition_changes(snapshot, moves, recovery, rest, given, avoided, unheard)
    instead = _not_yet(snapshot, changes)
    if instead is not None:
        return instead
    actions: list[Action] = [*changes]
    if restarts.restarts:
        actions.append(RestartPods(uid=snapshot.cluster.uid, restarts=restarts.restarts))
    if resized := resizes(snapshot):
        actions.append(ResizePods(uid=snapshot.cluster.uid, resizes=resized))
    actions += [each for each in (replaced.step, replaced.end) if each is not None]
    busy = {change.topic.uid for change in changes}
    if not snapshot.cluster.deleting:
        wanted = wanted_brokers(snapshot)
        missing = [broker_id for broker_id in wanted if broker_id not in snapshot.brokers]
        actions += [CreateBroker(uid=snapshot.cluster.uid, broker_id=broker_id) for broker_id in missing]
    actions += removals(snapshot)
    loads = cache(lambda: topic_load(snapshot))
    others: list[Action] = []
    for uid, view in sorted(snapshot.topics.items(), key=itemgetter(0)):
        if uid in busy or view.topic.deleting:
            continue
        known = rest.known(view)
        if known is None:
            others += _others(snapshot, view, loads, now, unheard, moves=moves, recovery=recovery, rest=rest)
        else:
            others += known.others
    actions += _once(others)
    counts = counts_to_tell(snapshot, rest.counts(snapshot.placed_topics()), now)
    return actions + _broker_status(snapshot, replaced) + _cluster_status(snapshot, restarts, replaced, counts, now)


def _not_yet(snapshot: Snapshot, changes: list[ChangePartitions]) -> list[Action] | None:
    """What is done instead of all these changes where one of them is decided on what was read too long ago."""
    reads: list[Action] = []
    kept = changes
    if snapshot.brokers_age_s > BROKERS_FRESH_S + snapshot.brokers_read_s and any(each.elected for each in changes):
        reads.append(ReadBrokers())
        kept = [each for each in kept if not each.elected]
    if snapshot.clusters_age_s > BROKERS_FRESH_S + snapshot.clusters_read_s and any(
        each.by_cluster for each in changes
    ):
        reads.append(ReadClusters())
        kept = [each for each in kept if not each.by_cluster]
    return [*reads, *kept] if reads else None


def _avoided(snapshot: Snapshot, unheard: frozenset[int]) -> frozenset[int]:
    """Who is not elected while another one can be; nobody while no broker is heard, which tells them not apart."""
    return unheard if any(broker.alive and i not in unheard for i, broker in snapshot.brokers.items()) else frozenset()


def _given_to_who_hears(
    handed: Mapping[tuple[str, int], Verdict], unheard: frozenset[int]
) -> dict[tuple[str, int], Verdict]:
    """Leaderships that could stay where they are are not given to who might not hear of it for a while."""
    return {
        key: verdict
        for key, verdict in handed.items()
        if verdict.change is None or verdict.change.proposed.leader not in unheard
    }


def _once(actions: list[Action]) -> list[Action]:
    """One reading of the brokers is enough for all topics."""
    others = [action for action in actions if not isinstance(action, ReadBrokers)]
    return actions if len(others) == len(actions) else [ReadBrokers(), *others]


def _others(
    snapshot: Snapshot,
    view: TopicView,
    loads: Callable[[], Load],
    now: float,
    unheard: frozenset[int],
    *,
    moves: Reassignments,
    recovery: StoreRecovery,
    rest: AtRest,
) -> list[Action]:
    """What a topic needs whose partitions stay as they are; remembered when nothing but the topic decided it."""
    obstacle: Obstacle | None = None
    actions: list[Action]
    completed = complete_elections(snapshot, view, unheard)
    if completed is not None:
        actions = [completed]
    else:
        step = plan_placement(snapshot, view, loads, now)
        if isinstance(step, CreateTopicStatus) and snapshot.brokers_age_s > now - noticed_at(snapshot, view):
            return [ReadBrokers()]  # what they list of a topic of this name may be new as well (S10)
        if isinstance(step, AddPartitions) and snapshot.brokers_age_s > now - told_before(view, step):
            return [ReadBrokers()]  # the topic may have had them before (S10)
        if step is not None and not isinstance(step, Obstacle):
            return [step]
        obstacle = step
        if obstacle is None and view.placed:
            obstacle = problem_of(snapshot, view) or moves.obstacle(view)
        actions = [*_topic_status(snapshot, view, obstacle, now, recovery.reasons(view))]
    waits = obstacle is not None and (obstacle.waiting or obstacle.passing)
    if not (waits or view.elections or moves.depends_on_others(view) or flush_settles(snapshot, view)):
        rest.remember(view, None, tuple(actions))
    return actions


def _partition_changes(
    snapshot: Snapshot,
    moves: Reassignments,
    recovery: StoreRecovery,
    rest: AtRest,
    preferred: Mapping[tuple[str, int], Verdict],
    avoided: frozenset[int],
    unheard: frozenset[int],
) -> list[ChangePartitions]:
    balanced = {uid for uid, _ in preferred}
    actions: list[ChangePartitions] = []
    for view in snapshot.placed_topics():
        alone = view.topic.ref.uid not in balanced
        known = rest.known(view) if alone else None
        if known is not None:
            actions += [] if known.change is None else [known.change]
            continue
        change = _topic_change(snapshot, view, moves, recovery, preferred, avoided, unheard)
        if change is not None:
            actions.append(change)
            if alone and not view.elections and not moves.depends_on_others(view):
                rest.remember(view, change, ())
    # Topics with elections first: their clients wait.
    return sorted(actions, key=lambda action: (not action.elected, action.topic.uid))


def _topic_change(
    snapshot: Snapshot,
    view: TopicView,
    moves: Reassignments,
    recovery: StoreRecovery,
    preferred: Mapping[tuple[str, int], Verdict],
    avoided: frozenset[int],
    unheard: frozenset[int],
) -> ChangePartitions | None:
    """What becomes of the partitions of one topic."""
    relaxed = relaxed_flush(snapshot, view)
    unclean = snapshot.topic_config(view).unclean_leader_election_enable
    by_config = False
    verdicts: dict[int, Verdict] = {}
    moved: set[int] = set()
    for number, entry in sorted(view.topic.partitions.items()):
        min_isr = entry.min_isr if view.paused else effective_min_isr(snapshot, view, counted_replicas(entry))
        behind = recovery.decide(view, number, entry, min_isr=min_isr)
        if behind is not None:
            if behind.change is not None:
                verdicts[number] = behind
            continue
        asked = may_be_unclean(view, number, entry)
        verdict = decide(
            entry,
            snapshot.brokers,
            relaxed_flush=relaxed,
            unclean_allowed=unclean or asked,
            min_isr=min_isr,
            silent=avoided,
        )
        by_config |= verdict.unclean and not asked
        if verdict.change is None and number in view.elect_preferred:
            verdict = prefer(entry, snapshot.brokers, silent=unheard)
        if verdict.change is None:
            verdict = moves.hand_over(view, entry)
        if verdict.change is None:
            verdict = moves.decide(view, number, entry, relaxed_flush=relaxed)
            moved |= {number} if verdict.change is not None else set()
        if verdict.change is None:
            verdict = preferred.get((view.topic.ref.uid, number), verdict)
        if verdict.change is not None:
            verdicts[number] = verdict
    if not verdicts:
        return None
    if elections := {number: verdict for number, verdict in verdicts.items() if verdict.elected}:
        # Clients wait for these. The leaders of the others take who is gone out of their ISRs themselves, at this very
        # moment: in one patch with them the elections would be refused for it. What they leave is the next plan's.
        verdicts = elections
    by_cluster = by_config and not resolve_topic_config(view.spec.config).unclean_leader_election_enable
    consent = "" if by_config else view.unclean_request
    return _change(view, verdicts, consent=consent, by_cluster=by_cluster, moved=frozenset(moved & verdicts.keys()))


def _change(
    view: TopicView, verdicts: dict[int, Verdict], *, consent: str, by_cluster: bool, moved: frozenset[int]
) -> ChangePartitions:
    return ChangePartitions(
        topic=view.topic.ref,
        generation=view.topic.generation,
        changes={number: verdict.change for number, verdict in verdicts.items() if verdict.change is not None},
        reasons={number: verdict.reason for number, verdict in verdicts.items()},
        elected=frozenset(number for number, verdict in verdicts.items() if verdict.elected),
        unclean=frozenset(number for number, verdict in verdicts.items() if verdict.unclean),
        consent=consent,
        moved=moved,
        recovery_request=view.recovery_request,
        by_cluster=by_cluster,
    )


def _same(old: tuple[Condition, ...], new: tuple[Condition, ...]) -> bool:
    by_type = {condition.type: condition for condition in old}
    return all(by_type.get(condition.type) == condition for condition in new)


def _topic_status(
    snapshot: Snapshot, view: TopicView, obstacle: Obstacle | None, now: float, behind: list[str]
) -> list[UpdateTopicStatus]:
    conditions = topic_conditions(snapshot, view, obstacle, now, behind)
    text = in_sync(view.topic.partitions)
    generation = view.topic.generation
    if _same(view.conditions, conditions) and view.in_sync == text and view.observed_generation == generation:
        return []
    return [UpdateTopicStatus(topic=view.topic.ref, generation=generation, conditions=conditions, in_sync=text)]


def _broker_status(snapshot: Snapshot, replaced: Replacement) -> list[Action]:
    return [
        UpdateBrokerStatus(broker=snapshot.brokers[about], condition=condition)
        for about, condition in sorted(replaced.conditions.items())
        if about in snapshot.brokers
    ]


def _cluster_status(
    snapshot: Snapshot, restarts: Roll, replaced: Replacement, counts: PartitionCounts, now: float
) -> list[UpdateClusterStatus]:
    conditions = (
        *rolling_condition(
            health_condition(cluster_conditions(snapshot, now), snapshot, counts, restarts.status, now), restarts
        ),
        *volumes_condition(snapshot),
        *resizing_condition(snapshot),
        *(condition for about, condition in replaced.conditions.items() if about == CLUSTER),
    )
    total = len(wanted_brokers(snapshot))
    ready = sum(broker.alive for broker in snapshot.brokers.values())
    if (
        _same(snapshot.conditions, conditions)
        and snapshot.observed_generation == snapshot.generation
        and (snapshot.brokers_ready, snapshot.brokers_total) == (ready, total)
        and snapshot.partitions == counts
        and snapshot.bootstrap == snapshot.wanted_bootstrap
        and snapshot.rolling == restarts.status
        and snapshot.replacing == replaced.status
    ):
        return []
    return [
        UpdateClusterStatus(
            uid=snapshot.cluster.uid,
            generation=snapshot.generation,
            conditions=conditions,
            brokers_ready=ready,
            brokers_total=total,
            partitions=counts,
            bootstrap=snapshot.wanted_bootstrap,
            rolling=restarts.status if snapshot.rolling != restarts.status else None,
            replacing=replaced.status if snapshot.replacing != replaced.status else None,
        )
    ]

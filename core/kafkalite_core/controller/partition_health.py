"""What a cluster's status says of its partitions: counts, and whether `Healthy` is False on their account.

Followers leave an ISR and come back within seconds, and brokers draw their ids from the object that is written here. So

    counts      are told at once when nothing is wrong, and else `COUNTS_REST_S` after the last ones at the earliest
    Healthy     becomes False on account of partitions when a topic has had some without leader for `OFFLINE_S`, or some
                that are under-replicated for `UNDER_REPLICATED_S`; and then stays so until none is either
    a restart   that the operator has under way is no reason to call partitions under-replicated: it waits for them.
                One that waits for something else, and a replacement, hide nothing

What speaks of brokers or of the configuration comes first; its message tells the counts, too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kafkalite_core.controller.snapshot import TopicView
from kafkalite_core.model.topic import Condition

if TYPE_CHECKING:
    from kafkalite_core.controller.snapshot import Snapshot
    from kafkalite_core.model.partition_counts import PartitionCounts
    from kafkalite_core.model.pods import Rolling

OFFLINE_S = 5.0
"""Who could be elected has been by then."""

UNDER_REPLICATED_S = 30.0
"""A broker that was restarted has its replicas back in sync by then, unless there is much to copy."""

COUNTS_REST_S = 5.0

ALL_IS_WELL = "AllBrokersRun"
ON_PARTITIONS = frozenset({"PartitionsOffline", "UnderReplicated"})
WHO_KNOWS = "The conditions of their topics and `kafkalite doctor` say why"


def with_times(view: TopicView, before: object, now: float) -> TopicView:
    """The view with the times since when the observer, who has seen the topic as `before`, has seen such partitions."""
    offline_since = behind_since = now
    lost_at = view.partitions_lost_at
    if isinstance(before, TopicView):
        lost = before.topic.partitions.keys() - view.topic.partitions.keys()
        lost_at = now if lost else before.partitions_lost_at
        offline_since = before.offline_since if before.facts.counts.offline else now
        behind_since = before.behind_since if before.facts.counts.under_replicated else now
    return replace(view, offline_since=offline_since, behind_since=behind_since, partitions_lost_at=lost_at)


def counts_to_tell(snapshot: Snapshot, counts: PartitionCounts, now: float) -> PartitionCounts:
    """What `status.partitions` shall say: `counts`, which is what is, or what it says while that is fresh."""
    told = snapshot.partitions
    fresh = told is not None and now - snapshot.partitions_seen < COUNTS_REST_S
    return told if told is not None and fresh and counts.trouble else counts


def health_condition(
    conditions: tuple[Condition, ...], snapshot: Snapshot, counts: PartitionCounts, rolling: Rolling, now: float
) -> tuple[Condition, ...]:
    """Conditions of a cluster, whose Healthy tells of the partitions, too; `rolling`: what is restarted."""
    return tuple(
        _healthy(each, snapshot, counts, rolling, now) if each.type == "Healthy" and counts.trouble else each
        for each in conditions
    )


def _healthy(
    healthy: Condition, snapshot: Snapshot, counts: PartitionCounts, rolling: Rolling, now: float
) -> Condition:
    numbers = _sentence(counts)
    if healthy.reason != ALL_IS_WELL:
        return replace(healthy, message=f"{healthy.message}. {numbers}")
    why = f"{numbers}. {WHO_KNOWS}"
    stays = any(
        each.type == "Healthy" and each.status == "False" and each.reason in ON_PARTITIONS
        for each in snapshot.conditions
    )
    if counts.offline and (stays or _long_offline(snapshot, now)):
        return Condition(type="Healthy", status="False", reason="PartitionsOffline", message=why)
    restarts = rolling.in_progress and bool(rolling.restarting)
    if counts.under_replicated and (stays or (not restarts and _long_behind(snapshot, now))):
        return Condition(type="Healthy", status="False", reason="UnderReplicated", message=why)
    return replace(healthy, message=numbers)


def _long_offline(snapshot: Snapshot, now: float) -> bool:
    views = snapshot.placed_topics()
    return any(view.facts.counts.offline and now - view.offline_since >= OFFLINE_S for view in views)


def _long_behind(snapshot: Snapshot, now: float) -> bool:
    views = snapshot.placed_topics()
    return any(view.facts.counts.under_replicated and now - view.behind_since >= UNDER_REPLICATED_S for view in views)


def _sentence(counts: PartitionCounts) -> str:
    parts = [
        *([f"{counts.offline} {'has' if counts.offline == 1 else 'have'} no leader"] if counts.offline else []),
        *([f"{_are(counts.under_replicated)} under-replicated"] if counts.under_replicated else []),
        *([f"{_are(counts.under_min_isr)} below min.insync.replicas"] if counts.under_min_isr else []),
    ]
    return f"Of {counts.total} partitions {', '.join(parts)}"


def _are(count: int) -> str:
    return f"{count} {'is' if count == 1 else 'are'}"

"""Sums over the partitions of one topic, for the rules that look at all partitions of a cluster.

A view of a topic never changes, so they are added up once for every version of a topic and not in every round: with
10,000 partitions a round costs what has changed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalite_core.controller.placement import Load
from kafkalite_core.controller.reassignment import is_moving, target_of
from kafkalite_core.model.partition_counts import count_partitions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite_core.model.partition import Partition
    from kafkalite_core.model.partition_counts import PartitionCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """See the module.

    Attributes:
        counts: Partitions that are not as they should be.
        load: Replicas, those under way at the place where they go.
        held: How many replicas each broker holds or is to get; brokers without any are not named.
        preferred: By broker: how many partitions it should lead but does not, and how many it should lead.
        moving: Entries with a reassignment under way.
        min_isr: The greatest effective `min.insync.replicas`; 0 without partitions.
        broker_epoch: The greatest broker epoch in any ISR or ELR; -1 for none.
    """

    counts: PartitionCounts
    load: Load
    held: Mapping[int, int]
    preferred: Mapping[int, tuple[int, int]]
    moving: tuple[Partition, ...]
    min_isr: int
    broker_epoch: int


def topic_facts(partitions: Mapping[int, Partition]) -> TopicFacts:
    """Add one topic up."""
    entries = partitions.values()
    load = Load()
    preferred: dict[int, tuple[int, int]] = {}
    for entry in entries:
        load.add(target_of(entry))
        if entry.replicas:
            first = entry.replicas[0]
            missing, total = preferred.get(first, (0, 0))
            preferred[first] = (missing + (entry.leader != first), total + 1)
    return TopicFacts(
        counts=count_partitions(entries),
        load=load,
        held=Counter(broker_id for entry in entries for broker_id in entry.replicas),
        preferred=preferred,
        moving=tuple(entry for entry in entries if is_moving(entry)),
        min_isr=max((entry.min_isr for entry in entries), default=0),
        broker_epoch=max((member.epoch for entry in entries for member in (*entry.isr, *entry.elr)), default=-1),
    )

"""How many partitions are not as they should be: of a topic, or of a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite_core.model.partition import Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionCounts:
    """`status.partitions` of a cluster.

    Attributes:
        total: Partitions that are placed.
        under_replicated: Of these, led with fewer replicas in sync than there are.
        offline: Without leader; such a one is in no other of these counts.
        under_min_isr: Led with fewer replicas in sync than `min.insync.replicas`: acks=all is refused.
    """

    total: int = 0
    under_replicated: int = 0
    offline: int = 0
    under_min_isr: int = 0

    @property
    def trouble(self) -> bool:
        """Some partition is not as it should be."""
        return bool(self.under_replicated or self.offline or self.under_min_isr)


def count_partitions(partitions: Iterable[Partition]) -> PartitionCounts:
    """Of one topic."""
    entries = list(partitions)
    return PartitionCounts(
        total=len(entries),
        under_replicated=sum(entry.under_replicated for entry in entries),
        offline=sum(not entry.has_leader for entry in entries),
        under_min_isr=sum(entry.has_leader and len(entry.isr) < entry.min_isr for entry in entries),
    )


def add_up(counts: Iterable[PartitionCounts]) -> PartitionCounts:
    """Of several topics."""
    total = under_replicated = offline = under_min_isr = 0
    for each in counts:
        total += each.total
        if each.trouble:
            under_replicated += each.under_replicated
            offline += each.offline
            under_min_isr += each.under_min_isr
    return PartitionCounts(total=total, under_replicated=under_replicated, offline=offline, under_min_isr=under_min_isr)

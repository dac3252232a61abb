"""`status.partitions` of a `KafkaLiteCluster`: JSON <-> model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite_core.model.partition_counts import PartitionCounts

if TYPE_CHECKING:
    from collections.abc import Mapping


def parse_counts(status: Mapping[str, Any]) -> PartitionCounts | None:
    """None where they are not there or not understood: then they are told anew. Raises nothing."""
    fields = status.get("partitions")
    if not isinstance(fields, dict):
        return None
    numbers = [fields.get(name) for name in ("total", "underReplicated", "offline", "underMinIsr")]
    total, under_replicated, offline, under_min_isr = (n if isinstance(n, int) else -1 for n in numbers)
    return PartitionCounts(total=total, under_replicated=under_replicated, offline=offline, under_min_isr=under_min_isr)


def render_counts(counts: PartitionCounts) -> dict[str, int]:
    """The JSON of `status.partitions`."""
    return {
        "total": counts.total,
        "underReplicated": counts.under_replicated,
        "offline": counts.offline,
        "underMinIsr": counts.under_min_isr,
    }

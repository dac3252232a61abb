"""Volumes grow and never shrink: which of them have to grow, and what a condition says about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.controller.lost_nodes import claim_of
from kafkalite_core.model.quantity import QuantityError, quantity
from kafkalite_core.model.topic import Condition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite_core.controller.snapshot import Snapshot
    from kafkalite_core.model.volumes import Volume

VOLUMES_CONDITION = "VolumesSized"
LISTED_MAX = 3


def smaller(left: str, right: str) -> bool:
    """Whether a quantity is less than another; what cannot be read is less than nothing, and nothing less than it."""
    try:
        return quantity(left) < quantity(right)
    except QuantityError:
        return False


def to_grow(volumes: Iterable[Volume], size: str) -> list[Volume]:
    """Volumes whose claim asks for less than `spec.storage.size`."""
    return [volume for volume in volumes if smaller(volume.requested, size)]


def is_growing(volumes: Iterable[Volume], size: str) -> bool:
    """Some volume has not reached the size that it was promised. One that may not grow is not on its way."""
    return any(
        (smaller(v.requested, size) and not v.refused) or (v.capacity and smaller(v.capacity, v.requested))
        for v in volumes
    )


def volumes_condition(snapshot: Snapshot) -> tuple[Condition, ...]:
    """`VolumesSized` of the cluster. Nothing as long as there was never anything to say."""
    # A claim that a broker has left behind is nobody's, and keeps its size.
    claims = [claim_of(snapshot, broker_id) for broker_id in sorted(snapshot.brokers)]
    size, volumes = snapshot.storage_size, [claim for claim in claims if claim is not None]
    refused = [volume for volume in volumes if volume.refused and smaller(volume.requested, size)]
    greater = [volume for volume in volumes if smaller(size, volume.requested)]
    growing = [v for v in volumes if smaller(v.requested, size) or (v.capacity and smaller(v.capacity, v.requested))]
    if greater:
        largest = greater[0].requested
        for volume in greater:
            largest = volume.requested if smaller(largest, volume.requested) else largest
        message = (
            f"spec.storage.size is {size}, but a volume never shrinks: {_names(greater)}; set it back to {largest}"
        )
        return (_condition(VOLUMES_CONDITION, False, "ShrinkNotSupported", message),)
    if refused:
        message = (
            f"{_names(refused)}: {refused[0].refused}. The StorageClass has to say allowVolumeExpansion: true; "
            "or move the replicas to new brokers with greater volumes"
        )
        return (_condition(VOLUMES_CONDITION, False, "ExpansionRefused", message),)
    if growing:
        more = next((volume.resizing for volume in growing if volume.resizing), "")
        return (
            _condition(
                VOLUMES_CONDITION, False, "Growing", f"to {size}: {_names(growing)}" + (f"; {more}" if more else "")
            ),
        )
    if any(condition.type == VOLUMES_CONDITION for condition in snapshot.conditions):
        return (_condition(VOLUMES_CONDITION, True, "Sized", ""),)
    return ()


def _condition(type_: str, status: bool, reason: str, message: str) -> Condition:
    return Condition(type=type_, status=str(status), reason=reason, message=message)


def _names(volumes: list[Volume]) -> str:
    rest = len(volumes) - LISTED_MAX
    listed = ", ".join(f"{volume.name} has {volume.capacity or volume.requested}" for volume in volumes[:LISTED_MAX])
    return listed + (f" and {rest} more" if rest > 0 else "")

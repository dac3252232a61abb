"""The API server for one partition entry: JSON Patches as the production code writes them, and the entry's fences."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from kafkalite_core.model.partition import Partition, PartitionChange
from kafkalite_core.resources import patches
from kafkalite_core.resources.fields import Fields
from kafkalite_core.resources.topics import parse_partition, render_partition
from tests.search.snapshot import REF

ENTRY = "/status/partitions/0"
CONTROLLER_EPOCH = "/status/controllerEpoch"


@lru_cache(maxsize=1 << 14)
def operations(expected: Partition, proposed: Partition, *, by_controller: bool) -> list[dict[str, Any]]:
    """The patch that the controller sends, or a leader."""
    if not by_controller:
        return patches.leader_proposal(REF, 0, expected, proposed)
    return patches.elections(REF, {0: PartitionChange(expected, proposed)}, controller_epoch=1)


def patched(entry: Partition, patch: list[dict[str, Any]]) -> Partition | None:
    """The entry after the patch; None when a test fails. Raises `ValueError` for what is no JSON Patch of an entry."""
    there: dict[str, Any] = {
        "/metadata/uid": REF.uid,
        "/status/topicId": REF.topic_id,
        CONTROLLER_EPOCH: 1,
        ENTRY: render_partition(entry),
    }
    for operation in patch:
        kind, path = operation["op"], operation["path"]
        if kind == "test":
            if _found(there, path) != operation["value"]:
                return None
        elif kind in {"add", "replace"} and path in there:
            there[path] = operation["value"]
        else:
            raise ValueError(f"the search does not know what {kind} of {path} does")
    return parse_partition(Fields(there[ENTRY], "partition"))


def _found(there: dict[str, Any], path: str) -> object:
    if path in there:
        return there[path]
    whole, _, name = path.rpartition("/")
    return there[whole][name]


def broken_fence(old: Partition, new: Partition) -> str:
    """Which rule of the custom resource the change breaks, or the empty string. A patch that is right breaks none."""
    if new.partition_epoch <= old.partition_epoch:
        return "partitionEpoch does not rise"
    if new.leader_epoch < old.leader_epoch:
        return "leaderEpoch falls"
    if new.leader != old.leader and new.leader_epoch == old.leader_epoch:
        return "the leader changes within a leader epoch"
    if new.has_leader and new.leader not in new.isr_ids():
        return "the leader is not in the ISR"
    if not {*new.isr_ids(), *(one.id for one in new.elr)} <= set(new.replicas):
        return "ISR or ELR hold others than the replicas"
    same = new.leader_epoch == old.leader_epoch and old.has_leader
    if same and new.isr_epoch_of(new.leader) != old.isr_epoch_of(old.leader):
        return "another incarnation leads within a leader epoch"
    return ""

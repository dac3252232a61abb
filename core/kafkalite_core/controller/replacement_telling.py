"""The condition `Replacing` of a cluster and of its brokers: what is replaced, and what it waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.controller.lost_nodes import claim_of
from kafkalite_core.model.replacement import Phase
from kafkalite_core.model.topic import Condition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite_core.controller.snapshot import Snapshot
    from kafkalite_core.model.pods import Blocked
    from kafkalite_core.model.replacement import Replacing

CONDITION = "Replacing"
CLUSTER = -1
LISTED_MAX = 3
MESSAGE_MAX = 1000


def conditions_of(snapshot: Snapshot, status: Replacing, others: Mapping[int, str]) -> dict[int, Condition]:
    """By broker id, those that are not as they should be; under `CLUSTER` the cluster's, if there was ever one.

    `others`: why brokers are to be replaced that wait for the one of `status`.
    """
    wanted: dict[int, Condition] = {}
    for broker_id in sorted(snapshot.brokers):
        told = _of_volume(snapshot, broker_id)
        if told is not None:
            wanted[broker_id] = wanted[CLUSTER] = told
    if snapshot.nodes_refused:
        message = (
            "spec.nodeLoss is replace, and the operator may not read nodes: set rbac.readNodes in the chart, or apply "
            "helm/manifests/nodes"
        )
        wanted[CLUSTER] = _condition(CONDITION, False, "NodesNotReadable", message)
    for broker_id, cause in others.items():
        wanted[broker_id] = _of_other(broker_id, cause, status)
    if status.phase is not Phase.NONE:
        wanted[status.broker] = wanted[CLUSTER] = _of_status(status)
    idle = _condition(CONDITION, False, "NotReplacing", "")
    before = {CLUSTER: snapshot.conditions, **{i: broker.conditions for i, broker in snapshot.brokers.items()}}
    found: dict[int, Condition] = {}
    for about, conditions in before.items():
        known = next((each for each in conditions if each.type == CONDITION), None)
        told = wanted.get(about, idle if known is not None else None)
        if told is not None and (told != known or about == CLUSTER):
            found[about] = told
    return found


def _of_volume(snapshot: Snapshot, broker_id: int) -> Condition | None:
    claim = claim_of(snapshot, broker_id)
    if claim is None or not claim.lost or snapshot.cluster.node_loss == "replace":
        return None
    name = snapshot.brokers[broker_id].object_name
    message = (
        f"claim {claim.name} of broker {broker_id} has lost its volume: kubectl annotate klb {name} "
        "kafkalite.io/replace=true gives the broker a new, empty one, and its replicas are copied again"
    )
    return _condition(CONDITION, False, "VolumeLost", message)


def _of_other(broker_id: int, cause: str, status: Replacing) -> Condition:
    doing = f"broker {status.broker} is being replaced"
    if status.phase is Phase.REBUILDING:
        doing = (
            f"broker {status.broker} is being rebuilt, {status.in_sync} of {status.replicas} replicas are in sync again"
        )
    message = f"broker {broker_id} is to be replaced ({cause}), one after the other: {doing}"
    return _condition(CONDITION, False, "Blocked", message)


def _of_status(status: Replacing) -> Condition:
    who = f"broker {status.broker}"
    against = f": {_listed(status.blocked_by)}" if status.blocked_by else ""
    if status.phase is Phase.WAITING:
        return _condition(
            CONDITION, False, "Blocked", f"{who} is to be replaced ({status.cause}), and nothing is deleted{against}"
        )
    if status.phase is Phase.REBUILDING:
        message = f"{who} has a new volume; {status.in_sync} of {status.replicas} replicas are in sync again"
        return _condition(CONDITION, True, "Rebuilding", message)
    if against:
        return _condition(CONDITION, True, "Removing", f"{who} is being replaced ({status.cause}), and waits{against}")
    return _condition(CONDITION, True, "Removing", f"{who} gets a new pod and a new volume: {status.cause}")


def _condition(type_: str, status: bool, reason: str, message: str) -> Condition:
    return Condition(type=type_, status=str(status), reason=reason, message=message[:MESSAGE_MAX])


def _listed(blocked: tuple[Blocked, ...]) -> str:
    sentences = [f"{each.partition} {each.reason}".strip() for each in blocked[:LISTED_MAX]]
    rest = len(blocked) - LISTED_MAX
    return "; ".join(sentences) + (f"; and {rest} more" if rest > 0 else "")

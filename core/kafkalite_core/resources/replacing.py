"""`status.replacing` of a `KafkaLiteCluster`, nodes, and the annotation that asks for it: JSON <-> model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite_core.model.pods import Blocked
from kafkalite_core.model.replacement import NodeState, Phase, Replacing
from kafkalite_core.resources.fields import open_object
from kafkalite_core.resources.naming import ANNOTATION_REPLACE, annotation_path
from kafkalite_core.resources.rolling import render_blocked

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite_core.model.cluster import Broker
    from kafkalite_core.resources.fields import Fields

CAUSE_LENGTH_MAX = 1024


def parse_replacing(status: Fields) -> Replacing:
    """`status.replacing`; an absent one, or one of a phase that is not known, reads as none."""
    fields = status.map("replacing")
    phase = fields.text("phase", "")
    if phase not in {each.value for each in Phase} or phase == Phase.NONE:
        return Replacing()
    return Replacing(
        phase=Phase(phase),
        broker=fields.integer("broker"),
        cause=fields.text("cause", ""),
        directory_id=fields.text("directoryId", ""),
        claim_uid=fields.text("claimUid", ""),
        pod_uid=fields.text("podUid", ""),
        replicas=fields.integer("replicas", 0),
        in_sync=fields.integer("inSync", 0),
        blocked_by=tuple(
            Blocked(each.text("pod", ""), each.text("partition", ""), each.text("reason", ""))
            for each in fields.maps("blockedBy")
        ),
    )


def render_replacing(replacing: Replacing) -> dict[str, Any]:
    """The JSON of `status.replacing`."""
    return {
        "phase": replacing.phase.value,
        "broker": replacing.broker,
        "cause": replacing.cause[:CAUSE_LENGTH_MAX],
        "directoryId": replacing.directory_id,
        "claimUid": replacing.claim_uid,
        "podUid": replacing.pod_uid,
        "replicas": replacing.replicas,
        "inSync": replacing.in_sync,
        "blockedBy": [render_blocked(each) for each in replacing.blocked_by],
    }


def node_state(node: Mapping[str, Any]) -> NodeState:
    """Of a Node; one that says nothing of itself is UNKNOWN. Raises `ResourceError`."""
    fields, _ = open_object(node)
    for condition in fields.map("status").maps("conditions"):
        if condition.text("type", "") == "Ready":
            text = condition.text("status", "")
            return NodeState(text) if text in {"True", "False"} else NodeState.UNKNOWN
    return NodeState.UNKNOWN


def node_since(node: Mapping[str, Any]) -> str:
    """When a Node got ready, or ceased to be, as it says; empty when it does not. Raises `ResourceError`."""
    fields, _ = open_object(node)
    conditions = fields.map("status").maps("conditions")
    return next((c.text("lastTransitionTime", "") for c in conditions if c.text("type", "") == "Ready"), "")


def request_done(broker: Broker, request: str) -> list[dict[str, Any]]:
    """Remove the annotation from the very object, if it still says what was fulfilled."""
    path = annotation_path(ANNOTATION_REPLACE)
    return [
        {"op": "test", "path": "/metadata/uid", "value": broker.uid},
        {"op": "test", "path": path, "value": request},
        {"op": "remove", "path": path},
    ]

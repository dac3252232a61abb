"""The scale subresource: replicas of a StatefulSet, a Deployment or a KafkaLiteCluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite_local.apiserver.errors import FieldError, bad_request, conflict, invalid

if TYPE_CHECKING:
    from kafkalite_local.apiserver.store import Entry
    from kafkalite_local.apiserver.types import ResourceType

Json = dict[str, Any]


def read(resource: ResourceType, value: Json) -> Json:
    """The `Scale` of an object."""
    assert resource.scale is not None
    metadata = value["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Json = {"replicas": _lookup(value, resource.scale.status_replicas) or 0}
    if resource.scale.selector:
        selector = _lookup(value, resource.scale.selector)
    else:
        labels = _lookup(value, ("spec", "selector", "matchLabels")) or {}
        selector = ",".join(f"{key}={item}" for key, item in sorted(labels.items()))
    if selector:
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in kept if key in metadata},
        "spec": {"replicas": _lookup(value, resource.scale.spec_replicas) or 0},
        "status": status,
    }


def write(resource: ResourceType, head: Entry, scale: Any) -> Json:
    """The object with the replicas of a `Scale`. Raises ApiError 400, 409 or 422."""
    assert resource.scale is not None
    if not isinstance(scale, dict) or not isinstance(scale.get("spec"), dict):
        raise bad_request("Scale cannot be handled: it has no spec")
    given = (scale.get("metadata") or {}).get("resourceVersion")
    if given and given != head.object["metadata"]["resourceVersion"]:
        raise conflict(resource, head.name)
    replicas = scale["spec"].get("replicas", 0)
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise bad_request("Scale cannot be handled: spec.replicas is not an integer")
    if replicas < 0:
        text = f"Invalid value: {replicas}: should be a non-negative integer"
        raise invalid(resource, head.name, [FieldError("spec.replicas", "FieldValueInvalid", text)])
    value = head.copy()
    section = value
    for key in resource.scale.spec_replicas[:-1]:
        section = section.setdefault(key, {})
    section[resource.scale.spec_replicas[-1]] = replicas
    return value


def _lookup(value: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value

"""CPU and memory of containers that run: what a template asks for, what a pod has, and the patch from one to the other.

KEP-1287: the values of `requests` and `limits` of CPU and memory can be changed in a pod (subresource `resize`), others
not, and none can be added or taken away. So the values stand apart from the rest in a revision of pods, while it does
matter to the rest which of them are there at all.
"""

from __future__ import annotations

import copy
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from kafkalite_core.model.pods import Amount

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

RESIZABLE: Final = ("cpu", "memory")
KINDS: Final = ("requests", "limits")


def amounts(pod_spec: Mapping[str, Any]) -> tuple[Amount, ...]:
    """CPU and memory of the containers. As at the API server, a request that is not there is the limit."""
    return tuple(
        Amount(container, kind, resource, str(of_kind[resource]))
        for container, asked in _containers(pod_spec)
        for kind in KINDS
        for of_kind in [
            {**_map(asked, "limits"), **_map(asked, "requests")} if kind == "requests" else _map(asked, kind)
        ]
        for resource in RESIZABLE
        if resource in of_kind
    )


def without_values(template: Mapping[str, Any]) -> dict[str, Any]:
    """A pod template in which the values of `amounts` are blank."""
    blank = copy.deepcopy(dict(template))
    for _, asked in _containers(blank.get("spec") or {}):
        for kind in KINDS:
            of_kind = _map(asked, kind)
            of_kind.update({resource: "" for resource in RESIZABLE if resource in of_kind})
    return blank


def resize_patch(uid: str, containers: Sequence[str], wanted: Iterable[Amount]) -> list[dict[str, Any]]:
    """The JSON Patch of the subresource `resize`. It fails on another pod, and on other containers in another order."""
    changes = [each for each in wanted if each.container in containers]
    tested = sorted({containers.index(each.container) for each in changes})
    return [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        *({"op": "test", "path": f"/spec/containers/{i}/name", "value": containers[i]} for i in tested),
        *(
            {
                "op": "replace",
                "path": f"/spec/containers/{containers.index(each.container)}/resources/{each.kind}/{each.resource}",
                "value": each.value,
            }
            for each in changes
        ),
    ]


def _containers(pod_spec: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    items = pod_spec.get("containers")
    for container in items if isinstance(items, list) else ():
        if isinstance(container, dict):
            yield str(container.get("name", "")), _map(container, "resources")


def _map(parent: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = parent.get(key)
    return value if isinstance(value, dict) else {}


def refused_by_admission(status: int, message: str) -> bool:
    """Whether a new pod would hear the same answer as the patch: of a ResourceQuota, a LimitRange, a policy.

    Another 403 says that the Role lacks the subresource, another 422 that this pod cannot change so while it runs.
    """
    if status == HTTPStatus.FORBIDDEN:
        return "cannot patch resource" not in message
    return "denied request" in message or "denied the request" in message

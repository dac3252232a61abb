"""PersistentVolumeClaims of brokers, and the claim template of their StatefulSet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite_core.controller.volumes import smaller
from kafkalite_core.model.volumes import Volume
from kafkalite_core.resources.fields import Fields, open_object
from kafkalite_core.resources.naming import broker_id_of

if TYPE_CHECKING:
    from collections.abc import Mapping

DATA_PREFIX = "data-"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""By the scheduler, on a claim whose volume is made where its first pod runs."""
RESIZE_CONDITIONS = frozenset(
    {"FileSystemResizePending", "Resizing", "ControllerResizeError", "NodeResizeError", "ModifyVolumeError"}
)


def broker_of_claim(cluster: str, name: str) -> int | None:
    """The broker whose data a claim holds; None when it is not one of that cluster."""
    return broker_id_of(cluster, name.removeprefix(DATA_PREFIX)) if name.startswith(DATA_PREFIX) else None


def parse_claim(obj: Mapping[str, Any]) -> Volume:
    """A PersistentVolumeClaim. Raises `ResourceError`."""
    fields, metadata = open_object(obj)
    status = fields.map("status")
    annotations = metadata.map("annotations").texts_or_empty()
    told = [
        f"{each.text('type')}: {each.text('message', '')}".removesuffix(": ")
        for each in status.maps("conditions")
        if each.text("type", "") in RESIZE_CONDITIONS and each.text("status", "") == "True"
    ]
    return Volume(
        name=metadata.text("name"),
        uid=metadata.text("uid", ""),
        requested=_size(fields.map("spec").map("resources").map("requests")),
        capacity=_size(status.map("capacity")),
        resizing="; ".join(told),
        node=annotations.get(SELECTED_NODE, ""),
        lost=status.text("phase", "") == "Lost",
        deleting=metadata.has("deletionTimestamp"),
    )


def _size(fields: Fields) -> str:
    value = fields.raw.get("storage")
    return str(value) if isinstance(value, (str, int)) else ""


def growth(volume: Volume, size: str) -> list[dict[str, Any]]:
    """The patch that asks for more; it tests what was read, so nobody's greater wish is undone."""
    path = "/spec/resources/requests/storage"
    return [
        {"op": "test", "path": "/metadata/uid", "value": volume.uid},
        {"op": "test", "path": path, "value": volume.requested},
        {"op": "replace", "path": path, "value": size},
    ]


def templates_differ(existing: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether new volumes would be made in another way than wanted: smaller, or of another class.

    The claim templates of a StatefulSet are immutable, so this takes a new StatefulSet. A smaller size is no reason:
    volumes never shrink, and the next broker's may as well be as great as the others'.
    """
    old, new = _template(existing), _template(wanted)
    classes = old.map("spec").text("storageClassName", ""), new.map("spec").text("storageClassName", "")
    sizes = (_size(each.map("spec").map("resources").map("requests")) for each in (old, new))
    return smaller(*sizes) or bool(classes[1] and classes[0] != classes[1])


def _template(stateful_set: Mapping[str, Any]) -> Fields:
    templates = stateful_set["spec"].get("volumeClaimTemplates") or [{}]
    return Fields(templates[0], "volumeClaimTemplates[0]")

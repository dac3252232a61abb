"""Where a broker's pod runs, and its rack: the value of one label of its node (`spec.rack.topologyKey`).

Kubernetes copies the node's `topology.kubernetes.io` labels onto pods from 1.35 on; before, and for other labels, the
operator does so with an annotation. The broker reads whichever is there from a volume of the downward API.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kafkalite_core.resources.fields import open_object
from kafkalite_core.resources.naming import ANNOTATION_RACK

if TYPE_CHECKING:
    from collections.abc import Mapping

RACK_DIRECTORY: Final = "/etc/kafkalite-rack"
"""Not below the ConfigMap's directory: nothing can be mounted inside of what is read-only."""

LABEL_FILE: Final = "label"
ANNOTATION_FILE: Final = "annotation"
NO_RACK: Final = "-"
"""In the annotation: the node has no such label. No label has this value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPlace:
    """A broker's pod and its node.

    Attributes:
        name: Of the pod.
        uid: Of the pod.
        node: Name of the node; empty until the pod is scheduled.
        host: Address of the node as the kubelet reports it (`status.hostIP`), or empty.
        labels: Of the pod.
        rack: The annotation, or None.
    """

    name: str
    uid: str
    node: str = ""
    host: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    rack: str | None = None

    def wants_rack(self, topology_key: str) -> bool:
        """Whether the operator has to copy the label of this pod's node."""
        return bool(topology_key and self.node) and self.rack is None and not self.labels.get(topology_key)


def pod_place(pod: Mapping[str, Any]) -> PodPlace:
    """Of a Pod. Raises `ResourceError`."""
    fields, metadata = open_object(pod)
    return PodPlace(
        name=metadata.text("name"),
        uid=metadata.text("uid", ""),
        node=fields.map("spec").text("nodeName", ""),
        host=fields.map("status").text("hostIP", ""),
        labels=metadata.map("labels").texts_or_empty(),
        rack=metadata.map("annotations").texts_or_empty().get(ANNOTATION_RACK),
    )


def rack_of_node(node: Mapping[str, Any], topology_key: str) -> str:
    """What is written into the annotation of the pods on a node. Raises `ResourceError`."""
    _, metadata = open_object(node)
    return metadata.map("labels").texts_or_empty().get(topology_key) or NO_RACK


def rack_read(label: str, annotation: str) -> str | None:
    """The rack that a broker finds in its two files: empty for none, None while nothing is known."""
    found = label.strip() or annotation.strip()
    return None if not found else "" if found == NO_RACK else found


def rack_volume(topology_key: str) -> dict[str, Any]:
    """The volume with the two files."""
    paths = {
        LABEL_FILE: f"metadata.labels['{topology_key}']",
        ANNOTATION_FILE: f"metadata.annotations['{ANNOTATION_RACK}']",
    }
    items = [{"path": name, "fieldRef": {"fieldPath": path}} for name, path in paths.items()]
    return {"name": "rack", "downwardAPI": {"items": items}}

"""`Lease` of coordination.k8s.io/v1: the heartbeat of a broker and the election of the operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafkalite_core.resources.fields import open_object

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord:
    """What a Lease says. Its times are opaque text: they are compared for equality only, never with a clock (R16).

    Attributes:
        namespace: Namespace of the object.
        name: `metadata.name`.
        uid: `metadata.uid`.
        holder: `spec.holderIdentity`: the incarnation of a broker, or the identity of an operator; empty when released.
        renewed: `spec.renewTime` as written by the holder.
        duration_s: `spec.leaseDurationSeconds`.
        transitions: `spec.leaseTransitions`.
        resource_version: Version of the object that this was read from.
    """

    namespace: str
    name: str
    uid: str
    holder: str
    renewed: str
    duration_s: int
    transitions: int
    resource_version: str

    @property
    def signature(self) -> tuple[str, str, str]:
        """What changes whenever the holder gives a sign of life."""
        return (self.uid, self.holder, self.renewed)


def parse_lease(obj: Mapping[str, Any]) -> LeaseRecord:
    """A Lease; absent fields read as empty. Raises `ResourceError`."""
    fields, metadata = open_object(obj)
    spec = fields.map("spec")
    return LeaseRecord(
        namespace=metadata.text("namespace", ""),
        name=metadata.text("name"),
        uid=metadata.text("uid", ""),
        holder=spec.text("holderIdentity", ""),
        renewed=spec.text("renewTime", ""),
        duration_s=spec.integer("leaseDurationSeconds", 0),
        transitions=spec.integer("leaseTransitions", 0),
        resource_version=metadata.text("resourceVersion", ""),
    )


def render_lease(
    namespace: str,
    name: str,
    *,
    holder: str,
    renewed: str,
    acquired: str,
    duration_s: int,
    transitions: int = 0,
    resource_version: str = "",
    labels: Mapping[str, str] | None = None,
    owners: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """A whole Lease. `renewed` and `acquired` are RFC 3339 with microseconds; a `resource_version` makes it a CAS."""
    metadata: dict[str, Any] = {"namespace": namespace, "name": name}
    if resource_version:
        metadata["resourceVersion"] = resource_version
    if labels:
        metadata["labels"] = dict(labels)
    if owners:
        metadata["ownerReferences"] = owners
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": metadata,
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": duration_s,
            "acquireTime": acquired,
            "renewTime": renewed,
            "leaseTransitions": transitions,
        },
    }

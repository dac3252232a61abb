"""`Lease` of coordination.k8s.io/v1: the heartbeat of a broker and the election of the operator."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafkalite_core.resources.fields import open_object
from kafkalite_core.resources.naming import ANNOTATION_FLUSHED, ANNOTATION_NOTICED, annotation_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


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
        noticed: Uids of topics that the broker says it has noticed (`membership/notice.py`); None: it does not say.
        flushed: Tokens of topics whose tightened flush it has caught up with (`membership/flushed.py`); None: likewise.
        annotations: All that the object has.
    """

    namespace: str
    name: str
    uid: str
    holder: str
    renewed: str
    duration_s: int
    transitions: int
    resource_version: str
    noticed: frozenset[str] | None = None
    flushed: frozenset[str] | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def signature(self) -> tuple[str, str, str]:
        """What changes whenever the holder gives a sign of life."""
        return (self.uid, self.holder, self.renewed)


def parse_lease(obj: Mapping[str, Any]) -> LeaseRecord:
    """A Lease; absent fields read as empty. Raises `ResourceError`."""
    fields, metadata = open_object(obj)
    spec = fields.map("spec")
    annotations = metadata.map("annotations").texts_or_empty()
    return LeaseRecord(
        namespace=metadata.text("namespace", ""),
        name=metadata.text("name"),
        uid=metadata.text("uid", ""),
        holder=spec.text("holderIdentity", ""),
        renewed=spec.text("renewTime", ""),
        duration_s=spec.integer("leaseDurationSeconds", 0),
        transitions=spec.integer("leaseTransitions", 0),
        resource_version=metadata.text("resourceVersion", ""),
        noticed=_listed(annotations.get(ANNOTATION_NOTICED)),
        flushed=_listed(annotations.get(ANNOTATION_FLUSHED)),
        annotations=annotations,
    )


def _listed(text: str | None) -> frozenset[str] | None:
    return None if text is None else frozenset(each for each in text.split(",") if each)


def told_annotations(*, noticed: Iterable[str], flushed: Iterable[str]) -> dict[str, str]:
    """What a broker tells with its Lease, see `LeaseRecord`."""
    return {ANNOTATION_NOTICED: ",".join(noticed), ANNOTATION_FLUSHED: ",".join(flushed)}


def told_operations(*, noticed: Iterable[str], flushed: Iterable[str]) -> list[dict[str, str]]:
    """As a JSON patch, which the server refuses when somebody has taken all annotations away."""
    told = told_annotations(noticed=noticed, flushed=flushed)
    return [{"op": "add", "path": annotation_path(name), "value": value} for name, value in told.items()]


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
    annotations: Mapping[str, str] | None = None,
    owners: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """A whole Lease. `renewed` and `acquired` are RFC 3339 with microseconds; a `resource_version` makes it a CAS."""
    metadata: dict[str, Any] = {"namespace": namespace, "name": name}
    if resource_version:
        metadata["resourceVersion"] = resource_version
    if labels:
        metadata["labels"] = dict(labels)
    if annotations:
        metadata["annotations"] = dict(annotations)
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

"""The built-in kinds: names, defaults, checks. What neither `forms` nor the checks here name is stored as given."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from kafkalite_local.apiserver import events, forms, printers
from kafkalite_local.apiserver.errors import FieldError, bad_request, invalid
from kafkalite_local.apiserver.types import ResourceType, ScalePaths

if TYPE_CHECKING:
    from collections.abc import Mapping

Json = dict[str, Any]

_MICRO_TIME = re.compile(r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{6}(Z|[+-]\d{2}:\d{2})$")

METADATA_FIELDS: Final = frozenset({"metadata.name", "metadata.namespace"})
FIELD_SELECTORS: Final[Mapping[str, frozenset[str]]] = {
    "pods": METADATA_FIELDS
    | {"spec.nodeName", "spec.restartPolicy", "spec.serviceAccountName", "status.phase", "status.podIP"},
    "events": METADATA_FIELDS
    | {
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    },
    "namespaces": METADATA_FIELDS | {"status.phase"},
    "nodes": METADATA_FIELDS | {"spec.unschedulable"},
    "secrets": METADATA_FIELDS | {"type"},
    "services": METADATA_FIELDS | {"spec.clusterIP", "spec.type"},
}
"""Fields that a field selector may name, by storage; METADATA_FIELDS for every other kind."""


def selectable_fields(storage: str, value: Json) -> dict[str, str]:
    """The values of the fields that field selectors of this storage know."""
    metadata = value.get("metadata", {})
    found = {"metadata.name": metadata.get("name", ""), "metadata.namespace": metadata.get("namespace", "")}
    for path in FIELD_SELECTORS.get(storage, METADATA_FIELDS) - METADATA_FIELDS:
        current: Any = value
        keys = ["source", "component"] if path == "source" else path.split(".")
        for key in keys:
            current = current.get(key) if isinstance(current, dict) else None
        found[path] = str(current).lower() if isinstance(current, bool) else str(current or "")
    if storage == "nodes":
        found["spec.unschedulable"] = found["spec.unschedulable"] or "false"
    return found


def _section(value: Json, name: str) -> Json:
    section: Json = value.setdefault(name, {})
    if not isinstance(section, dict):
        raise bad_request(f"{value.get('kind')} cannot be handled: {name} is not an object")
    return section


def _prepare_pod(value: Json) -> None:
    spec = _section(value, "spec")
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("enableServiceLinks", True)
    _section(value, "status").setdefault("phase", "Pending")


def _prepare_service(value: Json) -> None:
    spec = _section(value, "spec")
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    for port in spec.get("ports", ()):
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))
    # There is no service network: every address that a Service could have is this machine's loopback.
    spec.setdefault("clusterIP", "127.0.0.1")
    _section(value, "status").setdefault("loadBalancer", {})


def _prepare_stateful_set(value: Json) -> None:
    spec = _section(value, "spec")
    spec.setdefault("replicas", 1)
    spec.setdefault("podManagementPolicy", "OrderedReady")
    spec.setdefault("updateStrategy", {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}})
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("persistentVolumeClaimRetentionPolicy", {"whenDeleted": "Retain", "whenScaled": "Retain"})
    _section(value, "status").setdefault("replicas", 0)


def _prepare_claim(value: Json) -> None:
    _section(value, "spec").setdefault("volumeMode", "Filesystem")
    _section(value, "status").setdefault("phase", "Pending")


def _prepare_namespace(value: Json) -> None:
    _section(_section(value, "metadata"), "labels")["kubernetes.io/metadata.name"] = value["metadata"]["name"]
    _section(value, "spec").setdefault("finalizers", ["kubernetes"])
    _section(value, "status").setdefault("phase", "Active")


def _prepare_secret(value: Json) -> None:
    import base64

    value.setdefault("type", "Opaque")
    plain = value.pop("stringData", None) or {}
    for name, text in plain.items():
        value.setdefault("data", {})[name] = base64.b64encode(str(text).encode()).decode()


def _prepare_deployment(value: Json) -> None:
    _section(value, "spec").setdefault("replicas", 1)
    _section(value, "status")


def _check_lease(value: Json) -> None:
    spec = value.get("spec") or {}
    errors = []
    for name in ("renewTime", "acquireTime"):
        moment = spec.get(name)
        if moment is not None and not (isinstance(moment, str) and _MICRO_TIME.match(moment)):
            raise bad_request(
                f'Lease in version "v1" cannot be handled as a Lease: parsing time "{moment}" as '
                f'"2006-01-02T15:04:05.000000Z07:00": spec.{name} needs exactly six digits of fraction'
            )
    for name, least, text in (
        ("leaseDurationSeconds", 1, "must be greater than 0"),
        ("leaseTransitions", 0, "must be greater than or equal to 0"),
    ):
        number = spec.get(name)
        if number is None:
            continue
        if not isinstance(number, int) or isinstance(number, bool):
            raise bad_request(f'Lease in version "v1" cannot be handled as a Lease: spec.{name} is not an integer')
        if number < least:
            errors.append(FieldError(f"spec.{name}", "FieldValueInvalid", f"Invalid value: {number}: {text}"))
    if errors:
        raise invalid(LEASES, value["metadata"].get("name", ""), errors)


def now_text() -> str:
    """The time as `metadata.creationTimestamp` shows it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


LEASES = ResourceType(
    group="coordination.k8s.io",
    version="v1",
    plural="leases",
    singular="lease",
    kind="Lease",
    unconditional_update=False,
    create_on_update=True,
    check=_check_lease,
    form=forms.LEASE,
    columns=printers.LEASE,
)
NAMESPACES = ResourceType(
    group="",
    version="v1",
    plural="namespaces",
    singular="namespace",
    kind="Namespace",
    namespaced=False,
    short_names=("ns",),
    status=True,
    prepare=_prepare_namespace,
    form=forms.NAMESPACE,
    columns=printers.NAMESPACE,
)
PODS = ResourceType(
    group="",
    version="v1",
    plural="pods",
    singular="pod",
    kind="Pod",
    short_names=("po",),
    categories=("all",),
    status=True,
    generation=True,
    prepare=_prepare_pod,
    form=forms.POD,
    columns=printers.POD,
)
CRDS = ResourceType(
    group="apiextensions.k8s.io",
    version="v1",
    plural="customresourcedefinitions",
    singular="customresourcedefinition",
    kind="CustomResourceDefinition",
    namespaced=False,
    short_names=("crd", "crds"),
    categories=("api-extensions",),
    status=True,
    generation=True,
    unconditional_update=False,
    columns=printers.CRD,
)
_SCALE = ScalePaths(spec_replicas=("spec", "replicas"), status_replicas=("status", "replicas"))

BUILTINS: Final = (
    NAMESPACES,
    PODS,
    LEASES,
    CRDS,
    events.CORE,
    events.EVENTS_V1,
    ResourceType(
        group="",
        version="v1",
        plural="nodes",
        singular="node",
        kind="Node",
        namespaced=False,
        short_names=("no",),
        status=True,
        form=forms.NODE,
        columns=printers.NODE,
    ),
    ResourceType(
        group="",
        version="v1",
        plural="services",
        singular="service",
        kind="Service",
        short_names=("svc",),
        categories=("all",),
        status=True,
        create_on_update=True,
        prepare=_prepare_service,
        form=forms.SERVICE,
        columns=printers.SERVICE,
    ),
    ResourceType(
        group="",
        version="v1",
        plural="configmaps",
        singular="configmap",
        kind="ConfigMap",
        short_names=("cm",),
        form=forms.CONFIG_MAP,
        columns=printers.CONFIG_MAP,
    ),
    ResourceType(
        group="",
        version="v1",
        plural="secrets",
        singular="secret",
        kind="Secret",
        prepare=_prepare_secret,
        form=forms.SECRET,
        columns=printers.SECRET,
    ),
    ResourceType(
        group="",
        version="v1",
        plural="serviceaccounts",
        singular="serviceaccount",
        kind="ServiceAccount",
        short_names=("sa",),
    ),
    ResourceType(
        group="",
        version="v1",
        plural="persistentvolumeclaims",
        singular="persistentvolumeclaim",
        kind="PersistentVolumeClaim",
        short_names=("pvc",),
        status=True,
        prepare=_prepare_claim,
        form=forms.CLAIM,
        columns=printers.CLAIM,
    ),
    ResourceType(
        group="apps",
        version="v1",
        plural="statefulsets",
        singular="statefulset",
        kind="StatefulSet",
        short_names=("sts",),
        categories=("all",),
        status=True,
        scale=_SCALE,
        generation=True,
        prepare=_prepare_stateful_set,
        form=forms.STATEFUL_SET,
        columns=printers.STATEFUL_SET,
    ),
    ResourceType(
        group="apps",
        version="v1",
        plural="deployments",
        singular="deployment",
        kind="Deployment",
        short_names=("deploy",),
        categories=("all",),
        status=True,
        scale=_SCALE,
        generation=True,
        prepare=_prepare_deployment,
        form=forms.DEPLOYMENT,
        columns=printers.DEPLOYMENT,
    ),
    ResourceType(
        group="policy",
        version="v1",
        plural="poddisruptionbudgets",
        singular="poddisruptionbudget",
        kind="PodDisruptionBudget",
        short_names=("pdb",),
        status=True,
        generation=True,
        unconditional_update=False,
        form=forms.BUDGET,
        columns=printers.BUDGET,
    ),
)

"""The StatefulSet that runs a cluster's brokers, and its PodDisruptionBudget."""

from __future__ import annotations

import copy
import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

from kafkalite_core.model.config import static_broker_config
from kafkalite_core.resources import naming
from kafkalite_core.resources.places import RACK_DIRECTORY, rack_volume
from kafkalite_core.resources.resizing import amounts, without_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkalite_core.model.listener import Listener
    from kafkalite_core.model.pods import Amount
    from kafkalite_core.resources.manifests import ClusterSettings

DATA_DIRECTORY = "/var/lib/kafkalite/data"
CONFIG_DIRECTORY = "/etc/kafkalite"
CONFIG_FILE = "broker.json"
TERMINATION_LOG = "/dev/termination-log"
METRICS_PORT_NAME = "tcp-prometheus"
HOST = "kubernetes.io/hostname"
USER_ID = 10001
STOP_GRACE_S = 60
"""A broker hands its leaderships over and flushes before it is killed."""

START_LIMIT_S = 3600
"""The startup probe waits so long for a process that does not answer. One that recovers its logs does."""


def stateful_set(settings: ClusterSettings, replicas: int) -> dict[str, Any]:
    """The StatefulSet with `replicas` pods. Pods are replaced by the operator alone (`OnDelete`), never in turn."""
    cluster = settings.cluster
    labels = naming.broker_labels(cluster.name)
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": settings.metadata(naming.stateful_set_name(cluster.name)),
        "spec": {
            "replicas": replicas,
            "serviceName": naming.headless_service_name(cluster.name),
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "selector": {"matchLabels": labels},
            "template": _pod_template(settings, labels),
            "volumeClaimTemplates": [_claim(settings, labels)],
            "persistentVolumeClaimRetentionPolicy": {
                "whenDeleted": "Delete" if settings.delete_claim else "Retain",
                "whenScaled": "Retain",
            },
        },
    }


def _pod_template(settings: ClusterSettings, labels: Mapping[str, str]) -> dict[str, Any]:
    template = _unmarked_template(settings, labels)
    annotations = {**(template["metadata"].get("annotations") or {}), naming.ANNOTATION_REVISION: revision(settings)}
    return {**template, "metadata": {**template["metadata"], "annotations": annotations}}


def revision(settings: ClusterSettings) -> str:
    """What a broker's pod is made of: `<pod template>.<configuration that needs a restart>.<CPU and memory>`, hashes.

    Pods carry it in the annotation `kafkalite.io/revision`. Keys that brokers follow while they run are not part of it.
    The last part is absent where nothing is said of CPU and memory; it alone does not mean a restart.
    """
    template = _unmarked_template(settings, naming.broker_labels(settings.cluster.name))
    listeners = [[each.name, each.type, each.port, each.host] for each in settings.listeners]
    config = [listeners, settings.metrics_port, static_broker_config(settings.cluster.config)]
    parts = [_digest(without_values(template)), _digest(config)]
    wanted = amounts(template["spec"])
    if wanted:
        parts.append(_digest([[each.container, each.kind, each.resource, each.value] for each in wanted]))
    return ".".join(parts)


def wanted_amounts(settings: ClusterSettings) -> tuple[Amount, ...]:
    """CPU and memory that the containers of a broker's pod shall have."""
    return amounts(_unmarked_template(settings, naming.broker_labels(settings.cluster.name))["spec"])


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:10]


def _unmarked_template(settings: ClusterSettings, labels: Mapping[str, str]) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "terminationGracePeriodSeconds": STOP_GRACE_S,
        "serviceAccountName": settings.service_account,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "fsGroup": USER_ID,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(settings)],
        "volumes": [
            {"name": "config", "configMap": {"name": naming.config_map_name(settings.cluster.name)}},
            *([rack_volume(settings.rack_key)] if settings.rack_key else []),
        ],
        # Zones first, and hosts within a zone: a node that is lost takes as few brokers along as may be.
        "topologySpreadConstraints": [_spread(key, labels) for key in dict.fromkeys((settings.rack_key or HOST, HOST))],
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [_apart(labels)]}},
    }
    if settings.host_network:
        spec["hostNetwork"] = True
        spec["dnsPolicy"] = "ClusterFirstWithHostNet"
    template: dict[str, Any] = {"metadata": {"labels": dict(labels)}, "spec": spec}
    return merge(template, settings.pod_template)


def _spread(key: str, labels: Mapping[str, str]) -> dict[str, Any]:
    return {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": dict(labels)},
    }


def _apart(labels: Mapping[str, str]) -> dict[str, Any]:
    return {"weight": 100, "podAffinityTerm": {"topologyKey": HOST, "labelSelector": {"matchLabels": dict(labels)}}}


def _container(settings: ClusterSettings) -> dict[str, Any]:
    ports = port_names(settings.listeners)
    return {
        "name": naming.BROKER_CONTAINER,
        "image": settings.image,
        "command": ["kafkalite-broker"],
        "env": [
            *(_field(name, path) for name, path in _FIELDS.items()),
            {"name": "KAFKALITE_CLUSTER", "value": settings.cluster.name},
            {"name": "KAFKALITE_DATA_DIR", "value": DATA_DIRECTORY},
            {"name": "KAFKALITE_CONFIG", "value": f"{CONFIG_DIRECTORY}/{CONFIG_FILE}"},
            {"name": "KAFKALITE_TERMINATION_LOG", "value": TERMINATION_LOG},
            *([{"name": "KAFKALITE_RACK_DIR", "value": RACK_DIRECTORY}] if settings.rack_key else []),
        ],
        "ports": [
            *({"name": ports[each.name], "containerPort": each.port} for each in settings.listeners),
            {"name": METRICS_PORT_NAME, "containerPort": settings.metrics_port},
        ],
        "volumeMounts": [
            {"name": "data", "mountPath": DATA_DIRECTORY},
            {"name": "config", "mountPath": CONFIG_DIRECTORY, "readOnly": True},
            *([{"name": "rack", "mountPath": RACK_DIRECTORY, "readOnly": True}] if settings.rack_key else []),
        ],
        "terminationMessagePath": TERMINATION_LOG,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        # Liveness must not depend on the API server: /healthz looks at the process alone.
        "startupProbe": _probe("/healthz", settings, period_s=2, failures=START_LIMIT_S // 2),
        "livenessProbe": _probe("/healthz", settings, period_s=10, failures=6),
        "readinessProbe": _probe("/readyz", settings, period_s=2, failures=2),
    }


def port_names(listeners: Iterable[Listener]) -> dict[str, str]:
    """Names of the listeners' ports, by listener: Kubernetes takes 15 lower-case letters, digits and hyphens, a letter
    among them, once in a container. A port is named after its listener where that gives such a name, else
    `tcp-kafka-<port>`.
    """
    names: dict[str, str] = {}
    taken = {METRICS_PORT_NAME}
    others: list[Listener] = []
    for listener in listeners:
        own = re.sub(r"[^a-z0-9]+", "-", listener.name.lower())[:15].strip("-") or f"port-{listener.port}"
        if own in taken or re.search("[a-z]", own) is None:
            others.append(listener)
        else:
            names[listener.name] = own
            taken.add(own)
    # What is named after its listener comes first, whatever its name: another name would restart its brokers.
    for listener in others:
        made = (f"{prefix}-kafka-{listener.port}" for prefix in ("tcp", *range(len(others) + len(names))))
        names[listener.name] = next(name for name in made if name not in taken)
        taken.add(names[listener.name])
    return names


_FIELDS = {
    "POD_NAME": "metadata.name",
    "POD_NAMESPACE": "metadata.namespace",
    "POD_UID": "metadata.uid",
    "POD_IP": "status.podIP",
    "NODE_NAME": "spec.nodeName",
}


def _field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _probe(path: str, settings: ClusterSettings, *, period_s: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": settings.metrics_port},
        "periodSeconds": period_s,
        "timeoutSeconds": 2,
        "failureThreshold": failures,
    }


def _claim(settings: ClusterSettings, labels: Mapping[str, str]) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": settings.storage_size}},
    }
    if settings.storage_class:
        spec["storageClassName"] = settings.storage_class
    return {"metadata": {"name": "data", "labels": dict(labels)}, "spec": spec}


def disruption_budget(settings: ClusterSettings) -> dict[str, Any]:
    """At most one broker is evicted at a time."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": settings.metadata(naming.stateful_set_name(settings.cluster.name)),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": naming.broker_labels(settings.cluster.name)},
        },
    }


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` laid on `base`: objects are merged, lists of named things by name, all else is replaced."""
    result = copy.deepcopy(dict(base))
    for key, value in over.items():
        old = result.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            result[key] = merge(old, value)
        elif isinstance(old, list) and isinstance(value, list) and _named(old) and _named(value):
            result[key] = _merge_named(old, value)
        else:
            result[key] = copy.deepcopy(value)
    return result


def _named(items: list[Any]) -> bool:
    return bool(items) and all(isinstance(item, dict) and isinstance(item.get("name"), str) for item in items)


def _merge_named(base: list[dict[str, Any]], over: list[dict[str, Any]]) -> list[dict[str, Any]]:
    changes = {item["name"]: item for item in over}
    known = {item["name"] for item in base}
    merged = [merge(item, changes.get(item["name"], {})) for item in base]
    return merged + [copy.deepcopy(item) for item in over if item["name"] not in known]

"""Everything that the operator makes for a `KafkaLiteCluster`, as plain objects with owner references."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafkalite_core.model.config import valid_broker_config
from kafkalite_core.model.listener import host_port
from kafkalite_core.resources import naming
from kafkalite_core.resources.clusters import DEFAULT_METRICS_PORT, parse_cluster
from kafkalite_core.resources.fields import Fields, open_object
from kafkalite_core.resources.listener_services import listener_services
from kafkalite_core.resources.listeners import parse_listeners
from kafkalite_core.resources.pod_template import parse_pod_template
from kafkalite_core.resources.statefulset import (
    CONFIG_FILE,
    METRICS_PORT_NAME,
    disruption_budget,
    port_names,
    stateful_set,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkalite_core.model.cluster import Cluster
    from kafkalite_core.model.listener import Listener

CLUSTER_ID = "clusterId"
"""Key of the ConfigMap with the cluster's identity."""

DEFAULT_IMAGE = "kafkalite-broker:0.1.0"
DEFAULT_STORAGE_SIZE = "10Gi"
DEFAULT_SERVICE_ACCOUNT = "kafkalite-broker"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """The parts of a `KafkaLiteCluster` that its objects are made from. Sizes are Kubernetes quantities."""

    cluster: Cluster
    listeners: tuple[Listener, ...]
    metrics_port: int
    image: str
    storage_size: str
    storage_class: str
    delete_claim: bool
    rack_key: str
    service_account: str
    pod_template: Mapping[str, Any] = field(default_factory=dict)

    @property
    def host_network(self) -> bool:
        """Pods share the host's network, so broker n adds n to its ports."""
        return any(listener.type == "hostport" for listener in self.listeners)

    def owner(self) -> dict[str, Any]:
        """The owner reference to the cluster: its objects are collected with it."""
        return {
            "apiVersion": naming.API_VERSION,
            "kind": naming.CLUSTER_KIND,
            "name": self.cluster.name,
            "uid": self.cluster.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }

    def metadata(self, name: str, broker_id: int | None = None) -> dict[str, Any]:
        """Metadata of an object that belongs to the cluster."""
        return {
            "name": name,
            "namespace": self.cluster.namespace,
            "labels": naming.broker_labels(self.cluster.name, broker_id),
            "ownerReferences": [self.owner()],
        }


def cluster_settings(obj: Mapping[str, Any], *, default_image: str = DEFAULT_IMAGE) -> ClusterSettings:
    """Read a `KafkaLiteCluster`; everything below can be rendered of what it returns.

    Raises:
        ResourceError: the object cannot be understood, or no pod can be made of its template.
    """
    fields, _ = open_object(obj)
    spec = fields.map("spec")
    storage = spec.map("storage")
    return ClusterSettings(
        cluster=parse_cluster(obj),
        listeners=parse_listeners(spec),
        metrics_port=spec.map("metrics").integer("port", DEFAULT_METRICS_PORT),
        image=spec.text("image", default_image),
        storage_size=_quantity_text(storage) if storage.has("size") else DEFAULT_STORAGE_SIZE,
        storage_class=storage.text("storageClassName", ""),
        delete_claim=storage.flag("deleteClaim"),
        rack_key=spec.map("rack").text("topologyKey", ""),
        service_account=DEFAULT_SERVICE_ACCOUNT,
        pod_template=parse_pod_template(spec.map("template").map("pod")),
    )


def _quantity_text(storage: Fields) -> str:
    """`storage.size`, which may be a whole number. What is no quantity the API server says of the StatefulSet."""
    size = storage.raw["size"]
    return str(storage.integer("size")) if isinstance(size, int) else storage.text("size")


def bootstrap_address(settings: ClusterSettings) -> str:
    """`status.bootstrap`: what a client outside puts into `bootstrap.servers`."""
    listener = settings.listeners[0]
    if listener.type == "hostport":
        count = settings.cluster.replicas
        return ",".join(host_port(listener.host, listener.port + broker_id) for broker_id in range(count))
    service = naming.bootstrap_service_name(settings.cluster.name)
    return f"{service}.{settings.cluster.namespace}.svc:{listener.port}"


def broker_config(settings: ClusterSettings) -> dict[str, Any]:
    """The content of `broker.json`."""
    cluster = settings.cluster
    listeners = []
    for listener in settings.listeners:
        entry: dict[str, Any] = {"name": listener.name, "type": listener.type, "port": listener.port}
        if listener.host:
            entry["host"] = listener.host
        listeners.append(entry)
    return {
        "cluster": cluster.name,
        "namespace": cluster.namespace,
        "listeners": listeners,
        "metrics": {"port": settings.metrics_port},
        "failureDetection": {
            "leaseDurationSeconds": _plain(cluster.lease_duration_s),
            "renewIntervalSeconds": _plain(cluster.renew_interval_s),
        },
        # A key that is wrong is told by a condition; in the file it would keep a restarted broker from starting.
        "config": dict(sorted(valid_broker_config(cluster.config).items())),
    }


def _plain(seconds: float) -> float:
    return int(seconds) if seconds == int(seconds) else seconds


def config_map(settings: ClusterSettings) -> dict[str, Any]:
    """The ConfigMap with `broker.json`."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": settings.metadata(naming.config_map_name(settings.cluster.name)),
        "data": {CONFIG_FILE: json.dumps(broker_config(settings), indent=2, sort_keys=True)},
    }


def identity(settings: ClusterSettings) -> dict[str, Any]:
    """The ConfigMap that keeps the cluster's id. Nobody owns it: like the volumes, which name the id, it stays."""
    metadata = settings.metadata(naming.identity_name(settings.cluster.name))
    del metadata["ownerReferences"]
    data = {CLUSTER_ID: settings.cluster.cluster_id}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def _ports(settings: ClusterSettings) -> list[dict[str, Any]]:
    names = port_names(settings.listeners)
    ports = [
        {"name": names[each.name], "port": each.port, "targetPort": each.port}
        for each in settings.listeners
        if not each.external
    ]
    metrics = settings.metrics_port
    return [*ports, {"name": METRICS_PORT_NAME, "port": metrics, "targetPort": metrics}]


def services(settings: ClusterSettings, broker_ids: Iterable[int]) -> list[dict[str, Any]]:
    """The headless Service, the bootstrap Service and one per broker, for clients inside; then those for clients
    outside.
    """
    ids = list(broker_ids)
    name = settings.cluster.name
    selector = naming.broker_labels(name)
    made = [
        _service(
            settings,
            naming.headless_service_name(name),
            # Brokers find one another before they are ready: readiness needs peers.
            {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": selector},
        ),
        _service(settings, naming.bootstrap_service_name(name), {"selector": selector}),
    ]
    for broker_id in ids:
        pod = naming.broker_name(name, broker_id)
        spec = {"publishNotReadyAddresses": True, "selector": {"statefulset.kubernetes.io/pod-name": pod}}
        made.append(_service(settings, pod, spec, broker_id))
    return made + listener_services(settings, ids)


def _service(
    settings: ClusterSettings, name: str, spec: dict[str, Any], broker_id: int | None = None
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": settings.metadata(name, broker_id),
        "spec": {"type": "ClusterIP", **spec, "ports": _ports(settings)},
    }


def broker_object(settings: ClusterSettings, broker_id: int) -> dict[str, Any]:
    """The `KafkaLiteBroker` of one broker."""
    name = naming.broker_name(settings.cluster.name, broker_id)
    return {
        "apiVersion": naming.API_VERSION,
        "kind": naming.BROKER_KIND,
        "metadata": settings.metadata(name, broker_id),
        "spec": {
            "clusterRef": {"name": settings.cluster.name},
            "brokerId": broker_id,
            "cordoned": False,
            "hold": False,
        },
    }


def infrastructure(settings: ClusterSettings, broker_ids: Iterable[int]) -> list[dict[str, Any]]:
    """All objects that are kept up to date, in the order in which they are made; each carries its hash.

    `broker_ids` are the brokers that shall exist; the StatefulSet has pods up to the highest of them.
    """
    ids = sorted(broker_ids)
    objects = [
        *([identity(settings)] if settings.cluster.cluster_id else []),
        config_map(settings),
        *services(settings, ids),
        disruption_budget(settings),
        stateful_set(settings, ids[-1] + 1 if ids else 0),
    ]
    return [with_hash(obj) for obj in objects]


def with_hash(obj: Mapping[str, Any]) -> dict[str, Any]:
    """The object with an annotation of what was applied, so that a later look can tell whether it still is."""
    digest = hashlib.sha256(json.dumps(obj, sort_keys=True).encode()).hexdigest()[:16]
    metadata = {**obj["metadata"]}
    metadata["annotations"] = {**metadata.get("annotations", {}), naming.ANNOTATION_HASH: digest}
    return {**obj, "metadata": metadata}


def applied_hash(obj: Mapping[str, Any]) -> str:
    """The hash annotation of an object, or the empty string."""
    annotations = obj.get("metadata", {}).get("annotations") or {}
    value = annotations.get(naming.ANNOTATION_HASH, "")
    return value if isinstance(value, str) else ""


def default_cluster(namespace: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """The `KafkaLiteCluster` that is made for a topic without one."""
    return {
        "apiVersion": naming.API_VERSION,
        "kind": naming.CLUSTER_KIND,
        "metadata": {"name": name, "namespace": namespace, "labels": {naming.LABEL_NAME: "kafkalite"}},
        "spec": dict(spec),
    }

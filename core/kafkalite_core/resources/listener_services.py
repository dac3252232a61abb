"""The Services of listeners that clients outside the cluster use: one for every broker, and one to begin with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite_core.model.listener import LOADBALANCER, filled_in
from kafkalite_core.resources import naming
from kafkalite_core.resources.statefulset import port_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkalite_core.model.listener import Listener
    from kafkalite_core.resources.manifests import ClusterSettings

BOOTSTRAP = "bootstrap"
"""What stands for the broker in the placeholders of the bootstrap Service."""

_OF_LOAD_BALANCERS = ("loadBalancerSourceRanges", "loadBalancerClass")


def listener_services(settings: ClusterSettings, broker_ids: Iterable[int]) -> list[dict[str, Any]]:
    """The Services of all external listeners."""
    ids = list(broker_ids)
    return [
        service
        for listener in settings.listeners
        if listener.external
        for service in (_bootstrap(settings, listener), *(_of_broker(settings, listener, each) for each in ids))
    ]


def _of_broker(settings: ClusterSettings, listener: Listener, broker_id: int) -> dict[str, Any]:
    pod = naming.broker_name(settings.cluster.name, broker_id)
    service = _service(
        settings,
        listener,
        name=naming.listener_service_name(settings.cluster.name, listener.name, broker_id),
        selector={"statefulset.kubernetes.io/pod-name": pod},
        node_port=listener.configuration.of(broker_id).node_port,
        placeholders=(str(broker_id), pod),
        broker_id=broker_id,
    )
    # A load balancer that drops a broker which is not ready would cut off the clients of the partitions that it leads.
    service["spec"]["publishNotReadyAddresses"] = True
    return service


def _bootstrap(settings: ClusterSettings, listener: Listener) -> dict[str, Any]:
    return _service(
        settings,
        listener,
        name=naming.listener_service_name(settings.cluster.name, listener.name),
        selector=naming.broker_labels(settings.cluster.name),
        node_port=listener.configuration.bootstrap_node_port,
        placeholders=(BOOTSTRAP, BOOTSTRAP),
    )


def _service(
    settings: ClusterSettings,
    listener: Listener,
    *,
    name: str,
    selector: dict[str, str],
    node_port: int,
    placeholders: tuple[str, str],
    broker_id: int | None = None,
) -> dict[str, Any]:
    configuration = listener.configuration
    port_name = port_names(settings.listeners)[listener.name]
    port: dict[str, Any] = {"name": port_name, "port": listener.port, "targetPort": listener.port}
    if node_port:
        port["nodePort"] = node_port
    spec: dict[str, Any] = {
        "type": "LoadBalancer" if listener.type == LOADBALANCER else "NodePort",
        "selector": selector,
        "ports": [port],
        # Always said, so that a patch also takes back what was said before.
        "externalTrafficPolicy": configuration.external_traffic_policy,
    }
    if listener.type == LOADBALANCER:
        spec["loadBalancerSourceRanges"] = list(configuration.load_balancer_source_ranges)
        if configuration.load_balancer_class:
            spec["loadBalancerClass"] = configuration.load_balancer_class
    metadata = settings.metadata(name, broker_id)
    metadata["labels"] = {**metadata["labels"], naming.LABEL_LISTENER: listener.name}
    node_id, pod_name = placeholders
    annotations = {
        key: filled_in(value, node_id=node_id, pod_name=pod_name)
        for key, value in sorted(configuration.annotations.items())
    }
    if annotations:
        metadata["annotations"] = {**annotations, naming.ANNOTATION_APPLIED: ",".join(annotations)}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def with_removals(wanted: Mapping[str, Any], existing: Mapping[str, Any]) -> dict[str, Any]:
    """A merge patch that makes a Service what is wanted, and removes the annotations that were applied before. Where it
    is no load balancer any more, it removes what the API server takes of load balancers only.
    """
    annotations = wanted["metadata"].get("annotations") or {}
    applied = (existing["metadata"].get("annotations") or {}).get(naming.ANNOTATION_APPLIED, "")
    names = {naming.ANNOTATION_APPLIED, *applied.split(",")} if applied else set()
    removed = dict.fromkeys(sorted(names - annotations.keys()))
    patch = dict(wanted)
    if removed:
        patch["metadata"] = {**wanted["metadata"], "annotations": {**annotations, **removed}}
    if wanted.get("kind") == "Service" and wanted["spec"].get("type") != "LoadBalancer":
        left = [name for name in _OF_LOAD_BALANCERS if name in existing.get("spec", {})]
        patch["spec"] = {**wanted["spec"], **dict.fromkeys(left)}
    return patch

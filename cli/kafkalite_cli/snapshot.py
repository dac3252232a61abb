"""The cluster's state as the API server shows it, reduced to what people and scripts ask for."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from kafkalite_core.model.topic import DEFAULT_CLUSTER_NAME
from kafkalite_runtime.kube import BROKERS, CLUSTERS, PODS, TOPICS, KubeClient

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Objects of one namespace (or all), as read."""

    clusters: list[JsonObject] = field(default_factory=list)
    brokers: list[JsonObject] = field(default_factory=list)
    topics: list[JsonObject] = field(default_factory=list)
    pods: list[JsonObject] = field(default_factory=list)


async def read_snapshot(
    client: KubeClient, namespace: str | None, *, deadline_s: float = 3.0, pods: bool = True
) -> Snapshot:
    """Raises KubeError or KubeUnavailable."""
    kinds = (CLUSTERS, BROKERS, TOPICS, PODS) if pods else (CLUSTERS, BROKERS, TOPICS)
    lists = await asyncio.gather(*(client.list(kind, namespace, deadline_s=deadline_s) for kind in kinds))
    found = dict(zip(("clusters", "brokers", "topics", "pods"), (listed.items for listed in lists), strict=False))
    return Snapshot(**found)


def condition(obj: JsonObject, type_: str) -> JsonObject:
    """A condition of the object's status, empty when it is not there."""
    conditions: list[JsonObject] = (obj.get("status") or {}).get("conditions") or []
    return next((each for each in conditions if each.get("type") == type_), {})


def registration(broker: JsonObject) -> JsonObject:
    """The broker's registration, empty before the first."""
    return (broker.get("status") or {}).get("registration") or {}


def recovery(broker: JsonObject) -> JsonObject | None:
    """What a process of it that recovers its logs, and has not registered yet, says of that; None when none does."""
    told: JsonObject = (broker.get("status") or {}).get("recovery") or {}
    if not told or told.get("incarnation") == registration(broker).get("incarnation"):
        return None
    return {name: told.get(name) for name in ("startedAt", "remainingLogs", "remainingSegments")}


def place_of(obj: JsonObject) -> tuple[str, str]:
    """Namespace and name of the cluster of a topic or broker; who names none belongs to that of the default name."""
    cluster = (obj["spec"].get("clusterRef") or {}).get("name") or DEFAULT_CLUSTER_NAME
    return str(obj["metadata"].get("namespace") or "default"), str(cluster)


def broker_state(broker: JsonObject) -> str:
    """Kafka-style state: Recovering, Unregistered, Fenced, or what the broker itself reports."""
    registered = registration(broker)
    if recovery(broker) is not None:
        return "Recovering"
    if not registered:
        return "Unregistered"
    fencing = (broker.get("status") or {}).get("fencing") or {}
    if int(registered.get("brokerEpoch", -1)) <= int(fencing.get("fencedEpoch", -1)):
        return "Fenced"
    return str(registered.get("state") or "Unknown")


def describe_broker(broker: JsonObject, pid: int | None) -> JsonObject:
    """The broker's entry of `kafkalite status -o json`."""
    registered = registration(broker)
    namespace, cluster = place_of(broker)
    host, port = registered.get("host"), registered.get("port")
    return {
        "namespace": namespace,
        "cluster": cluster,
        "id": broker["spec"]["brokerId"],
        "pid": pid,
        "state": broker_state(broker),
        "address": f"{host}:{port}" if host and port else None,
        "brokerEpoch": registered.get("brokerEpoch"),
        "metrics": registered.get("metrics"),
        "recovery": recovery(broker),
    }


def topic_name(topic: JsonObject) -> str:
    """Kafka's name of the topic."""
    return str(topic["spec"].get("topicName") or topic["metadata"]["name"])


def describe_topic(topic: JsonObject) -> JsonObject:
    """The topic's entry of `kafkalite status -o json`."""
    partitions = (topic.get("status") or {}).get("partitions") or {}
    namespace, cluster = place_of(topic)
    return {
        "namespace": namespace,
        "cluster": cluster,
        "name": topic_name(topic),
        "partitions": [
            {
                "partition": int(number),
                "leader": entry["leader"],
                "leaderEpoch": entry["leaderEpoch"],
                "partitionEpoch": entry["partitionEpoch"],
                "replicas": list(entry["replicas"]),
                "isr": list(entry["isr"]),
            }
            for number, entry in sorted(partitions.items(), key=lambda item: int(item[0]))
        ],
    }


def describe_cluster(cluster: JsonObject | None) -> JsonObject:
    """Name, bootstrap, controller and counts of partitions of `kafkalite status -o json`."""
    status = (cluster or {}).get("status") or {}
    controller = status.get("controller") or {}
    return {
        "cluster": cluster["metadata"]["name"] if cluster else None,
        "bootstrap": status.get("bootstrap"),
        "controller": {"holder": controller.get("holder"), "epoch": controller.get("epoch")},
        "partitions": status.get("partitions"),
    }

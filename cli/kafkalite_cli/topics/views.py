"""What `topics list` and `topics describe` show. Pure: objects in, rows and documents out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite_cli.snapshot import condition, topic_name
from kafkalite_cli.topics.objects import cluster_of
from kafkalite_core.model.config import TOPIC_KEYS
from kafkalite_core.model.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

JsonObject = dict[str, Any]
Sizes = dict[tuple[str, int, int], int]  # topic, partition, broker -> bytes
PROBLEMS = ("under-replicated", "unavailable", "under-min-isr")


def is_internal(name: str) -> bool:
    """Whether the brokers made it for themselves."""
    return name.startswith("__")


def summary(topic: JsonObject) -> JsonObject:
    """The topic's entry of `topics list -o json`."""
    ready = condition(topic, "Ready")
    name = topic_name(topic)
    return {
        "name": name,
        "namespace": topic["metadata"].get("namespace"),
        "cluster": cluster_of(topic),
        "partitions": topic["spec"].get("partitions", 1),
        "replicas": topic["spec"].get("replicas", 3),
        "inSync": (topic.get("status") or {}).get("inSync"),
        "ready": ready.get("status") == "True",
        "reason": ready.get("reason"),
        "internal": is_internal(name),
    }


def list_rows(topics: list[JsonObject]) -> list[JsonObject]:
    """Rows for people: namespace and cluster only where they differ."""
    entries = [summary(topic) for topic in topics]
    hidden = {"internal"}
    hidden |= {key for key in ("namespace", "cluster") if len({entry[key] for entry in entries}) < 2}
    return [{key: value for key, value in entry.items() if key not in hidden} for entry in entries]


def description(topic: JsonObject, sizes: Sizes, cluster: JsonObject | None = None) -> JsonObject:
    """The topic's entry of `topics describe -o json`."""
    status, spec, name = topic.get("status") or {}, topic["spec"], topic_name(topic)
    partitions = [
        _partition(name, int(number), entry, sizes)
        for number, entry in sorted((status.get("partitions") or {}).items(), key=lambda item: int(item[0]))
    ]
    known = [size for entry in partitions if (size := entry["sizeBytes"]) is not None]
    return {
        "name": name,
        "namespace": topic["metadata"].get("namespace"),
        "object": topic["metadata"]["name"],
        "cluster": cluster_of(topic),
        "topicId": status.get("topicId"),
        "partitionCount": spec.get("partitions", 1),
        "replicas": spec.get("replicas", 3),
        "deletionPolicy": spec.get("deletionPolicy", "Delete"),
        "sizeBytes": sum(known) if known else None,
        "config": dict(sorted((spec.get("config") or {}).items())),
        "effectiveConfig": effective_config(
            spec.get("config") or {}, ((cluster or {}).get("spec") or {}).get("config")
        ),
        "conditions": [
            {key: each.get(key) for key in ("type", "status", "reason", "message", "lastTransitionTime")}
            for each in status.get("conditions") or []
        ],
        "partitions": partitions,
    }


def _partition(topic: str, number: int, entry: JsonObject, sizes: Sizes) -> JsonObject:
    leader = entry["leader"]
    return {
        "partition": number,
        "leader": leader if leader >= 0 else None,
        "leaderEpoch": entry["leaderEpoch"],
        "partitionEpoch": entry["partitionEpoch"],
        "replicas": list(entry["replicas"]),
        "isr": list(entry["isr"]),
        "elr": list(entry.get("elr") or ()),
        "adding": list(entry.get("adding") or []),
        "removing": list(entry.get("removing") or []),
        "minIsr": entry.get("minIsr"),
        "sizeBytes": sizes.get((topic, number, leader)),
    }


def effective_config(own: Mapping[str, str], cluster: Mapping[str, str] | None) -> JsonObject:
    """Every topic key: the value in force, and who said so (topic, cluster or default)."""
    result: JsonObject = {}
    for name, key in sorted(TOPIC_KEYS.items()):
        for source, value in (("topic", own.get(name)), ("cluster", (cluster or {}).get(key.synonym))):
            if value is not None and _is_allowed(name, value):
                result[name] = {"value": value, "source": source}
                break
        else:
            result[name] = {"value": key.default, "source": "default"}
    return result


def _is_allowed(name: str, value: str) -> bool:
    try:
        TOPIC_KEYS[name].parse(name, value)
    except ConfigError:
        return False
    return True


PROBLEMS = ("under-replicated", "unavailable", "under-min-isr")


def has_problem(partition: JsonObject, problem: str) -> bool:
    """Kafka's filters of `kafka-topics --describe`: `problem` is one of PROBLEMS."""
    isr = len(partition["isr"])
    if problem == "unavailable":
        return partition["leader"] is None
    if problem == "under-min-isr":
        return isr < (partition["minIsr"] or 1)
    return isr < len(partition["replicas"]) - len(partition["adding"])

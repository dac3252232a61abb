"""`KafkaLiteTopic` objects as brokers make them for Kafka's clients, and the changes that clients ask of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite_core.model.topic import DEFAULT_CLUSTER_NAME
from kafkalite_core.resources import naming

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from kafkalite_core.model.topic import TopicSpec


def topic_object(spec: TopicSpec, *, namespace: str, object_name: str, creation_id: str) -> dict[str, Any]:
    """The object of a new topic: as a person would write it, with nothing in it that is a default anyway.

    `creation_id` tells a broker whose answer was lost that an object which is there is its own.
    """
    wanted: dict[str, Any] = {"partitions": spec.partitions, "replicas": spec.replicas}
    if spec.cluster != DEFAULT_CLUSTER_NAME:
        wanted["clusterRef"] = {"name": spec.cluster}
    if spec.topic_name != object_name:
        wanted["topicName"] = spec.topic_name
    if spec.config:
        wanted["config"] = dict(sorted(spec.config.items()))
    if spec.replica_assignment:
        wanted["replicaAssignment"] = assignment_json(spec.replica_assignment)
    return {
        "apiVersion": naming.API_VERSION,
        "kind": naming.TOPIC_KIND,
        "metadata": {
            "name": object_name,
            "namespace": namespace,
            "annotations": {naming.ANNOTATION_CREATION_ID: creation_id},
        },
        "spec": wanted,
    }


def assignment_json(assignment: Mapping[int, Sequence[int]]) -> dict[str, list[int]]:
    """`spec.replicaAssignment`."""
    return {str(number): list(replicas) for number, replicas in sorted(assignment.items())}


def creation_id_of(obj: Mapping[str, Any]) -> str:
    """The id that the making broker gave, or the empty string."""
    annotations = (obj.get("metadata") or {}).get("annotations") or {}
    value = annotations.get(naming.ANNOTATION_CREATION_ID, "")
    return value if isinstance(value, str) else ""


def growth(obj: Mapping[str, Any], partitions: int, assignment: Mapping[int, Sequence[int]]) -> list[dict[str, Any]]:
    """More partitions, decided on `obj` as read: it lands only while the wish of the user is still that one."""
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    operations: list[dict[str, Any]] = [
        {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
        {"op": "test", "path": "/metadata/generation", "value": metadata["generation"]},
        {"op": "add", "path": "/spec/partitions", "value": partitions},
    ]
    if assignment:
        merged = {**(spec.get("replicaAssignment") or {}), **assignment_json(assignment)}
        operations.append({"op": "add", "path": "/spec/replicaAssignment", "value": merged})
    return operations


def reassignment(
    obj: Mapping[str, Any], targets: Mapping[int, Sequence[int]], *, tested: Mapping[int, int] | None = None
) -> list[dict[str, Any]]:
    """Other replicas for partitions of a topic, decided on `obj` as read; empty when its spec says so already.

    `spec.replicas` follows when every partition is named and all have the same number of replicas. `tested` are
    partition epochs that must not have changed.
    """
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    before = dict(spec.get("replicaAssignment") or {})
    after = {**before, **assignment_json(targets)}
    if after == before:
        return []
    operations: list[dict[str, Any]] = [
        {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
        {"op": "test", "path": "/metadata/generation", "value": metadata["generation"]},
    ]
    for number, epoch in sorted((tested or {}).items()):
        operations.append({"op": "test", "path": f"/status/partitions/{number}/partitionEpoch", "value": epoch})
    operations.append({"op": "add", "path": "/spec/replicaAssignment", "value": after})
    factors = {len(after[str(n)]) if str(n) in after else 0 for n in range(spec.get("partitions", 1))}
    min_isr = (spec.get("config") or {}).get("min.insync.replicas", "1")
    if len(factors) == 1 and 0 not in factors and factors != {spec.get("replicas")}:
        factor = factors.pop()
        if min_isr.isascii() and min_isr.isdigit() and len(min_isr) <= 9 and int(min_isr) <= factor:
            operations.append({"op": "add", "path": "/spec/replicas", "value": factor})
    return operations


def config_change(found: Mapping[str, Any], changes: Mapping[str, str | None]) -> dict[str, Any]:
    """Set or remove (None) keys of `spec.config` of that very object, as a merge patch; other keys stay.

    A conflict when the object has changed since it was found: a list to which a word was added is written as a whole.
    """
    metadata = found["metadata"]
    return {
        "metadata": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]},
        "spec": {"config": dict(changes)},
    }


ALL_PARTITIONS = "all"


def election_annotation(*, unclean: bool) -> str:
    """The annotation that asks for elections of that kind."""
    return naming.ANNOTATION_ELECT_UNCLEAN if unclean else naming.ANNOTATION_ELECT_PREFERRED


def parse_election(text: str, partitions: Collection[int]) -> frozenset[int]:
    """The partitions that an election annotation names; words that are no partition of the topic are passed over."""
    words = {word.strip() for word in text.split(",")}
    if ALL_PARTITIONS in words:
        return frozenset(partitions)
    numbers = {int(word) for word in words if word.isascii() and word.isdigit() and len(word) <= 9}
    return frozenset(numbers & set(partitions))


def election_request(obj: Mapping[str, Any], wanted: Collection[int] | None, *, unclean: bool) -> dict[str, Any]:
    """Ask for elections besides what is asked for already (None: of all partitions), decided on `obj` as read."""
    metadata = obj["metadata"]
    name = election_annotation(unclean=unclean)
    before = (metadata.get("annotations") or {}).get(name, "")
    words = {word.strip() for word in before.split(",")} - {""}
    if wanted is None or ALL_PARTITIONS in words:
        value = ALL_PARTITIONS
    else:
        numbers = {int(word) for word in words if word.isascii() and word.isdigit() and len(word) <= 9} | set(wanted)
        value = ",".join(str(number) for number in sorted(numbers))
    return {
        "metadata": {
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "annotations": {name: value},
        }
    }


def election_done(uid: str, requests: Mapping[str, str]) -> list[dict[str, Any]]:
    """Remove election annotations, each only while it still says what was carried out. A JSON Patch of the object."""
    operations: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/uid", "value": uid}]
    for name, text in sorted(requests.items()):
        path = naming.annotation_path(name)
        operations += [{"op": "test", "path": path, "value": text}, {"op": "remove", "path": path}]
    return operations

"""Topics that are not as their spec says: what the operator says of them, and what it has not seen yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite_cli.doctor.model import NOTE, Finding, count, label, listed
from kafkalite_cli.doctor.operators import acts
from kafkalite_cli.snapshot import condition
from kafkalite_core.model.config import check_topic_config
from kafkalite_core.model.topic import FLUSH_CONDITION
from kafkalite_core.resources.topics import parse_topic_spec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalite_cli.doctor.model import Evidence
    from kafkalite_cli.pasting import Commands

JsonObject = dict[str, Any]
TOLD_ELSEWHERE = frozenset(
    {"OfflinePartitions", "UnderReplicated", "UncleanElection", "InvalidConfig", "ResourceConflict"}
)
"""Reasons that are looked into in other places, and told with more detail there."""

REMEDIES = {
    "Placing": "wait a moment",
    "WaitingForCluster": "wait a moment",
    "DefaultClusterRefused": "correct defaultCluster.spec of the chart, or create the KafkaLiteCluster yourself",
    "WaitingForBrokers": "look at what is said about the brokers",
    "NotEnoughBrokers": "lower spec.replicas, or raise that of the cluster",
    "TooManyPartitions": "lower spec.partitions",
    "InvalidName": "make the topic anew with another spec.topicName",
    "InvalidReplicaAssignment": "correct spec.replicaAssignment",
    "TooManyReplicas": "move the replicas in steps, as the message says",
    "NotSupported": "undo the change of the spec",
    "NothingToAdopt": 'set kafkalite.io/adopt-strays to a topic id that is named, or to "false" to start empty',
    "InSyncLost": 'put a disk of those who were in sync back, if there is one; then kafkalite.io/recover-store: "true"',
    "StoreWentBack": 'start the brokers that are named; or go on without them: kafkalite.io/recover-store: "true"',
    "ReconciliationPaused": "remove the annotation kafkalite.io/paused",
}


def check(evidence: Evidence) -> Iterator[Finding]:
    """Everything about topics as a whole."""
    yield from _conflicts(evidence)
    yield from _config(evidence)
    yield from _conditions(evidence)
    yield from _waiting(evidence)
    yield from _unseen(evidence)
    yield from _relaxed(evidence)


def _conflicts(evidence: Evidence) -> Iterator[Finding]:
    claims: dict[str, list[JsonObject]] = {}
    for topic in evidence.topics:
        claims.setdefault(label(topic), []).append(topic)
    for name, objects in sorted(claims.items()):
        if len(objects) < 2:
            continue
        first, *others = sorted(objects, key=_precedence)
        names = [str(each["metadata"]["name"]) for each in others]
        yield Finding(
            code="ResourceConflict",
            about=f"topic/{names[0]}",
            what=f"{len(objects)} objects claim the topic name {name}: {first['metadata']['name']} has it, "
            f"{listed(names)} {'does' if len(names) == 1 else 'do'} not",
            why="the one with data has it, else the oldest",
            todo="make it again with another spec.topicName, or delete what is too much: "
            + evidence.kubectl(f"delete klt {names[0]}"),
            items=tuple(names),
        )


def _precedence(topic: JsonObject) -> tuple[bool, str, str]:
    placed = bool((topic.get("status") or {}).get("topicId"))
    metadata = topic["metadata"]
    return not placed, str(metadata.get("creationTimestamp", "")), str(metadata.get("uid", ""))


def _config(evidence: Evidence) -> Iterator[Finding]:
    same: dict[str, list[str]] = {}
    for topic in evidence.topics:
        spec = parse_topic_spec(topic)
        for problem in check_topic_config(spec.config, replicas=spec.replicas):
            same.setdefault(problem, []).append(str(topic["metadata"]["name"]))
    for problem, names in sorted(same.items()):
        yield Finding(
            code="InvalidConfig",
            about=f"topic/{names[0]}",
            what=f"a key of {count(len(names), 'topic')} is not in force: {problem} ({listed(names)})",
            why="Kafka has no such key, or not with this value",
            todo=f"correct spec.config: {evidence.kubectl(f'edit klt {names[0]}')}",
            items=tuple(names),
        )


def _conditions(evidence: Evidence) -> Iterator[Finding]:
    same: dict[tuple[str, str], list[str]] = {}
    for topic in evidence.topics:
        name, told = str(topic["metadata"]["name"]), set()
        for type_ in ("Ready", "Healthy", "Progressing"):
            found = condition(topic, type_)
            reason = str(found.get("reason", ""))
            wrong = found.get("status") == "False" if type_ != "Progressing" else reason in _BY_HAND
            if wrong and reason not in TOLD_ELSEWHERE and reason not in told:
                told.add(reason)
                same.setdefault((reason, str(found.get("message") or "")), []).append(name)
    for (reason, message), names in sorted(same.items()):
        yield Finding(
            code=reason,
            about=f"topic/{names[0]}",
            what=f"{count(len(names), 'topic')} not as wanted, {reason}: {listed(names)}",
            why=message,
            todo=REMEDIES.get(reason, evidence.kubectl(f"describe klt {names[0]}")),
            items=tuple(names),
        )


_BY_HAND = frozenset({"NotSupported", "InvalidReplicaAssignment", "NotEnoughBrokers", "TooManyReplicas", "InSyncLost"})
"""Reasons of Progressing that last until somebody does something."""


def _waiting(evidence: Evidence) -> Iterator[Finding]:
    """Topics that serve, without partitions that are wanted: these may have records, and the wait has no limit."""
    same: dict[str, list[str]] = {}
    for topic in evidence.topics:
        found = condition(topic, "Progressing")
        serves = condition(topic, "Ready").get("status") == "True"
        if serves and found.get("status") == "True" and found.get("reason") == "WaitingForBrokers":
            same.setdefault(str(found.get("message") or ""), []).append(str(topic["metadata"]["name"]))
    for message, names in sorted(same.items()):
        yield Finding(
            code="WaitingForBrokers",
            about=f"topic/{names[0]}",
            what=f"partitions of {count(len(names), 'topic')} are not made, and wait for brokers: {listed(names)}",
            why=message,
            todo=f"wait a moment; if this stays, {REMEDIES['WaitingForBrokers']}",
            items=tuple(names),
            severity=NOTE,
        )


def _unseen(evidence: Evidence) -> Iterator[Finding]:
    if not acts(evidence):
        return
    names = [
        str(topic["metadata"]["name"])
        for topic in evidence.topics
        if int((topic.get("status") or {}).get("observedGeneration", 0)) < int(topic["metadata"].get("generation", 0))
        and "deletionTimestamp" not in topic["metadata"]
    ]
    if names:
        yield Finding(
            code="NotSeen",
            about=f"topic/{names[0]}",
            what=f"the operator has not taken up the last change of {count(len(names), 'topic')}: {listed(names)}",
            why="it is busy, does not watch this namespace, or may not write kafkalitetopics/status",
            todo="wait a moment; if this stays, its log says why",
            items=tuple(names),
        )


def _relaxed(evidence: Evidence) -> Iterator[Finding]:
    names = [
        str(topic["metadata"]["name"])
        for topic in evidence.topics
        if condition(topic, FLUSH_CONDITION).get("status") == "False"
    ]
    if names:
        yield Finding(
            code="RelaxedFlush",
            about=f"topic/{names[0]}",
            what=f"{count(len(names), 'topic')} may lose acknowledged records when brokers lose power at once: "
            f"{listed(names)}",
            why="flush.messages is above 1, or was until just now",
            todo="remove flush.messages from spec.config, unless that was meant",
            items=tuple(names),
            severity=NOTE,
        )


def orphans(
    topics: list[JsonObject], clusters: set[tuple[str, str]], brokers: list[JsonObject], say: Commands
) -> Iterator[Finding]:
    """Topics and brokers of clusters that do not exist. They belong to nobody, so no cluster's check tells of them."""
    from kafkalite_cli.topics.objects import cluster_of

    lost: dict[tuple[str, str], list[str]] = {}
    for topic in topics:
        place = (str(topic["metadata"]["namespace"]), cluster_of(topic))
        if place not in clusters:
            lost.setdefault(place, []).append(str(topic["metadata"]["name"]))
    for (namespace, cluster), names in sorted(lost.items()):
        yield Finding(
            code="ClusterNotFound",
            about=f"topic/{names[0]}",
            what=f"{count(len(names), 'topic')} of a KafkaLiteCluster {cluster!r} that is not in namespace "
            f"{namespace}: {listed(names)}",
            why="spec.clusterRef names it (kafkalite, when nothing is named), and no operator makes it by itself",
            todo="make the cluster, or make the topic anew with another spec.clusterRef, which is immutable",
            items=tuple(names),
        )
    for broker in brokers:
        place = (str(broker["metadata"]["namespace"]), str((broker["spec"].get("clusterRef") or {}).get("name")))
        if place not in clusters:
            name = str(broker["metadata"]["name"])
            yield Finding(
                code="ForeignObject",
                about=f"broker/{name}",
                what=f"KafkaLiteBroker {name} is of cluster {place[1]}, which is not in namespace {place[0]}",
                why="the cluster was deleted, and nothing removed its brokers",
                todo=f"delete it when its data are not needed: {say.kubectl(place[0], f'delete klb {name}')}",
            )

"""Reading everything that the doctor looks at; what may not be read is said, and left out."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from kafkalite_cli.brokers import operator_lease
from kafkalite_cli.doctor.model import NOTE, Evidence, Finding
from kafkalite_cli.errors import Failure
from kafkalite_cli.manifests import plain_words
from kafkalite_cli.snapshot import topic_name
from kafkalite_cli.topics.objects import cluster_of
from kafkalite_core.model.errors import KafkaLiteError
from kafkalite_core.resources.brokers import parse_broker
from kafkalite_core.resources.naming import LABEL_COMPONENT
from kafkalite_core.resources.topics import parse_topic, parse_topic_spec
from kafkalite_runtime.kube import (
    BROKERS,
    CLUSTERS,
    EVENTS,
    LEASES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    STATEFUL_SETS,
    TOPICS,
    Kind,
    KubeForbidden,
    KubeNotFound,
)

if TYPE_CHECKING:
    from kafkalite_cli.pasting import Commands
    from kafkalite_core.model.cluster import Broker
    from kafkalite_core.model.partition import Topic
    from kafkalite_runtime.kube import KubeClient

JsonObject = dict[str, Any]
DEADLINE_S = 20.0
DEFINITIONS = Kind(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
WITHOUT = {
    PODS: "why a broker does not start",
    STATEFUL_SETS: "whether the StatefulSet is there",
    PERSISTENT_VOLUME_CLAIMS: "whether volumes wait for something",
    EVENTS: "what the cluster has warned of",
    DEFINITIONS: "whether the definitions are those of this version",
}


class CannotAsk(Failure):
    """Nothing can be said about the cluster; exit code 2."""

    exit_code = 2


class Reader:
    """Lists kinds; remembers what is missing."""

    def __init__(self, client: KubeClient, namespace: str | None) -> None:
        self._client = client
        self._namespace = namespace
        self.notes: list[Finding] = []

    async def needed(self, kind: Kind) -> list[JsonObject] | None:
        """All objects; None when the API server does not know the kind. Raises CannotAsk without the right."""
        try:
            return (await self._client.list(kind, self._namespace, deadline_s=DEADLINE_S)).items
        except KubeForbidden as error:
            raise CannotAsk(f"{plain_words(error)}. What is needed: {_right(kind, self._namespace)}") from error
        except KubeNotFound:
            return None

    async def wanted(self, kind: Kind) -> list[JsonObject] | None:
        """All objects, or None and a note."""
        namespace = self._namespace if kind.namespaced else None
        try:
            return (await self._client.list(kind, namespace, deadline_s=DEADLINE_S)).items
        except (KubeForbidden, KubeNotFound) as error:
            self._missing(kind.plural, _right(kind, namespace), WITHOUT[kind], error)
            return None

    async def leases(self, cluster: JsonObject) -> operator_lease.Leases | None:
        """Leases, or None and a note."""
        try:
            return await operator_lease.read_leases(self._client, cluster)
        except (KubeForbidden, KubeNotFound) as error:
            self._missing_leases(cluster["metadata"]["namespace"], error)
            return None

    async def silent(self, leases: operator_lease.Leases | None, mine: set[str], now: float) -> set[str]:
        """Of the operator and brokers `mine`, as `operator_lease.silent`; a note when they may not be read again."""
        if leases is None:
            return set()
        records = [*leases.operators, *(each for name, each in leases.brokers.items() if name in mine)]
        try:
            return await operator_lease.silent(self._client, records, now)
        except (KubeForbidden, KubeNotFound) as error:
            self._missing_leases(records[0].namespace, error)
            return set()

    def _missing_leases(self, namespace: str, error: KubeForbidden | KubeNotFound) -> None:
        self._missing("leases", _right(LEASES, namespace), "whether operator and brokers give signs of life", error)

    def _missing(self, plural: str, right: str, what: str, error: KubeForbidden | KubeNotFound) -> None:
        self.notes.append(
            Finding(
                code="RightMissing",
                about=plural,
                what=f"it was not looked at {what}: {plural} may not be read",
                why=plain_words(error),
                todo=f"ask for {right}, to be told that as well",
                severity=NOTE,
            )
        )


def _right(kind: Kind, namespace: str | None) -> str:
    group = f".{kind.group}" if kind.group else ""
    place = f"in namespace {namespace}" if namespace and kind.namespaced else "in the whole cluster"
    return f"the verb list on {kind.plural}{group} {place}"


async def read_main(reader: Reader) -> dict[Kind, list[JsonObject] | None]:
    """Clusters, brokers and topics."""
    kinds = (CLUSTERS, BROKERS, TOPICS)
    return dict(zip(kinds, await asyncio.gather(*map(reader.needed, kinds)), strict=True))


async def read_evidence(
    reader: Reader,
    cluster: JsonObject,
    found: dict[Kind, list[JsonObject] | None],
    say: Commands,
) -> Evidence:
    """Everything about one cluster. Raises errors of the client."""
    namespace, name = str(cluster["metadata"]["namespace"]), str(cluster["metadata"]["name"])
    kinds = (PODS, STATEFUL_SETS, PERSISTENT_VOLUME_CLAIMS, EVENTS)
    leases = await reader.leases(cluster)
    lists = await asyncio.gather(*map(reader.wanted, kinds))
    pods, sets, claims, events = (_in(items, namespace) for items in lists)
    broken: dict[str, str] = {}
    objects, brokers = _brokers(found[BROKERS] or [], namespace, name, broken)
    if leases is not None and any(each.alive and each.object_name not in leases.brokers for each in brokers.values()):
        # Who registered a moment ago takes its Lease next.
        await asyncio.sleep(operator_lease.SECOND_LOOK_S)
        leases = await reader.leases(cluster)
    now = time.time()
    silent = await reader.silent(leases, {each.object_name for each in brokers.values()}, now)
    topics = [each for each in found[TOPICS] or [] if each["metadata"]["namespace"] == namespace]
    mine = sorted((each for each in topics if cluster_of(each) == name), key=topic_name)
    parsed = _topics(mine, broken)
    return Evidence(
        namespace=namespace,
        cluster=cluster,
        brokers=brokers,
        broker_objects=objects,
        topics=[each for each in mine if each["metadata"]["name"] in parsed],
        parsed=parsed,
        leases=leases,
        silent=frozenset(silent),
        pods=None if pods is None else {each["metadata"]["name"]: each for each in pods},
        stateful_sets=None if sets is None else {each["metadata"]["name"]: each for each in sets},
        claims=None if claims is None else {each["metadata"]["name"]: each for each in claims},
        warnings=None if events is None else _warnings(events),
        broken=broken,
        now=now,
        say=say,
    )


def _in(items: list[JsonObject] | None, namespace: str) -> list[JsonObject] | None:
    return None if items is None else [each for each in items if each["metadata"].get("namespace") == namespace]


def _brokers(
    items: list[JsonObject], namespace: str, cluster: str, broken: dict[str, str]
) -> tuple[dict[int, JsonObject], dict[int, Broker]]:
    objects: dict[int, JsonObject] = {}
    brokers: dict[int, Broker] = {}
    for each in items:
        mine = (each["spec"].get("clusterRef") or {}).get("name") == cluster
        if not mine or each["metadata"]["namespace"] != namespace:
            continue
        try:
            broker = parse_broker(each)
        except KafkaLiteError as error:
            broken[f"broker/{each['metadata']['name']}"] = str(error)
            continue
        objects[broker.id], brokers[broker.id] = each, broker
    return objects, brokers


def _topics(items: list[JsonObject], broken: dict[str, str]) -> dict[str, Topic]:
    parsed: dict[str, Topic] = {}
    for each in items:
        name = each["metadata"]["name"]
        try:
            parse_topic_spec(each)
            parsed[name] = parse_topic(each)
        except KafkaLiteError as error:
            broken[f"topic/{name}"] = str(error)
    return parsed


def _warnings(events: list[JsonObject]) -> dict[tuple[str, str], JsonObject]:
    """The newest Warning by kind and name of what it is about."""
    newest: dict[tuple[str, str], JsonObject] = {}
    for event in sorted(events, key=_event_time):
        about = event.get("involvedObject") or {}
        if event.get("type") == "Warning":
            newest[str(about.get("kind")), str(about.get("name"))] = event
    return newest


def _event_time(event: JsonObject) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp") or "")


def operator_pods(evidence: Evidence) -> list[JsonObject]:
    """Pods of the operator in this namespace."""
    return [
        pod
        for pod in (evidence.pods or {}).values()
        if (pod["metadata"].get("labels") or {}).get(LABEL_COMPONENT) == "operator"
    ]

"""Finding, making, changing and deleting the custom resources of topics."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafkalite_cli.errors import Failure
from kafkalite_cli.manifests import plain_words
from kafkalite_cli.outage import through_outage
from kafkalite_cli.pasting import Commands
from kafkalite_cli.snapshot import condition, topic_name
from kafkalite_core.model.config import TOPIC_KEYS, broker_integer, check_topic_config
from kafkalite_core.model.errors import ConfigError
from kafkalite_core.model.topic import DEFAULT_CLUSTER_NAME, OFFSETS_TOPIC
from kafkalite_core.resources.naming import is_topic_name, topic_object_name, topic_object_names
from kafkalite_runtime.kube import (
    BROKERS,
    CLUSTERS,
    TOPICS,
    KubeClient,
    KubeConflict,
    KubeError,
    KubeForbidden,
    KubeNotFound,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

JsonObject = dict[str, Any]
JsonObjects = list[JsonObject]
POLL_S = 0.2
REPLICAS = 3
MIN_ISR = "min.insync.replicas"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """What `topics create` asks for; None: the cluster's default."""

    name: str
    partitions: int | None = None
    replicas: int | None = None
    config: dict[str, str] = field(default_factory=dict)
    assignment: dict[int, list[int]] = field(default_factory=dict)
    deletion_policy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What `topics alter` asks for; a config value of None removes the key."""

    partitions: int | None = None
    replicas: int | None = None
    config: dict[str, str | None] = field(default_factory=dict)


class Topics:
    """The topics of one API server.

    Args:
        namespace: None: all for reading, the kubeconfig's for making.
        cluster: only topics of this KafkaLiteCluster; new ones are given to it.
        say: commands that reach it.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        namespace: str | None = None,
        cluster: str | None = None,
        say: Commands | None = None,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._cluster = cluster
        self._say = say or Commands()

    async def list(self) -> JsonObjects:
        """All, sorted by name."""
        listed = await self._client.list(TOPICS, self._namespace)
        mine = (each for each in listed.items if self._cluster in {None, cluster_of(each)})
        return sorted(mine, key=lambda topic: (topic_name(topic), _namespace_of(topic)))

    async def find(self, name: str) -> JsonObject:
        """By Kafka's name. Raises Failure when there is none, or several."""
        return (await self.find_all([name]))[0]

    async def find_all(self, names: Iterable[str]) -> JsonObjects:
        """As `find`, of each name, with one read."""
        wanted = list(names)
        found = await self.find_existing(wanted)
        return [found[name] if name in found else _only(name, []) for name in wanted]

    async def find_existing(self, names: Iterable[str]) -> dict[str, JsonObject]:
        """As `find`, of each name that there is, with one read. Raises Failure when there are several of one."""
        by_name: dict[str, JsonObjects] = {}
        for each in await self.list():
            by_name.setdefault(topic_name(each), []).append(each)
        return {name: _only(name, by_name[name]) for name in names if name in by_name}

    async def brokers(self) -> JsonObjects:
        """The KafkaLiteBrokers."""
        return (await self._client.list(BROKERS, self._namespace)).items

    async def clusters(self) -> dict[tuple[str, str], JsonObject]:
        """The KafkaLiteClusters by namespace and name."""
        items = (await self._client.list(CLUSTERS, self._namespace)).items
        return {(_namespace_of(each), str(each["metadata"]["name"])): each for each in items}

    async def create(self, wanted: NewTopic) -> JsonObject:
        """The object as made. Raises Failure for what Kafka would refuse: nothing is made then."""
        namespace = self._namespace or self._client.config.namespace
        cluster = (await self.clusters()).get((namespace, self._cluster or DEFAULT_CLUSTER_NAME))
        if cluster is None and self._cluster:
            raise Failure(f"there is no KafkaLiteCluster {self._cluster!r} in namespace {namespace}")
        body = new_object(wanted, cluster, namespace=namespace, cluster_name=self._cluster)
        try:
            return await self._create(namespace, body)
        except KubeError as error:
            raise Failure(f"topic {wanted.name!r}: {plain_words(error)}") from error

    async def _create(self, namespace: str, body: JsonObject) -> JsonObject:
        """Under the first of its names that no other topic's object has. Raises AlreadyExists and errors of the client.

        Whether there is such a topic is a matter of Kafka's name and the cluster: `metadata.name` is free, and another
        cluster of the namespace may have a topic of that name.
        """
        name, cluster = topic_name(body), cluster_of(body)
        try:
            known = (await self._client.list(TOPICS, namespace)).items
        except KubeForbidden:  # whoever may make topics need not see them all
            known = []
        _check_new(name, cluster, known)
        taken = {each["metadata"]["name"] for each in known}
        for object_name in topic_object_names(name, cluster):
            if object_name in taken:
                continue
            try:
                return await self._client.create(TOPICS, namespace, named(body, object_name), strict=True)
            except KubeConflict:
                with contextlib.suppress(KubeNotFound):  # it was deleted again
                    _check_new(name, cluster, [await self._client.get(TOPICS, namespace, object_name)])
        names = ", ".join(topic_object_names(name, cluster))
        apply = dataclasses.replace(self._say, everywhere=False, cluster=None).kafkalite("apply -f FILE")
        belongs = f" and spec.clusterRef.name {cluster}" if cluster != DEFAULT_CLUSTER_NAME else ""
        raise Failure(
            f"topic {name!r}: other topics have every name that its object could have ({names}): make it with "
            f"`{apply}` and a metadata.name of yours{belongs}"
        )

    async def alter(self, topic: JsonObject, change: Change) -> JsonObject:
        """The object as changed. Raises Failure."""
        name = topic_name(topic)
        patch = patch_of(topic, change)
        if "replicas" in patch:
            cluster = (await self.clusters()).get((_namespace_of(topic), cluster_of(topic)))
            check_brokers(name, patch["replicas"], _brokers_of(cluster))
        if not patch:
            return topic
        try:
            return await self._client.merge_patch(
                TOPICS, _namespace_of(topic), topic["metadata"]["name"], {"spec": patch}, strict=True
            )
        except KubeNotFound as error:
            raise Failure(f"topic {name!r} was deleted just now") from error
        except KubeError as error:
            raise Failure(f"topic {name!r}: {plain_words(error)}") from error

    async def delete(self, topic: JsonObject) -> None:
        """That very object, and no other that has its name meanwhile."""
        metadata = topic["metadata"]
        try:
            await through_outage(
                lambda: self._client.delete(TOPICS, _namespace_of(topic), metadata["name"], uid=metadata.get("uid"))
            )
        except KubeNotFound:
            return
        except KubeConflict as error:
            raise Failure(f"topic {topic_name(topic)!r} was deleted and made again just now") from error

    async def wait(
        self,
        topic: JsonObject,
        waits_for: Callable[[JsonObject], str],
        *,
        timeout_s: float,
        tell: Callable[[str], None] = lambda _reason: None,
    ) -> JsonObject:
        """Look at the topic until `waits_for` says nothing (""). Raises Failure at the end of the time."""
        metadata = topic["metadata"]
        limit = time.monotonic() + timeout_s
        while True:
            try:
                current = await through_outage(
                    lambda: self._client.get(TOPICS, _namespace_of(topic), metadata["name"]), tell, until=limit
                )
            except KubeNotFound as error:
                raise Failure(f"topic {topic_name(topic)!r} was deleted meanwhile") from error
            reason = waits_for(current)
            if not reason:
                return current
            tell(reason)
            if time.monotonic() > limit:
                raise Failure(f"topic {topic_name(topic)!r}: not ready within {timeout_s:g} s: {reason}")
            await asyncio.sleep(POLL_S)

    async def wait_gone(self, topic: JsonObject, *, timeout_s: float) -> None:
        """Wait until the object is gone: a finalizer may hold it. Raises Failure."""
        metadata = topic["metadata"]
        limit = time.monotonic() + timeout_s
        while True:
            try:
                current = await through_outage(
                    lambda: self._client.get(TOPICS, _namespace_of(topic), metadata["name"]), until=limit
                )
            except KubeNotFound:
                return
            if current["metadata"].get("uid") != metadata.get("uid"):
                return
            if time.monotonic() > limit:
                held = ", ".join(current["metadata"].get("finalizers") or []) or "the API server"
                raise Failure(f"topic {topic_name(topic)!r} is not gone after {timeout_s:g} s, {held} holds it")
            await asyncio.sleep(POLL_S)


def _only(name: str, found: JsonObjects) -> JsonObject:
    if not found:
        raise Failure(f"topic {name!r} does not exist")
    if len(found) > 1:
        places = ", ".join(f"{_namespace_of(each)}/{each['metadata']['name']}" for each in found)
        raise Failure(f"there are several topics {name!r} ({places}): choose with --namespace or --cluster")
    return found[0]


class AlreadyExists(Failure):
    """There is a topic of this name."""


def _check_new(name: str, cluster: str, known: Iterable[JsonObject]) -> None:
    for each in known:
        if (topic_name(each), cluster_of(each)) != (name, cluster):
            continue
        if "deletionTimestamp" in each["metadata"]:  # not the one that was asked for, even with --if-not-exists
            raise Failure(f"topic {name!r} is being deleted: try again when it is gone")
        called = each["metadata"]["name"]
        where = "" if called in topic_object_names(name, cluster) else f" (its object is {called})"
        raise AlreadyExists(f"topic {name!r} already exists{where}")


def named(body: JsonObject, object_name: str) -> JsonObject:
    """The object of a topic under another `metadata.name`."""
    spec = {key: value for key, value in body["spec"].items() if key != "topicName"}
    name = topic_name(body)
    whole = spec if object_name == name else spec | {"topicName": name}
    return body | {"metadata": body["metadata"] | {"name": object_name}, "spec": whole}


def new_object(wanted: NewTopic, cluster: JsonObject | None, *, namespace: str, cluster_name: str | None) -> JsonObject:
    """The KafkaLiteTopic. Raises Failure for what the operator would only complain about in a condition."""
    name = wanted.name
    if not is_topic_name(name):
        raise Failure(
            f"{name!r} is not a topic name: letters, digits, '.', '_' and '-', at most 249 of them, and not '.' or '..'"
        )
    partitions, replicas = wanted.partitions, wanted.replicas
    if wanted.assignment:
        if partitions is not None or replicas is not None:
            raise Failure("--assignment says how many partitions and replicas there are: leave the other options out")
        partitions, replicas = _counts_of(wanted.assignment)
    config = {str(key): str(value) for key, value in (((cluster or {}).get("spec") or {}).get("config") or {}).items()}
    brokers = _brokers_of(cluster)
    partitions = partitions or _default(config, "num.partitions")
    replicas = replicas or min(_default(config, "default.replication.factor"), brokers or REPLICAS)
    check_brokers(name, replicas, brokers)
    named = {broker for ids in wanted.assignment.values() for broker in ids}
    if brokers is not None and (strange := sorted(named - set(range(brokers)))):
        raise Failure(
            f"topic {name!r}: --assignment names {', '.join(map(str, strange))}, and the brokers of the cluster are "
            f"{', '.join(map(str, range(brokers)))}"
        )
    if problems := check_topic_config(wanted.config, replicas=replicas):
        raise Failure(f"topic {name!r}: {'; '.join(problems)}")
    object_name = topic_object_name(name)
    spec: JsonObject = {"partitions": partitions, "replicas": replicas}
    if object_name != name:
        spec["topicName"] = name
    if cluster_name and cluster_name != DEFAULT_CLUSTER_NAME:
        spec["clusterRef"] = {"name": cluster_name}
    if wanted.config:
        spec["config"] = dict(wanted.config)
    if wanted.assignment:
        spec["replicaAssignment"] = {str(number): ids for number, ids in sorted(wanted.assignment.items())}
    if wanted.deletion_policy:
        spec["deletionPolicy"] = wanted.deletion_policy
    return {
        "apiVersion": TOPICS.api_version,
        "kind": TOPICS.kind,
        "metadata": {"name": object_name, "namespace": namespace},
        "spec": spec,
    }


def check_brokers(name: str, replicas: int, brokers: int | None) -> None:
    """Raises Failure for more replicas than brokers (None: nobody knows how many there are)."""
    if brokers is not None and replicas > brokers:
        raise Failure(f"topic {name!r}: {replicas} replicas, but the cluster has {brokers} brokers")


def _brokers_of(cluster: JsonObject | None) -> int | None:
    return int(cluster["spec"].get("replicas", REPLICAS)) if cluster else None


def _counts_of(assignment: Mapping[int, list[int]]) -> tuple[int, int]:
    if sorted(assignment) != list(range(len(assignment))):
        raise Failure("--assignment must name every partition from 0 on")
    sizes = {len(ids) for ids in assignment.values()}
    if len(sizes) != 1:
        raise Failure("--assignment must give every partition the same number of replicas")
    if any(len(set(ids)) != len(ids) for ids in assignment.values()):
        raise Failure("--assignment names a broker twice for one partition")
    return len(assignment), sizes.pop()


def _default(config: Mapping[str, str], key: str) -> int:
    try:
        return broker_integer(config, key)
    except ConfigError:  # a condition of the cluster says so
        return broker_integer({}, key)


def patch_of(topic: JsonObject, change: Change) -> JsonObject:
    """The merge patch of the spec; empty when nothing differs. Raises Failure for what cannot be."""
    name, spec = topic_name(topic), topic["spec"]
    have: dict[str, str] = spec.get("config") or {}
    patch: JsonObject = {}
    now = int(spec.get("partitions", 1))
    if change.partitions is not None:
        if change.partitions < now:
            raise Failure(f"topic {name!r} has {now} partitions: their number can only grow")
        if change.partitions > now and name == OFFSETS_TOPIC:
            raise Failure(
                f"topic {name!r} keeps its {now} partitions: with more of them groups would look for their offsets in "
                "other partitions"
            )
        if change.partitions > now:
            patch["partitions"] = change.partitions
    if change.replicas is not None and change.replicas != int(spec.get("replicas", REPLICAS)):
        patch["replicas"] = change.replicas
    pinned = spec.get("replicaAssignment") or {}
    if change.replicas is not None and any(len(ids) != change.replicas for ids in pinned.values()):
        # A list of its own would keep the partition from following the number.
        patch["replicaAssignment"] = {number: None for number, ids in pinned.items() if len(ids) != change.replicas}
    wanted = {key: value for key, value in (have | change.config).items() if value is not None}
    judged = {key: value for key, value in change.config.items() if value is not None}
    if change.replicas is not None and MIN_ISR in wanted:
        judged[MIN_ISR] = wanted[MIN_ISR]
    replicas = change.replicas or int(spec.get("replicas", REPLICAS))
    if problems := check_topic_config(judged, replicas=replicas):
        raise Failure(f"topic {name!r}: {'; '.join(problems)}")
    unknown = [key for key in change.config if key not in TOPIC_KEYS and key not in have]
    if unknown:
        raise Failure(f"topic {name!r}: {', '.join(unknown)}: no such topic configuration key")
    if wanted != have:
        patch["config"] = {key: value for key, value in change.config.items() if have.get(key) != value}
    return patch


def waits_for(topic: JsonObject) -> str:
    """What a topic that was made or changed waits for; "" when it serves as its spec says.

    Raises Failure when only a change of the spec can help.
    """
    generation = topic["metadata"].get("generation", 0)
    ready, healthy = condition(topic, "Ready"), condition(topic, "Healthy")
    if ready.get("observedGeneration", 0) < generation:
        return "the operator has not seen it yet"
    for each in (ready, healthy):
        if each.get("status") == "False" and each.get("reason") in CORRECTABLE:
            raise Failure(f"topic {topic_name(topic)!r}: {each.get('message') or each.get('reason')}")
    if ready.get("status") != "True":
        return str(ready.get("message") or ready.get("reason") or "it is not ready")
    placed = len((topic.get("status") or {}).get("partitions") or {})
    wanted = int(topic["spec"].get("partitions", 1))
    return "" if placed >= wanted else f"{placed} of {wanted} partitions are placed"


def waits_for_replicas(topic: JsonObject) -> str:
    """As `waits_for`, and until no replica moves."""
    if reason := waits_for(topic):
        return reason
    progressing = condition(topic, "Progressing")
    if progressing.get("observedGeneration", 0) < topic["metadata"].get("generation", 0):
        return "the operator has not seen it yet"
    if progressing.get("status") == "True":
        return str(progressing.get("message") or progressing.get("reason"))
    if progressing.get("reason") in CORRECTABLE:
        raise Failure(f"topic {topic_name(topic)!r}: {progressing.get('message')}")
    entries = topic["status"]["partitions"]
    moving = [number for number, entry in entries.items() if entry.get("adding") or entry.get("removing")]
    return f"partitions {', '.join(moving)} are moving" if moving else ""


CORRECTABLE = frozenset(
    {
        "ClusterNotFound",
        "DefaultClusterRefused",
        "InvalidConfig",
        "InvalidName",
        "InvalidReplicaAssignment",
        "NotEnoughBrokers",
        "NotSupported",
        "ResourceConflict",
        "TooManyPartitions",
        "TooManyReplicas",
    }
)


def cluster_of(topic: JsonObject) -> str:
    """Name of the KafkaLiteCluster that serves it."""
    return str((topic["spec"].get("clusterRef") or {}).get("name") or DEFAULT_CLUSTER_NAME)


def _namespace_of(obj: JsonObject) -> str:
    return str(obj["metadata"].get("namespace") or "default")

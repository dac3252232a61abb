"""One cluster as the API server shows it: its brokers, topics and partitions, in the core's own terms."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafkalite_cli.errors import Failure
from kafkalite_cli.outage import through_outage
from kafkalite_cli.snapshot import topic_name
from kafkalite_cli.topics.objects import cluster_of
from kafkalite_core.controller.election import describe_broker
from kafkalite_core.controller.reassignment import is_moving, target_of
from kafkalite_core.resources.brokers import parse_broker
from kafkalite_core.resources.topics import parse_topic, parse_topic_spec
from kafkalite_runtime.kube import BROKERS, CLUSTERS, TOPICS, KubeClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite_cli.reassign.files import Assignment
    from kafkalite_core.model.cluster import Broker
    from kafkalite_core.model.partition import Partition

JsonObject = dict[str, Any]
Key = tuple[str, int]
LIST_DEADLINE_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """A KafkaLiteCluster with what belongs to it; topics that wait for their deletion are left out."""

    cluster: JsonObject
    brokers: dict[int, Broker]
    broker_objects: dict[int, JsonObject]
    topics: list[JsonObject]
    partitions: dict[Key, Partition]

    @property
    def namespace(self) -> str:
        """Where all of it is."""
        return str(self.cluster["metadata"]["namespace"])

    @property
    def name(self) -> str:
        """`metadata.name` of the cluster."""
        return str(self.cluster["metadata"]["name"])

    def taking(self) -> dict[int, str]:
        """Rack by id of the brokers that take replicas: alive, not cordoned, and not about to leave."""
        return {
            i: broker.registration.rack
            for i, broker in sorted(self.brokers.items())
            if broker.alive and not broker.cordoned and i < self.wanted and broker.registration is not None
        }

    @property
    def wanted(self) -> int:
        """`spec.replicas`: brokers with higher ids leave, by the operator's hand."""
        return int(self.cluster["spec"].get("replicas", 3))

    def scaled_away(self, broker_id: int) -> bool:
        """It is not wanted any more, and has ended; its object goes next."""
        return broker_id >= self.wanted and self.brokers[broker_id].fenced

    def state_of(self, broker_id: int) -> str:
        """`broker 3 is fenced`, and whether it is cordoned."""
        broker = self.brokers.get(broker_id)
        words = describe_broker(broker_id, self.brokers)
        if broker_id >= self.wanted:
            return f"{words} and leaves"
        return f"{words} and cordoned" if broker and broker.cordoned else words

    def wishes(self) -> Assignment:
        """The replicas that every partition has, or shall have when what is wished for has been done."""
        assignments = {topic_name(topic): parse_topic_spec(topic).replica_assignment for topic in self.topics}
        return {key: assignments[key[0]].get(key[1]) or target_of(entry) for key, entry in self.partitions.items()}


async def read_view(client: KubeClient, namespace: str | None, cluster: str | None) -> ClusterView:
    """Raises Failure when there is no such cluster, or several."""
    lists = await asyncio.gather(
        *(client.list(kind, namespace, deadline_s=LIST_DEADLINE_S) for kind in (CLUSTERS, BROKERS, TOPICS))
    )
    clusters, brokers, topics = (listed.items for listed in lists)
    chosen = choose_cluster(clusters, namespace, cluster)
    place = (chosen["metadata"]["namespace"], chosen["metadata"]["name"])
    objects = {
        int(each["spec"]["brokerId"]): each
        for each in brokers
        if (each["metadata"]["namespace"], (each["spec"].get("clusterRef") or {}).get("name")) == place
    }
    mine = [
        each
        for each in sorted(topics, key=topic_name)
        if (each["metadata"]["namespace"], cluster_of(each)) == place and "deletionTimestamp" not in each["metadata"]
    ]
    return ClusterView(
        cluster=chosen,
        brokers={i: parse_broker(each) for i, each in objects.items()},
        broker_objects=objects,
        topics=mine,
        partitions={
            (topic_name(each), number): entry
            for each in mine
            for number, entry in sorted(parse_topic(each).partitions.items())
        },
    )


async def read_again(client: KubeClient, view: ClusterView, tell: Callable[[str], None]) -> ClusterView:
    """The same cluster as it is now; an API server that is away for a moment is waited for."""
    return await through_outage(lambda: read_view(client, view.namespace, view.name), tell)


def choose_cluster(clusters: list[JsonObject], namespace: str | None, name: str | None) -> JsonObject:
    """The one that is meant. Raises Failure."""
    found = [each for each in clusters if name in {None, each["metadata"]["name"]}]
    where = f"namespace {namespace}" if namespace else "any namespace"
    if not found:
        raise Failure(f"there is no KafkaLiteCluster{f' {name!r}' if name else ''} in {where}")
    if len(found) > 1:
        names = ", ".join(f"{each['metadata']['namespace']}/{each['metadata']['name']}" for each in found)
        raise Failure(f"there are several clusters ({names}): choose with --namespace or --cluster")
    return found[0]


def moving(view: ClusterView, wishes: Assignment) -> set[Key]:
    """Partitions that move, or wait for their turn."""
    return {key for key, entry in view.partitions.items() if is_moving(entry) or wishes[key] != target_of(entry)}

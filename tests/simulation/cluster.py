"""Everything of one history put together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.model.config import RACK_AWARE_SELECTOR
from kafkalite_core.model.topic import OFFSETS_TOPIC
from kafkalite_core.resources.naming import (
    ANNOTATION_ELECT_UNCLEAN,
    ANNOTATION_RECOVER_STORE,
    annotation_path,
    topic_object_names,
)
from tests.simulation.api import ApiServer
from tests.simulation.clients import Client, Consumer, Producer
from tests.simulation.clock import Clock
from tests.simulation.history import History
from tests.simulation.host import Host
from tests.simulation.members import Member
from tests.simulation.network import Network
from tests.simulation.operator import OperatorHost
from tests.simulation.oracles.oracles import Oracles
from tests.simulation.swarm import GROUP_TOPIC, TopicShape

if TYPE_CHECKING:
    from kafkalite_core.model.topic import Holding, Stray
    from tests.simulation.swarm import Shape
    from tests.simulation.world import World

CLUSTER = "kafkalite"


def object_name(topic: str) -> str:
    """`metadata.name` of a topic's object."""
    return topic_object_names(topic, CLUSTER)[0]


class SimCluster:
    """Machines, operators, API server, network, clients, oracles."""

    def __init__(self, world: World, shape: Shape) -> None:
        self.world = world
        self.shape = shape
        self.network = Network(world, delay_ms=shape.network_ms)
        self.api = ApiServer(world, self.network)
        self.oracles = Oracles(world, shape)
        self.api.on_change = self.oracles.store_changed
        self.history = History()
        self.consents = 0
        self.asked: dict[str, tuple[str, set[tuple[int, Stray | Holding]]]] = {}
        chance = world.rng("shape")
        spread = shape.clock_rate_spread

        def clock() -> Clock:
            rate = 1.0 + chance.uniform(-spread, spread)
            return Clock(mono_ms=chance.uniform(0.0, 1e6), wall_offset_ms=chance.uniform(-5e3, 5e3), rate=rate)

        self.hosts = {
            number: Host(self, number, clock(), fsync_ms=shape.fsync_ms, room=shape.disk_room)
            for number in range(shape.brokers)
        }
        self.host_list = list(self.hosts.values())
        self.oracles.hosts = self.hosts
        self.operators = [OperatorHost(self, number, clock()) for number in range(shape.operators)]
        self.producers = [
            Producer(self, number, idempotent=number != 2, acks=-1 if number != 2 or chance.random() < 0.5 else 1)
            for number in range(shape.producers)
        ]
        self.members = [Member(self, number) for number in range(shape.members)]
        self.topics = shape.topics
        if self.members:
            replicas = min(3, shape.brokers)
            config = {"min.insync.replicas": str(min(2, replicas)), "cleanup.policy": "compact"}
            offsets = TopicShape(name=OFFSETS_TOPIC, partitions=2, replicas=replicas, config=config)
            self.topics = (*shape.topics, offsets)
        self.consumers = [Consumer(self, number) for number in range(shape.consumers)]
        self.clients: list[Client] = [*self.producers, *self.consumers, *self.members]
        self.network.clients = frozenset(client.name for client in self.clients)

    def begin(self) -> None:
        """The user applies a cluster and its topics; everything starts."""
        self.create_cluster()
        for topic in self.topics:
            self.create_topic(topic)
        for host in self.host_list:
            host.start(host.chance.random() * 100.0)
        for operator in self.operators:
            self.world.at(operator.chance.random() * 50.0, None, operator.start)
        for client in self.clients:
            self.world.at(0.0, client.process, client.begin)

    def create_cluster(self) -> None:
        """The user applies the cluster."""
        config = {"leader.imbalance.check.interval.seconds": str(self.shape.auto_balance_s)}
        if self.shape.racks:
            config["replica.selector.class"] = RACK_AWARE_SELECTOR
        self.api.create(
            "clusters", {"metadata": {"name": CLUSTER}, "spec": {"replicas": self.shape.brokers, "config": config}}
        )

    def pods(self) -> int:
        """How many the StatefulSet has."""
        return sum(not host.removed for host in self.host_list)

    def run_brokers(self, count: int, *, looked_at: int | None = None) -> None:
        """The operator gives the StatefulSet so many pods; its last list of topics was of that era of the store.

        If the store went back in time since, that says nothing: the pod comes back, since its object has not been deleted
        before another list.
        """
        looked_before = looked_at is not None and looked_at < self.api.era
        for host in self.host_list:
            if host.id >= count and not host.removed:
                if not looked_before:
                    self.oracles.removal.pod_ends(self.api, host.id)
                host.scale_away()
            elif host.id < count and host.removed:
                host.bring_back()

    def annotate(self, topic: str, name: str, value: str) -> None:
        """The user sets an annotation of a topic."""
        obj = self.api.objects["topics"].get(object_name(topic))
        if obj is None:
            return
        if "annotations" in obj["metadata"]:
            operation = {"op": "add", "path": annotation_path(name), "value": value}
        else:
            operation = {"op": "add", "path": "/metadata/annotations", "value": {name: value}}
        self.api.patch("topics", object_name(topic), [operation])

    def consent(self, topic: str) -> None:
        """The user accepts that acknowledged records may be lost where no clean candidate is left."""
        self._accept(topic, ANNOTATION_ELECT_UNCLEAN, "all")

    def consent_to_recover(self, topic: str) -> None:
        """The user accepts that a recovery (S11) goes on without what was on disks that are gone."""
        self._accept(topic, ANNOTATION_RECOVER_STORE, "true")

    def _accept(self, topic: str, annotation: str, value: str) -> None:
        obj = self.api.objects["topics"].get(object_name(topic))
        if obj is not None and annotation not in obj["metadata"].get("annotations", {}):
            self.world.trace("user", f"sets {annotation} of {topic}")
            self.consents += 1
            if topic in {OFFSETS_TOPIC, GROUP_TOPIC}:
                self.oracles.groups.forgive(generations=topic == OFFSETS_TOPIC)
            self.annotate(topic, annotation, value)

    def create_topic(self, topic: TopicShape, annotations: dict[str, str] | None = None) -> None:
        """The user applies a topic."""
        spec = {
            "topicName": topic.name,
            "partitions": topic.partitions,
            "replicas": topic.replicas,
            "config": dict(topic.config),
        }
        metadata: dict[str, object] = {"name": object_name(topic.name)}
        if annotations:
            metadata["annotations"] = annotations
        self.api.create("topics", {"metadata": metadata, "spec": spec})

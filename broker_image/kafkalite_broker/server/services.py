"""What request handlers may use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafkalite_core.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Executor

    from kafkalite_broker.cluster.producer_ids import ProducerIdAllocator
    from kafkalite_broker.cluster.topic_changes import TopicChanges
    from kafkalite_broker.cluster.topic_writer import TopicWriter
    from kafkalite_broker.groups.manager import GroupManager
    from kafkalite_broker.replication.partitions import PartitionManager
    from kafkalite_broker.server.answer_budget import AnswerBudget
    from kafkalite_broker.server.broker_facts import BrokerFacts
    from kafkalite_broker.server.waiting import WaitingFetches
    from kafkalite_broker.telemetry import BrokerTelemetry
    from kafkalite_core.membership.metadata_cache import MetadataCache
    from kafkalite_core.model.cluster import Cluster
    from kafkalite_core.model.partition import Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The parts of the broker that handlers call.

    Attributes:
        broker_id: Of this broker.
        cluster_id: Of the cluster, as in `status.clusterId`.
        facts: What is fixed about this broker from its start on.
        cache: Topics and brokers.
        partitions: The replicas on this broker.
        groups: The group coordinators on this broker.
        waiting: Fetches that wait for data.
        answers: Memory for answers to consumers.
        producer_ids: Cluster-unique producer ids.
        telemetry: Counters.
        io_pool: Threads for reads that go to the disk.
        topic_writer: Writes what clients ask of topics into the custom resources.
        topic_changes: Wakes those who wait for the cache, or the cluster, to show something.
        cluster: The `KafkaLiteCluster` as last seen, None before: its `config` is what holds for every broker.
        background: Runs a coroutine as a task of the broker, whose failure is logged.
    """

    broker_id: int
    cluster_id: str
    facts: BrokerFacts
    cache: MetadataCache
    partitions: PartitionManager
    groups: GroupManager
    waiting: WaitingFetches
    answers: AnswerBudget
    producer_ids: ProducerIdAllocator
    telemetry: BrokerTelemetry
    io_pool: Executor
    topic_writer: TopicWriter
    topic_changes: TopicChanges
    cluster: Callable[[], Cluster | None]
    background: Callable[[Coroutine[Any, Any, None]], None]

    def partition_of(self, topic: str, number: int) -> Partition | None:
        """The committed state of a partition, or None when it does not exist."""
        found = self.cache.topic(topic)
        return None if found is None else found.partitions.get(number)

    def endpoint(self, broker_id: int, listener: str) -> tuple[str, int, str | None] | None:
        """Host, port and rack of a broker for a client that came in on that listener, or None.

        Brokers are registered with the address that they use among themselves; those of the other listeners are what
        the operator publishes. Like Kafka, a client is never sent to another listener than its own.
        """
        broker = self.cache.brokers.get(broker_id)
        if broker is None or broker.registration is None or not broker.reachable:
            return None
        registration = broker.registration
        if listener == self.facts.inter_broker:
            return registration.host, registration.port, registration.rack or None
        cluster = self.cluster()
        found = None if cluster is None else cluster.endpoints.get(listener, {}).get(broker_id)
        return None if found is None else (found.host, found.port, registration.rack or None)

    def reachable(self, listener: str) -> frozenset[int]:
        """Brokers that a client of that listener is told an address of."""
        return frozenset(i for i in self.cache.brokers if self.endpoint(i, listener) is not None)

    def why_unreachable(self, leader: int) -> ErrorCode:
        """Why clients of a listener are not sent to a leader: it is not there, or has no address on that listener."""
        broker = self.cache.brokers.get(leader)
        there = broker is not None and broker.reachable
        return ErrorCode.LISTENER_NOT_FOUND if there else ErrorCode.LEADER_NOT_AVAILABLE

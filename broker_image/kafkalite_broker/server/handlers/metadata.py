"""Metadata (key 3): brokers, topics, leaders."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from kafkalite_broker.cluster.internal_topics import OFFSETS_TOPIC
from kafkalite_broker.cluster.topic_auto_creation import TopicAutoCreation
from kafkalite_broker.server.handlers.bounds import within_bounds
from kafkalite_broker.server.handlers.slices import PARTITIONS_AT_ONCE, SlicedAnswers
from kafkalite_broker.server.handlers.topic_admin import world_of
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kafkalite_core.resources.naming import is_topic_name

if TYPE_CHECKING:
    from collections.abc import Generator

    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.services import Services
    from kafkalite_core.model.partition import Partition, Topic

ZERO_UUID = UUID(int=0)
ELECTION_WAIT_S = 0.25
LISTENER_ERROR_VERSION = 6
"""Older clients are not told that a leader has no address on their listener."""
BY_ID_VERSION = 12
"""Versions 10 and 11 carry topic ids and cannot be asked by them (Kafka refuses it, too)."""


class MetadataHandler:
    """Answers from the metadata cache."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._answers = SlicedAnswers(services)
        self._auto_creation = TopicAutoCreation(services.topic_writer, lambda: world_of(services), services.background)

    def __call__(self, request: Request) -> None:
        """Answer with all topics, or with those asked for by name or id.

        A client that lost its leader asks at once, before the election: the old answer would send it back to the dead
        broker and into its back-off. So the answer waits a moment for the election, and never longer. Then it names the
        leader that is known, suspected or not: a broker that was itself stopped suspects leaders that are well.
        """
        if not within_bounds(request, len(request.body.topics or ())):
            return
        suspects = self._services.partitions.suspects
        if suspects and suspects.concern(self._names(request)):
            self._services.background(request.guarded(self._answer_after_election(request)))
            return
        self._answer(request)

    async def _answer_after_election(self, request: Request) -> None:
        await self._services.partitions.suspects.settled(self._names(request), ELECTION_WAIT_S)
        self._answer(request)

    def _names(self, request: Request) -> list[str]:
        wanted = request.body.topics
        if wanted is None:
            return [topic.ref.name for topic in self._services.cache.topics()]
        return list(dict.fromkeys(entry.name for entry in wanted if entry.name is not None))

    def _answer(self, request: Request) -> None:
        self._answers.give(request, self._response(request))

    def _response(self, request: Request) -> Generator[None, None, MetadataResponse]:
        """The answer, in slices; all of it is what the metadata said when it was begun."""
        services = self._services
        brokers = [
            MetadataResponseBroker(node_id=broker_id, host=endpoint[0], port=endpoint[1], rack=endpoint[2])
            for broker_id in sorted(services.cache.brokers)
            if (endpoint := services.endpoint(broker_id, request.listener)) is not None
        ]
        reachable = frozenset(broker.node_id for broker in brokers)
        topics: list[MetadataResponseTopic] = []
        slice_left = PARTITIONS_AT_ONCE
        for found in self._topics(request):
            if isinstance(found, MetadataResponseTopic):
                topics.append(found)
                continue
            if slice_left <= 0:
                yield
                slice_left = PARTITIONS_AT_ONCE
            slice_left -= len(found.partitions)
            topics.append(self._described(found, reachable, request.version))
        return MetadataResponse(
            brokers=brokers,
            cluster_id=services.cluster_id,
            # Every broker takes administration requests; clients only need an id that is in the list.
            controller_id=brokers[0].node_id if brokers else services.broker_id,
            topics=topics,
        )

    def _topics(self, request: Request) -> list[Topic | MetadataResponseTopic]:
        """Every topic that is asked for, or what is answered in its place, in the order of the answer."""
        cache = self._services.cache
        wanted = request.body.topics
        if wanted is None or (request.version == 0 and not wanted):
            return [topic for topic in cache.topics() if topic.partitions]
        answers: list[Topic | MetadataResponseTopic] = []
        # Each once, as Kafka does: a request that repeats a name a million times must not have a million answers.
        for entry in {(entry.name, entry.topic_id): entry for entry in wanted}.values():
            if request.version < BY_ID_VERSION and (entry.name is None or entry.topic_id != ZERO_UUID):
                code = ErrorCode.INVALID_REQUEST
                answers.append(MetadataResponseTopic(error_code=code, name=entry.name or "", partitions=[]))
                continue
            topic = cache.topic_by_id(str(entry.topic_id)) if entry.name is None else cache.topic(entry.name)
            if topic is not None and topic.partitions:
                answers.append(topic)
            elif entry.name is None:
                answers.append(
                    MetadataResponseTopic(
                        error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=entry.topic_id, partitions=[]
                    )
                )
            else:
                code = self._code_of_absent(entry.name, topic, may_create=request.body.allow_auto_topic_creation)
                answers.append(
                    MetadataResponseTopic(error_code=code, name=entry.name, topic_id=ZERO_UUID, partitions=[])
                )
        return answers

    def _code_of_absent(self, name: str, topic: Topic | None, *, may_create: bool) -> ErrorCode:
        if not is_topic_name(name):
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if topic is not None:
            # Without placement yet it exists soon: clients ask again.
            return ErrorCode.LEADER_NOT_AVAILABLE
        return self._auto_creation.code_for(name) if may_create else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _described(self, topic: Topic, reachable: frozenset[int], version: int) -> MetadataResponseTopic:
        partitions = [
            self._partition(number, topic.partitions[number], reachable, version) for number in sorted(topic.partitions)
        ]
        return MetadataResponseTopic(
            error_code=ErrorCode.NONE,
            name=topic.ref.name,
            topic_id=UUID(topic.ref.topic_id),
            is_internal=topic.ref.name == OFFSETS_TOPIC,
            partitions=partitions,
        )

    def _partition(
        self, number: int, partition: Partition, reachable: frozenset[int], version: int
    ) -> MetadataResponsePartition:
        code, leader = ErrorCode.NONE, partition.leader
        if leader not in reachable:
            code = self._services.why_unreachable(leader)
            if version < LISTENER_ERROR_VERSION:
                code = ErrorCode.LEADER_NOT_AVAILABLE
            leader = -1
        return MetadataResponsePartition(
            error_code=code,
            partition_index=number,
            leader_id=leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=list(partition.replicas),
            isr_nodes=list(partition.isr_ids()),
            offline_replicas=[replica for replica in partition.replicas if replica not in reachable],
        )

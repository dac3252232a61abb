"""DescribeTopicPartitions (key 75, KIP-966): topics page by page, with the eligible leader replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from kafkalite_broker.cluster.internal_topics import INTERNAL_TOPICS
from kafkalite_broker.server.handlers.bounds import within_bounds
from kafkalite_broker.server.handlers.slices import PARTITIONS_AT_ONCE, SlicedAnswers
from kafkalite_core.protocol.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.resources.naming import is_topic_name

if TYPE_CHECKING:
    from collections.abc import Generator

    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.services import Services
    from kafkalite_core.model.partition import Partition, Topic

PARTITIONS_MAX = 2000
"""Partitions in one answer, whatever the client allows (Kafka's `max.request.partition.size.limit`)."""


class DescribeTopicPartitionsHandler:
    """Answers from the metadata. Topics come in the order of their names, so a cursor is a name and a number."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._answers = SlicedAnswers(services)

    def __call__(self, request: Request) -> None:
        """Answer with one page."""
        body = request.body
        if not within_bounds(request, len(body.topics)):
            return
        cursor = body.cursor
        everything = not body.topics
        names = self._all_names() if everything else sorted({topic.name for topic in body.topics})
        if cursor is not None:
            if cursor.partition_index < 0 or (not everything and cursor.topic_name not in names):
                request.answer(_bad_cursor(names))
                return
            names = [name for name in names if name >= cursor.topic_name]
        limit = max(min(body.response_partition_limit, PARTITIONS_MAX), 1)
        services = self._services
        reachable = {
            number for number in services.cache.brokers if services.endpoint(number, request.listener) is not None
        }
        self._answers.give(request, self._page(names, cursor, limit, reachable, pass_over_unknown=everything))

    def _all_names(self) -> list[str]:
        return [topic.ref.name for topic in self._services.cache.topics() if topic.partitions]

    def _page(
        self, names: list[str], cursor: Cursor | None, limit: int, reachable: set[int], *, pass_over_unknown: bool
    ) -> Generator[None, None, DescribeTopicPartitionsResponse]:
        page = DescribeTopicPartitionsResponse()
        slice_left = PARTITIONS_AT_ONCE
        for place, name in enumerate(names):
            if limit <= 0 or place >= PARTITIONS_MAX:
                page.next_cursor = Cursor(topic_name=name, partition_index=0)
                break
            topic = self._services.cache.topic(name)
            if topic is None or not topic.partitions:
                if not pass_over_unknown:
                    page.topics.append(_unknown(name, topic))
                continue
            if slice_left <= 0:
                yield
                slice_left = PARTITIONS_AT_ONCE
            first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
            numbers = [number for number in sorted(topic.partitions) if number >= first]
            page.topics.append(_described(self._services, topic, numbers[:limit], reachable))
            if len(numbers) > limit:
                page.next_cursor = Cursor(topic_name=name, partition_index=numbers[limit])
                break
            limit -= len(numbers)
            slice_left -= len(numbers)
        return page


def _described(
    services: Services, topic: Topic, numbers: list[int], reachable: set[int]
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.ref.name,
        topic_id=UUID(topic.ref.topic_id),
        is_internal=topic.ref.name in INTERNAL_TOPICS,
        partitions=[_partition(services, number, topic.partitions[number], reachable) for number in numbers],
    )


def _partition(
    services: Services, number: int, partition: Partition, reachable: set[int]
) -> DescribeTopicPartitionsResponsePartition:
    leader_there = partition.leader in reachable
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.NONE if leader_there else services.why_unreachable(partition.leader),
        partition_index=number,
        leader_id=partition.leader if leader_there else -1,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr_ids()),
        eligible_leader_replicas=[entry.id for entry in partition.elr],
        last_known_elr=[],
        offline_replicas=[replica for replica in partition.replicas if replica not in reachable],
    )


def _unknown(name: str, topic: Topic | None) -> DescribeTopicPartitionsResponseTopic:
    if not is_topic_name(name):
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    else:
        # Without placement yet it exists soon: clients ask again on either code.
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else ErrorCode.LEADER_NOT_AVAILABLE
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name, is_internal=name in INTERNAL_TOPICS)


def _bad_cursor(names: list[str]) -> DescribeTopicPartitionsResponse:
    """The answer has no error of its own, so every topic that was named carries it, as in Kafka."""
    code = ErrorCode.INVALID_REQUEST
    return DescribeTopicPartitionsResponse(
        topics=[DescribeTopicPartitionsResponseTopic(error_code=code, name=name) for name in names[:PARTITIONS_MAX]]
    )

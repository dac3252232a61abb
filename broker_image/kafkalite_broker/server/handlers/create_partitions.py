"""CreatePartitions (key 37): `spec.partitions` is raised; the answer waits until the new partitions have leaders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_broker.cluster.internal_topics import INTERNAL_TOPICS
from kafkalite_broker.cluster.topic_requests import TOPICS_PER_REQUEST_MAX, check_assignment
from kafkalite_broker.server.handlers.bounds import within_bounds
from kafkalite_broker.server.handlers.topic_admin import Deadline, duplicates, not_in_time, outcomes
from kafkalite_core.model.errors import BrokerError
from kafkalite_core.model.limits import PARTITIONS_PER_TOPIC_MAX
from kafkalite_core.protocol.create_partitions import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from kafkalite_core.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.services import Services
    from kafkalite_core.protocol.create_partitions import CreatePartitionsTopic


class CreatePartitionsHandler:
    """Existing partitions never move; new ones go where the load is least, or where the client says."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def __call__(self, request: Request) -> None:
        """Answer later."""
        topics = request.body.topics
        if within_bounds(request, len(topics) + sum(len(topic.assignments or ()) for topic in topics)):
            self._services.background(request.guarded(self._grow(request)))

    async def _grow(self, request: Request) -> None:
        deadline = Deadline(request)
        validate_only = request.body.validate_only
        topics = {topic.name: topic for topic in request.body.topics}
        twice = duplicates(topic.name for topic in request.body.topics)

        async def one(topic: CreatePartitionsTopic) -> None:
            if topic.name in twice:
                raise BrokerError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            if len(topics) > TOPICS_PER_REQUEST_MAX:
                message = f"{len(topics)} topics in one request, at most {TOPICS_PER_REQUEST_MAX} are changed."
                raise BrokerError(ErrorCode.POLICY_VIOLATION, message)
            await self._grow_one(topic, deadline, validate_only=validate_only)

        results = dict(zip(topics, await outcomes(one(topic) for topic in topics.values()), strict=True))
        if not validate_only:
            grown = {name: topics[name].count for name, result in results.items() if result is None}
            results |= await self._there(grown, deadline)
        request.answer(CreatePartitionsResponse(results=[_result(name, result) for name, result in results.items()]))

    async def _grow_one(self, topic: CreatePartitionsTopic, deadline: Deadline, *, validate_only: bool) -> None:
        if topic.name in INTERNAL_TOPICS:
            raise BrokerError(
                ErrorCode.INVALID_PARTITIONS,
                f"{topic.name} keeps its partitions: with more of them groups would look for their offsets elsewhere.",
            )
        if topic.count > PARTITIONS_PER_TOPIC_MAX:
            raise BrokerError(
                ErrorCode.INVALID_PARTITIONS,
                f"{topic.count} partitions are more than the {PARTITIONS_PER_TOPIC_MAX} that one topic can have.",
            )
        rows = None if topic.assignments is None else [entry.broker_ids for entry in topic.assignments]
        check_assignment(rows or (), self._services.cache.brokers.keys())
        await self._services.topic_writer.grow(
            topic.name, topic.count, rows, deadline_s=deadline.write_s(), validate_only=validate_only
        )

    async def _there(self, grown: dict[str, int], deadline: Deadline) -> dict[str, BrokerError]:
        """Wait until the topics have so many partitions; errors of those that have fewer."""
        waiting = dict(grown)

        def done() -> bool:
            for name, count in list(waiting.items()):
                topic = self._services.cache.topic(name)
                if topic is None or len(topic.partitions) >= count:
                    del waiting[name]
            return not waiting

        if await self._services.topic_changes.until(done, deadline.left_s()):
            return {}
        return await not_in_time(
            self._services, list(waiting), "the number of partitions was raised and they have no leaders yet"
        )


def _result(name: str, result: BrokerError | None) -> CreatePartitionsTopicResult:
    if result is None:
        return CreatePartitionsTopicResult(name=name)
    return CreatePartitionsTopicResult(name=name, error_code=result.error_code, error_message=result.message or None)

"""AlterPartitionReassignments (key 45): the wish goes into the custom resource, and the operator moves the replicas.

The answer waits a moment for the moves to begin, so that a client that asks next sees them; one whose turn has not
come is listed as under way all the same (ListPartitionReassignments), since it is wished for and nothing is missing.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kafkalite_broker.cluster.reassigning import Judgement, ReassignmentWish
from kafkalite_broker.cluster.topic_requests import PARTITIONS_PER_REQUEST_MAX
from kafkalite_broker.server.handlers.bounds import within_bounds
from kafkalite_broker.server.handlers.topic_admin import Deadline, outcomes
from kafkalite_core.controller.reassignment import target_of
from kafkalite_core.model.errors import BrokerError
from kafkalite_core.protocol.alter_partition_reassignments import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from kafkalite_core.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.services import Services
    from kafkalite_core.protocol.alter_partition_reassignments import ReassignableTopic

BEGIN_LIMIT_S = 5.0
"""An operator that is away, or busy with other moves, keeps no client waiting for longer."""


class AlterPartitionReassignmentsHandler:
    """See the module."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def __call__(self, request: Request) -> None:
        """Answer later."""
        topics = request.body.topics
        named = sum(len(topic.partitions) + sum(len(p.replicas or ()) for p in topic.partitions) for topic in topics)
        if within_bounds(request, len(topics) + named):
            self._services.background(request.guarded(self._alter(request)))

    async def _alter(self, request: Request) -> None:
        deadline = Deadline(request)
        body = request.body
        topics: list[ReassignableTopic] = body.topics
        twice = {name for name, times in Counter(topic.name for topic in topics).items() if times > 1}
        if sum(len(topic.partitions) for topic in topics) > PARTITIONS_PER_REQUEST_MAX:
            message = f"at most {PARTITIONS_PER_REQUEST_MAX} partitions are reassigned by one request"
            request.answer(
                AlterPartitionReassignmentsResponse(error_code=ErrorCode.POLICY_VIOLATION, error_message=message)
            )
            return

        async def one(topic: ReassignableTopic) -> Judgement:
            numbers = Counter(partition.partition_index for partition in topic.partitions)
            if topic.name in twice or any(times > 1 for times in numbers.values()):
                raise BrokerError(ErrorCode.INVALID_REQUEST, "A partition is named twice.")
            return await self._services.topic_writer.reassign(
                topic.name,
                ReassignmentWish(
                    replicas={partition.partition_index: partition.replicas for partition in topic.partitions},
                    factor_may_change=body.allow_replication_factor_change,
                ),
                brokers=self._registered(),
                deadline_s=deadline.write_s(),
            )

        judged = await outcomes(one(topic) for topic in topics)
        accepted = {
            topic.name: result.targets
            for topic, result in zip(topics, judged, strict=True)
            if isinstance(result, Judgement) and result.targets
        }
        await self._begun(accepted, min(deadline.left_s(), BEGIN_LIMIT_S))
        request.answer(
            AlterPartitionReassignmentsResponse(
                allow_replication_factor_change=body.allow_replication_factor_change,
                error_message=None,
                responses=[_answered(topic, result) for topic, result in zip(topics, judged, strict=True)],
            )
        )

    def _registered(self) -> set[int]:
        brokers = self._services.cache.brokers
        return {broker_id for broker_id, broker in brokers.items() if broker.registration is not None}

    async def _begun(self, accepted: dict[str, dict[int, tuple[int, ...]]], limit_s: float) -> None:
        """Wait until the metadata show the new targets, for so long at most."""
        waiting = {(name, number): target for name, targets in accepted.items() for number, target in targets.items()}

        def shown() -> bool:
            for (name, number), target in list(waiting.items()):
                topic = self._services.cache.topic(name)
                entry = None if topic is None else topic.partitions.get(number)
                if entry is None or target_of(entry) == target:
                    del waiting[name, number]
            return not waiting

        await self._services.topic_changes.until(shown, limit_s)


def _answered(topic: ReassignableTopic, result: Judgement | BrokerError) -> ReassignableTopicResponse:
    errors = result.errors if isinstance(result, Judgement) else {}
    answers = []
    for partition in topic.partitions:
        error = result if isinstance(result, BrokerError) else errors.get(partition.partition_index)
        answers.append(
            ReassignablePartitionResponse(
                partition_index=partition.partition_index,
                error_code=ErrorCode.NONE if error is None else error.error_code,
                error_message=None if error is None else error.message or None,
            )
        )
    return ReassignableTopicResponse(name=topic.name, partitions=answers)

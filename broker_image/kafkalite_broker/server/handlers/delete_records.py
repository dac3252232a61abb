"""DeleteRecords (key 21, KIP-107): the leader deletes at once; the answer waits for the live followers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_broker.clock import now_ms
from kafkalite_broker.cluster.internal_topics import INTERNAL_TOPICS
from kafkalite_broker.server.handlers.bounds import partitions_named, within_bounds
from kafkalite_broker.server.handlers.topic_admin import WAIT_MAX_S
from kafkalite_core.model.errors import BrokerError
from kafkalite_core.protocol.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.replica.events import DeleteRecordsRequested
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.services import Services
    from kafkalite_core.protocol.delete_records import DeleteRecordsPartition
    from kafkalite_core.replica.events import DeleteRecordsAnswered

NO_LOW_WATERMARK = -1

log = get_logger(__name__)


class DeleteRecordsHandler:
    """Moves the log start of partitions that this broker leads."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def __call__(self, request: Request) -> None:
        """Delete now; answer when every partition has answered."""
        if within_bounds(request, partitions_named(request)):
            PendingDeletion(request, self._services).start()


class PendingDeletion:
    """One DeleteRecords request until the last of its partitions is answered."""

    __slots__ = ("_open", "_request", "_services", "_topics")

    def __init__(self, request: Request, services: Services) -> None:
        self._request = request
        self._services = services
        self._topics: list[DeleteRecordsTopicResult] = []
        self._open = 1

    def start(self) -> None:
        """Hand every offset to its partition. Answers may come back before this returns."""
        wait_ms = min(max(self._request.body.timeout_ms, 0), WAIT_MAX_S * 1000.0)
        for topic in self._request.body.topics:
            results = []
            for entry in topic.partitions:
                result = DeleteRecordsPartitionResult(
                    partition_index=entry.partition_index, low_watermark=NO_LOW_WATERMARK
                )
                results.append(result)
                self._open += 1
                try:
                    self._delete(topic.name, entry, Answer(self, topic.name, result), now_ms() + wait_ms)
                except BrokerError as error:
                    result.error_code = error.error_code
                    self._open -= 1
            self._topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
        self.closed_one()

    def _delete(self, topic: str, entry: DeleteRecordsPartition, answer: Answer, deadline_ms: float) -> None:
        if topic in INTERNAL_TOPICS:
            raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"records of {topic} are not deleted by clients")
        partition = self._services.partitions.leader_of(topic, entry.partition_index)
        partition.step(DeleteRecordsRequested(token=answer, offset=entry.offset, deadline_ms=deadline_ms))

    def closed_one(self) -> None:
        """One partition has its answer; the last one sends it."""
        self._open -= 1
        if self._open == 0:
            self._request.answer(DeleteRecordsResponse(topics=self._topics))


class Answer:
    """Token of one partition: leads the answer back to its place in the request."""

    __slots__ = ("_pending", "_result", "_topic")

    def __init__(self, pending: PendingDeletion, topic: str, result: DeleteRecordsPartitionResult) -> None:
        self._pending = pending
        self._topic = topic
        self._result = result

    def deletion_answered(self, answer: DeleteRecordsAnswered) -> None:
        """Called once, by the partition's driver."""
        self._result.error_code = answer.error_code
        self._result.low_watermark = answer.low_watermark
        if answer.message:
            # The protocol has no place for a sentence here.
            partition = f"{self._topic}-{self._result.partition_index}"
            log.info("records not deleted", partition=partition, reason=answer.message)
        self._pending.closed_one()

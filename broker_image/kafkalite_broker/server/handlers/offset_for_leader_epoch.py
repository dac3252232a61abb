"""OffsetForLeaderEpoch (key 23): where an epoch ends, for consumers that check their position (KIP-320)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_broker.server.handlers.bounds import partitions_named, within_bounds
from kafkalite_core.model.errors import BrokerError
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.services import Services
    from kafkalite_core.protocol.offset_for_leader_epoch import OffsetForLeaderPartition


class OffsetForLeaderEpochHandler:
    """Answers from the epoch cache of partitions that this broker leads."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def __call__(self, request: Request) -> None:
        """Answer for every partition asked for."""
        if not within_bounds(request, partitions_named(request)):
            return
        topics = [
            OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[self._partition(topic.topic, entry) for entry in topic.partitions]
            )
            for topic in request.body.topics
        ]
        request.answer(OffsetForLeaderEpochResponse(topics=topics))

    def _partition(self, topic: str, entry: OffsetForLeaderPartition) -> EpochEndOffset:
        try:
            partition = self._services.partitions.leader_of(topic, entry.partition)
            epoch, end = partition.replica.end_offset_for_epoch(entry.current_leader_epoch, entry.leader_epoch)
        except BrokerError as error:
            return EpochEndOffset(
                error_code=error.error_code, partition=entry.partition, leader_epoch=-1, end_offset=-1
            )
        return EpochEndOffset(error_code=ErrorCode.NONE, partition=entry.partition, leader_epoch=epoch, end_offset=end)

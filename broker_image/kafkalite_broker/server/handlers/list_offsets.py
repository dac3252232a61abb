"""ListOffsets (key 2): earliest, latest, by time, and the offset of the greatest timestamp."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from kafkalite_broker.server.handlers.bounds import partitions_named, within_bounds
from kafkalite_broker.server.handlers.slices import PARTITIONS_AT_ONCE
from kafkalite_core.model.errors import BrokerError
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kafkalite_core.storage.errors import ReadInterrupted
from kafkalite_core.storage.timestamps import TimeSearch

if TYPE_CHECKING:
    from kafkalite_broker.replication.driver import PartitionDriver
    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.services import Services
    from kafkalite_core.protocol.list_offsets import ListOffsetsPartition

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
SPECIAL_FROM_VERSION = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8}
"""Negative timestamps that are questions of their own, and the version from which a client may ask them."""

OFFSET_NOT_AVAILABLE_FROM_VERSION = 5


class ListOffsetsHandler:
    """Answers from the log of partitions that this broker leads.

    What has to be searched for by time is searched on a thread, one segment at a time and one search at a time: many
    clients that ask must not leave the event loop without its turn.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._turn = asyncio.Lock()

    def __call__(self, request: Request) -> None:
        """Answer for every partition asked for."""
        if not within_bounds(request, partitions_named(request)):
            return
        body = request.body
        asked = Counter((topic.name, entry.partition_index) for topic in body.topics for entry in topic.partitions)
        searches: list[tuple[ListOffsetsPartitionResponse, TimeSearch]] = []
        topics = [
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    # The answer could not say which of several questions about one partition it belongs to.
                    _refusal(entry.partition_index, ErrorCode.INVALID_REQUEST)
                    if asked[topic.name, entry.partition_index] > 1
                    else self._partition(topic.name, entry, request, searches)
                    for entry in topic.partitions
                ],
            )
            for topic in body.topics
        ]
        response = ListOffsetsResponse(topics=topics)
        if searches:
            self._services.background(request.guarded(self._search(request, response, searches)))
        else:
            request.answer(response)

    def _partition(
        self,
        topic: str,
        entry: ListOffsetsPartition,
        request: Request,
        searches: list[tuple[ListOffsetsPartitionResponse, TimeSearch]],
    ) -> ListOffsetsPartitionResponse:
        index, version = entry.partition_index, request.version
        if entry.timestamp < 0 and version < SPECIAL_FROM_VERSION.get(entry.timestamp, version + 1):
            return _refusal(index, ErrorCode.UNSUPPORTED_VERSION)
        try:
            partition = self._services.partitions.leader_of(topic, index)
            found = lookup(partition, entry, from_replica=request.body.replica_id >= 0)
        except BrokerError as error:
            code = error.error_code
            if code == ErrorCode.OFFSET_NOT_AVAILABLE and version < OFFSET_NOT_AVAILABLE_FROM_VERSION:
                code = ErrorCode.LEADER_NOT_AVAILABLE
            return _refusal(index, code)
        response = _refusal(index, ErrorCode.NONE)
        if isinstance(found, TimeSearch):
            searches.append((response, found))
        else:
            response.timestamp, response.offset, response.leader_epoch = found
        return response

    async def _search(
        self,
        request: Request,
        response: ListOffsetsResponse,
        searches: list[tuple[ListOffsetsPartitionResponse, TimeSearch]],
    ) -> None:
        loop = asyncio.get_running_loop()
        for number, (partition, search) in enumerate(searches, 1):
            try:
                while not request.abandoned and (step := search.plan()) is not None:
                    async with self._turn:
                        await loop.run_in_executor(self._services.io_pool, step.run)
            except ReadInterrupted:
                # The log was cut while it was searched: the client asks again.
                partition.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            except BrokerError as error:
                partition.error_code = error.error_code
            else:
                if search.found is not None:
                    partition.timestamp, partition.offset, partition.leader_epoch = search.found
            if number % PARTITIONS_AT_ONCE == 0:
                await asyncio.sleep(0)
        request.answer(response)


def _refusal(index: int, code: int) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=index, error_code=code, timestamp=-1, offset=-1, leader_epoch=-1
    )


def lookup(
    partition: PartitionDriver, entry: ListOffsetsPartition, *, from_replica: bool
) -> tuple[int, int, int] | TimeSearch:
    """(timestamp, offset, leader epoch) for one question, or the search that finds them. Raises `BrokerError`.

    The upper bound is the high watermark for clients; it is withheld after an election until it is certain (R13).
    """
    replica, log = partition.replica, partition.log
    if entry.timestamp in {EARLIEST, EARLIEST_LOCAL}:
        # Known with certainty on any leader, but a fenced requester must still hear that it is fenced.
        replica.end_offset_for_epoch(entry.current_leader_epoch, log.epochs.latest_epoch)
        start = log.start_offset
        return -1, start, log.epochs.epoch_at(start)
    end = replica.list_offset_bounds(entry.current_leader_epoch, from_replica)
    if entry.timestamp == LATEST:
        return -1, end, replica.leader_epoch
    return log.search_by_time(None if entry.timestamp == MAX_TIMESTAMP else entry.timestamp, end=end)

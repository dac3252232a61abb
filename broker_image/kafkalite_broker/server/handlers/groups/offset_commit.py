"""OffsetCommit (key 8): how far a group has come."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kafkalite_broker.server.handlers.bounds import partitions_named, within_bounds
from kafkalite_broker.server.handlers.groups.known_partitions import ask_for_known
from kafkalite_core.protocol.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.services import Services
    from kafkalite_core.protocol.offset_commit import OffsetCommitRequest


class OffsetCommitHandler:
    """Has the group's coordinator commit offsets of partitions that exist."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def __call__(self, request: Request) -> None:
        """Answered when the high watermark has passed the offsets."""
        if within_bounds(request, partitions_named(request)):
            ask_for_known(self._services, request, partial(respond, request.body))


def respond(
    body: OffsetCommitRequest, codes: dict[tuple[str, int], int], _response: OffsetCommitResponse | None
) -> OffsetCommitResponse:
    """A code for every partition, in the order of the request."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=entry.partition_index, error_code=codes[topic.name, entry.partition_index]
                    )
                    for entry in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )

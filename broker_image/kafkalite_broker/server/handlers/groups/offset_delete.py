"""OffsetDelete (key 47): forget the offsets of a group for topics that it does not read any longer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kafkalite_broker.server.handlers.bounds import partitions_named, within_bounds
from kafkalite_broker.server.handlers.groups.known_partitions import ask_for_known
from kafkalite_core.protocol.offset_delete import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.services import Services
    from kafkalite_core.protocol.offset_delete import OffsetDeleteRequest


class OffsetDeleteHandler:
    """Has the group's coordinator delete offsets of partitions that exist."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def __call__(self, request: Request) -> None:
        """Answered when the tombstones are committed."""
        if within_bounds(request, partitions_named(request)):
            ask_for_known(self._services, request, partial(respond, request.body))


def respond(
    body: OffsetDeleteRequest, codes: dict[tuple[str, int], int], response: OffsetDeleteResponse | None
) -> OffsetDeleteResponse:
    """A code for every partition, in the order of the request; nothing else when the whole group is refused."""
    if response is not None and response.error_code:
        return response
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=entry.partition_index, error_code=codes[topic.name, entry.partition_index]
                    )
                    for entry in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )

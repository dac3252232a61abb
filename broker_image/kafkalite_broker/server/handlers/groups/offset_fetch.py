"""OffsetFetch (key 9): the committed offsets of one group, or of several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_broker.server.handlers.bounds import within_bounds

if TYPE_CHECKING:
    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.services import Services
    from kafkalite_core.protocol.offset_fetch import OffsetFetchRequest


class OffsetFetchHandler:
    """Asks each group's coordinator."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def __call__(self, request: Request) -> None:
        """Answered when every coordinator has."""
        if within_bounds(request, entries(request.body)):
            self._services.groups.ask(request)


def entries(body: OffsetFetchRequest) -> int:
    """Groups, topics and partitions that the request names."""
    single = sum(1 + len(topic.partition_indexes) for topic in body.topics or ())
    return single + sum(
        1 + sum(1 + len(topic.partition_indexes) for topic in group.topics or ()) for group in body.groups
    )

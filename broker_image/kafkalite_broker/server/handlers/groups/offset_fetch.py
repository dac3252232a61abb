"""OffsetFetch (key 9): the committed offsets of one group, or of several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_broker.server.handlers.bounds import within_bounds
from kafkalite_broker.server.handlers.groups.large_answers import ask_in_turn

if TYPE_CHECKING:
    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.services import Services
    from kafkalite_core.protocol.offset_fetch import OffsetFetchRequest, OffsetFetchResponse


class OffsetFetchHandler:
    """Asks each group's coordinator."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def __call__(self, request: Request) -> None:
        """Answered when every coordinator has."""
        body = request.body
        if not within_bounds(request, entries_asked(body)):
            return
        # Each once: a group that is named ten thousand times must not have ten thousand answers.
        body.groups = list({group.group_id: group for group in body.groups}.values())
        ask_in_turn(self._services, request, entries_answered)


def entries_asked(body: OffsetFetchRequest) -> int:
    """Groups, topics and partitions that the request names."""
    single = sum(1 + len(topic.partition_indexes) for topic in body.topics or ())
    return single + sum(
        1 + sum(1 + len(topic.partition_indexes) for topic in group.topics or ()) for group in body.groups
    )


def entries_answered(response: OffsetFetchResponse) -> int:
    """Partitions in the response."""
    single = sum(len(topic.partitions) for topic in response.topics)
    return single + sum(len(topic.partitions) for group in response.groups for topic in group.topics)

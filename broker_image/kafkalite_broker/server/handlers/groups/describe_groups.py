"""DescribeGroups (key 15): state and members of groups that this broker coordinates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_broker.server.handlers.bounds import within_bounds
from kafkalite_broker.server.handlers.groups.large_answers import ask_in_turn

if TYPE_CHECKING:
    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.services import Services
    from kafkalite_core.protocol.describe_groups import DescribeGroupsResponse


class DescribeGroupsHandler:
    """Asks each group's coordinator."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def __call__(self, request: Request) -> None:
        """Answered when every coordinator has."""
        body = request.body
        if not within_bounds(request, len(body.groups)):
            return
        # Each once: a group that is named ten thousand times must not have ten thousand answers.
        body.groups = list(dict.fromkeys(body.groups))
        ask_in_turn(self._services, request, entries_answered)


def entries_answered(response: DescribeGroupsResponse) -> int:
    """Groups and members in the response."""
    return len(response.groups) + sum(len(group.members) for group in response.groups)

"""ListGroups (key 16): the groups that this broker coordinates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_broker.server.handlers.bounds import within_bounds
from kafkalite_broker.server.handlers.groups.large_answers import ask_in_turn

if TYPE_CHECKING:
    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.services import Services
    from kafkalite_core.protocol.list_groups import ListGroupsResponse


class ListGroupsHandler:
    """Asks every coordinator."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def __call__(self, request: Request) -> None:
        """Answered when every coordinator has."""
        body = request.body
        if within_bounds(request, len(body.states_filter) + len(body.types_filter)):
            ask_in_turn(self._services, request, entries_answered)


def entries_answered(response: ListGroupsResponse) -> int:
    """Groups in the response."""
    return len(response.groups)

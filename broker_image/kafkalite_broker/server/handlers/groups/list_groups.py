"""ListGroups (key 16): the groups that this broker coordinates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_broker.server.handlers.bounds import within_bounds

if TYPE_CHECKING:
    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.services import Services


class ListGroupsHandler:
    """Asks every coordinator."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def __call__(self, request: Request) -> None:
        """Answered when every coordinator has."""
        if within_bounds(request, len(request.body.states_filter) + len(request.body.types_filter)):
            self._services.groups.ask(request)

"""LeaveGroup (key 13): members go, one or, by an administrator, several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_broker.server.handlers.bounds import within_bounds

if TYPE_CHECKING:
    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.services import Services


class LeaveGroupHandler:
    """Hands departures to the group."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def __call__(self, request: Request) -> None:
        """Answered at once."""
        if within_bounds(request, len(request.body.members)):
            self._services.groups.ask(request)

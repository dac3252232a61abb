"""SyncGroup (key 14): the leader of a group hands in the assignment, everybody fetches theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_broker.server.handlers.bounds import within_bounds

if TYPE_CHECKING:
    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.services import Services


class SyncGroupHandler:
    """Hands assignments to the group."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def __call__(self, request: Request) -> None:
        """Answered when the leader's assignment is committed."""
        if within_bounds(request, len(request.body.assignments)):
            request.waits()
            self._services.groups.ask(request)

"""JoinGroup (key 11): become a member, or say what has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_broker.server.handlers.bounds import within_bounds

if TYPE_CHECKING:
    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.services import Services


class JoinGroupHandler:
    """Hands members to their group. A client that goes away stays a member until its session ends, as in Kafka."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def __call__(self, request: Request) -> None:
        """Answered when the group has a new generation."""
        if within_bounds(request, len(request.body.protocols)):
            request.waits()
            self._services.groups.ask(request)

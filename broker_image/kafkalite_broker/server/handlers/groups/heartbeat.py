"""Heartbeat (key 12): a member is alive, and hears of rebalances."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.services import Services


class HeartbeatHandler:
    """Hands heartbeats to the group."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def __call__(self, request: Request) -> None:
        """Answered at once."""
        self._services.groups.ask(request)

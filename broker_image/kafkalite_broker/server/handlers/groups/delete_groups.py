"""DeleteGroups (key 42): empty groups go, with their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_broker.server.handlers.bounds import within_bounds

if TYPE_CHECKING:
    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.services import Services


class DeleteGroupsHandler:
    """Asks each group's coordinator."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def __call__(self, request: Request) -> None:
        """Answered when the tombstones are committed."""
        body = request.body
        if within_bounds(request, len(body.groups_names)):
            body.groups_names = list(dict.fromkeys(body.groups_names))
            self._services.groups.ask(request)

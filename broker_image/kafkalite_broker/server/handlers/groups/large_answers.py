"""Answers whose size is the group's and not the request's: a large one is encoded on a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.services import Services

ENTRIES_AT_ONCE_MAX = 1000
"""Entries of an answer that are encoded on the event loop; they take a few milliseconds."""


def ask_in_turn(services: Services, request: Request, entries: Callable[[Any], int]) -> None:
    """Ask the coordinators once all before it is sent: as objects an answer takes several times what it does encoded.

    Otherwise a client that reads nothing could have as many of them made as it may have requests under way.
    """
    asked = LargeAnswer(services, request, entries)
    if request.is_first:
        services.groups.ask_for(request, request.body, asked)
    else:
        services.background(request.guarded(_ask_later(services, request, asked)))


async def _ask_later(services: Services, request: Request, asked: LargeAnswer) -> None:
    await request.turn()
    if not request.abandoned:
        services.groups.ask_for(request, request.body, asked)


class LargeAnswer:
    """Token of a request whose answer may be large.

    Args:
        services: Of the broker.
        request: The request.
        entries: Counts what the response lists.
    """

    __slots__ = ("_entries", "_request", "_services")

    def __init__(self, services: Services, request: Request, entries: Callable[[Any], int]) -> None:
        self._services = services
        self._request = request
        self._entries = entries

    def answer(self, response: Any) -> None:
        """The coordinator's answer; it holds nothing that changes afterwards."""
        request = self._request
        if self._entries(response) <= ENTRIES_AT_ONCE_MAX:
            request.answer(response)
            return
        self._services.background(request.guarded(request.answer_large(response, self._services.io_pool)))

    def failed(self, error: BaseException) -> None:
        """There will be none."""
        self._request.failed(error)

"""Answers that take long to make: a generator makes them, and other work has its turn in between."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.services import Services

PARTITIONS_AT_ONCE = 500
"""Partitions described in one turn of the event loop: a few milliseconds of work."""


class SlicedAnswers:
    """Answers requests with what generators return; each `yield` gives the event loop back.

    One at a time is made beyond its first slice: many clients that ask for everything at once must not have the broker
    hold as many half-made answers.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._turn = asyncio.Lock()

    def give(self, request: Request, work: Generator[None, None, object]) -> None:
        """Answer at once if the first slice is the last one; otherwise later, encoded on a thread."""
        try:
            next(work)
        except StopIteration as done:
            request.answer(done.value)
            return
        self._services.background(request.guarded(self._finish(request, work)))

    async def _finish(self, request: Request, work: Generator[None, None, object]) -> None:
        # Not in the turn of all: a client that does not read what it was answered must not keep it from the others.
        await request.turn()
        async with self._turn:
            while not request.abandoned:
                await asyncio.sleep(0)
                try:
                    next(work)
                except StopIteration as done:
                    await request.answer_large(done.value, self._services.io_pool)
                    return
        work.close()
        request.answer_nothing()

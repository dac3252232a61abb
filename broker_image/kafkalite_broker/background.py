"""Tasks that nobody awaits: kept from the garbage collector, and their failures logged."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Coroutine

log = get_logger(__name__)


class Background:
    """A set of running tasks."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it as a task."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """Cancel what still runs."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background task failed", task=task.get_coro().__qualname__, exc_info=error)  # type: ignore[union-attr]

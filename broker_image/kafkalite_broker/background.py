"""Tasks that nobody awaits: kept from the garbage collector, and their failures logged and told."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

log = get_logger(__name__)


def nobody(_error: BaseException) -> None:
    """To be told of a failure that is only logged: of work without which the broker goes on."""


def watch(task: asyncio.Task[None], on_failed: Callable[[BaseException], None]) -> None:
    """Logs the exception that ends a task, with its traceback, and tells it: nobody awaits the task."""

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task failed", task=task.get_name(), exc_info=error)
            on_failed(error)

    task.add_done_callback(ended)


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

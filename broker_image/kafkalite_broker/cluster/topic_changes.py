"""Waiting until the metadata show something: woken by every change, never by a clock."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class TopicChanges:
    """Wakes those who wait for topics, brokers or the cluster to change. Changes of one turn of the loop are one."""

    def __init__(self) -> None:
        self._changed: asyncio.Future[None] | None = None

    def look_again(self) -> None:
        """The metadata changed."""
        changed, self._changed = self._changed, None
        if changed is not None and not changed.done():
            changed.set_result(None)

    async def until(self, shown: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until `shown()` is true, for that long at most; whether it is. `shown` must be cheap."""
        if shown():
            return True
        try:
            async with asyncio.timeout(max(timeout_s, 0.0)):
                while True:
                    if self._changed is None:
                        self._changed = asyncio.get_running_loop().create_future()
                    await asyncio.shield(self._changed)
                    if shown():
                        return True
        except TimeoutError:
            return shown()

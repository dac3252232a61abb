"""Leaders that stopped answering this broker a moment ago and are still leaders in the metadata.

A hint for clients, never an input of a decision about leadership.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite_core.membership.metadata_cache import MetadataCache

SUSPICION_S = 1.0
"""A leader that has not been replaced after this time is one that only this broker cannot reach."""


class SuspectedLeaders:
    """Who is suspected, and which topics that concerns.

    Args:
        cache: The metadata.
    """

    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache
        self._since_s: dict[int, tuple[float, int]] = {}
        self._changed: asyncio.Future[None] | None = None

    def __bool__(self) -> bool:
        return bool(self._since_s)

    def note(self, broker_id: int) -> None:
        """The connection to that leader broke."""
        self._since_s[broker_id] = (monotonic(), self._epoch(broker_id))

    def look_again(self) -> None:
        """The metadata changed."""
        changed, self._changed = self._changed, None
        if changed is not None and not changed.done():
            changed.set_result(None)

    def concern(self, topics: Iterable[str]) -> bool:
        """Whether a suspect leads a partition of one of these topics."""
        self._forgive()
        if not self._since_s:
            return False
        found = (self._cache.topic(name) for name in topics)
        return any(
            partition.leader in self._since_s
            for topic in found
            if topic is not None
            for partition in topic.partitions.values()
        )

    async def settled(self, topics: Iterable[str], timeout_s: float) -> None:
        """Wait until no suspect leads any of these topics, for that long at most."""
        names = list(topics)
        try:
            async with asyncio.timeout(timeout_s):
                while self.concern(names):
                    if self._changed is None:
                        self._changed = asyncio.get_running_loop().create_future()
                    await asyncio.shield(self._changed)
        except TimeoutError:
            return

    def _forgive(self) -> None:
        """Suspicion ends with time, or when another incarnation of the broker is there."""
        now_s = monotonic()
        for broker_id, (since_s, epoch) in list(self._since_s.items()):
            if now_s - since_s > SUSPICION_S or self._epoch(broker_id) != epoch:
                del self._since_s[broker_id]

    def _epoch(self, broker_id: int) -> int:
        broker = self._cache.brokers.get(broker_id)
        return -1 if broker is None else broker.epoch

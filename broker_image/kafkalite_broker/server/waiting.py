"""Fetches that wait for data (Kafka's purgatory).

A waiting fetch is woken by the append or the move of the high watermark that may satisfy it. Deadlines share one timer.
"""

from __future__ import annotations

import asyncio
import heapq
from itertools import count
from typing import Protocol


class Waiter(Protocol):
    """Something that waits until a deadline."""

    done: bool

    def expire(self) -> None:
        """The deadline has come."""


class WaitingFetches:
    """Deadlines of everything that waits, on a single timer of the loop."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Waiter]] = []
        self._serial = count()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, waiter: Waiter, deadline_s: float) -> None:
        """Call `waiter.expire()` at that time of the loop, unless it is done by then."""
        heapq.heappush(self._heap, (deadline_s, next(self._serial), waiter))
        if self._timer is None or deadline_s < self._timer.when():
            self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._heap and self._heap[0][2].done:
            heapq.heappop(self._heap)
        if self._heap:
            self._timer = asyncio.get_running_loop().call_at(self._heap[0][0], self._expire)

    def _expire(self) -> None:
        self._timer = None
        now_s = asyncio.get_running_loop().time()
        while self._heap and (self._heap[0][2].done or self._heap[0][0] <= now_s):
            waiter = heapq.heappop(self._heap)[2]
            if not waiter.done:
                waiter.expire()
        self._arm()

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
    """Expects `expire` no longer."""

    def expire(self) -> None:
        """The deadline has come."""


COMPACT_FROM = 64


class WaitingFetches:
    """Deadlines of everything that waits, on a single timer of the loop.

    Who is done early leaves a place in the heap; when most places are such, they are cleared. So a client that allows
    hours for each fetch cannot fill the memory with fetches answered long ago.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Waiter]] = []
        self._done = 0
        self._serial = count()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, waiter: Waiter, deadline_s: float) -> None:
        """Call `waiter.expire()` at that time of the loop, unless it is done by then."""
        heapq.heappush(self._heap, (deadline_s, next(self._serial), waiter))
        if self._timer is None or deadline_s < self._timer.when():
            self._arm()

    def finished(self) -> None:
        """A waiter that was added is done before its deadline."""
        self._done += 1
        if self._done >= COMPACT_FROM and self._done * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if not entry[2].done]
            heapq.heapify(self._heap)
            self._done = 0

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._heap and self._heap[0][2].done:
            self._pop()
        if self._heap:
            self._timer = asyncio.get_running_loop().call_at(self._heap[0][0], self._expire)

    def _expire(self) -> None:
        self._timer = None
        now_s = asyncio.get_running_loop().time()
        try:
            while self._heap and (self._heap[0][2].done or self._heap[0][0] <= now_s):
                waiter = self._pop()
                if not waiter.done:
                    waiter.expire()
        finally:
            # A waiter that fails must not leave the others without a timer.
            self._arm()

    def _pop(self) -> Waiter:
        waiter = heapq.heappop(self._heap)[2]
        if waiter.done:
            self._done = max(self._done - 1, 0)
        return waiter

"""Fetches that wait for data (Kafka's purgatory).

A waiting fetch is woken by the append or the move of the high watermark that may satisfy it. Deadlines share one timer.
What waits holds memory, but keeps nobody's requests out: beyond a bound the one that has waited longest is answered.
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
        """The deadline has come, or others are to have its memory. It is done when this returns."""


COMPACT_FROM = 64

WAITING_BYTES_MAX = 64 << 20
"""What all that wait may hold together."""


class WaitingFetches:
    """Deadlines of everything that waits, on a single timer of the loop.

    Who is done early leaves a place in the heap; when most places are such, they are cleared. So a client that allows
    hours for each fetch cannot fill the memory with fetches answered long ago.

    Args:
        bytes_max: Bound of what those who wait hold. When it is exceeded the oldest ones expire early.

    Attributes:
        held_bytes: What they hold now.
    """

    def __init__(self, bytes_max: int = WAITING_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self.held_bytes = 0
        self._held: dict[Waiter, int] = {}
        """What each holds, the oldest first; without those that hold nothing."""
        self._heap: list[tuple[float, int, Waiter]] = []
        self._done = 0
        self._serial = count()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = 0.0
        """When it is due: the handle of a timer that is due at once does not say, with uvloop."""

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, waiter: Waiter, deadline_s: float, held_bytes: int = 0) -> None:
        """Call `waiter.expire()` at that time of the loop, unless it is done by then; earlier where memory is short."""
        heapq.heappush(self._heap, (deadline_s, next(self._serial), waiter))
        if self._timer is None or deadline_s < self._timer_s:
            self._arm()
        if held_bytes:
            self._held[waiter] = held_bytes
            self.held_bytes += held_bytes
            self._make_room(waiter)

    def _make_room(self, newest: Waiter) -> None:
        while self.held_bytes > self._bytes_max:
            oldest = next(iter(self._held))
            if oldest is newest:
                return  # alone it may hold more: there is a bound on what one request may name
            try:
                oldest.expire()
            finally:
                self._let_go(oldest)

    def _let_go(self, waiter: Waiter) -> None:
        self.held_bytes -= self._held.pop(waiter, 0)

    def finished(self, waiter: Waiter) -> None:
        """A waiter that was added is done, before its deadline as a rule."""
        self._let_go(waiter)
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
            self._timer_s = self._heap[0][0]
            self._timer = asyncio.get_running_loop().call_at(self._timer_s, self._expire)

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

"""Deadlines in a heap. Putting one off is free of heap operations, because every heartbeat does it."""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

DEAD_MIN = 64
"""Dead entries that may always stay: building a small heap anew gains nothing."""


def nothing() -> None:
    """The action of a timer that has not got one yet, or has none any more."""


class Timer:
    """One deadline that can be moved; `action` is called when it has passed.

    Attributes:
        deadline_ms: When it is due; None while it is off.
    """

    __slots__ = ("_queued_ms", "action", "deadline_ms")

    def __init__(self, action: Callable[[], None]) -> None:
        self.action = action
        self.deadline_ms: float | None = None
        # Where the one live entry of the heap stands; never later than the deadline.
        self._queued_ms: float | None = None


class Timers:
    """All deadlines of a coordinator.

    A timer has at most one live entry in the heap. An entry that is too early moves to its timer's deadline when it
    comes to the top; one that was superseded by an earlier one, or whose timer is off, is dropped there. That may be
    hours later, and clients decide how many there are: when most entries are dead, the heap is built anew.
    """

    __slots__ = ("_count", "_heap", "_on")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._count = 0
        self._on = 0  # timers that are on

    def __len__(self) -> int:
        """Entries in the heap, dead ones included."""
        return len(self._heap)

    def schedule(self, timer: Timer, deadline_ms: float) -> None:
        """Set or move the timer's deadline."""
        if timer.deadline_ms is None:
            self._on += 1
        timer.deadline_ms = deadline_ms
        queued = timer._queued_ms  # noqa: SLF001 - the two classes are one thing
        if queued is None or deadline_ms < queued:
            self._push(timer, deadline_ms)

    def cancel(self, timer: Timer) -> None:
        """Switch the timer off; its action stays, for the next time."""
        if timer.deadline_ms is not None:
            timer.deadline_ms = None
            self._on -= 1
            self._tidy()

    def discard(self, timer: Timer) -> None:
        """Switch the timer off for good. Its entry may stay in the heap, but keeps nothing alive that it acted on."""
        timer.action = nothing
        self.cancel(timer)

    def next_deadline_ms(self) -> float | None:
        """The earliest deadline, or None."""
        heap = self._heap
        while heap:
            at, _, timer = heap[0]
            if timer._queued_ms != at:  # noqa: SLF001
                heappop(heap)
            elif timer.deadline_ms is None:
                heappop(heap)
                timer._queued_ms = None  # noqa: SLF001
            elif timer.deadline_ms > at:
                self._count += 1
                timer._queued_ms = timer.deadline_ms  # noqa: SLF001
                heapreplace(heap, (timer.deadline_ms, self._count, timer))
            else:
                return at
        return None

    def pop_due(self, now_ms: float) -> Timer | None:
        """Take out one timer that is due and switch it off; None when none is."""
        deadline = self.next_deadline_ms()
        if deadline is None or deadline > now_ms:
            return None
        timer = heappop(self._heap)[2]
        timer._queued_ms = None  # noqa: SLF001
        timer.deadline_ms = None
        self._on -= 1
        return timer

    def _push(self, timer: Timer, at: float) -> None:
        self._count += 1
        timer._queued_ms = at  # noqa: SLF001
        heappush(self._heap, (at, self._count, timer))
        self._tidy()

    def _tidy(self) -> None:
        """Leave the live entries alone, if most are dead. Entries keep their numbers: ties are broken as before."""
        if len(self._heap) <= 2 * self._on + DEAD_MIN:
            return
        live: dict[Timer, tuple[float, int, Timer]] = {}
        for entry in sorted(self._heap, reverse=True):
            at, _, timer = entry
            if timer.deadline_ms is None:
                timer._queued_ms = None  # noqa: SLF001
            elif timer._queued_ms == at:  # noqa: SLF001
                live[timer] = entry
        self._heap = list(live.values())
        heapify(self._heap)

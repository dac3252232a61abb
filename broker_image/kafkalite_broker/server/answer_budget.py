"""The bound on bytes that answers to consumers hold which were read from the disk."""

from __future__ import annotations

import asyncio
from collections import deque

SHARES = 4
"""One answer takes no more than this part of the budget. By default that is more than a fetch may ask for."""


class AnswerBudget:
    """Counts bytes from before they are read until they have left for the socket. Who finds no room waits in turn.

    No deadlock: who waits here holds nothing that somebody else could wait for, neither bytes of this budget nor, since
    only the first unanswered request of a connection asks, a place before an answer that has some. So bytes come back
    when a read ends, when a client reads, or when its connection ends, which the sweep of the connections sees to while
    somebody waits. No starvation: the first in the queue is the next.

    Answers to other brokers are not counted: these are as few as the brokers, have one answer each at a time, and must
    never wait for consumers.

    Args:
        limit_bytes: `kafkalite.fetch.cold.bytes`.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._waiting: deque[Room] = deque()

    def somebody_waits(self) -> bool:
        """Whether an answer waits for room."""
        return bool(self._waiting)

    def enter(self, room: Room) -> bool:
        """Count the room if there is space and nobody waits; otherwise it stands in the queue."""
        if not self._waiting and self._fits(room):
            self.used_bytes += room.size_bytes
            return True
        self._waiting.append(room)
        return False

    def leave(self, room: Room) -> None:
        """It does not wait any longer."""
        self._waiting.remove(room)
        self._admit()

    def change(self, size_bytes: int) -> None:
        """An answer turned out to be that much larger (a batch is never cut) or smaller, or it has left."""
        self.used_bytes += size_bytes
        assert self.used_bytes >= 0, "more bytes given back than taken"
        if size_bytes < 0:
            self._admit()

    def _fits(self, room: Room) -> bool:
        return self.used_bytes + room.size_bytes <= self.limit_bytes

    def _admit(self) -> None:
        while self._waiting and self._fits(self._waiting[0]):
            room = self._waiting.popleft()
            self.used_bytes += room.size_bytes
            room.admitted()


class Room:
    """What one answer holds of the budget; a share of it at most, even if more was wanted.

    Attributes:
        size_bytes: So much is counted, or will be.
        is_cut: It is less than was wanted.
        entered: Done when it is counted, or by whoever gives up waiting; None when it was counted at once.
    """

    __slots__ = ("_budget", "_waits", "entered", "is_cut", "size_bytes")

    def __init__(self, budget: AnswerBudget, wanted_bytes: int) -> None:
        self._budget = budget
        self.size_bytes = min(wanted_bytes, budget.limit_bytes // SHARES)
        self.is_cut = self.size_bytes < wanted_bytes
        self._waits = not budget.enter(self)
        self.entered = asyncio.get_running_loop().create_future() if self._waits else None

    def admitted(self) -> None:
        """Called by the budget: it is counted from now on."""
        self._waits = False
        if self.entered is not None and not self.entered.done():
            self.entered.set_result(None)

    def holds(self, size_bytes: int) -> None:
        """So much was read."""
        if self._waits:
            # It was given up: what it is counted for from now on, nothing as a rule, waits for nobody.
            self._waits, self.size_bytes = False, 0
            self._budget.leave(self)
        change_bytes, self.size_bytes = size_bytes - self.size_bytes, size_bytes
        self._budget.change(change_bytes)

    def give_back(self) -> None:
        """Nothing is held, nor waited for, any longer."""
        self.holds(0)

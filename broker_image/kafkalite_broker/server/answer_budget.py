"""The bound on bytes that answers to consumers hold, read from the disk or kept from memory, until they are sent."""

from __future__ import annotations

import asyncio
from collections import deque

SHARES = 4
"""One answer takes no more than this part of the budget. By default that is more than a fetch may ask for."""

HOT_SHARES = 2
"""Answers from memory alone take no more than this part: clients that don't read them keep out no others."""


class AnswerBudget:
    """Counts bytes from before they are read until they have left for the socket. Who finds no room waits in turn.

    What is hot, from memory alone, is counted too: unless its client reads it, it outlives the tail of the log. It goes
    before what is cold, and has a part of the budget at most, so what is cold always has the rest.

    No deadlock: who waits here holds nothing that somebody else could wait for, neither bytes of this budget nor, since
    only the first unanswered request of a connection asks, a place before an answer that has some. So bytes come back
    when a read ends, when a client reads, or when its connection ends, which the sweep of the connections sees to while
    somebody waits. No starvation: the first in its queue is the next.

    Answers to other brokers are not counted: these are as few as the brokers, have one answer each at a time, and must
    never wait for consumers.

    Args:
        limit_bytes: `kafkalite.fetch.cold.bytes`.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.hot_bytes = 0
        """Of the used ones."""
        self._hot: deque[Room] = deque()
        self._cold: deque[Room] = deque()

    def somebody_waits(self) -> bool:
        """Whether an answer waits for room."""
        return bool(self._hot or self._cold)

    def is_waited_for(self, room: Room) -> bool:
        """Whether somebody waits for what this room holds."""
        return bool(self._cold) or (bool(self._hot) if room.is_hot else self._hot_waits_for_all)

    def has_room(self, hot_bytes: int) -> bool:
        """Whether a hot answer of this size would be counted at once, all of it."""
        return not self._hot and hot_bytes <= self.limit_bytes // SHARES and self._fits(hot_bytes, hot=True)

    def enter(self, room: Room) -> bool:
        """Count the room if there is space and nobody waits; otherwise it stands in the queue."""
        queue = self._queue_of(room)
        queue.append(room)
        if self._next() is not room:
            return False
        queue.pop()
        self._count(room.size_bytes, hot=room.is_hot)
        return True

    def leave(self, room: Room) -> None:
        """It does not wait any longer."""
        self._queue_of(room).remove(room)
        self._admit()

    def change(self, size_bytes: int, *, hot: bool) -> None:
        """An answer turned out to be that much larger (a batch is never cut) or smaller, or it has left."""
        self._count(size_bytes, hot=hot)
        assert self.used_bytes >= self.hot_bytes >= 0, "more bytes given back than taken"
        if size_bytes < 0:
            self._admit()

    def _count(self, size_bytes: int, *, hot: bool) -> None:
        self.used_bytes += size_bytes
        self.hot_bytes += size_bytes if hot else 0

    def _queue_of(self, room: Room) -> deque[Room]:
        return self._hot if room.is_hot else self._cold

    def _fits(self, size_bytes: int, *, hot: bool) -> bool:
        if hot and self.hot_bytes + size_bytes > self.limit_bytes // HOT_SHARES:
            return False
        return self.used_bytes + size_bytes <= self.limit_bytes

    @property
    def _hot_waits_for_all(self) -> bool:
        """Whether the first hot answer waits, and not for others that are hot."""
        return bool(self._hot) and self.hot_bytes + self._hot[0].size_bytes <= self.limit_bytes // HOT_SHARES

    def _next(self) -> Room | None:
        """Who is counted next, if there is space for one."""
        queue = self._hot if self._hot_waits_for_all else self._cold
        return queue[0] if queue and self._fits(queue[0].size_bytes, hot=queue[0].is_hot) else None

    def _admit(self) -> None:
        while (room := self._next()) is not None:
            self._queue_of(room).popleft()
            self._count(room.size_bytes, hot=room.is_hot)
            room.admitted()


class Room:
    """What one answer holds of the budget; a share of it at most, even if more was wanted.

    Attributes:
        size_bytes: So much is counted, or will be.
        is_hot: It is for an answer from memory alone.
        is_cut: It is less than was wanted.
        entered: Done when it is counted, or by whoever gives up waiting; None when it was counted at once.
    """

    __slots__ = ("_budget", "_waits", "entered", "is_cut", "is_hot", "size_bytes")

    def __init__(self, budget: AnswerBudget, wanted_bytes: int, *, hot: bool = False) -> None:
        self._budget = budget
        self.is_hot = hot
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
        self._budget.change(change_bytes, hot=self.is_hot)

    @property
    def is_waited_for(self) -> bool:
        """Whether somebody waits for what it holds."""
        return self._budget.is_waited_for(self)

    def give_back(self) -> None:
        """Nothing is held, nor waited for, any longer."""
        self.holds(0)

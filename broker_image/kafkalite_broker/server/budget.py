"""The bound on bytes of requests that are received and not yet answered, over all connections of a broker."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class InFlightBudget:
    """Counts bytes held by requests. Over the limit connections stop reading; they go on when half of it is free again.

    A connection that is in the middle of a frame may finish it: otherwise all of them could wait for one another.

    Args:
        limit_bytes: `queued.max.request.bytes`.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def exhausted(self) -> bool:
        """Whether connections have to stop reading."""
        return self.used_bytes >= self.limit_bytes

    def take(self, size_bytes: int) -> None:
        """Count bytes that were received."""
        self.used_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        """Count bytes that were let go; wakes connections that wait."""
        self.used_bytes -= size_bytes
        assert self.used_bytes >= 0, "more bytes given back than taken"
        if self._waiting and self.used_bytes <= self.limit_bytes // 2:
            waiting, self._waiting = self._waiting, deque()
            for resume in waiting:
                resume()

    def wait(self, resume: Callable[[], None]) -> None:
        """Have `resume` called when there is room."""
        self._waiting.append(resume)

"""Produce requests that wait for the disk or for the high watermark."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.replica.events import ProduceAnswered

if TYPE_CHECKING:
    from kafkalite_core.replica.events import Effect

NONE: Final = int(ErrorCode.NONE)
_NEVER: Final = float("inf")


class Parked(NamedTuple):
    """One waiting request: answered once the offset that it waits on reaches `required_end`."""

    required_end: int
    token: object
    base_offset: int
    log_append_time_ms: int
    deadline_ms: float


class ParkedProduces:
    """Waiting requests in order of the offset that they wait for, with the earliest deadline at hand.

    The number is bounded by that of the connections, and of the requests of one that may wait. Their batches are the
    log's, and count no longer as bytes of requests.
    """

    __slots__ = ("_earliest_deadline_ms", "_waiting")

    def __init__(self) -> None:
        self._waiting: deque[Parked] = deque()
        self._earliest_deadline_ms = _NEVER

    def __len__(self) -> int:
        return len(self._waiting)

    def park(self, parked: Parked) -> None:
        """Add a request. New batches come in order; a duplicate may wait for an earlier offset (S9)."""
        waiting = self._waiting
        self._earliest_deadline_ms = min(self._earliest_deadline_ms, parked.deadline_ms)
        if not waiting or waiting[-1].required_end <= parked.required_end:
            waiting.append(parked)
            return
        position = len(waiting)
        while position and waiting[position - 1].required_end > parked.required_end:
            position -= 1
        waiting.insert(position, parked)

    def complete(self, reached: int, log_start_offset: int, effects: list[Effect]) -> None:
        """Answer, with success, all that waited for an end not beyond `reached`."""
        waiting = self._waiting
        while waiting and waiting[0].required_end <= reached:
            parked = waiting.popleft()
            effects.append(
                ProduceAnswered(
                    token=parked.token,
                    error_code=NONE,
                    base_offset=parked.base_offset,
                    log_append_time_ms=parked.log_append_time_ms,
                    log_start_offset=log_start_offset,
                )
            )
        if not waiting:
            self._earliest_deadline_ms = _NEVER

    def expire(self, now_ms: float, error_code: int, message: str, effects: list[Effect]) -> None:
        """Answer, with the error, all whose deadline is over."""
        if now_ms < self._earliest_deadline_ms:
            return
        kept: deque[Parked] = deque()
        earliest = _NEVER
        for parked in self._waiting:
            if parked.deadline_ms <= now_ms:
                effects.append(ProduceAnswered(token=parked.token, error_code=error_code, message=message))
            else:
                kept.append(parked)
                earliest = min(earliest, parked.deadline_ms)
        self._waiting = kept
        self._earliest_deadline_ms = earliest

    def fail(self, error_code: int, message: str, effects: list[Effect]) -> None:
        """Answer all with an error."""
        effects.extend(
            ProduceAnswered(token=parked.token, error_code=int(error_code), message=message) for parked in self._waiting
        )
        self._waiting.clear()
        self._earliest_deadline_ms = _NEVER

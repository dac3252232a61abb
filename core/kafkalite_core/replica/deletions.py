"""Deletion of records from a log's start by its leader (KIP-107), and the requests that wait for the followers.

The low watermark is the least log start of all live replicas; a follower tells its own with every fetch. No live
replica serves an offset below it, so a request for the deletion up to `offset` succeeds once low watermark ≥ `offset`.
A replica that is not alive does not hold it back: it takes the leader's log start when it comes back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.replica.events import DeleteRecordsAnswered

if TYPE_CHECKING:
    from kafkalite_core.model.partition import Partition
    from kafkalite_core.replica.events import DeleteRecordsRequested, Effect
    from kafkalite_core.replica.followers import Followers
    from kafkalite_core.replica.state import ReplicaState

TO_HIGH_WATERMARK: Final = -1
"""As the offset of a request: everything that is committed."""


class Waiting(NamedTuple):
    """A request whose records are gone from the leader, but not yet from every live replica."""

    offset: int
    token: object
    deadline_ms: float


def low_watermark(state: ReplicaState, followers: Followers, partition: Partition) -> int:
    """The least log start of the live replicas; -1 while one of them has not told its own in this leader epoch."""
    lowest = state.log.start_offset
    for broker_id in partition.replicas:
        if broker_id != state.broker_id and state.alive(broker_id):
            progress = followers.get(broker_id, state.registered_epoch(broker_id))
            lowest = min(lowest, -1 if progress is None else progress.log_start_offset)
    return lowest


def delete_records(state: ReplicaState, offset: int) -> int:
    """Move the leader's log start to `offset`, which `refusal` has allowed; returns the offset that was meant.

    Only committed records go (offset ≤ high watermark): every member of the ISR is past them.
    """
    wanted = state.high_watermark if offset == TO_HIGH_WATERMARK else offset
    if wanted > state.log.start_offset:
        state.decided(
            "records_deleted",
            start_offset=state.log.start_offset,
            deleted_to=wanted,
            high_watermark=state.high_watermark,
        )
        state.log.advance_start(wanted)
    return wanted


def refusal(state: ReplicaState, offset: int) -> tuple[ErrorCode, str]:
    """Why records up to `offset` cannot be deleted; (NONE, "") when they can."""
    if state.keeps_latest_only:
        return ErrorCode.POLICY_VIOLATION, "cleanup.policy is compact: records are deleted by their keys only"
    if offset < TO_HIGH_WATERMARK or offset > state.high_watermark:
        return ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset}, the high watermark is {state.high_watermark}"
    return ErrorCode.NONE, ""


class WaitingDeletions:
    """Requests that wait for the low watermark; their number is bounded by the requests in flight."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[Waiting] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, event: DeleteRecordsRequested, offset: int) -> None:
        """A request whose records up to `offset` are gone here."""
        self._waiting.append(Waiting(offset, event.token, event.deadline_ms))

    def settle(self, low: int, effects: list[Effect]) -> None:
        """Answer, with success, all that the low watermark has reached."""
        effects.extend(
            DeleteRecordsAnswered(token=waiting.token, error_code=0, low_watermark=low)
            for waiting in self._waiting
            if waiting.offset <= low
        )
        self._waiting = [waiting for waiting in self._waiting if waiting.offset > low]

    def expire(self, now_ms: float, low: int, effects: list[Effect]) -> None:
        """Answer REQUEST_TIMED_OUT to all whose deadline is over: the leader has deleted, some follower has not."""
        code = int(ErrorCode.REQUEST_TIMED_OUT)
        effects.extend(
            DeleteRecordsAnswered(token=waiting.token, error_code=code, low_watermark=low)
            for waiting in self._waiting
            if waiting.deadline_ms <= now_ms
        )
        self._waiting = [waiting for waiting in self._waiting if waiting.deadline_ms > now_ms]

    def fail(self, code: ErrorCode, effects: list[Effect]) -> None:
        """Answer all with an error."""
        effects.extend(
            DeleteRecordsAnswered(token=waiting.token, error_code=int(code), low_watermark=-1)
            for waiting in self._waiting
        )
        self._waiting.clear()

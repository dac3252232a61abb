"""The throttle of replication (KIP-73): bytes per second for replicas that catch up, on either side.

    held back <=> the replica is named in the topic's list, it is not in the ISR, and the rate is used up

A replica in the ISR is never held back, or the throttle of a move would take replicas out of the ISR and writes with
acks=all would wait for it; its bytes are counted all the same, so that those who catch up leave room for it. What they
overdraw is paid for `IN_SYNC_DEBT_S` at most: nothing bounds them, and a day of writes above the rate would otherwise
hold everybody else back for days after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kafkalite_core.model.throttled import ThrottledReplicas

UNLIMITED: Final = 2**63 - 1
BURST_S: Final = 1.0
"""So much of the rate may be used at once after a rest."""

IN_SYNC_DEBT_S: Final = 10.0
"""So much of the rate may replicas in sync have overdrawn: as long as Kafka remembers what went through."""

WAIT_MAX_MS: Final = 1_000.0
"""A rate may be changed at any time: nobody waits longer without looking again."""


class Throttle:
    """A bucket of bytes that fills at the rate. One use may overdraw it, and the debt is paid before the next.

    Over any time t the bytes used by those who ask first are at most (BURST_S + t) * rate, and one use more.

    Args:
        rate_bytes_per_s: `UNLIMITED` for none; 0 holds back everything.
    """

    __slots__ = ("_at_ms", "_level", "rate")

    def __init__(self, rate_bytes_per_s: int = UNLIMITED) -> None:
        self.rate = rate_bytes_per_s
        self._level = self._full
        self._at_ms = 0.0

    @property
    def _full(self) -> float:
        return self.rate * BURST_S

    def change(self, rate_bytes_per_s: int) -> None:
        """Another rate; a debt of the former one is forgiven."""
        if rate_bytes_per_s != self.rate:
            self.rate = rate_bytes_per_s
            self._level = self._full

    def _fill(self, now_ms: float) -> None:
        if now_ms > self._at_ms:
            self._level = min(self._full, self._level + (now_ms - self._at_ms) / 1000.0 * self.rate)
            self._at_ms = now_ms

    def use(self, now_ms: float, size_bytes: int, *, in_sync: bool = False) -> None:
        """So many bytes went through; `in_sync`: of a replica that nobody holds back."""
        if self.rate == UNLIMITED:
            return
        self._fill(now_ms)
        left = self._level - size_bytes
        self._level = max(left, min(self._level, -self.rate * IN_SYNC_DEBT_S)) if in_sync else left

    def exceeded(self, now_ms: float) -> bool:
        """Whether the rate is used up for now."""
        if self.rate == UNLIMITED:
            return False
        self._fill(now_ms)
        return self._level <= 0

    def wait_ms(self, now_ms: float) -> float:
        """After how long to look again; 0 when it is not used up."""
        if not self.exceeded(now_ms):
            return 0.0
        # The level has to be above zero, so one byte more than the debt.
        return WAIT_MAX_MS if self.rate == 0 else min((1 - self._level) / self.rate * 1000.0, WAIT_MAX_MS)


def held_back(
    throttle: Throttle, replicas: ThrottledReplicas, *, partition: int, broker_id: int, in_sync: bool, now_ms: float
) -> bool:
    """Whether a replica that catches up gets nothing now; see the theorem above.

    `broker_id` is the broker whose list is asked: on the leader's side the leader, on the follower's the follower.
    """
    return not in_sync and replicas.names(partition, broker_id) and throttle.exceeded(now_ms)

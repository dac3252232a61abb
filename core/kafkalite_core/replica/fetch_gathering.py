"""How much a follower lets its leader gather for one answer.

Every fetch costs both brokers the same work, however little it brings. Where records come fast, a follower asks for
what arrives within `gather_ms`, and waits twice as long for it at most. What it has flushed already is acknowledged
without delay: the request that waits has told the leader.
"""

from __future__ import annotations

from typing import Final

RATE_MIN_BYTES_PER_MS: Final = 16_000
"""Below 16 MB/s from one leader every fetch is answered at once: there is processor time, and latency counts."""

REQUEST_BYTES_MAX: Final = 1 << 20
"""Nobody is let wait for more than this, however fast it comes."""

MEMORY: Final = 4
"""The rate is a mean over this many times `gather_ms`: after a rest as long as that nothing is left of it."""


class FetchGathering:
    """What a follower asks of one leader, by the rate at which that leader's records come.

    Args:
        gather_ms: `kafkalite.gather.ms`; 0 for never.
    """

    __slots__ = ("_asked_ms", "_gather_ms", "_rate", "min_bytes")

    def __init__(self, gather_ms: int) -> None:
        self._gather_ms = gather_ms
        self._asked_ms: float | None = None
        self._rate = 0.0
        self.min_bytes = 1
        """`min_bytes` of the next request."""

    def max_wait_ms(self, idle_ms: int) -> int:
        """`max_wait_ms` of the next request; `idle_ms` where every record is answered at once."""
        return idle_ms if self.min_bytes == 1 else min(2 * self._gather_ms, idle_ms)

    def asked(self, now_ms: float, answered_bytes: int) -> None:
        """A request goes out; the one before it brought so many bytes of records. The rate is that between the two."""
        if self._gather_ms == 0:
            return
        before_ms, self._asked_ms = self._asked_ms, now_ms
        if before_ms is None:
            return
        passed_ms = max(now_ms - before_ms, 1.0)
        weight = min(passed_ms / (MEMORY * self._gather_ms), 1.0)
        self._rate += weight * (answered_bytes / passed_ms - self._rate)
        if self._rate < RATE_MIN_BYTES_PER_MS:
            self.min_bytes = 1
        else:
            self.min_bytes = min(int(self._rate * self._gather_ms), REQUEST_BYTES_MAX)

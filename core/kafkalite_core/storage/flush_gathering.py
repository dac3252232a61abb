"""How far apart group flushes begin.

Every flush costs the same work, however few bytes it covers. Where bytes come fast, the next flush begins `gather_ms`
after the last one began, if that one is over by then; elsewhere as soon as there is something to flush.
"""

from __future__ import annotations

from typing import Final

RATE_MIN_BYTES_PER_MS: Final = 32_000
"""Below 32 MB/s on this broker no flush waits: there is processor time, and latency counts."""


class FlushGathering:
    """When the next group flush begins, by what the last one covered.

    Args:
        gather_ms: `kafkalite.gather.ms`; 0 for at once, always.
    """

    __slots__ = ("_begun_ms", "_covered_bytes", "_gather_ms")

    def __init__(self, gather_ms: int) -> None:
        self._gather_ms = gather_ms
        self._begun_ms = float("-inf")
        self._covered_bytes = 0

    def begun(self, now_ms: float, covered_bytes: int) -> None:
        """A flush of so many bytes begins."""
        self._begun_ms = now_ms
        self._covered_bytes = covered_bytes

    def wait_ms(self, now_ms: float) -> float:
        """How long the next flush should still gather; 0 to begin now."""
        if self._covered_bytes < self._gather_ms * RATE_MIN_BYTES_PER_MS:
            return 0.0
        return max(0.0, self._begun_ms + self._gather_ms - now_ms)

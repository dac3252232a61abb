"""A node's clocks: monotonic and wall, each with its own offset; both may run too fast or too slow."""

from __future__ import annotations

from datetime import UTC, datetime

EPOCH_MS = 1_700_000_000_000


class Clock:
    """Monotonic time starts anywhere; the wall clock may jump. The rate is local seconds per true second."""

    __slots__ = ("_mono_ms", "_since_ms", "rate", "wall_offset_ms")

    def __init__(self, *, mono_ms: float = 0.0, wall_offset_ms: float = 0.0, rate: float = 1.0) -> None:
        self._mono_ms = mono_ms
        self._since_ms = 0.0
        self.rate = rate
        self.wall_offset_ms = wall_offset_ms

    def mono_ms(self, now_ms: float) -> float:
        """Monotonic time at the true time `now_ms`."""
        return self._mono_ms + (now_ms - self._since_ms) * self.rate

    def wall_ms(self, now_ms: float) -> int:
        """Wall-clock time."""
        return int(EPOCH_MS + self.wall_offset_ms + now_ms * self.rate)

    def stamp(self, now_ms: float, unique: int) -> str:
        """The wall clock as Kubernetes' MicroTime, made unique by its microseconds."""
        moment = datetime.fromtimestamp(self.wall_ms(now_ms) / 1000.0, UTC).replace(microsecond=0)
        return f"{moment:%Y-%m-%dT%H:%M:%S}.{unique % 1_000_000:06d}Z"

    def set_rate(self, now_ms: float, rate: float) -> None:
        """From now on the clock runs at another speed; monotonic time stays continuous."""
        self._mono_ms = self.mono_ms(now_ms)
        self._since_ms = now_ms
        self.rate = rate

    def true_delay_ms(self, local_ms: float) -> float:
        """How long a local delay takes."""
        return local_ms / self.rate

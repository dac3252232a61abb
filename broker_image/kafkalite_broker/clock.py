"""The clocks of a broker: a monotonic one in the unit that the core uses, and the wall clock."""

from time import monotonic, time


def now_ms() -> float:
    """Monotonic time in milliseconds."""
    return monotonic() * 1000.0


def wall_ms() -> int:
    """Wall clock in milliseconds: for retention and time stamps, never for decisions about leadership."""
    return int(time() * 1000)

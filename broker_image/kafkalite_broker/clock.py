"""The one monotonic clock of a broker, in the unit that the replication core uses."""

from time import monotonic


def now_ms() -> float:
    """Monotonic time in milliseconds."""
    return monotonic() * 1000.0

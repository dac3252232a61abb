"""What clients themselves count of requests that went wrong, from librdkafka's statistics."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from typing import Any

INTERVAL_MS = 1_000
CLIENTS = frozenset({"producer", "consumer"})
COUNTED = {
    "client_request_errors": ("txerrs", "rxerrs"),
    "client_timeouts": ("req_timeouts",),
    "client_retries": ("txretries",),
}
"""Our names -> librdkafka's, of each broker that a client knows. Errors are of sending and of receiving."""


class SilentError(RuntimeError):
    """A client does not tell; the text says which."""


class ClientStatistics:
    """The latest statistics of each client that was made with `config`; safe to use from any thread."""

    def __init__(self) -> None:
        self._told = threading.Condition()
        self._counts: dict[str, Counter[str]] = {}
        self._told_us: dict[str, int] = {}

    @property
    def config(self) -> dict[str, Any]:
        """Settings of a client, which tells for as long as it is polled."""
        return {"statistics.interval.ms": INTERVAL_MS, "stats_cb": self.take}

    def take(self, text: str) -> None:
        """Called by librdkafka with statistics as JSON. Raises KeyError, which ends the load, for what it lacks."""
        said = json.loads(text)
        counts = Counter(
            {
                ours: sum(broker[name] for broker in said["brokers"].values() for name in names)
                for ours, names in COUNTED.items()
            }
        )
        with self._told:
            self._counts[said["name"]] = counts
            self._told_us[said["type"]] = said["ts"]  # microseconds of the monotonic clock
            self._told.notify_all()

    def counts(self, limit_s: float = 15.0) -> dict[str, int]:
        """What all clients have counted by now, by the names of `COUNTED`.

        Waits until a producer and a consumer have told once more. Raises SilentError: a client that tells nothing has
        not counted nothing.
        """
        asked_us = time.monotonic_ns() // 1000

        def silent() -> list[str]:
            return sorted(each for each in CLIENTS if self._told_us.get(each, -1) < asked_us)

        with self._told:
            if not self._told.wait_for(lambda: not silent(), limit_s):
                raise SilentError(f"no statistics of {' and '.join(silent())} within {limit_s:g} s")
            return {name: sum(counts[name] for counts in self._counts.values()) for name in COUNTED}

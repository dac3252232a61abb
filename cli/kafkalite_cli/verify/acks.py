"""What the producers of a run know about acknowledgements while it goes on: counts, pauses, latencies."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

LATENCIES_MAX = 1_000_000  # the latest ones
_Watched = tuple[int, dict[int, int | None]]  # instant of a fault, partition -> first acknowledgement after it


class Acks:
    """When each partition was acknowledged, for waiting and for pauses; safe to call from any thread."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.count = 0
        self.unknown = 0
        self.highest: dict[int, int] = {}  # partition -> highest offset acknowledged
        self.latencies_us: deque[int] = deque(maxlen=LATENCIES_MAX)
        self._last_us = 0
        self._longest_gap_us = 0
        self._watched: list[_Watched] = []
        self._open: list[_Watched] = []  # those of them that miss an acknowledgement

    def acknowledge(self, partition: int, offset: int, invoked_us: int, acked_us: int) -> None:
        """Note one acknowledgement."""
        with self.changed:
            self.count += 1
            self.highest[partition] = max(offset, self.highest.get(partition, -1))
            self.latencies_us.append(acked_us - invoked_us)
            if self._last_us:
                self._longest_gap_us = max(self._longest_gap_us, acked_us - self._last_us)
            self._last_us = acked_us
            if self._open:
                self._settle(partition, invoked_us, acked_us)
            self.changed.notify_all()

    def _settle(self, partition: int, invoked_us: int, acked_us: int) -> None:
        for instant_us, first in self._open:
            if invoked_us > instant_us and first.get(partition, 0) is None:
                first[partition] = acked_us
        self._open = [watched for watched in self._open if None in watched[1].values()]

    def watch(self, instant_us: int, partitions: Iterable[int]) -> None:
        """From now on remember, per partition, the first acknowledgement of a record sent after the instant."""
        watched: _Watched = (instant_us, dict.fromkeys(partitions))
        with self.changed:
            self._watched.append(watched)
            self._open.append(watched)

    def first_after(self, instant_us: int, partitions: Iterable[int]) -> dict[int, int | None]:
        """Partition -> time of that first acknowledgement, None while there is none. Call with `changed` held."""
        found = [first for watched_us, first in self._watched if watched_us == instant_us]
        return {partition: next((f[partition] for f in found if f.get(partition)), None) for partition in partitions}

    def wait(self, count: int, timeout_s: float) -> bool:
        """Wait until `count` records were acknowledged in all."""
        with self.changed:
            return self.changed.wait_for(lambda: self.count >= count, timeout_s)

    @property
    def longest_gap_s(self) -> float:
        """The longest time in which no partition at all acknowledged anything."""
        with self.changed:
            return self._longest_gap_us / 1e6

"""Producer ids in blocks of a thousand; none is given out twice (KIP-98, KIP-360).

Theorem: an id is handed out only from a block whose compare-and-swap answered 200, and such a block belongs to this
process alone: the counter in the cluster's status never falls and each 200 moved it by a whole block. A block whose
draw has an unknown outcome is lost on purpose; ids are cheap.

A counter that was lost with the cluster's object, or went back with the store, may be behind ids that producers still
use and that only other brokers' logs know. So a block begins no lower than the time does (decision 012).
"""

from __future__ import annotations

from kafkalite_core.model.limits import PRODUCER_ID_BLOCK_SIZE

PLAUSIBLE_MAX = 1 << 62
"""An id in a log beyond this was never drawn: a client made it up. Following it would use up all ids there are."""

IDS_PER_MS = 1024
"""A cluster that draws fewer than these never has a counter ahead of the clock."""

CLOCK_MAX_MS = 1 << 46
"""A wall clock beyond this (the year 4199) is out of order, and ids do not go by it."""

PREFETCH_BELOW = PRODUCER_ID_BLOCK_SIZE // 10
"""Ids left at which the next block should be drawn."""


class ProducerIds:
    """Ids at hand: the current block and at most one more."""

    __slots__ = ("_blocks", "_floor")

    def __init__(self) -> None:
        self._blocks: list[tuple[int, int]] = []
        self._floor = 0

    @property
    def remaining(self) -> int:
        """Ids that can be handed out without drawing."""
        return sum(end - first for first, end in self._blocks)

    @property
    def wants_block(self) -> bool:
        """Whether the next block should be drawn now."""
        return self.remaining < PREFETCH_BELOW

    def take(self) -> int | None:
        """The next id, or None when a block has to be drawn first."""
        while self._blocks:
            first, end = self._blocks[0]
            if first >= end:
                self._blocks.pop(0)
                continue
            self._blocks[0] = (first + 1, end)
            return first
        return None

    def beginning(self, counter: int, *, wall_ms: int) -> int:
        """The first id of the next block: not below the counter, nor what is known of logs, nor the time."""
        by_time = wall_ms * IDS_PER_MS if 0 <= wall_ms < CLOCK_MAX_MS else 0
        return max(counter, self._floor, by_time)

    def add_block(self, first: int, size: int = PRODUCER_ID_BLOCK_SIZE) -> None:
        """A block that was drawn with a definite answer. What lies below the floor is thrown away."""
        assert first >= 0, first
        assert size > 0, size
        end = first + size
        first = max(first, self._floor)
        if first < end:
            self._floor = end
            self._blocks.append((first, end))

    def raise_floor(self, producer_id: int) -> None:
        """An id was met in a log: never hand out that one or a lower one (S11: the store may have gone back)."""
        if producer_id >= PLAUSIBLE_MAX:
            return
        if producer_id < self._floor and not any(first <= producer_id for first, _ in self._blocks):
            return
        self._blocks = [(max(first, producer_id + 1), end) for first, end in self._blocks if end > producer_id + 1]
        self._floor = max(self._floor, producer_id + 1)

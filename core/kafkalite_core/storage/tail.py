"""Recent batches of the logs that a broker leads, kept in memory for followers and consumers, bounded over all logs."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalite_core.storage.disk import Buffer

_ENTRY_OVERHEAD_BYTES = 256
"""Roughly what Python spends on one entry; without it a flood of tiny batches would pass the bound."""

_COMPACT_AFTER = 1024


class TailBudget:
    """Bytes that the tails of all logs of one broker may hold together; the oldest batch of all goes first.

    Args:
        max_bytes: The bound; a batch that is larger than it is not kept at all.
    """

    __slots__ = ("_order", "_stale", "max_bytes", "used_bytes")

    def __init__(self, max_bytes: int) -> None:
        assert max_bytes >= 0
        self.max_bytes = max_bytes
        self.used_bytes = 0
        self._order: deque[tuple[Tail, int, int]] = deque()
        self._stale = 0

    def charge(self, tail: Tail, size: int) -> None:
        """Counts a batch that `tail` has just taken, and evicts the oldest ones beyond the bound."""
        size += _ENTRY_OVERHEAD_BYTES
        order = self._order
        order.append((tail, tail.generation, size))
        used = self.used_bytes + size
        while used > self.max_bytes:
            victim, generation, victim_size = order.popleft()
            if victim.generation != generation:
                self._stale -= 1
                continue
            victim.drop_first()
            used -= victim_size
        self.used_bytes = used

    def forget(self, entries: int, size: int) -> None:
        """A tail was cleared: `entries` places in the order are void, `size` bytes of payload are free."""
        self.used_bytes -= size + entries * _ENTRY_OVERHEAD_BYTES
        self._stale += entries
        if self._stale > _COMPACT_AFTER and self._stale * 2 > len(self._order):
            self._order = deque(entry for entry in self._order if entry[0].generation == entry[1])
            self._stale = 0


class Tail:
    """The newest batches that were appended to one log by its leader, contiguous up to its end, or none.

    Look-ups are O(log n).
    """

    __slots__ = ("_bases", "_budget", "_buffers", "_ends", "_head", "_nexts", "generation")

    def __init__(self, budget: TailBudget) -> None:
        self._budget = budget
        self.generation = 0
        self._bases: list[int] = []
        self._nexts: list[int] = []
        self._buffers: list[Buffer | None] = []
        self._ends: list[int] = [0]  # bytes up to the end of each batch; one longer than the others
        self._head = 0

    def __len__(self) -> int:
        return len(self._bases) - self._head

    @property
    def first_offset(self) -> int | None:
        """Base offset of the oldest batch kept, or None."""
        return self._bases[self._head] if self._head < len(self._bases) else None

    def add(self, base_offset: int, next_offset: int, buffer: Buffer) -> None:
        """Takes the batch that was appended just now; the caller never writes into the buffer again."""
        size = len(buffer)
        if size + _ENTRY_OVERHEAD_BYTES > self._budget.max_bytes:
            self.clear()  # a hole would make the tail lie about what follows
            return
        self._bases.append(base_offset)
        self._nexts.append(next_offset)
        self._buffers.append(buffer)
        self._ends.append(self._ends[-1] + size)
        self._budget.charge(self, size)

    def drop_first(self) -> None:
        """Lets go of the oldest batch (called by the budget)."""
        head = self._head
        self._buffers[head] = None
        head += 1
        if head >= _COMPACT_AFTER and head * 2 >= len(self._bases):
            del self._bases[:head]
            del self._nexts[:head]
            del self._buffers[:head]
            del self._ends[:head]
            head = 0
        self._head = head

    def clear(self) -> None:
        """Lets go of everything: the log was truncated."""
        entries = len(self)
        size = self._ends[-1] - self._ends[self._head]
        self.generation += 1
        self._bases.clear()
        self._nexts.clear()
        self._buffers.clear()
        self._ends = [0]
        self._head = 0
        if entries:
            self._budget.forget(entries, size)

    def read(self, offset: int, max_bytes: int, end: int, *, minimum_one: bool) -> tuple[list[Buffer], int] | None:
        """Whole batches from the one that holds `offset`, none beginning at or beyond `end`.

        Returns (buffers, bytes), or None when `offset` is older than the tail. `offset` is below the log end.
        """
        bases = self._bases
        first = bisect_right(bases, offset, self._head) - 1
        if first < self._head:
            return None
        if self._nexts[first] <= offset:  # offsets may have gaps, after compaction
            first += 1
            if first == len(bases):
                return [], 0
        ends = self._ends
        before = ends[first]
        # The last batch that fits; then not beyond `end`.
        stop = bisect_right(ends, before + max_bytes, first) - 1
        if stop == first and minimum_one:
            stop = first + 1
        if stop > first and bases[stop - 1] >= end:
            stop = max(first, _first_at_or_beyond(bases, end, first, stop))
        buffers: list[Buffer] = self._buffers[first:stop]  # type: ignore[assignment]
        return buffers, ends[stop] - before


def _first_at_or_beyond(bases: list[int], end: int, low: int, high: int) -> int:
    """Index of the first batch in [low, high) that begins at or beyond `end`."""
    return bisect_right(bases, end - 1, low, high)

"""Which compare-and-swaps of one broker share a patch, as AlterPartition carries many partitions (KIP-497).

A replica that comes or goes changes the ISR of every partition that it is a replica of. Entries of one topic are in one
object: with a patch for each the API server would apply them against one another, and tell every watch of each.

One patch of a topic is under way at a time, and what is proposed meanwhile shares the next. It lands whole or not at
all, so whatever became of it became of each part, but for a refusal, which does not say whose test failed. The entries
as read since do: parts that they settle are over, and the others go again. When they settle none, each goes alone, so
that a part that is refused for what it is does not keep the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from kafkalite_core.membership.settlement import Entry
from kafkalite_core.model.partition import PartitionChange

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite_core.membership.settlement import Settlement
    from kafkalite_core.model.partition import Partition

SHARED_MAX = 250
"""Parts of a patch: a thousand operations, a tenth of what the API server takes."""

Owner = TypeVar("Owner")


@dataclass(slots=True, eq=False)
class Swap(Generic[Owner]):
    """A compare-and-swap that waits for its patch, or is in it.

    Attributes:
        number: Of the partition.
        settlement: What is known of it.
        owner: Who is told what became of it.
        alone: It shares its patch with no other.
        change: What it tests for and writes.

    Raises:
        AssertionError: the API server would refuse it, and with it the patch.
    """

    number: int
    settlement: Settlement
    owner: Owner
    alone: bool = False
    change: PartitionChange = field(init=False)

    def __post_init__(self) -> None:
        self.change = PartitionChange(self.settlement.expected, self.settlement.proposed)


class Outbox(Generic[Owner]):
    """The compare-and-swaps of one broker on entries of one topic."""

    def __init__(self) -> None:
        self._waiting: list[Swap[Owner]] = []

    def add(self, swap: Swap[Owner]) -> None:
        """It shares the next patch."""
        self._waiting.append(swap)

    def take(self) -> list[Swap[Owner]]:
        """The parts of the next patch, each of another partition; empty when nothing waits."""
        taken: dict[int, Swap[Owner]] = {}
        left: list[Swap[Owner]] = []
        for swap in self._waiting:
            full = len(taken) == SHARED_MAX or (taken and (swap.alone or next(iter(taken.values())).alone))
            if full or swap.number in taken:
                left.append(swap)
            else:
                taken[swap.number] = swap
        self._waiting = left
        return list(taken.values())

    def refused(
        self, patch: list[Swap[Owner]], entries: Callable[[int], Partition | Entry]
    ) -> list[tuple[Swap[Owner], Partition | Entry]]:
        """The parts of a refused patch that are over, with their entries as read since; the others wait again."""
        if len(patch) == 1:
            return [(patch[0], entries(patch[0].number))]
        over, again = [], []
        for swap in patch:
            entry = entries(swap.number)
            if entry is Entry.GONE or swap.settlement.is_overtaken_by(entry):
                over.append((swap, entry))
            else:
                again.append(swap)
        for swap in again:
            swap.alone = not over
        self._waiting[:0] = again
        return over

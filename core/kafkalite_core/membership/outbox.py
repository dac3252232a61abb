"""Which compare-and-swaps of one broker share a patch, as AlterPartition carries many partitions (KIP-497).

A replica that comes or goes changes the ISR of every partition that it is a replica of. Entries of one topic are in one
object: with a patch for each the API server would apply them against one another, and tell every watch of each.

One patch of a topic is under way at a time, and what is proposed meanwhile shares the next. It lands whole or not at
all, so whatever became of it became of each part, but for a refusal, which does not say whose test failed. The entries
as read since do: parts that they refute are over, and the others go again. When they refute none, or could not be read,
the parts go in two halves, and so on: one that is refused for what it is ends up alone and does not keep the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from kafkalite_core.membership.settlement import Entry
from kafkalite_core.model.partition import PartitionChange

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
        share_max: Its patch has so many parts at most.
        change: What it tests for and writes.

    Raises:
        AssertionError: the API server would refuse it, and with it the patch.
    """

    number: int
    settlement: Settlement
    owner: Owner
    share_max: int = SHARED_MAX
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

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self._waiting)

    def overtaken(self, known: Callable[[int], Partition | None]) -> list[tuple[Swap[Owner], Partition]]:
        """What no longer needs to be sent, going by entries that are known, with these: it waits no more."""
        over, left = [], []
        for swap in self._waiting:
            entry = known(swap.number)
            if entry is not None and swap.settlement.is_overtaken_by(entry):
                over.append((swap, entry))
            else:
                left.append(swap)
        self._waiting = left
        return over

    def take(self) -> list[Swap[Owner]]:
        """The parts of the next patch, each of another partition; empty when nothing waits."""
        taken: dict[int, Swap[Owner]] = {}
        left: list[Swap[Owner]] = []
        most = SHARED_MAX
        for swap in self._waiting:
            if len(taken) < min(most, swap.share_max) and swap.number not in taken:
                taken[swap.number] = swap
                most = min(most, swap.share_max)
            else:
                left.append(swap)
        self._waiting = left
        return list(taken.values())

    def refused(
        self, patch: list[Swap[Owner]], read: Mapping[int, Partition] | Entry
    ) -> list[tuple[Swap[Owner], Partition | Entry]]:
        """The parts of a refused patch that are over, with their entries as read since; the others wait again.

        `read`: the entries of the topic, or what is known instead of them.
        """
        over, again = [], []
        for swap in patch:
            entry = read if isinstance(read, Entry) else read.get(swap.number, Entry.UNREAD)
            if len(patch) == 1 or swap.settlement.is_refuted_by(entry):
                over.append((swap, entry))
            else:
                again.append(swap)
        for swap in again:
            swap.share_max = swap.share_max if over else (len(patch) + 1) // 2
        self._waiting[:0] = again
        return over

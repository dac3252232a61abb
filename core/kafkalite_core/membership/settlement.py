"""How one compare-and-swap of a partition entry ended, over all attempts to send it (S5, R6, threat 4).

The patch P tests `partitionEpoch = e` (with uid, topicId, leader, leaderEpoch) and writes an entry with e + 1. The
server never lets partitionEpoch fall, and lets nothing change without raising it. Therefore:

1. P is applied at most once, however often it is sent; after that no copy of it can be applied.
2. Once any answer or read shows a partitionEpoch above e, or that the uid is gone, no copy of P that is still under
   way can be applied any more: the matter is settled, and the entry shown is what counts.
3. A read that shows e settles nothing: a copy may land right after it. Only a further compare-and-swap does.

So a 422 means "rejected" at once if no earlier copy may still be under way. After an ambiguous attempt it does so
only together with an entry beyond e; else the outcome stays unknown and the union stays in force.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalite_core.model.partition import Partition


class Attempt(Enum):
    """How one sending of the patch ended."""

    APPLIED = "applied"
    """200."""
    REFUSED = "refused"
    """422: a test or a fence; also another definite refusal of the patch itself (400, 413)."""
    NOT_APPLIED = "not applied"
    """409, 429, 401, 403, connection refused: this sending was not applied; the same tests may be sent again."""
    GONE = "gone"
    """404: no object of that name, hence none with that uid ever again."""
    AMBIGUOUS = "ambiguous"
    """Time-out, reset or 5xx after the request went out."""


class Settled(StrEnum):
    """The outcome over all attempts; the values are those of `kafkalite_core.replica.events.CasOutcome`."""

    APPLIED = "applied"
    REJECTED = "rejected"
    NOT_ATTEMPTED = "not attempted"
    UNKNOWN = "unknown"


class Entry(Enum):
    """What is known of the entry besides its value."""

    UNREAD = "unread"
    GONE = "gone"


@dataclass(slots=True)
class Settlement:
    """One proposal and whether a copy of it may still be under way.

    Attributes:
        expected: The entry that the patch tests for.
        proposed: The entry that it writes.
        ambiguous: An attempt ended without an answer and nothing has settled it since.
    """

    expected: Partition
    proposed: Partition
    ambiguous: bool = False

    def __post_init__(self) -> None:
        assert self.proposed.partition_epoch == self.expected.partition_epoch + 1, "one change, one partition epoch"
        assert self.proposed.leader_epoch >= self.expected.leader_epoch

    def is_same(self, expected: Partition, proposed: Partition) -> bool:
        """Whether a proposal is the same patch, so that what is unknown of the earlier one concerns it."""
        return self.expected == expected and self.proposed == proposed

    def is_overtaken_by(self, entry: Partition | Entry) -> bool:
        """Whether no copy of the patch can be applied any more, going by an entry that was seen."""
        return not isinstance(entry, Entry) and entry.partition_epoch > self.expected.partition_epoch

    def is_refuted_by(self, entry: Partition | Entry) -> bool:
        """Whether the tests of the patch fail on an entry that was read, or there is nothing to test."""
        if isinstance(entry, Entry):
            return entry is Entry.GONE
        expected = self.expected
        return (entry.leader, entry.leader_epoch, entry.partition_epoch) != (
            expected.leader,
            expected.leader_epoch,
            expected.partition_epoch,
        )

    def needs_read(self, attempt: Attempt) -> bool:
        """Whether the entry should be read before `settle`: a refusal tells neither why nor what is there now."""
        return attempt is Attempt.REFUSED

    def settle(self, attempt: Attempt, entry: Partition | Entry = Entry.UNREAD) -> Settled:
        """The outcome after one more attempt and, where it was read since, the entry.

        Args:
            attempt: How the sending ended.
            entry: The entry as read after the answer; `Entry.GONE` when the topic with that uid is gone.
        """
        if attempt is Attempt.APPLIED:
            self.ambiguous = False
            return Settled.APPLIED
        if attempt is Attempt.GONE or entry is Entry.GONE:
            self.ambiguous = False
            return Settled.REJECTED
        if self.is_overtaken_by(entry):
            self.ambiguous = False
            # Whoever wrote it: the committed state is the proposal.
            return Settled.APPLIED if entry == self.proposed else Settled.REJECTED
        if attempt is Attempt.AMBIGUOUS:
            self.ambiguous = True
        if self.ambiguous:
            return Settled.UNKNOWN
        return Settled.REJECTED if attempt is Attempt.REFUSED else Settled.NOT_ATTEMPTED

"""Which batches of idempotent producers a leader has refused: nothing that was sent behind one is appended before it.

A producer sends several batches without waiting for answers. What is behind a refused one is sent again after it.
Appended it would have librdkafka take the refused one for delivered, too: an acknowledgement covers all before. Where
the log knows the producer the sequence numbers tell; of one that it does not know the first one refused has to come
again.

OUT_OF_ORDER_SEQUENCE_NUMBER would have librdkafka raise the epoch of its producer, and what it has in flight to other
partitions, appended there but not yet acknowledged, would be sent again in that epoch, as new records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kafkalite_core.storage.producer_state import SequencedBatch

PRODUCERS_MAX: Final = 4_096
"""Producers remembered; beyond it the one that was refused longest ago is forgotten."""


class Refused:
    """The lowest sequence number refused of each producer since a batch of it was appended.

    a batch is refused  =>  none with a higher sequence number begins the state of a producer that the log does not
                            know, until that one, or one before it, has begun it, or does not come for a while
    """

    __slots__ = ("_first",)

    def __init__(self) -> None:
        self._first: dict[int, int] = {}

    def note(self, batch: SequencedBatch) -> None:
        """A batch is refused."""
        if batch.producer_id < 0:
            return
        first = self._first.pop(batch.producer_id, batch.base_sequence)
        if len(self._first) >= PRODUCERS_MAX:
            del self._first[next(iter(self._first))]
        self._first[batch.producer_id] = min(first, batch.base_sequence)

    def may_begin(self, batch: SequencedBatch, *, otherwise: bool) -> bool:
        """Whether a batch of a producer that the log does not know is the first of its line; `otherwise` where no batch
        of that producer was refused here.
        """
        first = self._first.get(batch.producer_id)
        return otherwise if first is None else batch.base_sequence <= first

    def is_behind(self, batch: SequencedBatch, *, late: bool) -> bool:
        """Whether a batch before this one was refused. If this one is late, the other comes no more: this is first."""
        first = self._first.get(batch.producer_id)
        if first is None or batch.base_sequence <= first:
            return False
        if late:
            self.appended(batch)
        return True

    def appended(self, batch: SequencedBatch) -> None:
        """A batch was appended: from now on the log knows the producer."""
        self._first.pop(batch.producer_id, None)

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

GAPS_MS: Final = 5_000.0
"""So long after batches were refused those that their producers had sent behind them may still arrive."""
AWAKE_MS: Final = 1_000.0
"""A process of which nothing was seen for longer did not run meanwhile: leaders are looked at twice a second."""
PRODUCERS_MAX: Final = 4_096
"""Producers remembered; beyond it the one that was refused longest ago is forgotten."""


class Refused:
    """The lowest sequence number refused of each producer since a batch of it was appended. Times are monotonic.

    a batch is refused  =>  none with a higher sequence number begins the state of a producer that the log does not
                            know, until that one, or one before it, has begun it, or does not come for a while
    elected             =>  for a while nothing but number 0 begins one: whoever led, or this replica when it did not,
                            may have refused one before it. Also if it comes twice: on a connection that the producer
                            has given up, and on the next one before what is missing is sent there
    did not run         =>  that time is not part of such a while: batches have waited in the sockets
    a batch waited      =>  when it was read counts, not when it is looked at: it may have been sent behind one that was
                            refused before
    """

    __slots__ = ("_elected_until_ms", "_first", "_seen_ms", "_until_ms")

    def __init__(self) -> None:
        self._first: dict[int, int] = {}
        self._seen_ms = self._until_ms = self._elected_until_ms = 0.0

    def elected(self, now_ms: float) -> None:
        """Others have refused batches until now."""
        self._until_ms = self._elected_until_ms = now_ms + GAPS_MS
        self._seen_ms = now_ms

    def refusing(self, now_ms: float) -> None:
        """Nothing is appended now, of nobody."""
        self.seen(now_ms)
        self._until_ms = now_ms + GAPS_MS

    def seen(self, now_ms: float) -> None:
        """The process runs now; to be called at least twice a second."""
        away_ms = now_ms - self._seen_ms - AWAKE_MS
        if away_ms > 0.0:
            if self._seen_ms < self._until_ms:
                self._until_ms += away_ms
            if self._seen_ms < self._elected_until_ms:
                self._elected_until_ms += away_ms
        self._seen_ms = now_ms

    def note(self, batch: SequencedBatch) -> None:
        """A batch is refused."""
        if batch.producer_id < 0:
            return
        first = self._first.pop(batch.producer_id, batch.base_sequence)
        if len(self._first) >= PRODUCERS_MAX:
            del self._first[next(iter(self._first))]
        self._first[batch.producer_id] = min(first, batch.base_sequence)

    def may_begin(self, batch: SequencedBatch, now_ms: float, received_ms: float) -> bool:
        """Whether a batch of a producer that the log does not know is the first of its line, though not number 0."""
        self.seen(now_ms)
        if received_ms < self._elected_until_ms:
            return False
        first = self._first.get(batch.producer_id)
        return received_ms >= self._until_ms if first is None else batch.base_sequence <= first

    def is_behind(self, batch: SequencedBatch, now_ms: float, received_ms: float) -> bool:
        """Whether one before it was refused, or may have been. If that comes no more, this one is the first then."""
        self.seen(now_ms)
        if received_ms < self._until_ms:
            return True
        first = self._first.get(batch.producer_id)
        if first is None or batch.base_sequence <= first:
            return False
        self.appended(batch)
        return True

    def appended(self, batch: SequencedBatch) -> None:
        """A batch was appended: from now on the log knows the producer. A later one may have been refused before it."""
        first = self._first.get(batch.producer_id)
        if first is not None and first <= batch.base_sequence:
            del self._first[batch.producer_id]

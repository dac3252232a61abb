"""What the clients saw: the promises that they were given, to be held against the final read."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kafkalite_core.membership.producer_ids import IDS_PER_MS
from tests.simulation.clock import EPOCH_MS
from tests.simulation.oracles.order import AcknowledgedOrder
from tests.simulation.world import LimitReached, Violation

if TYPE_CHECKING:
    from tests.simulation.platter import Tag

BY_TIME_MIN = EPOCH_MS // 2 * IDS_PER_MS
"""Ids from here on come from blocks that began with the time, however wrong the clock."""

UNKNOWN = -1
"""The offset of a batch that is somewhere before another one."""


class History:
    """See the module.

    Attributes:
        acked: Records acknowledged with acks=all, as the clients heard it.
        excused: Those of them that the final read did not find and that may be missing (S11): not checked, so to say.
        given_up: Those that it need not find since somebody gave them up: who allowed an unclean election, or deleted the
            topic. Not checked either.
        implied: Those of them that were acknowledged with a later batch only.
        promised: (base offset, records, crc) of those batches, by partition; the offset of what was implied is unknown.
        order: In which order batches were acknowledged, whatever their acks.
    """

    def __init__(self) -> None:
        self.acked = self.implied = 0
        self.excused = self.given_up = 0
        self.acked_one = 0
        self.promised: dict[Tag, list[tuple[int, int, int]]] = {}
        self.order = AcknowledgedOrder()
        self.refusals: Counter[int] = Counter()
        self.store_went_back = False
        self.cluster_remade = False
        self._values = 0
        self._ids: dict[int, str] = {}

    def new_values(self, count: int) -> int:
        """The first of so many values that were never used."""
        first = self._values
        self._values += count
        return first

    def acknowledged(self, tag: Tag, base: int, count: int, crc: int, acks: int) -> None:
        """A producer heard that its batch is safe."""
        if acks == -1:
            self.acked += count
            self.promised.setdefault(tag, []).append((base, count, crc))
        else:
            self.acked_one += count

    def acknowledged_implicitly(self, tag: Tag, count: int, crc: int, acks: int) -> None:
        """A producer heard that a later batch is safe, and takes its own for safe as well, wherever it is."""
        self.implied += count
        self.acknowledged(tag, UNKNOWN, count, crc, acks)

    def refused(self, error_code: int) -> None:
        """A producer heard an error, or nothing (-2)."""
        self.refusals[error_code] += 1

    def id_given(self, name: str, producer_id: int) -> None:
        """A producer was given an id: nobody else ever is. Raises `Violation`.

        Raises `LimitReached` where the counter was lost with the cluster's object, or went back with the store, and the
        block began with the time: that of the broker that drew it was behind (decision 012).
        """
        if self._ids.setdefault(producer_id, name) != name:
            if (self.cluster_remade or self.store_went_back) and producer_id >= BY_TIME_MIN:
                raise LimitReached(f"producer id {producer_id} came again: a clock is behind (decision 012)")
            raise Violation("unique producer ids", f"{producer_id} was given to {self._ids[producer_id]} and to {name}")

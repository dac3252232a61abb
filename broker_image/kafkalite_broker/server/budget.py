"""The bound on bytes of requests that are received and not yet let go, over all connections of a broker."""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol


class Reader(Protocol):
    """A connection, as far as the budget is concerned. Every call may come at any time, and more than once."""

    def hold(self) -> None:
        """Read no more."""

    def take_turn(self) -> None:
        """Read on until the frame that has begun is whole, whatever else speaks against it."""

    def go_on(self) -> None:
        """There is room again: the budget does not hold it any longer, and it has no turn."""


class InFlightBudget:
    """Counts bytes of frames, whole or not. At the limit connections stop reading, until half of it is free again.

    While connections are held, one reads: that with the oldest unfinished frame, until the frame is whole; then that
    with the next one. The others are stopped where they are, in the middle of a frame or between two. A connection on
    which another broker replicates is never held (it does not come here to ask).

    No deadlock: while connections are held no frame begins, except in what a connection had read already or reads
    once before it notices. So there are finitely many unfinished frames. The oldest is read whatever else stops its
    connection, and is whole, or its connection closed, within the time that a frame may take, or within seconds if
    nothing of it arrives. Then it is dispatched, and what is dispatched lets go of its bytes or is answered without
    waiting for bytes of another connection, at the latest when its own time is over. In the end nothing is counted,
    which is less than half.

    No starvation: a frame that has begun is read in the order of beginnings. A connection that is held between two
    frames goes on whenever there is room again, and reads at least once before it is held anew.

    The bound: the limit, the frame that has its turn, and one read of each connection that notices, or connects, late;
    further what is dispatched meanwhile and keeps its bytes, which a Produce does not, and anything else is small.

    Args:
        limit_bytes: `queued.max.request.bytes`.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.held = False
        """Whether connections have to stop reading."""
        self._unfinished: OrderedDict[Reader, None] = OrderedDict()
        self._waiting: dict[Reader, None] = {}

    @property
    def exhausted(self) -> bool:
        """Whether the limit is reached."""
        return self.used_bytes >= self.limit_bytes

    def take(self, size_bytes: int) -> None:
        """Count bytes that were received."""
        self.used_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        """Count bytes that were let go; wakes connections that wait."""
        self.used_bytes -= size_bytes
        assert self.used_bytes >= 0, "more bytes given back than taken"
        if self.held and self.used_bytes <= self.limit_bytes // 2:
            self.held = False
            waiting, self._waiting = self._waiting, {}
            for reader in waiting:
                reader.go_on()

    def begun(self, reader: Reader) -> None:
        """A frame has begun that is not whole yet."""
        self._unfinished[reader] = None

    def ended(self, reader: Reader) -> None:
        """The frame is whole: the next one has its turn."""
        self._unfinished.pop(reader, None)
        if self.held:
            self._turn()

    def check(self, reader: Reader) -> None:
        """Called by who has read. Holds it if need be, and with it those that are in the middle of a frame."""
        if not self.held:
            if not self.exhausted:
                return
            self.held = True
            for each in self._unfinished:
                self._hold(each)
        self._hold(reader)
        self._turn()

    def left(self, reader: Reader) -> None:
        """The connection is gone."""
        self._waiting.pop(reader, None)
        self.ended(reader)

    def _hold(self, reader: Reader) -> None:
        if reader is not next(iter(self._unfinished), None):
            reader.hold()
        self._waiting[reader] = None

    def _turn(self) -> None:
        oldest = next(iter(self._unfinished), None)
        if oldest is not None:
            self._waiting[oldest] = None
            oldest.take_turn()

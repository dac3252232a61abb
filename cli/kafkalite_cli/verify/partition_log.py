"""What a history says about one partition: which record is at which offset, and who says so.

Memory: nine bytes per offset that occurs (in pages of 4,096 offsets) and sixteen per acknowledgement.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING

from kafkalite_cli.verify.history import HistoryError

if TYPE_CHECKING:
    from collections.abc import Iterator

OFFSET_MAX = (1 << 63) - 1
PAGE_BITS = 12
_PAGE = 1 << PAGE_BITS
SLOT = _PAGE - 1
ACKED = 1
READ = 2
FINAL = 4  # read by the final read
FOREIGN = 8  # a consumer was given somebody else's record there
_RECENT = 4096


class Page:
    """4,096 consecutive offsets: which record is there (0: none seen), and who says so."""

    __slots__ = ("codes", "flags")

    def __init__(self) -> None:
        self.codes = array("Q", bytes(8 * _PAGE))
        self.flags = bytearray(_PAGE)


class Frontier:
    """The highest of some offsets that were known at any time: what was complete by then binds whoever begins then."""

    __slots__ = ("_times", "_tops", "highest")

    def __init__(self) -> None:
        self.highest = -1
        self._times = array("q")  # ascending
        self._tops = array("q")

    def add(self, at_us: int, offset: int) -> None:
        """From `at_us` on (or from the latest time so far, when that is later) the offset is known."""
        times = self._times
        self.highest = max(self.highest, offset)
        times.append(at_us if not times or at_us > times[-1] else times[-1])
        self._tops.append(self.highest)

    def before(self, at_us: int) -> int:
        """The highest offset known before that instant; -1: none."""
        times = self._times
        if not times:
            return -1
        if times[-1] < at_us:
            return self.highest
        recent = max(0, len(times) - _RECENT)  # whoever asks nearly always asks about a moment ago
        index = bisect_right(times, at_us - 1, recent if times[recent] < at_us else 0)
        return self._tops[index - 1] if index else -1


class PartitionLog:
    """One partition.

    Attributes:
        pages: By offset >> PAGE_BITS.
        positions: Consumer -> the next offset that it must get, -1: any.
        misplaced: (code, offset) acknowledged where another record was found.
        unknown: Records without an answer.
        somewhere: Records that were acknowledged without their offset.
        failed: Records that are known not to have been taken.
        ends: Where the last consumer to finish stood; None: nobody did.
        final_from: Where the final read began; None: there was none, or it began anywhere.
        acked: Offsets by the time of their acknowledgement.
        told: Log ends by the time at which somebody was told them.
        last_ack_us: Time of the latest acknowledgement; 0: none.
        gap_us: The longest time between two acknowledgements since the last fault.
    """

    __slots__ = (
        "acked",
        "ends",
        "failed",
        "final_from",
        "gap_us",
        "last_ack_us",
        "misplaced",
        "number",
        "pages",
        "positions",
        "somewhere",
        "told",
        "unknown",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.pages: dict[int, Page] = {}
        self.positions: dict[int, int] = {}
        self.misplaced: list[tuple[int, int]] = []
        self.unknown: set[int] = set()
        self.somewhere: set[int] = set()
        self.failed: set[int] = set()
        self.ends: int | None = None
        self.final_from: int | None = None
        self.acked = Frontier()
        self.told = Frontier()
        self.last_ack_us = 0
        self.gap_us = 0

    def page(self, offset: int) -> Page:
        """The page of an offset, made when it is the first."""
        found = self.pages.get(offset >> PAGE_BITS)
        if found is None:
            if not 0 <= offset <= OFFSET_MAX:
                raise HistoryError(f"partition {self.number}: offset {offset} is out of range")
            found = self.pages[offset >> PAGE_BITS] = Page()
        return found

    def scan(self) -> Iterator[tuple[int, int, int]]:
        """Yield (offset, code, flags) of every offset at which a record of the run is or should be, ascending."""
        for index in sorted(self.pages):
            page = self.pages[index]
            base = index << PAGE_BITS
            for slot, (code, flag) in enumerate(zip(page.codes, page.flags, strict=True), base):
                if flag & ~FOREIGN:
                    yield slot, code, flag


class Stream:
    """The sequences of one producer and key, in the order of their offsets: the highest, and the ranges left out."""

    __slots__ = ("_holes", "highest")

    def __init__(self) -> None:
        self.highest = 0
        self._holes: list[tuple[int, int]] = []  # [first, behind the last), ascending

    def take(self, sequence: int) -> str:
        """Note one sequence; returns what is wrong with it, or nothing. Left-out sequences alone are not wrong."""
        if sequence > self.highest:
            if sequence > self.highest + 1:
                self._holes.append((self.highest + 1, sequence))
            self.highest = sequence
            return ""
        index = bisect_right(self._holes, sequence, key=lambda hole: hole[0]) - 1
        if index >= 0 and sequence < self._holes[index][1]:
            first, behind = self._holes[index]
            rest = [(first, sequence), (sequence + 1, behind)]
            self._holes[index : index + 1] = [hole for hole in rest if hole[0] < hole[1]]
            return "reordered"
        return "duplicate"

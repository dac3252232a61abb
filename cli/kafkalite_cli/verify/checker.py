"""Judges a history: what was acknowledged is in the log, once, in order, where the acknowledgement said.

Pure: events in, a report out. One pass over the events plus one pass over the offsets of each partition; linear time.
Memory: nine bytes per offset, and a few hundred per anomaly. The invariant, for every partition:

    final(o) = the record that readers found at offset o
    acked (r, o)                   =>  final(o) = r                             else lost | wrong-offset | unseen
    final(o1) = final(o2)          =>  o1 = o2                                  else duplicate
    same producer and key, r1 < r2 =>  offset(r1) < offset(r2)                  else reordered
    acked r1 before r2 was sent    =>  offset(r1) < offset(r2)                  else stale-offset
    reads of one consumer          :   o, o+1, o+2, …                           else skip | non-monotonic
    final(o) exists                =>  somebody sent it                         else unexplained
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter
from typing import TYPE_CHECKING, Literal

import msgspec

from kafkalite_cli.verify.history import (
    KEYS_MAX,
    PRODUCERS_MAX,
    SEQUENCE_MAX,
    VERSION,
    Ack,
    Assign,
    End,
    Event,
    Fault,
    Foreign,
    Header,
    HistoryError,
    Read,
    Unknown,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Kind = Literal[
    "lost",
    "unseen",
    "duplicate",
    "reordered",
    "stale-offset",
    "wrong-offset",
    "wrong-partition",
    "inconsistent",
    "skip",
    "non-monotonic",
    "unexplained",
]

EXAMPLES_MAX = 20  # per kind; the counts are exact
OFFSET_MAX = (1 << 63) - 1
_PAGE_BITS = 12
_PAGE = 1 << _PAGE_BITS
_SLOT = _PAGE - 1
_ACKED = 1
_READ = 2
_REAL_TIME_WINDOW = 1 << 16  # acknowledgements per partition that real-time order looks back at


class Anomaly(msgspec.Struct, frozen=True, kw_only=True):
    """One broken promise. `record` is "producer/key/sequence"; `text` says what was seen."""

    kind: Kind
    partition: int
    offset: int
    record: str
    text: str


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """From a fault to the first acknowledgement of a record sent after it, the slowest of the fault's partitions.

    `pause_ms` is None when a partition never acknowledged again.
    """

    fault: str
    at_us: int
    pause_ms: float | None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict. `ok` iff there is no anomaly; `counts` has one entry per kind that occurred."""

    ok: bool
    operations: int
    acked: int
    unknown: int
    read: int
    partitions: int
    counts: dict[str, int]
    examples: list[Anomaly]
    longest_ack_gap_ms: float
    pauses: list[Pause]


def name_of(code: int) -> str:
    """The record "producer/key/sequence" behind its 64-bit code."""
    return f"{code >> 52}/{code >> 32 & KEYS_MAX - 1}/{code & SEQUENCE_MAX}"


class _Page:
    """4,096 consecutive offsets: which record is there (0: none seen), and who says so."""

    __slots__ = ("codes", "flags")

    def __init__(self) -> None:
        self.codes = array("Q", bytes(8 * _PAGE))
        self.flags = bytearray(_PAGE)


class _Partition:
    """What the history says about one partition so far."""

    __slots__ = ("acked_max", "ends", "misplaced", "number", "pages", "positions", "times", "tops", "unknown")

    def __init__(self, number: int) -> None:
        self.number = number
        self.pages: dict[int, _Page] = {}
        self.positions: dict[int, int] = {}  # consumer -> next offset it must get, -1: any
        self.misplaced: list[tuple[int, int]] = []  # (code, offset) acknowledged where another record is
        self.unknown: set[int] = set()
        self.ends: int | None = None  # where the last consumer to finish stood
        self.acked_max = -1
        self.times: list[int] = []  # acknowledgement times, ascending, and
        self.tops: list[int] = []  # the highest offset acknowledged until then

    def page(self, offset: int) -> _Page:
        """The page of an offset, made when it is the first."""
        found = self.pages.get(offset >> _PAGE_BITS)
        if found is None:
            if not 0 <= offset <= OFFSET_MAX:
                raise HistoryError(f"partition {self.number}: offset {offset} is out of range")
            found = self.pages[offset >> _PAGE_BITS] = _Page()
        return found

    def scan(self) -> Iterator[tuple[int, int, int]]:
        """Yield (offset, code, flags) of every known offset, ascending."""
        for index in sorted(self.pages):
            page = self.pages[index]
            base = index << _PAGE_BITS
            for slot, flag in enumerate(page.flags):
                if flag:
                    yield base + slot, page.codes[slot], flag


class Checker:
    """Feed it every event of one history in the order of the file, then ask for the report once."""

    def __init__(self) -> None:
        self._partitions: dict[int, _Partition] = {}
        self._counts: Counter[str] = Counter()
        self._examples: list[Anomaly] = []
        self._operations = self._acked = self._unknown = self._read = 0
        self._header: Header | None = None
        self._last_ack_us = 0
        self._gap_us = 0
        self._faults: list[Fault] = []
        self._waiting: list[tuple[int, int, int]] = []  # (index of fault, partition, instant)
        self._pause_us: dict[int, int] = {}

    def feed(self, events: Iterable[Event]) -> Checker:
        """Take in events; returns self. Raises HistoryError for numbers that no run could have written."""
        ack, read = self._ack, self._on_read
        for event in events:
            kind = type(event)
            if kind is Read:
                read(event)  # type: ignore[arg-type]
            elif kind is Ack:
                ack(event)  # type: ignore[arg-type]
            else:
                self._other(event)
            self._operations += 1
        return self

    def _other(self, event: Event) -> None:
        match event:
            case Header():
                if event.version != VERSION or self._header is not None:
                    raise HistoryError(f"not one history of version {VERSION}: {event}")
                self._header = event
            case Unknown():
                self._unknown += 1
                self._partition(event.partition).unknown.add(_code(event))
            case Assign():
                self._partition(event.partition).positions[event.consumer] = event.offset
            case Foreign():
                self._position(self._partition(event.partition), event.consumer, event.offset, 0)
            case End():
                self._partition(event.partition).ends = event.offset
            case Fault():
                index = len(self._faults)
                self._faults.append(event)
                self._waiting += [(index, partition, event.at_us) for partition in event.partitions]
            case _:
                raise AssertionError(event)

    def _partition(self, number: int) -> _Partition:
        found = self._partitions.get(number)
        if found is None:
            found = self._partitions[number] = _Partition(number)
        return found

    def _anomaly(self, kind: Kind, partition: int, offset: int, code: int, text: str) -> None:
        self._counts[kind] += 1
        if self._counts[kind] <= EXAMPLES_MAX:
            record = name_of(code) if code else ""
            self._examples.append(Anomaly(kind=kind, partition=partition, offset=offset, record=record, text=text))

    def _ack(self, event: Ack) -> None:
        self._acked += 1
        offset, code = event.offset, _code(event)
        partition = self._partitions.get(event.partition) or self._partition(event.partition)
        page = partition.pages.get(offset >> _PAGE_BITS) or partition.page(offset)
        slot = offset & _SLOT
        known = page.codes[slot]
        if known in (0, code):
            page.codes[slot] = code
            page.flags[slot] |= _ACKED
        else:
            partition.misplaced.append((code, offset))
        self._gap_us = max(self._gap_us, event.acked_us - self._last_ack_us) if self._last_ack_us else 0
        self._last_ack_us = event.acked_us
        self._real_time_order(partition, event, code)
        if self._waiting:
            self._settle_pauses(event)

    def _real_time_order(self, partition: _Partition, event: Ack, code: int) -> None:
        """A record sent after an acknowledgement lies behind the acknowledged one."""
        times, tops = partition.times, partition.tops
        before = bisect_right(times, event.invoked_us - 1)
        if before and tops[before - 1] >= event.offset:
            text = f"sent after offset {tops[before - 1]} was acknowledged, and got a lower one"
            self._anomaly("stale-offset", partition.number, event.offset, code, text)
        partition.acked_max = max(partition.acked_max, event.offset)
        times.append(max(event.acked_us, times[-1]) if times else event.acked_us)
        tops.append(partition.acked_max)
        if len(times) > 2 * _REAL_TIME_WINDOW:
            del times[:_REAL_TIME_WINDOW], tops[:_REAL_TIME_WINDOW]

    def _settle_pauses(self, event: Ack) -> None:
        still = []
        for index, partition, at_us in self._waiting:
            if partition == event.partition and event.invoked_us > at_us:
                self._pause_us[index] = event.acked_us - at_us  # acknowledgements come in the order of time
            else:
                still.append((index, partition, at_us))
        self._waiting = still

    def _on_read(self, event: Read) -> None:
        self._read += 1
        offset, code = event.offset, _code(event)
        partition = self._partitions.get(event.partition) or self._partition(event.partition)
        page = partition.pages.get(offset >> _PAGE_BITS) or partition.page(offset)
        slot = offset & _SLOT
        known = page.codes[slot]
        if known != code:
            flag = page.flags[slot]
            if flag & _READ:
                text = f"held {name_of(known)} when it was read before"
                self._anomaly("inconsistent", partition.number, offset, code, text)
            elif flag & _ACKED:  # what is read is what is there
                partition.misplaced.append((known, offset))
                page.flags[slot] = 0
            page.codes[slot] = code
        page.flags[slot] |= _READ
        if partition.positions.get(event.consumer) == offset:
            partition.positions[event.consumer] = offset + 1
        else:
            self._position(partition, event.consumer, offset, code)

    def _position(self, partition: _Partition, consumer: int, offset: int, code: int) -> None:
        expected = partition.positions.get(consumer, -1)
        if 0 <= expected < offset:
            text = f"consumer {consumer} expected offset {expected}: {offset - expected} skipped"
            self._anomaly("skip", partition.number, offset, code, text)
        elif offset < expected:
            text = f"consumer {consumer} expected offset {expected}"
            self._anomaly("non-monotonic", partition.number, offset, code, text)
        partition.positions[consumer] = offset + 1

    def report(self) -> Report:
        """Judge what was fed. Raises HistoryError when there was no header."""
        if self._header is None:
            raise HistoryError("the history has no header: it is empty or not a history")
        homes: dict[int, int] = {}
        for number in sorted(self._partitions):
            self._judge(self._partitions[number], homes)
        return Report(
            ok=not self._counts,
            operations=self._operations,
            acked=self._acked,
            unknown=self._unknown,
            read=self._read,
            partitions=len(self._partitions),
            counts=dict(self._counts),
            examples=self._examples,
            longest_ack_gap_ms=self._gap_us / 1000,
            pauses=[self._pause(index, fault) for index, fault in enumerate(self._faults)],
        )

    def _pause(self, index: int, fault: Fault) -> Pause:
        unsettled = any(waiting == index for waiting, _, _ in self._waiting)
        pause_us = None if unsettled else self._pause_us.get(index, 0)
        return Pause(fault=fault.name, at_us=fault.at_us, pause_ms=None if pause_us is None else pause_us / 1000)

    def _judge(self, partition: _Partition, homes: dict[int, int]) -> None:
        """One pass over the offsets of a partition, a second one only when something is missing or misplaced."""
        number, unknown = partition.number, partition.unknown
        missing: list[tuple[int, int]] = []
        streams: dict[int, _Stream] = {}
        for offset, code, flag in partition.scan():
            if flag & _READ:
                stream = streams.get(code >> 32)
                if stream is None:
                    stream = streams[code >> 32] = _Stream()
                    if homes.setdefault(code >> 32, number) != number:
                        text = f"its key also lives in partition {homes[code >> 32]}"
                        self._anomaly("wrong-partition", number, offset, code, text)
                if (code & SEQUENCE_MAX) == stream.highest + 1:
                    stream.highest += 1
                elif kind := stream.take(code & SEQUENCE_MAX):
                    text = f"after sequence {stream.highest} of the same producer and key"
                    self._anomaly(kind, number, offset, code, text)
                if not flag & _ACKED and code not in unknown:
                    missing.append((code, -offset - 1))
            else:
                missing.append((code, offset))
        if missing or partition.misplaced:
            self._judge_missing(partition, missing)

    def _judge_missing(self, partition: _Partition, missing: list[tuple[int, int]]) -> None:
        """Sort out records that are not where they were acknowledged, and records that nobody sent."""
        wanted = {code for code, offset in missing if offset >= 0} | {code for code, _ in partition.misplaced}
        suspects = {code for code, offset in missing if offset < 0}
        elsewhere: dict[int, int] = {}
        sent = set(wanted)
        for at, code, flag in partition.scan():
            if flag & _READ and code in wanted:
                elsewhere[code] = at
            if flag & _ACKED and code in suspects:
                sent.add(code)
        number = partition.number
        for code, offset in missing + partition.misplaced:
            if offset < 0:
                if code not in sent:
                    self._anomaly("unexplained", number, -offset - 1, code, "was read, and nobody sent it")
            elif code in elsewhere:
                text = f"was acknowledged here and is at offset {elsewhere[code]}"
                self._anomaly("wrong-offset", number, offset, code, text)
            elif partition.ends is None or offset >= partition.ends:
                text = f"was acknowledged; the final read ended at offset {partition.ends}"
                self._anomaly("unseen", number, offset, code, text)
            else:
                self._anomaly("lost", number, offset, code, "was acknowledged and nobody ever read it")


class _Stream:
    """The sequences of one producer and key, in the order of their offsets: the highest, and the ranges left out."""

    __slots__ = ("highest", "holes")

    def __init__(self) -> None:
        self.highest = 0
        self.holes: list[tuple[int, int]] = []  # [first, behind the last)

    def take(self, sequence: int) -> Kind | None:
        """Note one sequence; returns what is wrong with it. Left-out sequences alone are not wrong here."""
        if sequence > self.highest:
            if sequence > self.highest + 1:
                self.holes.append((self.highest + 1, sequence))
            self.highest = sequence
            return None
        for index, (first, behind) in enumerate(self.holes):
            if first <= sequence < behind:
                rest = [(first, sequence), (sequence + 1, behind)]
                self.holes[index : index + 1] = [hole for hole in rest if hole[0] < hole[1]]
                return "reordered"
        return "duplicate"


def _code(event: Ack | Read | Unknown) -> int:
    """(producer, key, sequence) as one number of 64 bits; 0 is no record."""
    producer, key, sequence = event.producer, event.key, event.sequence
    if not (0 <= producer < PRODUCERS_MAX and 0 <= key < KEYS_MAX and 0 < sequence <= SEQUENCE_MAX):
        raise HistoryError(f"producer, key or sequence out of range: {event}")
    return producer << 52 | key << 32 | sequence


def check(events: Iterable[Event]) -> Report:
    """Judge one whole history."""
    return Checker().feed(events).report()

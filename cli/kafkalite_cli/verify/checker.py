"""Judges a history: what was acknowledged is in the log, once, in order, where the acknowledgement said.

Pure: events in, a report out. One pass over the events plus one pass over the offsets of each partition; linear time.
The invariant, for every partition:

    final(o) = the record that readers found at offset o
    acked (r, o)                   =>  final(o) = r                             else lost | wrong-offset | unseen
    anybody read o                 =>  the final read found the same            else lost | vanished | inconsistent
    a reader is given r            =>  with the bytes that were sent                        else altered
    final(o1) = final(o2)          =>  o1 = o2                                  else duplicate
    same producer and key, r1 < r2 =>  offset(r1) < offset(r2)                  else reordered
    acked r1 before r2 was sent    =>  offset(r1) < offset(r2)                  else stale-offset
    reads of one consumer          :   o, o+1, o+2, …                           else skip | non-monotonic
    final(o) exists                =>  somebody sent it, and was not refused    else unexplained | failed-read
    the end of the log was told    =>  behind all acked or told before          else watermark-regressed
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from kafkalite_cli.verify.history import (
    FINAL_READ,
    KEYS_MAX,
    OFFSET_UNKNOWN,
    PRODUCERS_MAX,
    SEQUENCE_MAX,
    VERSION,
    Ack,
    Altered,
    Assign,
    End,
    Event,
    Failed,
    Fault,
    Foreign,
    Header,
    HistoryError,
    Read,
    Unknown,
    Unnamed,
    Watermark,
    is_name,
)
from kafkalite_cli.verify.partition_log import ACKED, FINAL, FOREIGN, PAGE_BITS, READ, SLOT, PartitionLog, Stream
from kafkalite_cli.verify.pauses import Pauses
from kafkalite_cli.verify.report import EXAMPLES_MAX, KINDS, Anomaly, Findings, Kind, Pause, Report, name_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

__all__ = ["EXAMPLES_MAX", "KINDS", "Anomaly", "Checker", "Kind", "Pause", "Report", "check", "name_of"]

MISSING_MAX = 1_000_000  # records of one partition that are looked for elsewhere; further ones are just missing


class Checker:
    """Feed it every event of one history in the order of the file, then ask for the report once.

    Args:
        allowed: Kinds of anomaly that are counted and shown, and do not make the verdict bad: what the clients of the
            run were not promised, for example `duplicate` for a producer that is not idempotent.
    """

    def __init__(self, allowed: Collection[str] = ()) -> None:
        if unknown := set(allowed) - set(KINDS):
            raise ValueError(f"no kind of anomaly: {', '.join(sorted(unknown))}")
        self._allowed = frozenset(allowed)
        self._partitions: dict[int, PartitionLog] = {}
        self._findings = Findings()
        self._operations = self._acked = self._unknown = self._failed = self._read = 0
        self._header: Header | None = None
        self._pauses = Pauses(self._partitions)

    def feed(self, events: Iterable[Event]) -> Checker:
        """Take in events; returns self. Raises HistoryError for numbers that no run could have written."""
        ack, read = self._ack, self._on_read
        event: Event | None = None
        try:
            for event in events:
                kind = type(event)
                if kind is Read:
                    read(event)  # type: ignore[arg-type]
                elif kind is Ack:
                    ack(event)  # type: ignore[arg-type]
                else:
                    self._other(event)
                self._operations += 1
        except OverflowError:
            raise HistoryError(f"a number of more than 64 bits: {event}") from None
        return self

    def _other(self, event: Event) -> None:
        match event:
            case Header():
                if event.version != VERSION or self._header is not None:
                    raise HistoryError(f"not one history of version {VERSION}: {event}")
                self._header = event
            case Unknown():
                self._unknown += 1
                self._pauses.unanswered(event.partition, event.ended_us)
                self._partition(event.partition).unknown.add(_code(event))
            case Failed():
                self._failed += 1
                self._partition(event.partition).failed.add(_code(event))
            case Assign():
                partition = self._partition(event.partition)
                partition.positions[event.consumer] = event.offset
                if event.consumer >= FINAL_READ:
                    partition.final_from = event.offset if event.offset >= 0 else None
            case Unnamed():
                self._unnamed(event)
            case Altered() if not is_name(event.producer, event.key, event.sequence):
                self._unnamed(event)
            case Altered():
                self._on_read(event)
                text = f"consumer {event.consumer} was given another key or value than was sent"
                self._findings.add("altered", event.partition, event.offset, _code(event), text)
            case Foreign():
                partition = self._partition(event.partition)
                partition.page(event.offset).flags[event.offset & SLOT] |= FOREIGN
                self._position(partition, event.consumer, event.offset, 0)
            case End():
                self._partition(event.partition).ends = event.offset
            case Watermark():
                self._watermark(self._partition(event.partition), event)
            case Fault():
                self._pauses.fault(event)
            case _:
                raise AssertionError(event)

    def _partition(self, number: int) -> PartitionLog:
        found = self._partitions.get(number)
        if found is None:
            found = self._partitions[number] = PartitionLog(number)
        return found

    def _ack(self, event: Ack) -> None:
        self._acked += 1
        offset, code, acked_us = event.offset, _code(event), event.acked_us
        partition = self._partitions.get(event.partition) or self._partition(event.partition)
        if offset == OFFSET_UNKNOWN:
            partition.somewhere.add(code)
            self._pauses.ack(partition, event)
            return
        page = partition.pages.get(offset >> PAGE_BITS) or partition.page(offset)
        slot = offset & SLOT
        known = page.codes[slot]
        if known in (0, code):
            page.codes[slot] = code
            page.flags[slot] |= ACKED
        else:
            partition.misplaced.append((code, offset))
        acked = partition.acked
        if acked.highest >= offset and (before := acked.before(event.invoked_us)) >= offset:
            text = f"sent after offset {before} was acknowledged, and got a lower one"
            self._findings.add("stale-offset", partition.number, offset, code, text)
        acked.add(acked_us, offset)
        self._pauses.ack(partition, event)

    def _on_read(self, event: Read | Altered) -> None:
        self._read += 1
        offset, code, consumer = event.offset, _code(event), event.consumer
        partition = self._partitions.get(event.partition) or self._partition(event.partition)
        page = partition.pages.get(offset >> PAGE_BITS) or partition.page(offset)
        slot = offset & SLOT
        known = page.codes[slot]
        if known != code:
            flag = page.flags[slot]
            if flag & READ:
                text = f"held {name_of(known)} when it was read before"
                self._findings.add("inconsistent", partition.number, offset, code, text)
            if flag & ACKED:  # what is read is what is there
                partition.misplaced.append((known, offset))
            page.flags[slot] &= FOREIGN
            page.codes[slot] = code
        page.flags[slot] |= READ if consumer < FINAL_READ else READ | FINAL
        if partition.positions.get(consumer) == offset:
            partition.positions[consumer] = offset + 1
        else:
            self._position(partition, consumer, offset, code)

    def _unnamed(self, event: Unnamed | Altered) -> None:
        """A record of this run was served whose name nobody can read: what was sent to that offset was not read."""
        self._read += 1
        self._position(self._partition(event.partition), event.consumer, event.offset, 0)
        text = f"consumer {event.consumer} was given a record of this run whose name cannot be read"
        self._findings.add("altered", event.partition, event.offset, 0, text)

    def _position(self, partition: PartitionLog, consumer: int, offset: int, code: int) -> None:
        expected = partition.positions.get(consumer, -1)
        if 0 <= expected < offset:
            text = f"consumer {consumer} expected offset {expected}: {offset - expected} skipped"
            self._findings.add("skip", partition.number, offset, code, text)
        elif offset < expected:
            text = f"consumer {consumer} expected offset {expected}"
            self._findings.add("non-monotonic", partition.number, offset, code, text)
        partition.positions[consumer] = offset + 1

    def _watermark(self, partition: PartitionLog, event: Watermark) -> None:
        """Who asks for the end of the log is told one behind all that was acknowledged or told before (KIP-207)."""
        least = max(partition.acked.before(event.invoked_us) + 1, partition.told.before(event.invoked_us))
        if event.offset < least:
            text = f"client {event.client} was told that the log ends at {event.offset}, after {least} had been known"
            self._findings.add("watermark-regressed", partition.number, event.offset, 0, text)
        partition.told.add(event.at_us, event.offset)

    def report(self) -> Report:
        """Judge what was fed. Raises HistoryError when there was no header."""
        if self._header is None:
            raise HistoryError("the history has no header: it is empty or not a history")
        homes: dict[int, int] = {}
        for number in sorted(self._partitions):
            _Judgement(self._partitions[number], self._findings).judge(homes)
        pauses = self._pauses.finish()
        unfinished = any(partition.ends is None for partition in self._partitions.values())
        return Report(
            ok=self._findings.ok(self._allowed),
            operations=self._operations,
            acked=self._acked,
            unknown=self._unknown,
            failed=self._failed,
            read=self._read,
            partitions=len(self._partitions),
            counts=dict(self._findings.counts),
            examples=self._findings.examples,
            longest_ack_gap_ms=self._pauses.longest_us / 1000,
            pauses=pauses,
            broken_off=unfinished and not self._findings.certain(self._allowed),
        )


class _Judgement:
    """One pass over the offsets of a partition, a second one only when something is missing or misplaced."""

    def __init__(self, partition: PartitionLog, findings: Findings) -> None:
        self._partition, self._findings = partition, findings
        self._missing: list[tuple[int, int]] = []  # (code, offset) acknowledged and not read
        self._suspects: list[tuple[int, int]] = []  # (code, offset) read, and neither acknowledged here nor unknown

    def judge(self, homes: dict[int, int]) -> None:
        """`homes` are the partitions in which each producer and key was found first."""
        partition, findings = self._partition, self._findings
        number, unknown, failed = partition.number, partition.unknown | partition.somewhere, partition.failed
        somewhere = set(partition.somewhere)
        final_from, misplaced = partition.final_from, frozenset(partition.misplaced)
        streams: dict[int, Stream] = {}
        for offset, code, flag in partition.scan():
            if not flag & READ:
                self._note(self._missing, code, offset)
                continue
            if somewhere:
                somewhere.discard(code)
            stream = streams.get(code >> 32)
            if stream is None:
                stream = streams[code >> 32] = Stream()
                if homes.setdefault(code >> 32, number) != number:
                    text = f"its key also lives in partition {homes[code >> 32]}"
                    findings.add("wrong-partition", number, offset, code, text)
            if (code & SEQUENCE_MAX) == stream.highest + 1:
                stream.highest += 1
            elif kind := stream.take(code & SEQUENCE_MAX):
                text = f"after sequence {stream.highest} of the same producer and key"
                findings.add(cast("Kind", kind), number, offset, code, text)
            if failed and code in failed:
                findings.add("failed-read", number, offset, code, "was read, and its producer had been refused")
            elif not flag & ACKED and code not in unknown:
                self._note(self._suspects, code, offset)
            if not flag & FINAL and final_from is not None and offset >= final_from:
                acked = bool(flag & ACKED) or (code, offset) in misplaced or code in partition.somewhere
                self._gone(offset, code, acked=acked)
            elif flag & FOREIGN:
                findings.add("inconsistent", number, offset, code, "a consumer was given somebody else's record there")
        for code in sorted(somewhere):
            self._not_read(code, OFFSET_UNKNOWN)
        if self._missing or self._suspects or partition.misplaced:
            self._look_elsewhere()

    def _note(self, where: list[tuple[int, int]], code: int, offset: int) -> None:
        if len(where) < MISSING_MAX:
            where.append((code, offset))
        elif where is self._missing:
            self._not_read(code, offset)

    def _gone(self, offset: int, code: int, *, acked: bool) -> None:
        """A consumer had been given the record, and the final read did not find it."""
        end = self._partition.ends
        if end is None or offset >= end:
            text = f"had been read; the final read ended at offset {end}"
            self._findings.add("unseen", self._partition.number, offset, code, text)
        else:
            text = "had been read, and the final read did not find it"
            self._findings.add("lost" if acked else "vanished", self._partition.number, offset, code, text)

    def _not_read(self, code: int, offset: int) -> None:
        end = self._partition.ends
        if end is None or offset >= end:
            text = f"was acknowledged; the final read ended at offset {end}"
            self._findings.add("unseen", self._partition.number, offset, code, text)
        else:
            text = "was acknowledged and nobody ever read it"
            self._findings.add("lost", self._partition.number, offset, code, text)

    def _look_elsewhere(self) -> None:
        """Sort out records that are not where they were acknowledged, and records that nobody sent."""
        partition, number = self._partition, self._partition.number
        absent = self._missing + partition.misplaced
        wanted = {code for code, _ in absent}
        suspects = {code for code, _ in self._suspects}
        sent = suspects & wanted
        elsewhere: dict[int, int] = {}
        for at, code, flag in partition.scan():
            if flag & READ and code in wanted:
                elsewhere[code] = at
            if flag & ACKED and code in suspects:
                sent.add(code)
        for code, offset in self._suspects:
            if code not in sent:
                self._findings.add("unexplained", number, offset, code, "was read, and nobody sent it")
        for code, offset in absent:
            place = elsewhere.get(code)
            if place is None:
                self._not_read(code, offset)
            elif place != offset:  # else several records were read there, which is an anomaly of its own
                text = f"was acknowledged here and is at offset {place}"
                self._findings.add("wrong-offset", number, offset, code, text)


def _code(event: Ack | Read | Altered | Unknown | Failed) -> int:
    """(producer, key, sequence) as one number of 64 bits; 0 is no record."""
    producer, key, sequence = event.producer, event.key, event.sequence
    if not (0 <= producer < PRODUCERS_MAX and 0 <= key < KEYS_MAX and 0 < sequence <= SEQUENCE_MAX):
        raise HistoryError(f"producer, key or sequence out of range: {event}")
    return producer << 52 | key << 32 | sequence


def check(events: Iterable[Event], allowed: Collection[str] = ()) -> Report:
    """Judge one whole history; `allowed` as for `Checker`."""
    return Checker(allowed).feed(events).report()

"""The work of `kafkalite consume`: where to begin, when to end, what was read, and how far behind it is."""

from __future__ import annotations

import contextlib
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from kafkalite_cli.errors import Failure
from kafkalite_cli.groups.reset import parse_datetime
from kafkalite_cli.kafka import plain_errors, sentence

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Consumer, Message

    from kafkalite_cli.guard import Stop
    from kafkalite_cli.records.meter import Meter

BATCH = 500
WAIT_S = 0.2
QUERY_S = 10.0
LAG_S = 2.0
UNASSIGNED_S = 5.0
"""A group that gives nothing for so long: librdkafka looks for its coordinator without a word."""
LATEST_MS = 2**63 - 1
UNASSIGNED = (
    "the group has given this consumer no partition yet: its coordinator does not answer, or other members read all of"
    " them (kafkalite groups describe); waiting on"
)
OFFSET = re.compile(r"-?\d+")
FATAL = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError._AUTHENTICATION,  # noqa: SLF001 - the binding's name for it
    KafkaError.INVALID_SESSION_TIMEOUT,
    KafkaError.INCONSISTENT_GROUP_PROTOCOL,
    KafkaError._AUTO_OFFSET_RESET,  # noqa: SLF001
}
UNKNOWN_TOPIC = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}  # noqa: SLF001


class Format(Protocol):
    """How a record is shown."""

    def line(self, message: Message) -> bytes:
        """With its end."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where to begin: `beginning`, `end`, `at` an offset, `tail` records before the end, or at a `time` (ms)."""

    kind: str
    value: int = 0


def parse_position(text: str) -> Position:
    """`beginning`, `end`, an offset, `-n` for the last n, `@` and a time. Raises Failure."""
    word = text.strip().lower()
    if word in {"beginning", "earliest"}:
        return Position("beginning")
    if word in {"end", "latest"}:
        return Position("end")
    if word.startswith("@"):
        return Position(
            "time", min(int(word[1:]), LATEST_MS) if word[1:].isdecimal() else parse_datetime(text.strip()[1:])
        )
    if not OFFSET.fullmatch(word):
        raise Failure(f"{text!r} is none of: beginning, end, an offset, -10 (the last ten), @2026-01-31T12:00:00")
    number = int(word)
    return Position("at", number) if number >= 0 else Position("tail", -number)


def first_offset(position: Position, start: int, end: int, at_time: int) -> int:
    """The first offset to read of a log from `start` to `end`; `at_time` is below 0 when nothing is as late.

    Raises Failure when an explicit offset is not there.
    """
    if position.kind == "beginning":
        return start
    if position.kind == "end":
        return end
    if position.kind == "tail":
        return max(start, end - position.value)
    if position.kind == "time":
        return at_time if at_time >= 0 else end
    if not start <= position.value <= end:
        raise Failure(f"there is no offset {position.value}: the log begins at {start} and ends at {end}")
    return position.value


def assign(consumer: Consumer, partitions: list[tuple[str, int]], position: Position) -> None:
    """Give the consumer these partitions from `position` on. Raises Failure."""
    wanted = []
    with plain_errors("the offsets cannot be found out"):
        for topic, number in partitions:
            at_time = -1
            if position.kind == "time":
                asked = [TopicPartition(topic, number, position.value)]
                at_time = consumer.offsets_for_times(asked, timeout=QUERY_S)[0].offset
            bounds = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=QUERY_S)
            if bounds is None:
                raise Failure(f"{topic}-{number}: no answer within {QUERY_S:g} s")
            wanted.append(TopicPartition(topic, number, first_offset(position, *bounds, at_time)))
        consumer.assign(wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When to end by itself; None: not for that reason. `at_end`: when every partition was read to its end."""

    records: int | None = None
    silence_s: float | None = None
    at_end: bool = False


class Inbox:
    """Reads records, writes them out, and in a group stores the offset of what has been written, and only of that."""

    def __init__(
        self,
        consumer: Consumer,
        output: BinaryIO,
        format_: Format,
        *,
        in_group: bool,
        from_beginning: bool,
        tell: Callable[[str], None],
    ) -> None:
        self._consumer, self._output, self._format = consumer, output, format_
        self._in_group, self._from_beginning, self._tell = in_group, from_beginning, tell
        self._next: dict[tuple[str, int], int] = {}
        self._ended: set[tuple[str, int]] = set()
        self._told: set[str] = set()
        self.count = self.size_bytes = 0

    def run(self, limits: Limits, *, stop: Stop, meter: Meter) -> bool:
        """Read until a limit or a stop; whether it ended as it should (not by silence before `limits.records`)."""
        began = heard = time.monotonic()
        waits_to_join = self._in_group
        while not stop.requested:
            wanted = BATCH if limits.records is None else min(BATCH, limits.records - self.count)
            if wanted <= 0:
                return True
            messages = self._consumer.consume(wanted, WAIT_S)
            if self._take(messages):
                heard = time.monotonic()
            if waits_to_join and self._consumer.assignment():
                waits_to_join = False
            elif waits_to_join and time.monotonic() - began > UNASSIGNED_S:
                waits_to_join = False
                self._tell(UNASSIGNED)
            if limits.at_end and self._at_end():
                return True
            if limits.silence_s is not None and time.monotonic() - heard > limits.silence_s:
                return limits.records is None
            if meter.due():
                lag = self.lag(cached=True)
                meter.update(self.count, self.size_bytes, done=self.count, extra="" if lag is None else f"lag {lag:,}")
        return True

    def _take(self, messages: list[Message]) -> bool:
        """Write the records; whether there was one. Raises BrokenPipeError before anything of them is stored."""
        written: dict[tuple[str, int], int] = {}
        count = size_bytes = 0
        for message in messages:
            error = message.error()
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001
                self.note_error(error)
                continue
            assert topic is not None
            assert partition is not None
            assert offset is not None
            if error is not None:
                self._ended.add((topic, partition))
                continue
            self._output.write(self._format.line(message))
            self._ended.discard((topic, partition))
            written[topic, partition] = offset + 1
            size_bytes += len(message.key() or b"") + len(message.value() or b"")
            count += 1
        if not count:
            return False
        self._output.flush()
        self._next |= written
        self.count += count
        self.size_bytes += size_bytes
        if self._in_group:
            self._store(written)
        return True

    def _store(self, written: dict[tuple[str, int], int]) -> None:
        """Let these offsets be committed; of no other partition, for what is known of it may be old."""
        mine = {(each.topic, each.partition) for each in self._consumer.assignment()}
        offsets = [TopicPartition(*where, offset) for where, offset in written.items() if where in mine]
        with contextlib.suppress(KafkaException):  # given away just now: its new owner reads it again
            if offsets:
                self._consumer.store_offsets(offsets=offsets)

    def note_error(self, error: KafkaError) -> None:
        """Tell it once; Raises Failure when it cannot get better."""
        if error.fatal() or error.code() in FATAL or error.code() in UNKNOWN_TOPIC:
            raise Failure(sentence(error))
        if error.name() not in self._told:
            self._told.add(error.name())
            self._tell(f"{sentence(error)}; trying on")

    def forget(self, partitions: list[TopicPartition]) -> None:
        """They were given to another member of the group."""
        for each in partitions:
            self._next.pop((each.topic, each.partition), None)
            self._ended.discard((each.topic, each.partition))

    def _at_end(self) -> bool:
        assigned = {(each.topic, each.partition) for each in self._consumer.assignment()}
        return bool(assigned) and assigned <= self._ended

    def lag(self, *, cached: bool = False) -> int | None:
        """Records behind the positions, over all partitions of this consumer; None when it is not known."""
        assigned = self._consumer.assignment()
        if not assigned:
            return None
        limit = time.monotonic() + LAG_S
        try:
            positions = self._positions(assigned, cached=cached)
            total = 0
            for each in assigned:
                left_s = max(0.1, limit - time.monotonic())
                bounds = self._consumer.get_watermark_offsets(each, timeout=left_s, cached=cached)
                if bounds is None or bounds[1] < 0:
                    return None
                start = bounds[0] if self._from_beginning else bounds[1]
                total += max(0, bounds[1] - positions.get((each.topic, each.partition), start))
        except KafkaException:
            return None
        return total

    def _positions(self, assigned: list[TopicPartition], *, cached: bool) -> dict[tuple[str, int], int]:
        """The next offset of each partition: what was read, else what is committed; without both it is not there."""
        found = {(each.topic, each.partition): each.offset for each in assigned if each.offset >= 0}
        found |= {
            (each.topic, each.partition): each.offset for each in self._consumer.position(assigned) if each.offset >= 0
        }
        found |= self._next
        if self._in_group and not cached:
            rest = [each for each in assigned if (each.topic, each.partition) not in found]
            committed = self._consumer.committed(rest, timeout=LAG_S) if rest else []
            found |= {(each.topic, each.partition): each.offset for each in committed if each.offset >= 0}
        return found


def consumer_config(group: str | None, *, from_beginning: bool, eof: bool) -> dict[str, Any]:
    """Settings of librdkafka for a member of a group, or for a consumer that assigns its partitions itself."""
    return {
        "group.id": group or "kafkalite-consume",  # librdkafka wants one; without --group nothing is committed
        "enable.auto.commit": group is not None,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest" if from_beginning or group is None else "latest",
        "enable.partition.eof": eof,
        "fetch.wait.max.ms": 100,
    }

"""Which offsets `groups reset-offsets` sets. Pure, and the rules are those of Kafka's own tool."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from kafkalite_cli.errors import Failure
from kafkalite_cli.groups.model import Log, Partition

if TYPE_CHECKING:
    from collections.abc import Mapping

JsonObject = dict[str, Any]
DURATION = re.compile(
    r"P(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.IGNORECASE,
)
SHORT_DURATION = re.compile(
    r"(?:(?P<days>\d+)d)?(?:(?P<hours>\d+)h)?(?:(?P<minutes>\d+)m)?(?:(?P<seconds>\d+(?:\.\d+)?)s)?"
)
TOPIC_LIST = re.compile(r"(?P<topic>[^:]+)(?::(?P<numbers>\d+(?:,\d+)*))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One of the ways to say where to go; exactly one is set.

    Attributes:
        to: `earliest`, `latest` or `current`.
        offset: that offset in every partition.
        shift: so many records further, or back.
        timestamp_ms: the first record of that time or later.
        listed: offset by partition, from a file.
    """

    to: str | None = None
    offset: int | None = None
    shift: int | None = None
    timestamp_ms: int | None = None
    listed: Mapping[Partition, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One partition's offset before and after; `remark` says why it is not the one that was asked for."""

    partition: Partition
    before: int | None
    after: int
    log: Log
    remark: str = ""

    def document(self) -> JsonObject:
        """The entry of `-o json`."""
        return {
            "topic": self.partition.topic,
            "partition": self.partition.number,
            "before": self.before,
            "after": self.after,
            "logStart": self.log.start,
            "logEnd": self.log.end,
            "lag": self.log.end - self.after,
            "remark": self.remark or None,
        }


def plan(
    wish: Wish,
    partitions: list[Partition],
    *,
    committed: Mapping[Partition, int],
    logs: Mapping[Partition, Log],
    at_time: Mapping[Partition, int],
) -> list[Move]:
    """The new offset of each partition, brought inside its log. Raises Failure when one cannot be told."""
    timed = wish.timestamp_ms is not None  # who did not answer did not say that the log ends before that time
    if missing := [str(each) for each in partitions if each not in logs or (timed and each not in at_time)]:
        raise Failure(f"the offsets of {', '.join(missing)} are not known: no such partition, or it has no leader")
    return [_move(wish, each, committed.get(each), logs[each], at_time.get(each, -1)) for each in partitions]


def _move(wish: Wish, partition: Partition, before: int | None, log: Log, at_time: int) -> Move:
    wanted, remark = log.end, ""
    if wish.offset is not None:
        wanted = wish.offset
    elif wish.listed is not None:
        wanted = wish.listed[partition]
    elif wish.timestamp_ms is not None:
        wanted = at_time
        remark = "no record of that time or later" if wanted >= log.end else ""
    elif wish.shift is not None:
        if before is None:
            raise Failure(f"{partition} has no committed offset to shift")
        wanted = before + wish.shift
    elif wish.to == "earliest":
        wanted = log.start
    elif wish.to == "current":
        wanted = log.end if before is None else before
        remark = "no committed offset: the log's end" if before is None else ""
    after = min(max(wanted, log.start), log.end)
    if after != wanted:
        remark = f"{wanted} is {'before the log begins' if wanted < log.start else 'beyond the log'}"
    return Move(partition=partition, before=before, after=after, log=log, remark=remark)


def parse_topics(texts: tuple[str, ...]) -> list[tuple[str, list[int] | None]]:
    """`t`: all its partitions (None), `t:0,2`: those. Raises Failure."""
    found: list[tuple[str, list[int] | None]] = []
    for text in texts:
        match = TOPIC_LIST.fullmatch(text.strip())
        if match is None:
            raise Failure(f"{text!r} is not of the form topic or topic:0,1,2")
        numbers = match["numbers"]
        found.append((match["topic"], sorted({int(each) for each in numbers.split(",")}) if numbers else None))
    return found


def parse_datetime(text: str) -> int:
    """Milliseconds since 1970 of ISO 8601 text; without a zone it is UTC, as Kafka takes it. Raises Failure.

    What was before 1970 is 0: below it timestamps have other meanings for a broker, the end of the log among them.
    """
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise Failure(f"{text!r} is not a time like 2026-01-31T12:00:00.000, with or without +01:00") from None
    return max(0, round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))


def parse_duration(text: str) -> int:
    """Milliseconds of `PT1H30M` (ISO 8601) or `1h30m`. Raises Failure."""
    match = DURATION.fullmatch(text.strip()) or SHORT_DURATION.fullmatch(text.strip())
    parts = {name: float(value) for name, value in match.groupdict().items() if value} if match else {}
    if not parts:
        raise Failure(f"{text!r} is not a duration like PT1H30M, P1D or 1h30m")
    try:
        return round(timedelta(**parts).total_seconds() * 1000)
    except OverflowError:
        raise Failure(f"{text!r} is longer than there are times") from None


def parse_plan(text: str, group_id: str, source: str) -> dict[Partition, int]:
    """Lines `topic,partition,offset`, or `group,topic,partition,offset` (others' lines are passed over).

    That is what `-o csv` and Kafka's `--export` write. Raises Failure.
    """
    found: dict[Partition, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        cells = [cell.strip().strip('"') for cell in line.split(",")]
        if cells == [""]:
            continue
        if len(cells) == 4 and cells.pop(0) != group_id:
            continue
        if len(cells) != 3 or not cells[1].isdecimal() or not cells[2].isdecimal():
            raise Failure(f"{source}, line {number}: {line!r} is not topic,partition,offset")
        found[Partition(cells[0], int(cells[1]))] = int(cells[2])
    if not found:
        raise Failure(f"{source} has no offsets for group {group_id!r}")
    return found

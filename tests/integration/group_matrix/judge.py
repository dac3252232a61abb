"""Judges the history of one cell."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.integration.group_matrix.history import Acked, Assembled, Ended, Observed, Owns, Read, Started

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.integration.group_matrix.history import Event

EXAMPLES_MAX = 3


@dataclass(frozen=True, slots=True)
class Limits:
    """What is called stuck, in seconds.

    Attributes:
        waiting_s: A member that had partitions and has none, until it has some again.
        joining_s: A new process, from its start to its first assignment.
        delivery_s: A record, from its acknowledgement, or when the members had assembled, until one of them has read it.
    """

    waiting_s: float
    joining_s: float
    delivery_s: float


@dataclass(slots=True)
class Verdict:
    """What was found.

    Attributes:
        problems: Broken promises, in words; none: everything was kept.
        figures: Seconds and counts by name.
    """

    problems: list[str] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)


def judge(history: Sequence[Event], limits: Limits) -> Verdict:
    """Every acknowledged record was read and committed, no committed offset went back, and nobody was stuck."""
    verdict = Verdict()
    _deliveries(history, limits, verdict)
    _offsets(history, verdict)
    _members(history, limits, verdict)
    return verdict


def _deliveries(history: Sequence[Event], limits: Limits, verdict: Verdict) -> None:
    acked = {(event.partition, event.offset): event.at_s for event in history if isinstance(event, Acked)}
    first: dict[tuple[int, int], float] = {}
    reads = 0
    for event in history:
        if isinstance(event, Read):
            reads += 1
            first.setdefault((event.partition, event.offset), event.at_s)
    unread = sorted(acked.keys() - first.keys())
    if not acked:
        verdict.problems.append("no record was acknowledged: this proves nothing")
    if unread:
        verdict.problems.append(f"{len(unread)} acknowledged records were never read: {unread[:EXAMPLES_MAX]}")
    assembled_s = next((event.at_s for event in history if isinstance(event, Assembled)), 0.0)
    delays = {place: first[place] - max(at_s, assembled_s) for place, at_s in acked.items() if place in first}
    late = sorted(place for place, delay in delays.items() if delay > limits.delivery_s)
    if late:
        worst = max(delays.values())
        verdict.problems.append(f"{len(late)} records came late, after {worst:.1f} s at most: {late[:EXAMPLES_MAX]}")
    verdict.figures |= {
        "acked": len(acked),
        "read_again": reads - len(first),
        "delivery_s": round(max(delays.values(), default=0.0), 2),
    }


def _offsets(history: Sequence[Event], verdict: Verdict) -> None:
    last: dict[int, int] = {}
    count = 0
    for event in history:
        if not isinstance(event, Observed):
            continue
        count += 1
        for partition, before in last.items():
            now = event.offsets.get(partition)
            if now is None or now < before:
                verdict.problems.append(f"the committed offset of partition {partition} was {before}, then {now}")
        last = dict(event.offsets)
    ends: dict[int, int] = {}
    for event in history:
        if isinstance(event, Acked):
            ends[event.partition] = max(ends.get(event.partition, 0), event.offset + 1)
    behind = {partition: (last.get(partition), end) for partition, end in ends.items() if last.get(partition) != end}
    if behind:
        verdict.problems.append(f"committed offsets and log ends at the end of it: {behind}")
    verdict.figures["observations"] = count


def _members(history: Sequence[Event], limits: Limits, verdict: Verdict) -> None:
    """Times without an assignment; one that the history's end cuts off counts as far as it goes, a dead one's never."""
    started: dict[str, float] = {}
    empty_since: dict[str, float] = {}
    waiting: list[tuple[float, str]] = []
    joining: list[tuple[float, str]] = []
    for event in history:
        if isinstance(event, Started):
            started[event.member] = event.at_s
        elif isinstance(event, Owns):
            if not event.partitions:
                if event.member not in started:
                    empty_since.setdefault(event.member, event.at_s)
            elif event.member in started:
                joining.append((event.at_s - started.pop(event.member), event.member))
            elif event.member in empty_since:
                waiting.append((event.at_s - empty_since.pop(event.member), event.member))
        elif isinstance(event, Ended):
            started.pop(event.member, None)
            empty_since.pop(event.member, None)
            if not event.killed:
                verdict.problems.append(f"{event.member} ended by itself")
    end_s = history[-1].at_s if history else 0.0
    joining += [(end_s - at_s, member) for member, at_s in started.items()]
    waiting += [(end_s - at_s, member) for member, at_s in empty_since.items()]
    for found, limit_s, words in (
        (waiting, limits.waiting_s, "had no assignment"),
        (joining, limits.joining_s, "waited for its first assignment"),
    ):
        verdict.problems += [f"{member} {words} for {took_s:.1f} s" for took_s, member in found if took_s > limit_s]
    verdict.figures["waiting_s"] = round(max((took_s for took_s, _ in waiting), default=0.0), 2)
    verdict.figures["joining_s"] = round(max((took_s for took_s, _ in joining), default=0.0), 2)

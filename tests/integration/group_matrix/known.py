"""A defect of one client that the brokers cannot mend, recognised in the client's own log and in nothing else.

librdkafka before 2.6.1 moves a partition to its new leader by way of the old leader's thread. When Metadata names the
leader X, then Y, then X again before that thread has turned to it, the partition stays at Y: the last answer changes
nothing, for X is where the partition still is, and every later one is taken for a preferred replica (KIP-392) that must
not be left. Fetches are answered at Y, too; ListOffsets, which a partition without a commit begins with, is not. So it
asks the wrong broker twice a second, until the leader changes. docs/failure-modes.md tells what to do about it.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

from tests.integration.group_matrix.history import Acked, Read

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.integration.group_matrix.history import Event

ASKED = re.compile(r"\|OFFREQ\|.*/(\d+): Partition \S+ \[(\d+)\]: querying for logical offset")
STAYS = re.compile(r"\|BROKER\|.* \[(\d+)\]: leader (\d+) unchanged, not migrating away from preferred replica")
ASKED_MIN = 8
"""So often in a row (4 s) the same wrong broker."""

LAST_S = 5.0
"""What was acknowledged so shortly before the end may be unread because it was the end."""

FOLLOW = ("gave up after", "acknowledged records were never read", "committed offsets and log ends")
"""Beginnings or parts of the problems that follow when a partition is not read."""


def misled(log: Iterable[str]) -> dict[int, tuple[int, int]]:
    """Of a member's log: by partition, the broker that it asked for offsets and the leader that it had been told."""
    said: dict[int, list[tuple[str, int]]] = {}
    for line in log:
        if found := ASKED.search(line):
            said.setdefault(int(found[2]), []).append(("asked", int(found[1])))
        elif found := STAYS.search(line):
            said.setdefault(int(found[1]), []).append(("leader", int(found[2])))
    places = {}
    for partition, words in said.items():
        asked, leader, wrong = -1, -1, 0
        for kind, broker in words:
            if kind == "leader":
                leader = broker
                continue
            wrong = wrong + 1 if leader not in {-1, broker} and broker == asked else 0
            asked = broker
            if wrong >= ASKED_MIN:
                places[partition] = (asked, leader)
    return places


def excuse(history: Sequence[Event], problems: Sequence[str], logs: Iterable[Iterable[str]]) -> str | None:
    """Why a cell failed, if all of it follows from partitions at which a member was misled; else None."""
    if not all(any(part in problem for part in FOLLOW) for problem in problems):
        return None
    end_s = max((event.at_s for event in history), default=0.0)
    read = {(event.partition, event.offset) for event in history if isinstance(event, Read)}
    unread = {
        event.partition
        for event in history
        if isinstance(event, Acked) and event.at_s < end_s - LAST_S and (event.partition, event.offset) not in read
    }
    places = dict(itertools.chain.from_iterable(misled(log).items() for log in logs))
    if not unread or not unread <= places.keys():
        return None
    told = ", ".join(f"[{number}] at {places[number][0]}, told {places[number][1]}" for number in sorted(unread))
    return f"librdkafka before 2.6.1 asks a broker for offsets that does not lead, and stays there: {told}"

"""The verdict on a group's history: kinds of anomalies, limits, figures."""

from __future__ import annotations

from collections import Counter
from typing import Literal

import msgspec

GroupAnomalyKind = Literal[
    "undelivered",
    "stalled",
    "committed-unread",
    "skip",
    "rewound",
    "commit-regressed",
    "offset-regressed",
    "commit-unexplained",
    "stale-commit",
    "two-owners",
    "unowned-read",
    "generation-regressed",
    "unsettled",
    "stuck",
    "unmeasured",
]

EXAMPLES_MAX = 20  # per kind; the counts are exact
ANY = -1


class GroupLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What is still in time.

    Args:
        settle_ms: from the last change of the membership (or fault) until every member has its assignment.
        empty_ms: how much longer that may take in a group that was empty, which waits for further members
            (group.initial.rebalance.delay.ms, and once more when some came meanwhile).
        stuck_ms: without an assignment, for a member; without being read, for an acknowledged record.
        changes_min: how many changes of the membership the history must show, each with the rebalance that ended it:
            a run that has none says nothing about `settle_ms`.
    """

    settle_ms: float
    stuck_ms: float
    empty_ms: float = 6000.0
    changes_min: int = 0


class GroupAnomaly(msgspec.Struct, frozen=True, kw_only=True):
    """One broken promise; `partition` or `member` is ANY where it concerns none in particular."""

    kind: GroupAnomalyKind
    partition: int
    member: int
    at_us: int
    text: str


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A rebalance that was due because members came or left, in a group that had been settled.

    Args:
        joined, left: these members, since the group had last been settled.
        members: how many the group has then.
        changed_us: the last of these changes, microseconds.
        took_ms: from the last change, or fault if that came later, until all members have their assignment of one
            generation.
        all_ms: the same from the first change on.
        unheard: somebody left so soon after a fault that no coordinator heard of it: `took_ms` begins with the end of
            that member's session time-out.
        fault: the last fault before the end of the rebalance; empty: none.
        fault_ms: from it to the last change; below 0 when the fault came after the change.
    """

    joined: list[int]
    left: list[int]
    members: int
    changed_us: int
    took_ms: float
    all_ms: float
    unheard: bool
    fault: str
    fault_ms: float


class GroupReport(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict. `ok` iff there is no anomaly; `counts` has one entry per kind that occurred.

    `delivered` counts records, `redelivered` what was read more often than once. `rebalances` counts the times without
    a settled group: `first_ms` is how long an empty group took from the last change of membership on, `settle_ms_max`
    the longest of the others, `unsettled_ms_max` the same from its begin. `changes` has those among them that followed
    a member's joining or leaving in order; `changed` is how many joined or left in them, `change_ms_*` is their
    `took_ms`. `delivery_ms_*` is from acknowledgement to first delivery.
    """

    ok: bool
    counts: dict[str, int]
    examples: list[GroupAnomaly]
    members: int
    generations: int
    rebalances: int
    first_ms: float
    settle_ms_max: float
    unsettled_ms_max: float
    waiting_ms_max: float
    changed: int
    changes: list[Change]
    change_ms_p50: float
    change_ms_max: float
    acked: int
    unknown: int
    delivered: int
    redelivered: int
    commits: int
    commit_errors: dict[str, int]
    observations: int
    faults: int
    delivery_ms_p50: float
    delivery_ms_p99: float
    delivery_ms_max: float


class Findings:
    """Collects anomalies: all are counted, the first EXAMPLES_MAX of each kind are kept."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.examples: list[GroupAnomaly] = []

    def add(self, kind: GroupAnomalyKind, at_us: int, text: str, *, partition: int = ANY, member: int = ANY) -> None:
        """Note one."""
        self.counts[kind] += 1
        if self.counts[kind] <= EXAMPLES_MAX:
            anomaly = GroupAnomaly(kind=kind, partition=partition, member=member, at_us=at_us, text=text)
            self.examples.append(anomaly)

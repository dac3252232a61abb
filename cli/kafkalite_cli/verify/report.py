"""What the judgement of a history looks like."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal, get_args

import msgspec

from kafkalite_cli.verify.history import KEYS_MAX, SEQUENCE_MAX

if TYPE_CHECKING:
    from collections.abc import Collection

Kind = Literal[
    "lost",
    "unseen",
    "vanished",
    "altered",
    "duplicate",
    "reordered",
    "stale-offset",
    "wrong-offset",
    "wrong-partition",
    "inconsistent",
    "skip",
    "non-monotonic",
    "failed-read",
    "unexplained",
    "watermark-regressed",
]
KINDS: tuple[Kind, ...] = get_args(Kind)

MAY_COME: frozenset[Kind] = frozenset({"unseen", "unexplained"})
"""What is missing is only the read, or the answer to the producer: in a history that was cut off it may lie behind."""

EXAMPLES_MAX = 20  # per kind; the counts are exact


class Anomaly(msgspec.Struct, frozen=True, kw_only=True):
    """One broken promise. `record` is "producer/key/sequence"; `text` says what was seen."""

    kind: Kind
    partition: int
    offset: int
    record: str
    text: str


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """How long clients were without answers after a fault.

    Attributes:
        fault: Name of the fault.
        at_us: When it was noted.
        pause_ms: From the fault to the first acknowledgement of a record sent after it, the slowest of the fault's
            partitions; None when a partition never acknowledged again.
        gap_ms: The longest time that one of the fault's partitions was without any acknowledgement, from its last one
            before the fault until the next fault, the history's last one, or the end of the last wait for one in vain.
        gaps_ms: The same for each of the fault's partitions.
    """

    fault: str
    at_us: int
    pause_ms: float | None
    gap_ms: float
    gaps_ms: dict[int, float]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict. `ok` iff there is no anomaly but of the kinds that were allowed.

    `counts` has one entry per kind that occurred, allowed or not; `examples` the first of each. `broken_off`: the
    history ends before its final read did, as that of a run that was killed, and has nothing that is wrong whatever
    would have come behind: it says neither that records are there nor that they are not, so that `ok` says nothing.
    """

    ok: bool
    operations: int
    acked: int
    unknown: int
    failed: int
    read: int
    partitions: int
    counts: dict[str, int]
    examples: list[Anomaly]
    longest_ack_gap_ms: float
    pauses: list[Pause]
    broken_off: bool = False


def name_of(code: int) -> str:
    """The record "producer/key/sequence" behind its 64-bit code."""
    return f"{code >> 52}/{code >> 32 & KEYS_MAX - 1}/{code & SEQUENCE_MAX}"


class Findings:
    """Counts every anomaly, keeps the first of each kind."""

    __slots__ = ("counts", "examples")

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.examples: list[Anomaly] = []

    def add(self, kind: Kind, partition: int, offset: int, code: int, text: str) -> None:
        """Note one anomaly; `code` 0 is no record."""
        self.counts[kind] += 1
        if self.counts[kind] <= EXAMPLES_MAX:
            record = name_of(code) if code else ""
            self.examples.append(Anomaly(kind=kind, partition=partition, offset=offset, record=record, text=text))

    def ok(self, allowed: Collection[str]) -> bool:
        """Whether there is none but of the allowed kinds."""
        return not set(self.counts) - set(allowed)

    def certain(self, allowed: Collection[str]) -> bool:
        """Whether there is one of another kind, and it is one whatever lines are still to come."""
        return bool(set(self.counts) - set(allowed) - MAY_COME)

"""What happens in one cell, in the order in which it was seen; seconds of one monotonic clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Started:
    """A member's process was started; again, when it says that only now it has started up."""

    at_s: float
    member: str


@dataclass(frozen=True, slots=True)
class Owns:
    """A member says which partitions it owns from now on."""

    at_s: float
    member: str
    partitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class Read:
    """A member printed a record."""

    at_s: float
    member: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A member's process ended; `killed` by the experiment."""

    at_s: float
    member: str
    killed: bool


@dataclass(frozen=True, slots=True)
class Assembled:
    """All members are there for the first time: whatever waits to be read was waiting for them until now."""

    at_s: float


@dataclass(frozen=True, slots=True)
class Acked:
    """A record was acknowledged to the producer."""

    at_s: float
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Observed:
    """What the coordinator told about committed offsets, partitions without one left out."""

    at_s: float
    offsets: dict[int, int]


@dataclass(frozen=True, slots=True)
class Fault:
    """Harm was done."""

    at_s: float
    text: str


Event: TypeAlias = Started | Owns | Read | Ended | Assembled | Acked | Observed | Fault

"""What the commands know of a group, whatever client found it out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

STATES = ("Stable", "Empty", "Dead", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "Unknown")


class Partition(NamedTuple):
    """A partition of a topic."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A member of a group and what it was given."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None = None
    partitions: tuple[Partition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group as its coordinator describes it; `state` in Kafka's words (Stable, Empty, Dead, …)."""

    group_id: str
    state: str
    type: str = "Classic"
    assignor: str = ""
    coordinator: tuple[int, str] | None = None
    members: tuple[Member, ...] = ()

    @property
    def exists(self) -> bool:
        """Coordinators answer with Dead for a group that they do not know."""
        return self.state != "Dead"

    @property
    def inactive(self) -> bool:
        """Whether offsets may be set from outside: nobody consumes."""
        return self.state in {"Empty", "Dead"}


@dataclass(frozen=True, slots=True)
class Log:
    """First offset and end of a partition's log, as consumers may read it."""

    start: int
    end: int


class GroupAdmin(Protocol):
    """What the commands ask of a cluster. Every method raises Failure."""

    def list_groups(self) -> tuple[list[str], list[str]]:
        """Ids, sorted; and a sentence for each broker that did not answer."""

    def describe(self, group_ids: list[str]) -> list[Group]:
        """In the same order; unknown groups are Dead."""

    def committed(self, group_id: str) -> dict[Partition, int]:
        """Every committed offset of the group."""

    def partitions_of(self, topic: str) -> list[int]:
        """Numbers of its partitions."""

    def logs(self, partitions: list[Partition]) -> dict[Partition, Log]:
        """Those that are known; a partition without a leader, or of a deleted topic, is left out."""

    def offsets_at(self, partitions: list[Partition], timestamp_ms: int) -> dict[Partition, int]:
        """The first offset of that time or later; the log's end where there is none. Left out as in `logs`."""

    def commit(self, group_id: str, offsets: dict[Partition, int]) -> dict[Partition, str]:
        """Set offsets from outside; a sentence for each partition that was refused."""

    def delete_groups(self, group_ids: list[str]) -> dict[str, str]:
        """A sentence for each group that was not deleted."""

    def delete_offsets(self, group_id: str, partitions: list[Partition]) -> dict[Partition, str]:
        """A sentence for each partition whose offset was not deleted."""

"""Consumers and a log for random lives of a group: see `test_groups_machine`."""

from __future__ import annotations

from dataclasses import dataclass, field

from kafkalite_core.groups.group import Group, GroupState
from kafkalite_core.groups.metadata_budget import said_bytes
from kafkalite_core.groups.records import GroupValue, OffsetKey, decode_group, decode_key, decode_offset
from tests.unit.groups.driver import Driver, subscription

PARTITIONS = 4
CLIENTS = 5
SESSION_MS = 6_000
REBALANCE_MS = 15_000
PACE_MS = 1_000
PLACES = [("t", index) for index in range(PARTITIONS)]

# What happened to the records of an append.
OPEN, COMMITTED, DOUBTFUL, REFUSED = "open", "committed", "doubtful", "refused"


@dataclass
class Entry:
    """An append: the truth, and what the coordinator was told."""

    append_id: int
    records: list
    fate: str = OPEN
    told: bool = False
    committed: bool = False


@dataclass(eq=False)
class Client:
    """A consumer, as simple as they come."""

    name: str
    instance: str | None
    cooperative: bool
    version: int
    alive: bool = True
    diligent: bool = True
    member_id: str = ""
    generation: int = -1
    phase: str = "join"
    token: int | None = None
    incarnation: int = -1
    owned: set = field(default_factory=set)
    plan: dict = field(default_factory=dict)

    @property
    def slot(self) -> str:
        return self.instance or self.name

    @property
    def protocols(self) -> list[tuple[str, bytes]]:
        # A loaded member is known by its chosen protocol alone, in Apache Kafka as well: it has to be everyone's.
        names = ["range", "cooperative-sticky"] if self.cooperative else ["range"]
        return [(name, subscription("t")) for name in names]


class LogDriver(Driver):
    """Appends are kept as entries of a log, whose fate the machine decides."""

    entries: list[Entry]

    def step(self, event) -> None:
        super().step(event)
        for append_id, records in self.appends.items():
            self.entries.append(Entry(append_id, records))
        self.appends.clear()


def replay(records) -> tuple[dict[tuple[str, int], int], dict[str, GroupValue]]:
    """The naive reading of a log."""
    offsets: dict[tuple[str, int], int] = {}
    groups: dict[str, GroupValue] = {}
    for encoded, value in records:
        key = decode_key(encoded)
        if isinstance(key, OffsetKey):
            offsets.pop((key.topic, key.partition), None)
            if value is not None:
                offsets[key.topic, key.partition] = decode_offset(value).offset
        elif key is not None:
            groups.pop(key.group, None)
            if value is not None:
                groups[key.group] = decode_group(value)
    return offsets, groups


def check_group(group: Group) -> None:
    """What holds of a group after every step."""
    assert group.metadata_bytes == sum(said_bytes(member.protocols) for member in group.members.values())
    members = group.members
    waiting = [member for member in members.values() if member.awaiting_join is not None]
    assert group.awaiting_join_count == len(waiting)
    assert group.static_members == {
        member.group_instance_id: member_id for member_id, member in members.items() if member.group_instance_id
    }
    assert all(member.member_id == member_id for member_id, member in members.items())
    assert group.pending_sync <= set(members)
    assert not set(group.pending_members) & set(members)
    assert (group.leader_id in members) if members else group.leader_id is None
    supported: dict[str, int] = {}
    for member in members.values():
        for name, _ in member.protocols:
            supported[name] = supported.get(name, 0) + 1
    assert group._supported == supported
    assert bool(members) or group.state in {GroupState.EMPTY, GroupState.PREPARING_REBALANCE, GroupState.DEAD}
    assert not members or group.state is not GroupState.EMPTY
    assert group.state is GroupState.PREPARING_REBALANCE or not [
        member for member in waiting if not (member.is_static and group.state is GroupState.STABLE)
    ]
    for member in members.values():
        assert member.session.deadline_ms is not None or member.is_waiting, "nobody would notice its death"

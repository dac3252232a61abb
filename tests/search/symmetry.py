"""The three brokers are interchangeable: nodes, entries, registrations and messages under another numbering.

A permutation is a tuple p with p[i - 1] as the new id of broker i. The order of the replicas in an entry stays as it
is, since it means nothing in the search. That the production code does not care about ids otherwise is not assumed:
a test steps renumbered states and compares.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import permutations

from kafkalite_core.model.limits import NO_LEADER
from kafkalite_core.model.partition import IsrEntry, Partition
from tests.search import snapshot
from tests.search.node import Answer, Down, Node, Patch, Request, Response, Up
from tests.search.snapshot import BROKER_IDS, FOLLOWER, PROGRESS, Brokers, Small

Permutation = tuple[int, ...]

PERMUTATIONS: tuple[Permutation, ...] = tuple(permutations(BROKER_IDS))
IDENTITY = PERMUTATIONS[0]

FOLLOWER_LEADER = FOLLOWER.slot("leader")
PROGRESS_ID = PROGRESS.slot("id")
HOLD_IDS = frozenset({"leader", "_leader", "leader_id", "broker_id"})
"""Fields of the replica's small objects."""


def member(entry: IsrEntry, p: Permutation) -> IsrEntry:
    return IsrEntry(p[entry.id - 1], entry.epoch)


def members(entries: tuple[IsrEntry, ...], p: Permutation) -> tuple[IsrEntry, ...]:
    return tuple(sorted(member(entry, p) for entry in entries))


@lru_cache(maxsize=1 << 16)
def partition(entry: Partition | None, p: Permutation) -> Partition | None:
    if entry is None:
        return None
    leader = NO_LEADER if entry.leader == NO_LEADER else p[entry.leader - 1]
    return replace(entry, leader=leader, isr=members(entry.isr, p), elr=members(entry.elr, p))


def attempt(entry: Partition, expected: Partition, p: Permutation) -> Partition:
    """A proposal as the replica keeps it."""
    return snapshot.attempt_sorted(partition(entry, p), partition(expected, p))


@lru_cache(maxsize=1 << 16)
def registrations(brokers: Brokers, p: Permutation) -> Brokers:
    moved = [replace(broker, id=p[broker.id - 1]) for broker in brokers]
    return Brokers.of(sorted(moved, key=lambda broker: broker.id))


def plain(values: tuple, p: Permutation) -> tuple:
    """Slots: whatever holds entries or members is renumbered."""
    return tuple(_value(value, p) for value in values)


def _value(value: object, p: Permutation) -> object:
    if isinstance(value, Partition):
        return partition(value, p)
    if isinstance(value, IsrEntry):
        return member(value, p)
    if isinstance(value, Small):
        return Small(value.cls, _named(value.cls.__slots__, value.values, p))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*_named(value._fields, value, p))
    if isinstance(value, tuple) and value and isinstance(value[0], IsrEntry):
        return members(value, p)
    return value


def _named(names: tuple[str, ...], values: tuple, p: Permutation) -> tuple:
    """Fields of a small object; those that hold broker ids are known by name."""
    return tuple(
        p[value - 1] if name in HOLD_IDS and value > 0 else _value(value, p)
        for name, value in zip(names, values, strict=True)
    )


def _set(values: tuple, slot: int, value: object) -> tuple:
    return (*values[:slot], value, *values[slot + 1 :])


def _key(key: object, p: Permutation) -> object:
    if isinstance(key, tuple):
        return (p[key[0] - 1], *key[1:])
    assert isinstance(key, int)
    return p[key - 1]


def _leader(leader: tuple, p: Permutation) -> tuple:
    slots, progress, followers, joining, parked_all, parked_one = leader
    moved = []
    for key, values in progress:
        moved.append((_key(key, p), _set(values, PROGRESS_ID, p[values[PROGRESS_ID] - 1])))
    return (
        plain(slots, p),
        tuple(sorted(moved)),
        tuple(sorted(_key(key, p) for key in followers)),
        tuple(sorted(_key(key, p) for key in joining)),
        parked_all,
        parked_one,
    )


def replica(frozen: tuple, p: Permutation) -> tuple:
    """A snapshot of `tests.search.snapshot`."""
    own, state, brokers, changes, pending, leader, follower = frozen
    if pending is not None:
        slots, attempts = pending
        expected = slots[snapshot.PENDING.slot("expected")]
        pending = (plain(slots, p), tuple((number, attempt(entry, expected, p)) for number, entry in attempts))
    if follower is not None:
        follower = _set(plain(follower, p), FOLLOWER_LEADER, p[follower[FOLLOWER_LEADER] - 1])
    return (
        plain(own, p),
        plain(state, p),
        registrations(brokers, p),
        plain(changes, p),
        pending,
        None if leader is None else _leader(leader, p),
        follower,
    )


def node(one: Node, p: Permutation) -> Node:
    if isinstance(one, Down):
        return one._replace(id=p[one.id - 1])
    wire = one.wire
    if isinstance(wire, Patch):
        wire = Patch(wire.proposal_id, partition(wire.expected, p), partition(wire.proposed, p))
    elif isinstance(wire, Answer):
        wire = wire._replace(observed=partition(wire.observed, p))
    unsettled = one.unsettled
    if unsettled is not None:
        unsettled = (partition(unsettled[0], p), partition(unsettled[1], p))
    return Up(p[one.id - 1], one.epoch, one.log, replica(one.replica, p), wire, unsettled)


def message(one: Request | Response | None, p: Permutation) -> Request | Response | None:
    if one is None:
        return None
    if isinstance(one, Response):
        return one._replace(leader_id=p[one.leader_id - 1])
    return one._replace(leader_id=p[one.leader_id - 1], replica_id=p[one.replica_id - 1])

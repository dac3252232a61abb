"""A `Replica` as a tuple, and back: the state between two steps, without the log.

Slots are taken as they are, generically, so that a new one is part of the state at once; those that refer to other
objects are known by name. A slot with a value that could change behind a snapshot's back is an error.

What is not kept as it is (see the package): times become "pending" or "over", counts of failures, which only lengthen
back-offs, become 0, proposals are numbered anew, and the order of an ISR becomes that of the broker ids.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from enum import Enum
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from kafkalite_core.model.partition import IsrEntry, Partition, TopicRef
from kafkalite_core.replica.deletions import WaitingDeletions
from kafkalite_core.replica.follower import Follower
from kafkalite_core.replica.followers import UNKNOWN_END, Followers, Progress
from kafkalite_core.replica.isr import IsrChanges, Pending
from kafkalite_core.replica.leader import Leader
from kafkalite_core.replica.parked import ParkedProduces
from kafkalite_core.replica.refused import Refused
from kafkalite_core.replica.replica import Replica
from kafkalite_core.replica.state import ReplicaState
from tests.search.small_log import FrozenLog, SmallLog

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite_core.model.cluster import Broker

NOW_MS = 1000.0
LATER_MS = NOW_MS + 1.0
"""A back-off that is under way ends then; a `Tick` happens then."""
LAG_MS = 100
LONG_AGO_MS = -LAG_MS - 1.0
BROKER_IDS = (1, 2, 3)
REF = TopicRef("ns", "t", "uid", "topic-id", "t")

IMMUTABLE = (int, str, float, bool, type(None), Partition, IsrEntry)


def expiry(value: float) -> float:
    return LATER_MS if value > NOW_MS else 0.0


def recently(value: float) -> float:
    """A time: not longer ago than the lag limit, or long ago."""
    return NOW_MS if NOW_MS - value <= LAG_MS else LONG_AGO_MS


def isr_sorted(entry: Partition | None) -> Partition | None:
    """The entry with its ISR and ELR in the order of the broker ids."""
    if entry is None:
        return None
    isr, elr = tuple(sorted(entry.isr)), tuple(sorted(entry.elr))
    if isr == entry.isr and elr == entry.elr:
        return entry
    return replace(entry, isr=isr, elr=elr)


def attempt_sorted(entry: Partition, expected: Partition) -> Partition:
    """A proposal as a replica makes it of an entry in that order: those who stay in order, those who join behind."""
    isr = _behind(entry.isr, expected.isr)
    elr = _behind(entry.elr, expected.elr)
    return entry if isr == entry.isr and elr == entry.elr else replace(entry, isr=isr, elr=elr)


def _behind(entries: tuple[IsrEntry, ...], before: tuple[IsrEntry, ...]) -> tuple[IsrEntry, ...]:
    ids = {one.id for one in before}
    return tuple(sorted(entries, key=lambda one: (one.id not in ids, one)))


def members_sorted(value: tuple[IsrEntry, ...]) -> tuple[IsrEntry, ...]:
    return tuple(sorted(value))


NORMAL = {
    (IsrChanges, "_failures"): lambda _: 0,
    (IsrChanges, "additions_blocked_until_ms"): expiry,
    (IsrChanges, "blocked_until_ms"): expiry,
    (Pending, "reason"): lambda _: "",
    (Pending, "retry_ms"): expiry,
    (Pending, "expected"): isr_sorted,
    (Progress, "caught_up_ms"): recently,
    (Progress, "fetch_ms"): recently,
    (Progress, "leader_end_at_fetch"): lambda _: UNKNOWN_END,
    (Follower, "_failures"): lambda _: 0,
    (Follower, "_not_before_ms"): lambda _: 0.0,
    (ReplicaState, "partition"): isr_sorted,
    (Leader, "_partition"): isr_sorted,
    (Leader, "maximal_isr"): members_sorted,
}

SPECIAL = {
    Replica: {"_changes", "_follower", "_handlers", "_leader", "_state"},
    ReplicaState: {"effects", "log", "brokers", "broker_id", "number", "ref", "lag_time_max_ms"},
    IsrChanges: {"_state", "pending"},
    Pending: {"attempts"},
    Leader: {
        "_state",
        "_changes",
        "_followers",
        "_members",
        "_joining",
        "_parked_all",
        "_parked_one",
        "_deletions",
        "_refused",
    },
    Follower: {"_state"},
    Progress: set(),
}


class Plain:
    """The slots of a class that hold plain values, with what is done to them."""

    def __init__(self, cls: type) -> None:
        self.cls = cls
        self.names = tuple(name for name in cls.__slots__ if name not in SPECIAL[cls])
        self.getter = attrgetter(*self.names)
        self.normal = tuple((slot, NORMAL[cls, name]) for slot, name in enumerate(self.names) if (cls, name) in NORMAL)
        missing = [name for known, name in NORMAL if known is cls and name not in self.names]
        assert not missing, f"{cls.__name__} has no {missing} any more"

    def freeze(self, thing: object) -> tuple:
        values = self.getter(thing)
        changed = None
        for slot, value in enumerate(values):
            if type(value) not in IMMUTABLE and (plain := as_plain(value, f"{self.cls.__name__}.{self.names[slot]}")):
                changed = changed or list(values)
                changed[slot] = plain
        if not self.normal:
            return values if changed is None else tuple(changed)
        changed = changed or list(values)
        for slot, normal in self.normal:
            changed[slot] = normal(changed[slot])
        return tuple(changed)

    def thaw(self, thing: object, values: tuple) -> None:
        for name, value in zip(self.names, values, strict=True):
            setattr(thing, name, value.thaw() if isinstance(value, Small) else value)

    def slot(self, name: str) -> int:
        return self.names.index(name)


class Brokers(tuple):  # noqa: SLOT001 (it carries `by_id`)
    """All registrations, by broker id. Of equal ones there is one object, which is quick to hash and to compare."""

    __eq__ = object.__eq__
    __ne__ = object.__ne__
    __hash__ = object.__hash__

    by_id: dict[int, Broker]

    @staticmethod
    def of(brokers: Iterable[Broker]) -> Brokers:
        content = tuple(brokers)
        found = _BROKERS.get(content)
        if found is None:
            found = _BROKERS[content] = Brokers(content)
            found.by_id = {broker.id: broker for broker in content}
            _OF_MAPPING[id(found.by_id)] = found
        return found


_BROKERS: dict[tuple, Brokers] = {}
_OF_MAPPING: dict[int, Brokers] = {}
"""By the identity of `by_id`, which replicas are given and which is never changed."""


class Small(NamedTuple):
    """A small object of the replica's with plain slots of its own, which nobody else refers to."""

    cls: type
    values: tuple

    def thaw(self) -> object:
        thing = self.cls.__new__(self.cls)
        for name, value in zip(self.cls.__slots__, self.values, strict=True):
            setattr(thing, name, value)
        return thing


def as_plain(value: object, where: str) -> Small | None:
    """None for what cannot change; a small object as a tuple; anything else is an error."""
    if isinstance(value, (*IMMUTABLE, Enum)):
        return None
    if isinstance(value, tuple):
        if any(as_plain(part, where) is not None for part in value):
            raise TypeError(f"the snapshot does not know what to do with objects in {where}")
        return None
    names = getattr(type(value), "__slots__", ())
    if not names or not type(value).__module__.startswith("kafkalite_core.replica."):
        raise TypeError(f"the snapshot does not know what to do with {where}: {type(value).__name__}")
    values = tuple(getattr(value, name) for name in names)
    if any(as_plain(one, f"{where}.{name}") is not None for name, one in zip(names, values, strict=True)):
        raise TypeError(f"the snapshot does not know what to do with objects in {where}")
    return Small(type(value), values)


REPLICA, STATE, CHANGES, PENDING = Plain(Replica), Plain(ReplicaState), Plain(IsrChanges), Plain(Pending)
LEADER, FOLLOWER, PROGRESS = Plain(Leader), Plain(Follower), Plain(Progress)

NEXT_ID = CHANGES.slot("_next_id")
CURRENT_ID, BUMP_ID = PENDING.slot("current_id"), PENDING.slot("bump_id")


def new_replica(broker_id: int, log: SmallLog, high_watermark: int) -> Replica:
    """As the broker makes one when it opens a log."""
    return Replica(
        broker_id=broker_id, number=0, ref=REF, log=log, high_watermark=high_watermark, lag_time_max_ms=LAG_MS
    )


# ------------------------------------------------------------------------------------------------------------ freeze


def freeze(replica: Replica) -> tuple[tuple, dict[int, int]]:
    """The replica as a tuple, and the new number of each of its unsettled proposals by the old one."""
    state, changes = replica._state, replica._changes
    numbers: dict[int, int] = {}
    pending = None
    changes_plain = CHANGES.freeze(changes)
    if changes.pending is not None:
        numbers = {old: new for new, old in enumerate(sorted(changes.pending.attempts), 1)}
        plain = list(PENDING.freeze(changes.pending))
        plain[CURRENT_ID] = numbers[plain[CURRENT_ID]]
        plain[BUMP_ID] = numbers.get(plain[BUMP_ID], 0)
        expected = changes.pending.expected
        attempts = tuple(
            (numbers[old], attempt_sorted(entry, expected)) for old, entry in sorted(changes.pending.attempts.items())
        )
        pending = tuple(plain), attempts
    changes_plain = (*changes_plain[:NEXT_ID], len(numbers) + 1, *changes_plain[NEXT_ID + 1 :])
    frozen = (
        REPLICA.freeze(replica),
        STATE.freeze(state),
        _OF_MAPPING.get(id(state.brokers)) or Brokers.of(broker for _, broker in sorted(state.brokers.items())),
        changes_plain,
        pending,
        None if replica._leader is None else _freeze_leader(replica._leader),
        None if replica._follower is None else FOLLOWER.freeze(replica._follower),
    )
    return frozen, numbers


def _freeze_leader(leader: Leader) -> tuple:
    known = leader._followers._by_incarnation
    assert not leader._deletions, "nothing is deleted in the search"
    return (
        LEADER.freeze(leader),
        tuple(sorted((key, PROGRESS.freeze(progress)) for key, progress in known.items())),
        _keys(leader._members, known),
        _keys(leader._joining, known),
        _freeze_parked(leader._parked_all),
        _freeze_parked(leader._parked_one),
    )


def _keys(chosen: list[Progress], known: dict) -> tuple:
    keys = {id(progress): key for key, progress in known.items()}
    return tuple(sorted(keys[id(progress)] for progress in chosen))


def _freeze_parked(parked: ParkedProduces) -> tuple:
    return tuple(parked._waiting), parked._earliest_deadline_ms


# -------------------------------------------------------------------------------------------------------------- thaw


class Stage:
    """Replicas that snapshots are put into, one for each broker id, so that their steps can be run."""

    def __init__(self) -> None:
        self._replicas = {broker_id: new_replica(broker_id, SmallLog(), 0) for broker_id in BROKER_IDS}

    def thaw(self, broker_id: int, log: FrozenLog, frozen: tuple) -> Replica:
        """The replica that `freeze` took, with its log; good until the next call for this broker."""
        replica_plain, state_plain, brokers, changes_plain, pending, leader, follower = frozen
        replica = self._replicas[broker_id]
        state, changes = replica._state, replica._changes
        REPLICA.thaw(replica, replica_plain)
        STATE.thaw(state, state_plain)
        state.log = SmallLog(log)
        state.brokers = brokers.by_id
        state.effects = []
        CHANGES.thaw(changes, changes_plain)
        changes.pending = None
        if pending is not None:
            changes.pending = Pending.__new__(Pending)
            PENDING.thaw(changes.pending, pending[0])
            changes.pending.attempts = dict(pending[1])
        replica._leader = None if leader is None else _thaw_leader(replica, leader)
        replica._follower = None
        if follower is not None:
            replica._follower = Follower.__new__(Follower)
            replica._follower._state = state
            FOLLOWER.thaw(replica._follower, follower)
        return replica


def _thaw_leader(replica: Replica, frozen: tuple) -> Leader:
    plain, progress, members, joining, parked_all, parked_one = frozen
    leader = Leader.__new__(Leader)
    LEADER.thaw(leader, plain)
    leader._state, leader._changes = replica._state, replica._changes
    leader._followers = Followers()
    known = leader._followers._by_incarnation
    for key, values in progress:
        known[key] = Progress.__new__(Progress)
        PROGRESS.thaw(known[key], values)
    leader._members = [known[key] for key in members]
    leader._joining = [known[key] for key in joining]
    leader._parked_all, leader._parked_one = _thaw_parked(parked_all), _thaw_parked(parked_one)
    leader._deletions = WaitingDeletions()
    leader._refused = Refused()  # no producer of the search is idempotent
    return leader


def _thaw_parked(frozen: tuple) -> ParkedProduces:
    parked = ParkedProduces()
    parked._waiting, parked._earliest_deadline_ms = deque(frozen[0]), frozen[1]
    return parked

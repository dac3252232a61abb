"""The parts of a state, numbered: each is kept once, with what the search asks of it all the time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.search import symmetry
from tests.search.node import Node, Patch, Up
from tests.search.snapshot import FOLLOWER, PROGRESS, REPLICA, STATE, Brokers

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from kafkalite_core.model.partition import Partition
    from tests.search.store import Store


class Violation(Exception):
    """An invariant does not hold."""

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant
        self.text = text


class Table:
    """Parts of one kind, numbered in the order of their discovery."""

    def __init__(self, relabel: Callable[[object, tuple], object], first: Hashable = None) -> None:
        self.values: list = [first]
        self._numbers: dict = {first: 0}
        self._relabel = relabel
        self._moved: list[dict[int, int]] = [{0: 0} for _ in symmetry.PERMUTATIONS]

    def number(self, value: Hashable) -> int:
        """The number of a part, a new one when it is new."""
        found = self._numbers.get(value)
        if found is None:
            found = self._numbers[value] = len(self.values)
            self.values.append(value)
            self.added(value)
        return found

    def added(self, value: Hashable) -> None:
        """A part is new."""

    def moved(self, number: int, slot: int) -> int:
        """The same part under permutation number `slot`."""
        memo = self._moved[slot]
        found = memo.get(number)
        if found is None:
            found = memo[number] = self.number(self._relabel(self.values[number], symmetry.PERMUTATIONS[slot]))
        return found


class Facts(NamedTuple):
    """What is asked of a node all the time.

    Attributes:
        up: It has a process.
        leads: Its replica leads.
        high_watermark: Of the replica, or the checkpointed one.
        records: (epoch, value) of each record.
        flushed: Records on the disk.
        entry: The newest partition entry that the replica has seen.
        brokers: The registrations that it has seen.
        pending: It has a proposal whose outcome is not settled.
        holders: Ids of the brokers without which the leader's high watermark does not move.
    """

    up: bool
    leads: bool
    high_watermark: int
    records: tuple[tuple[int, int], ...]
    flushed: int
    entry: Partition | None
    brokers: Brokers
    pending: bool
    holders: tuple[int, ...]


_HIGH_WATERMARK, _PARTITION = STATE.slot("high_watermark"), STATE.slot("partition")
_PROGRESS_ID = PROGRESS.slot("id")
REPLICA_ROLE = REPLICA.slot("_role")


def facts_of(node: Node) -> Facts:
    records, flushed, _ = node.log
    if not isinstance(node, Up):
        return Facts(False, False, node.high_watermark, records, flushed, None, Brokers.of(()), False, ())
    state, leader = node.replica[1], node.replica[5]
    holders = () if leader is None else tuple(broker_id for broker_id, _ in leader[2])
    return Facts(
        True,
        leader is not None,
        state[_HIGH_WATERMARK],
        records,
        flushed,
        state[_PARTITION],
        node.replica[2],
        node.replica[4] is not None,
        holders,
    )


def signature(node: Node) -> tuple:
    """What a node looks like whatever its id: equal for a node and the same node renumbered."""
    if not isinstance(node, Up):
        return ("down", node.log, node.high_watermark)
    own, state, brokers, changes, pending, leader, follower = node.replica
    entry: Partition | None = state[_PARTITION]
    known = None
    if entry is not None:
        known = (entry.leader_epoch, entry.partition_epoch, len(entry.isr), entry.isr_epoch_of(node.id))
    wire = node.wire
    return (
        node.epoch,
        node.log,
        state[_HIGH_WATERMARK],
        own[REPLICA_ROLE].value,
        known,
        _registered(brokers, node.id),
        changes,
        None if pending is None else len(pending[1]),
        None if leader is None else (leader[4], leader[5], tuple(sorted(map(_progress, leader[1])))),
        None if follower is None else follower[: FOLLOWER.slot("leader")],
        type(wire).__name__,
        wire.proposal_id if isinstance(wire, Patch) else -1,
    )


class NodeTable(Table):
    """Nodes with their facts and signatures."""

    def __init__(self) -> None:
        super().__init__(symmetry.node)
        self.facts: list[Facts | None] = [None]
        self.signatures: list[int] = [0]
        self.logs: list[int] = [0]
        """Number of the records, by node."""
        self.disks: list[int] = [0]
        """Number of the records on disk, by node."""
        self._known: dict[tuple, int] = {}
        self._records: dict[tuple, int] = {}

    def added(self, value: Node) -> None:
        facts = facts_of(value)
        self.facts.append(facts)
        self.logs.append(self._records.setdefault(facts.records, len(self._records)))
        on_disk = facts.records[: facts.flushed]
        self.disks.append(self._records.setdefault(on_disk, len(self._records)))
        self.signatures.append(self._known.setdefault(signature(value), len(self._known)))


def _registered(brokers: Brokers, broker_id: int) -> tuple[int, int]:
    broker = brokers.by_id.get(broker_id)
    return (-1, -1) if broker is None else (broker.epoch, broker.fenced_epoch)


def _progress(item: tuple[object, tuple]) -> tuple:
    return item[1][:_PROGRESS_ID] + item[1][_PROGRESS_ID + 1 :]


def store_signatures(store: Store) -> tuple[tuple, ...]:
    """For each broker what the store says of it, whatever its id."""
    entry = store.entry
    return tuple(
        (
            entry.leader == broker.id,
            entry.isr_epoch_of(broker.id) or 0,
            any(one.id == broker.id for one in entry.elr),
            broker.epoch,
            broker.fenced_epoch,
            0 if broker.registration is None else broker.registration.trusted_since,
        )
        for broker in store.brokers
    )

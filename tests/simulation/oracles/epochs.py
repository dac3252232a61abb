"""Who goes on with a partition after the store has lost some of it uses no epoch twice (S10, S11, decision 016)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.controller.actions import ChangePartitions, CreateTopicStatus
from tests.simulation.world import Violation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kafkalite_core.controller.actions import Action
    from kafkalite_core.controller.snapshot import Snapshot
    from kafkalite_core.model.partition import Partition
    from tests.simulation.oracles.ledger import Ledger
    from tests.simulation.platter import Tag

    Epochs = tuple[int, int]
    """Leader epoch and partition epoch."""

AHEAD = 1_000
"""Epochs so far above all that the operator was told of nobody can have told it: they are of another recovery, which
those whom it could ask have never heard of, or have forgotten."""


class EpochsOnce:
    """Of the entry e with which an operator recovers a partition, or adopts one, when it lands:

    both epochs of e are above  all that this operator was told of when it decided: the entry that it replaces, what
                                brokers report and list of that topic id and partition, what it has seen itself
                                all that the store ever had, a broker that runs has in mind, and a disk that is there
                                has noted or has batches of, as far as it is less than `AHEAD` above that

    An epoch that nobody knows may come again with other entries (`Past`), but not with one of these: they are so far
    above the rest because of brokers that were away, with or without a person's consent, and of disks that come back.
    """

    name = "epochs are not used twice"

    def __init__(self) -> None:
        self._told: dict[tuple[Tag, Partition], Epochs] = {}

    def decided(self, snapshot: Snapshot, actions: Iterable[Action]) -> None:
        """What an operator has decided on a snapshot."""
        for action in actions:
            if isinstance(action, ChangePartitions):
                view = next(view for view in snapshot.topics.values() if view.topic.ref == action.topic)
                for number, change in action.changes.items():
                    tag, old = (action.topic.topic_id, number), change.expected
                    seen = view.epochs_seen.get(number, (-1, -1))
                    told = _highest([(old.leader_epoch, old.partition_epoch), seen, *_reports(snapshot, tag)])
                    if _is_behind(snapshot, tag, old, told):
                        self._told[tag, change.proposed] = told
            elif isinstance(action, CreateTopicStatus) and action.topic_id:
                for number, entry in action.partitions.items():
                    tag = (action.topic_id, number)
                    self._told[tag, entry] = _highest([(-1, -1), *_reports(snapshot, tag)])

    def landed(self, ledger: Ledger, uid: str, entry: Partition) -> None:
        """The store takes an entry of the object `uid`, and the ledger has not heard of it. Raises `Violation`."""
        told = self._told.get((ledger.tag, entry))
        if told is None:
            return
        known = {
            "the operator was told of": told,
            "the store had": ledger.newest,
            "a broker has in mind": _in_mind(ledger, uid),
            "a disk has": ledger.on_disks(),
        }
        epochs = (entry.leader_epoch, entry.partition_epoch)
        for who, others in known.items():
            for own, limit, other in zip(epochs, told, others, strict=True):
                if own <= other < limit + AHEAD:
                    raise Violation(self.name, f"{ledger}: goes on with {entry}, and {who} {others}; {known}")


def _highest(known: Iterable[Epochs]) -> Epochs:
    leader_epochs, partition_epochs = zip(*known, strict=True)
    return max(leader_epochs), max(partition_epochs)


def _reports(snapshot: Snapshot, tag: Tag) -> Iterator[Epochs]:
    """What brokers report that they know, and list as set aside."""
    for broker in snapshot.brokers.values():
        for holding in broker.holdings:
            if (holding.topic_id, holding.partition) == tag:
                yield holding.leader_epoch, holding.partition_epoch
        for stray in broker.strays:
            if (stray.topic_id, stray.partition) == tag:
                yield max(stray.leader_epoch, stray.reach[0]), stray.partition_epoch


def _is_behind(snapshot: Snapshot, tag: Tag, old: Partition, told: Epochs) -> bool:
    """Whether the entry is not all that the operator knows of, so that what follows it is a recovery."""
    if told != (old.leader_epoch, old.partition_epoch):
        return True
    reports = [one for broker in snapshot.brokers.values() for one in broker.holdings if not one.agrees]
    same = [one for one in reports if (one.topic_id, one.partition) == tag]
    return any(one.leader_epoch == old.leader_epoch or one.partition_epoch == old.partition_epoch for one in same)


def _in_mind(ledger: Ledger, uid: str) -> Epochs:
    """The highest epochs that brokers that run were shown of that object, or go by."""
    known = [ledger.oracles.metadata.remembered(uid, ledger.number)]
    for host in ledger.oracles.hosts.values():
        driver = None if host.broker is None else host.broker.driver(ledger.topic, ledger.number)
        if driver is not None and driver.ref.topic_id == ledger.tag[0]:
            known.append((driver.replica.seen.leader_epoch, driver.replica.seen.partition_epoch))
    return _highest(known)

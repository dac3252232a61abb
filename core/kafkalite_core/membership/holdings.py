"""Which partitions a broker holds and reports in `status.holdings`: the operator chooses who leads them (S11).

    reported <=> this broker knows more of the partition than the store shows,
                 or it has a replica, and another broker says that it does,
                 or it has a replica, and the operator says that it does (by the condition `StoreWentBack` of the topic)

The first one also without a replica: when those who have them have died and forgotten, it may be the only one who
remembers epochs that would be given out again otherwise. And it would go by what it remembers, and tell clients so,
until the store comes to epochs above that by itself. It is silent when a replica knows as much.

The latter two matter: a replica that never heard of the lost epochs may be the one whose log reaches furthest among
the disks that are left. Reports end by themselves when the operator has written epochs above all of them and taken its
condition back. Until then a report of what the store shows (`Holding.agrees`) asks nobody for anything: else each of
two brokers would go on because the other does, and the operator would recover again and again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kafkalite_core.model.limits import HOLDINGS_LISTED_MAX
from kafkalite_core.model.topic import Holding

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from kafkalite_core.model.cluster import Broker
    from kafkalite_core.model.partition import IsrEntry, Partition, Seen, TopicRef


class Held(Protocol):
    """What is asked of a replica of this broker; `kafkalite_core.replica.replica.Replica` has it."""

    @property
    def store_went_back(self) -> bool:
        """It knows more than the store shows."""
        ...

    @property
    def shown(self) -> tuple[int, int]:
        """(leader epoch, partition epoch) of the entry that it goes by; (-1, -1) without one."""
        ...

    def holding(self) -> Holding:
        """What it holds and knows."""
        ...


def is_held(
    entry: Partition, *, is_replica: bool, went_back: bool, in_use: Seen | None, set_aside: Seen | None
) -> bool:
    """Whether a broker is to have a replica of a partition: the entry names it, or its data know of later epochs.

    Then the store went back in time, and they are kept for the operator's decision. Data that were set aside are taken
    back for it: the topic was deleted before the restore, or the replica moved. Whoever reports the lost epochs names
    this broker if it was in sync then, and nobody goes on before it has reported as well.

    Args:
        entry: What the metadata cache has.
        is_replica: The broker is one of `MetadataCache.hosts`.
        went_back: The store shows less of the partition than the metadata cache has.
        in_use: What the log of this very partition has noted; None without one.
        set_aside: The same of a stray; None without one.
    """
    if is_replica or (went_back and in_use is not None):
        return True
    known = set_aside if in_use is None else in_use
    return known is not None and (
        entry.leader_epoch < known.leader_epoch
        or entry.partition_epoch < known.partition_epoch
        or (entry.partition_epoch == known.isr_epoch and not _same_members(known.isr, entry.isr))
    )


def _same_members(noted: Iterable[IsrEntry], isr: Iterable[IsrEntry]) -> bool:
    """Every change raises partitionEpoch (R1): another ISR with the same one is of another history."""
    known = {(member.id, member.epoch) for member in isr}
    told = {(member.id, member.epoch) for member in noted}
    if any(epoch < 0 for _, epoch in told):
        return {broker_id for broker_id, _ in told} == {broker_id for broker_id, _ in known}
    return told == known


def wanted_holdings(
    own_id: int,
    replicas: Collection[Held],
    brokers: Mapping[int, Broker],
    asked_for: Collection[str] = (),
    remembered: Iterable[Holding] = (),
) -> tuple[Holding, ...]:
    """What `status.holdings` of this broker should say: the first in a fixed order when there are too many.

    `asked_for`: ids of the topics whose condition says that the operator knows more. `remembered`: what it knows more
    of than the store shows, and may have no replica of (`MetadataCache.remembered`).
    """
    asked: dict[tuple[str, int], list[Holding]] = {}
    for broker_id, broker in brokers.items():
        for holding in broker.holdings if broker_id != own_id else ():
            asked.setdefault((holding.topic_id, holding.partition), []).append(holding)
    reported: list[Holding] = []
    for replica in replicas:
        if not asked and not asked_for and not replica.store_went_back:
            continue
        mine = replica.holding()
        others = asked.get((mine.topic_id, mine.partition), ())
        if (
            replica.store_went_back
            or mine.topic_id in asked_for
            or any(not other.settled_by(*replica.shown) for other in others)
        ):
            reported.append(mine)
    reported.sort(key=_place)
    own = {_place(holding) for holding in reported}
    others_only = (
        holding
        for holding in remembered
        if _place(holding) not in own and not any(_tells(other, holding) for other in asked.get(_place(holding), ()))
    )
    return (*reported, *sorted(others_only, key=_place))[:HOLDINGS_LISTED_MAX]


def _place(holding: Holding) -> tuple[str, int]:
    return holding.topic_id, holding.partition


def _tells(other: Holding, holding: Holding) -> bool:
    """Another broker's report makes the operator go above all that this one would tell."""
    if not other.hosted or other.agrees:
        return False
    return other.leader_epoch >= holding.leader_epoch and other.partition_epoch >= holding.partition_epoch


def memory_of(ref: TopicRef, number: int, entry: Partition) -> Holding:
    """What a broker without a replica tells of an entry that it remembers."""
    return Holding(
        topic=ref.name,
        topic_id=ref.topic_id,
        partition=number,
        leader_epoch=entry.leader_epoch,
        partition_epoch=entry.partition_epoch,
        log_epoch=-1,
        end_offset=0,
        isr=tuple(sorted(entry.isr)),
        isr_leader_epoch=entry.leader_epoch,
        hosted=False,
    )


class Reports:
    """What all brokers report, by partition; none as a rule."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[Holding, ...]] = {}
        self._at: dict[tuple[str, int], dict[int, Holding]] = {}

    def take(self, broker_id: int, holdings: tuple[Holding, ...]) -> set[tuple[str, int]]:
        """A broker reports that and no more; (topic id, partition) of what it says something else of than before."""
        before = self._of.get(broker_id, ())
        if before == holdings:
            return set()
        for holding in before:
            told = self._at.get(_place(holding), {})
            told.pop(broker_id, None)
            if not told:
                self._at.pop(_place(holding), None)
        for holding in holdings:
            self._at.setdefault(_place(holding), {})[broker_id] = holding
        self._of[broker_id] = holdings
        return {_place(holding) for holding in set(before) ^ set(holdings)}

    def named(self, topic_id: str, number: int, entry: Partition) -> set[int]:
        """Members of an ISR that some broker remembers, and that the entry does not settle."""
        return {
            broker_id
            for holding in self._at.get((topic_id, number), {}).values()
            if not holding.settled_by(entry.leader_epoch, entry.partition_epoch)
            for broker_id in (member.id for member in holding.isr)
        }

"""The newest ISR that brokers still know of when the store does not, and who of it has kept what it had (S10, S11).

Every member of an ISR has all that was committed in its time, and whoever leads later has it from one of them. The last
record of a log says less: leaders of later epochs may have written nothing, while one that was deposed has a record of
an earlier epoch that was never committed, in the place of one that was. So the newest ISR comes first, and how far a
log reaches decides among its members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafkalite_core.model.cluster import entry_counts
from kafkalite_core.model.topic import Stray

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkalite_core.model.cluster import Broker
    from kafkalite_core.model.partition import IsrEntry, Partition
    from kafkalite_core.model.topic import Holding


class NewestIsr(NamedTuple):
    """See the module.

    Attributes:
        partition_epoch: Partition epoch of the entry, -1 for none.
        leader_epoch: Its leader epoch.
        members: Its ISR. Two histories of the store may have had that partition epoch; then the members of both, and
            the higher leader epoch. A broker epoch of -1 is not known.
    """

    partition_epoch: int = -1
    leader_epoch: int = -1
    members: frozenset[IsrEntry] = frozenset()

    @property
    def ids(self) -> set[int]:
        """Broker ids of the members."""
        return {member.id for member in self.members}

    def got_further(self, entry: Partition) -> bool:
        """The history that it is of had come further in both epochs than the one that the store shows."""
        return self.partition_epoch > entry.partition_epoch and self.leader_epoch >= entry.leader_epoch


def newest_of_holdings(reports: Iterable[Holding]) -> NewestIsr:
    """The newest ISR that reports tell of. The store may show the replicas of before a reassignment.

    Nobody else has to have all that was committed. Those of older entries are not waited for: they may have been moved
    away since, and be gone for good.
    """
    return _newest([_told(one) for one in reports])


def _told(one: Holding) -> NewestIsr:
    epoch = one.partition_epoch if one.isr_epoch is None else one.isr_epoch
    leader_epoch = one.leader_epoch if one.isr_leader_epoch is None else one.isr_leader_epoch
    return NewestIsr(epoch, leader_epoch, frozenset(one.isr))


def _newest(told: list[NewestIsr]) -> NewestIsr:
    epoch = max((one.partition_epoch for one in told), default=-1)
    newest = [one for one in told if one.partition_epoch == epoch]
    leader_epoch = max((one.leader_epoch for one in newest), default=-1)
    return NewestIsr(epoch, leader_epoch, frozenset(member for one in newest for member in one.members))


def holding_as_stray(holding: Holding) -> Stray:
    """Data of a topic that lost its whole status: the store went back to before it was placed (S11)."""
    newest = _told(holding)
    return Stray(
        topic=holding.topic,
        topic_id=holding.topic_id,
        partition=holding.partition,
        leader_epoch=holding.leader_epoch,
        partition_epoch=holding.partition_epoch,
        log_epoch=holding.log_epoch,
        end_offset=holding.end_offset,
        isr=holding.isr,
        isr_epoch=newest.partition_epoch,
        isr_leader_epoch=newest.leader_epoch,
    )


def holders_of_the_most(
    held: Mapping[int, Stray], brokers: Mapping[int, Broker], told: Iterable[Stray] = (), *, relaxed_flush: bool = False
) -> set[int]:
    """Which brokers hold all that was committed, of what strays of one partition tell (S10).

    Of the newest ISR the log that reaches furthest, or one that goes on where that one ends: of two logs whose last
    records are of one leader epoch one is the beginning of the other. Of all logs where no member is left that has
    kept what it had. `told`: what those remember who hold nothing. `relaxed_flush`: the topic has it, or a stray says
    that it had.
    """
    relaxed = relaxed_flush or any(stray.relaxed_flush for stray in held.values())
    in_sync = _holders_in_sync(held, brokers, told, relaxed_flush=relaxed) or set(held)
    epoch = max(held[i].reach for i in in_sync)[0]
    same = {i for i, stray in held.items() if i in in_sync or stray.log_epoch == epoch}
    best = max(held[i].reach for i in same)
    return {i for i in same if held[i].reach == best}


def in_sync_lost(held: Mapping[int, Stray], brokers: Mapping[int, Broker], told: Iterable[Stray] = ()) -> list[int]:
    """The newest ISR that is known of one partition, if nobody of it lists what it had: broker ids, in order.

    Empty if somebody does, or may (files of earlier versions do not say which disk was meant), and where no stray says
    of whom to expect it. As in a recovery of the store (S11) a disk has to be lost: who died with relaxed flush is
    believed to have most of it. `told` as above.
    """
    newest = _noted(held, told)
    listed = [member for member in newest.members if member.id in held]
    if any(one.epoch < 0 or entry_counts(one, brokers, relaxed_flush=False) for one in listed):
        return []
    return sorted(newest.ids)


def _noted(held: Mapping[int, Stray], told: Iterable[Stray]) -> NewestIsr:
    known = [*held.values(), *told]
    return _newest([NewestIsr(one.isr_epoch, one.isr_leader_epoch, frozenset(one.isr)) for one in known if one.isr])


def _holders_in_sync(
    held: Mapping[int, Stray], brokers: Mapping[int, Broker], told: Iterable[Stray], *, relaxed_flush: bool
) -> set[int]:
    """Which brokers hold what they had when they were in the newest ISR.

    Empty when none is known to, or when somebody has records of a later epoch than that of its entry: then there was a
    newer one, which no disk had noted yet (a checkpoint is up to 5 s old).
    """
    newest = _noted(held, told)
    if any(stray.reach[0] > newest.leader_epoch for stray in held.values()):
        return set()
    members = {member for member in newest.members if member.epoch >= 0 and member.id in held}
    return {member.id for member in members if entry_counts(member, brokers, relaxed_flush=relaxed_flush)}

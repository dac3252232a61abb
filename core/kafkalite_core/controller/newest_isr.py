"""The newest ISR that brokers still know of when the store does not, and who of it has kept what it had (S10, S11).

Every member of an ISR has all that was committed in its time, and whoever leads later has it from one of them. The last
record of a log says less: leaders of later epochs may have written nothing, while one that was deposed has a record of
an earlier epoch that was never committed, in the place of one that was. So the newest ISR comes first, and how far a
log reaches decides among its members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafkalite_core.model.cluster import entry_counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkalite_core.model.cluster import Broker
    from kafkalite_core.model.partition import IsrEntry
    from kafkalite_core.model.topic import Holding, Stray


class NewestIsr(NamedTuple):
    """See the module.

    Attributes:
        partition_epoch: Partition epoch of the entry, -1 for none.
        members: Its ISR. Two histories of the store may have had that partition epoch; then the members of both. A
            broker epoch of -1 is not known.
    """

    partition_epoch: int = -1
    members: frozenset[IsrEntry] = frozenset()

    @property
    def ids(self) -> set[int]:
        """Broker ids of the members."""
        return {member.id for member in self.members}


def newest_of_holdings(reports: Iterable[Holding]) -> NewestIsr:
    """The newest ISR that reports tell of. The store may show the replicas of before a reassignment.

    Nobody else has to have all that was committed. Those of older entries are not waited for: they may have been moved
    away since, and be gone for good.
    """
    told = [(one.partition_epoch if one.isr_epoch is None else one.isr_epoch, one.isr) for one in reports]
    newest = max((epoch for epoch, _ in told), default=-1)
    return NewestIsr(newest, frozenset(member for epoch, isr in told if epoch == newest for member in isr))


def holders_in_sync(held: Mapping[int, Stray], brokers: Mapping[int, Broker]) -> set[int]:
    """Which brokers hold what they had when they were in the newest ISR that strays of one partition tell of.

    Empty when none is known to, or when somebody has records of a later epoch than those who tell of that ISR know of:
    then there was a newer one, which no disk had noted yet (a checkpoint is up to 5 s old).
    """
    newest = max((stray.isr_epoch for stray in held.values() if stray.isr), default=-1)
    telling = [stray for stray in held.values() if stray.isr and stray.isr_epoch == newest]
    known = max((stray.leader_epoch for stray in telling), default=-1)
    if any(stray.reach[0] > known for stray in held.values()):
        return set()
    members = {member for stray in telling for member in stray.isr if member.epoch >= 0}
    return {one.id for one in members if one.id in held and entry_counts(one, brokers, relaxed_flush=False)}

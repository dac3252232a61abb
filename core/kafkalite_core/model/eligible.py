"""Eligible leader replicas (KIP-966, R10): who may lead besides the members of the ISR, without a loss.

Let C(X) = {m in X: m counts (S2)} and HW the greatest high watermark that any leader of the partition has had. For
every entry in the store, and every e in C(isr and elr):  the disk of e holds all records below HW.  It is kept, because

    e comes in   from the ISR only, and was on it when the compare-and-swap landed (R4);
    e stays      only while no leader may advance HW without it: |C(isr)| < minIsr, or there is no leader. Besides, a
                 leader that finds both an ELR and enough members does not advance HW beyond what the ELR holds;
    e goes       in the same compare-and-swap that makes |C(isr)| ≥ minIsr, be it by a new member or by a lower
                 minIsr (S4, KAFKA-16540), and when it is lost: a wiped disk, and for topics with relaxed flush an
                 unclean restart (R9, KAFKA-18106). A broker without registration is not lost, its disk is unknown.

An unclean election empties it: what the new leader writes is the truth from then on. Kafka's `lastKnownElr` has no
counterpart: here the ISR is never empty, since the last members that count stay in it without a leader.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite_core.model.partition import IsrEntry, Partition


def with_eligible(
    before: Partition, after: Partition, counts: Callable[[IsrEntry], bool], lost: Callable[[IsrEntry], bool]
) -> Partition:
    """`after` with the ELR that belongs to it; see the theorem above.

    Args:
        before: The committed entry that is to be replaced.
        after: What it is replaced with: leader, replicas, ISR and minIsr are final, the ELR is not looked at.
        counts: Whether an entry stands for data that its broker still has (S2).
        lost: Whether it is known that it does not (`entry_lost`).
    """
    if after.has_leader and sum(map(counts, after.isr)) >= after.min_isr:
        return replace(after, elr=())
    taken = set(after.isr_ids())
    members: list[IsrEntry] = []
    for entry in (*before.elr, *before.isr):
        if entry.id in after.replicas and entry.id not in taken and not lost(entry):
            taken.add(entry.id)
            members.append(entry)
    return replace(after, elr=tuple(members))

"""Leaving: a leader that shuts down or whose disk is full names its successor itself, in one compare-and-swap."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kafkalite_core.model.eligible import with_eligible
from kafkalite_core.model.partition import IsrEntry

if TYPE_CHECKING:
    from kafkalite_core.model.partition import Partition
    from kafkalite_core.replica.state import ReplicaState


def hand_over_entry(state: ReplicaState, partition: Partition) -> tuple[Partition | None, str]:
    """The entry in which another member of the ISR leads and this broker has left it, and the reason.

    The successor is the first in replica order that is in the ISR with an entry that counts (S2) and whose broker is
    alive; its pair is written with its present broker epoch, so that it may lead (S1). None when there is none: then
    this broker stays leader, because the last member of the ISR is never given up.
    """
    members = {entry.id: entry for entry in partition.isr}
    for successor in partition.replicas:
        entry = members.get(successor)
        if successor == state.broker_id or entry is None or not state.counts(entry) or not state.alive(successor):
            continue
        named = IsrEntry(successor, state.registered_epoch(successor))
        isr = tuple(named if other.id == successor else other for other in partition.isr if other.id != state.broker_id)
        proposed = replace(
            partition,
            leader=successor,
            leader_epoch=partition.leader_epoch + 1,
            partition_epoch=partition.partition_epoch + 1,
            isr=isr,
            recovering=False,
        )
        return with_eligible(partition, proposed, state.counts, state.lost), f"hand over to broker {successor}"
    return None, "no other live member of the ISR counts"

"""Configuration of topics as far as the controller acts on it (S4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.model.cluster import entry_counts
from kafkalite_core.model.topic import FLUSH_CONDITION

if TYPE_CHECKING:
    from kafkalite_core.controller.snapshot import Snapshot, TopicView

FLUSH_SETTLE_S = 60.0
"""A broker flushes when it sees the tightening, and stops renewing its Lease when a flush hangs: a member that lived
through this time has flushed. It covers a watch that went silent, too."""


def effective_min_isr(snapshot: Snapshot, view: TopicView, replicas: int) -> int:
    """`min.insync.replicas` in force, bounded by the number of replicas: what partition entries shall carry."""
    return max(1, min(snapshot.topic_config(view).min_insync_replicas, replicas))


def relaxed_flush(snapshot: Snapshot, view: TopicView) -> bool:
    """Whether acknowledged records may not be on disk, so that an unclean restart makes an entry not count (S2).

    After `flush.messages` was tightened this stays true until the condition `DurableFlush` is: what was acknowledged
    before may still be in memory only.
    """
    return snapshot.topic_config(view).relaxed_flush or was_relaxed(view)


def was_relaxed(view: TopicView) -> bool:
    """The status still says that acknowledgements did not wait for the disk."""
    return any(c.type == FLUSH_CONDITION and c.status == "False" for c in view.conditions)


def flush_settles(snapshot: Snapshot, view: TopicView) -> bool:
    """`flush.messages` was tightened and the status does not say yet that everything is on disk: time decides."""
    return was_relaxed(view) and not snapshot.topic_config(view).relaxed_flush


def flush_settled(snapshot: Snapshot, view: TopicView, now: float) -> bool:
    """Every member of every ISR and ELR is alive and has been for `FLUSH_SETTLE_S` since the configuration was
    tightened, and none is left that lost what it had in memory before.
    """
    entries = {member for entry in view.topic.partitions.values() for member in (*entry.isr, *entry.elr)}
    members = {member.id for member in entries}
    if not all(entry_counts(member, snapshot.brokers, relaxed_flush=True) for member in entries):
        return False
    if not all(broker_id in snapshot.brokers and snapshot.brokers[broker_id].alive for broker_id in members):
        return False
    registrations = (snapshot.registered_at.get(broker_id, now) for broker_id in members)
    # The cluster's default of `flush.messages` may be what was tightened.
    since = max(view.generation_seen, snapshot.generation_seen, *registrations)
    return now - since >= FLUSH_SETTLE_S

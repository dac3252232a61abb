"""Configuration of topics as far as the controller acts on it (S4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.controller.fencing import heard
from kafkalite_core.model.cluster import entry_counts
from kafkalite_core.model.config import is_unreadable
from kafkalite_core.model.topic import FLUSH_CONDITION, flushed_token

if TYPE_CHECKING:
    from kafkalite_core.controller.snapshot import Snapshot, TopicView
    from kafkalite_core.model.cluster import Broker

FLUSH_SETTLE_S = 60.0
"""A broker of an earlier version does not tell when it has flushed. It does so when it sees the tightening, and stops
renewing its Lease when a flush hangs: a member that lived through this time has flushed. It covers a watch that went
silent, too."""


def effective_min_isr(snapshot: Snapshot, view: TopicView, replicas: int) -> int:
    """`min.insync.replicas` in force, bounded by the number of replicas: what partition entries shall carry.

    Where it cannot be read the entries keep what they have: fewer copies than were meant are nobody's wish.
    """
    wanted = snapshot.topic_config(view).min_insync_replicas
    if is_unreadable("min.insync.replicas", view.spec.config, snapshot.cluster.config):
        wanted = max([wanted, *(entry.min_isr for entry in view.topic.partitions.values())])
    return max(1, min(wanted, replicas))


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
    """`flush.messages` was tightened and the status does not say yet that everything is on disk."""
    return was_relaxed(view) and not snapshot.topic_config(view).relaxed_flush


def flush_settled(snapshot: Snapshot, view: TopicView, now: float) -> bool:
    """Whether all that was acknowledged before `flush.messages` was tightened is on the disks that the entries name.

    So it is when no member of an ISR or ELR is left that lost what it had in memory before, all of them live, and
    every broker that is registered and not fenced tells with its Lease that it has flushed (`membership/flushed.py`):
    one that is no member might still join with what it has not. Who registers later has read the tightening by then.
    """
    entries = {member for entry in view.topic.partitions.values() for member in (*entry.isr, *entry.elr)}
    members = {member.id for member in entries}
    if not all(entry_counts(member, snapshot.brokers, relaxed_flush=True) for member in entries):
        return False
    if not all(broker_id in snapshot.brokers and snapshot.brokers[broker_id].alive for broker_id in members):
        return False
    token = flushed_token(view.topic.ref.uid, view.topic.generation, snapshot.generation)
    there = [broker for broker in snapshot.brokers.values() if broker.registration is not None and not broker.fenced]
    return all(_has_flushed(snapshot, view, broker, token, now) for broker in there)


def _has_flushed(snapshot: Snapshot, view: TopicView, broker: Broker, token: str, now: float) -> bool:
    if not heard(snapshot, broker, now):
        return False
    told = snapshot.leases[broker.id].flushed
    if told is not None:
        return token in told
    # The cluster's default of `flush.messages` may be what was tightened.
    since = max(view.generation_seen, snapshot.generation_seen, snapshot.registered_at.get(broker.id, now))
    return now - since >= FLUSH_SETTLE_S

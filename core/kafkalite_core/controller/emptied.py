"""What one controller has seen of brokers that have no replica any more: whether their lists of strays tell all (S10).

A broker lists what it holds of a topic that is gone when it has noticed that, and nobody noticed anything on behalf of
one that is down. So before a volume goes:

    noticed   =>  the broker ran, and was heard, `ADOPTION_GRACE_S` after it last had a replica as far as was seen
    unlisted  =>  a topic with the policy Retain went while the broker had replicas of it, and it has not listed them

What nobody has seen counts as not noticed: a controller that has just taken over has to hear the broker itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.controller.fencing import heard
from kafkalite_core.controller.noticing import ADOPTION_GRACE_S

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite_core.controller.snapshot import Snapshot, TopicView
    from kafkalite_core.model.cluster import Broker

PATIENCE_S = 4 * ADOPTION_GRACE_S
"""Who is not fenced and has not been heard running for so long after its last replica went is not waited for."""

UNLISTED_MAX = 4096
"""Partitions that are remembered of one broker; those that came first are enough to keep its volume."""


class Emptied:
    """The memory of one cluster, of the time in which one process has controlled it."""

    def __init__(self) -> None:
        self._topics: Mapping[str, TopicView] = {}
        self._filled_at: dict[str, float] = {}
        """By uid of the broker: when it last had a replica, or was first seen."""
        self._noticed: set[str] = set()
        self._unlisted: dict[str, dict[tuple[str, int], str]] = {}
        """By uid of the broker: names of topics by topic id and partition."""

    def look(self, snapshot: Snapshot, now: float) -> None:
        """To be called with every state that a plan is made of. `now` is in seconds of the observer's clock."""
        if snapshot.topics is not self._topics:
            self._note_gone(snapshot)
            self._topics = snapshot.topics
        held = snapshot.replicas_held()
        for broker_id, broker in snapshot.brokers.items():
            if held[broker_id] or broker.uid not in self._filled_at:
                self._filled_at[broker.uid] = now
                self._noticed.discard(broker.uid)
            elif broker.alive and heard(snapshot, broker, now) and self._empty_s(broker, now) >= ADOPTION_GRACE_S:
                self._noticed.add(broker.uid)
            if broker.uid in self._unlisted:
                self._forget_listed(snapshot, broker)
        self._forget_brokers(snapshot)

    def _empty_s(self, broker: Broker, now: float) -> float:
        return now - self._filled_at.get(broker.uid, now)

    def _note_gone(self, snapshot: Snapshot) -> None:
        """Topics that were there, and are not, or not under that topic id."""
        for uid, before in self._topics.items():
            view = snapshot.topics.get(uid)
            if view is before or not before.placed or before.spec.deletion_policy != "Retain":
                continue
            topic_id = before.topic.ref.topic_id
            if view is not None and view.topic.ref.topic_id == topic_id:
                continue
            for number, entry in before.topic.partitions.items():
                for broker in (snapshot.brokers[i] for i in entry.replicas if i in snapshot.brokers):
                    noted = self._unlisted.setdefault(broker.uid, {})
                    if len(noted) < UNLISTED_MAX:
                        noted[topic_id, number] = before.spec.topic_name

    def _forget_listed(self, snapshot: Snapshot, broker: Broker) -> None:
        listed = {(stray.topic_id, stray.partition) for stray in broker.strays}
        living = {view.topic.ref.topic_id for view in snapshot.topics.values()}
        noted = self._unlisted.pop(broker.uid)
        left = {key: name for key, name in noted.items() if key not in listed and key[0] not in living}
        if left:
            self._unlisted[broker.uid] = left

    def _forget_brokers(self, snapshot: Snapshot) -> None:
        if len(self._filled_at) > len(snapshot.brokers):
            known = {broker.uid for broker in snapshot.brokers.values()}
            self._filled_at = {uid: at for uid, at in self._filled_at.items() if uid in known}
            self._unlisted = {uid: noted for uid, noted in self._unlisted.items() if uid in known}
            self._noticed &= known

    def unlisted(self, snapshot: Snapshot) -> dict[int, tuple[str, ...]]:
        """`Snapshot.unlisted`."""
        return {
            broker_id: tuple(sorted(set(self._unlisted[broker.uid].values())))
            for broker_id, broker in snapshot.brokers.items()
            if broker.uid in self._unlisted
        }

    def noticed(self, broker: Broker) -> bool:
        """Its lists, read from now on, tell all that is on its volume and belongs to no topic."""
        return broker.uid in self._noticed

    def waits_for(self, broker: Broker, now: float) -> bool:
        """It may be about to notice: its pod is better left running for a moment."""
        return not self.noticed(broker) and not broker.fenced and self._empty_s(broker, now) < PATIENCE_S

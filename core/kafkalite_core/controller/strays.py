"""What brokers' lists of strays say together: data that were given up, and data that were lost (S10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalite_core.controller.snapshot import Snapshot
    from kafkalite_core.model.cluster import Broker


def given_up(snapshot: Snapshot, topic: str = "") -> set[str]:
    """Ids of topics (of that name, if given) that were deleted under the eyes of some broker.

    One witness is enough: a broker whose watch was broken at that moment finds the topic gone and cannot tell why.
    """
    return {
        stray.topic_id
        for broker in snapshot.brokers.values()
        for stray in broker.strays
        if stray.deleted and topic in ("", stray.topic)
    }


def lost_topics(snapshot: Snapshot, broker: Broker) -> list[str]:
    """Names of the topics of which this broker has data that no topic claims and that nobody saw deleted."""
    if not broker.strays:
        return []
    known = given_up(snapshot) | {view.topic.ref.topic_id for view in snapshot.topics.values()}
    return sorted({stray.topic for stray in broker.strays if stray.topic_id not in known})

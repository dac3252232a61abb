"""What brokers' lists of strays say together: data that were given up, and data that were lost (S10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.model.limits import STRAYS_LISTED_MAX

if TYPE_CHECKING:
    from kafkalite_core.controller.snapshot import Snapshot
    from kafkalite_core.model.cluster import Broker

NAMED_MAX = 5
"""Topics named in one sentence."""


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
    """Names of the topics of which this broker has data that no topic claims and that nobody saw deleted.

    Of a topic that lives these are partitions that it has not: the store went back to before they were added (S11).
    Who ran all the time has not set them aside, and reports them. Also of those that it has not listed yet and that the
    observer saw go: it may be down since before that.
    """
    unlisted = snapshot.unlisted.get(broker.id, ())
    held = [(each.topic, each.topic_id, each.partition) for each in broker.strays]
    held += [(each.topic, each.topic_id, each.partition) for each in broker.holdings if each.hosted]
    if not held:
        return sorted(unlisted)
    abandoned = given_up(snapshot)
    partitions = {view.topic.ref.topic_id: view.topic.partitions for view in snapshot.topics.values()}
    lost = {
        topic
        for topic, topic_id, number in held
        if topic_id not in abandoned and number not in partitions.get(topic_id, ())
    }
    return sorted({*unlisted, *lost})


def why_kept(snapshot: Snapshot, broker: Broker) -> str:
    """What speaks against giving the broker's volume up, as far as its lists tell; empty for nothing."""
    lost = lost_topics(snapshot, broker)
    if lost:
        more = f" and {len(lost) - NAMED_MAX} more" if len(lost) > NAMED_MAX else ""
        return f"it has data of topics that were lost ({', '.join(lost[:NAMED_MAX])}{more})"
    # A broker of an earlier version does not say how many more it has.
    full = broker.strays_unlisted is None and len(broker.strays) >= STRAYS_LISTED_MAX
    if full or broker.strays_unlisted:
        return (
            f"it has data of so many partitions that no topic claims that its broker lists only {len(broker.strays)} "
            "of them, and the others may be of topics that were lost"
        )
    return ""

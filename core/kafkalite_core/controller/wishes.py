"""Elections that a person or a client asks for by annotation (ElectLeaders, KIP-460): each is carried out once.

A preferred leader is elected only when it is in sync (`prefer`), and an unclean election happens only where there is
no leader: a wish never takes a leader away that could stay. It waits for a preferred leader that is in sync and only
not heard at present (R16). When nothing more can be done for the partitions that the annotations name, they are
removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.controller.actions import CompleteElections
from kafkalite_core.controller.election import prefer
from kafkalite_core.model.replacement import Phase

if TYPE_CHECKING:
    from collections.abc import Collection

    from kafkalite_core.controller.snapshot import Snapshot, TopicView
    from kafkalite_core.model.partition import Partition

LISTED_MAX = 5


def may_be_unclean(view: TopicView, number: int, entry: Partition) -> bool:
    """Whether an annotation allows an unclean election of this partition now."""
    return number in view.elect_unclean and not entry.has_leader


def complete_elections(snapshot: Snapshot, view: TopicView, unheard: Collection[int]) -> CompleteElections | None:
    """The removal of a topic's election annotations, once no election of theirs is left to be done; None without."""
    if not view.elections or _waits_for_a_volume(snapshot, view) or _waits_to_be_heard(snapshot, view, unheard):
        return None
    left = [
        text for number in sorted(view.elect_preferred) if (text := _not_preferred(snapshot, view, number, unheard))
    ]
    left += [text for number in sorted(view.elect_unclean) if (text := _not_led(view, number))]
    reason = "the elections that were asked for are done"
    if left:
        more = f"; and {len(left) - LISTED_MAX} more" if len(left) > LISTED_MAX else ""
        reason = f"not all elections that were asked for are possible: {'; '.join(left[:LISTED_MAX])}{more}"
    return CompleteElections(topic=view.topic.ref, requests=view.elections, possible=not left, reason=reason)


def _waits_for_a_volume(snapshot: Snapshot, view: TopicView) -> bool:
    """The consent to an unclean election holds until a broker that is (to be) replaced is there again to be elected."""
    going = {i for i, broker in snapshot.brokers.items() if broker.replace_request}
    if snapshot.replacing.phase is not Phase.REBUILDING:
        going.add(snapshot.replacing.broker)
    about = {*going, snapshot.replacing.broker}
    entries = [view.topic.partitions[number] for number in view.elect_unclean]
    return any(
        (entry.has_leader and entry.leader in going) or (not entry.has_leader and not about.isdisjoint(entry.replicas))
        for entry in entries
    )


def _waits_to_be_heard(snapshot: Snapshot, view: TopicView, unheard: Collection[int]) -> bool:
    """Some preferred leader is in sync and only not heard. A consent to lose records is not kept for that."""
    if view.elect_unclean:
        return False
    entries = [view.topic.partitions[number] for number in view.elect_preferred]
    waiting = [entry for entry in entries if entry.replicas and entry.replicas[0] in unheard]
    return any(prefer(entry, snapshot.brokers).change is not None for entry in waiting)


def _not_preferred(snapshot: Snapshot, view: TopicView, number: int, unheard: Collection[int]) -> str:
    """Why a partition is not led by its first replica; empty when it is."""
    entry = view.topic.partitions[number]
    if not entry.replicas or entry.leader == entry.replicas[0]:
        return ""
    return f"partition {number}: {prefer(entry, snapshot.brokers, silent=unheard).reason}"


def _not_led(view: TopicView, number: int) -> str:
    """Why a partition has no leader, whoever that might be; empty when it has."""
    return "" if view.topic.partitions[number].has_leader else f"partition {number}: no replica is running"

"""Partitions that a topic had before: the store went back to before they were added, and it grows again (S10, S11).

A broker that ran all the time remembers such a partition, and reports it; one that started since has set its log aside.
Were the partition made anew, with epochs that those know already, its records would be cut away, or stay aside until
they are removed. So a partition that is added

    lost       <=>  a broker lists data of it under the topic's own id, or remembers an entry, or this observer has
                    seen one; and every one below it that is added, too
    taken over  =>  every broker has told: it is alive, and had `ADOPTION_GRACE_S` to notice since this observer knows
                    of the wish, and of the loss
    epochs          above all that is known of any of them

as when a topic is lost whole (`adoption`). Who was in sync counts first, and where nobody of these has it any more, or
somebody is not to come back, a person has to say so (`kafkalite.io/recover-store`). Where nothing tells of a loss the
topic grows at once, unless this observer has come across the wish: it may have begun with the store that went back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.controller.adoption import (
    LISTED_MAX,
    Adopted,
    entry_of_holders,
    epochs_above,
    in_sync_lost_of,
    listed_by,
    told_of,
    who_was_in_sync,
)
from kafkalite_core.controller.fencing import heard
from kafkalite_core.controller.noticing import ADOPTION_GRACE_S
from kafkalite_core.controller.obstacle import Obstacle
from kafkalite_core.controller.store_recovery import ANNOTATION

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkalite_core.controller.actions import AddPartitions
    from kafkalite_core.controller.placement import Load
    from kafkalite_core.controller.snapshot import Snapshot, TopicView
    from kafkalite_core.model.topic import Stray


def regrow(snapshot: Snapshot, view: TopicView, missing: list[int], load: Load, now: float) -> Adopted | Obstacle:
    """Entries for those of the partitions `missing` that were lost, and epochs for the others; `load` is added to."""
    held = _held(snapshot, view, missing)
    told = {number: told for number, told in told_of(snapshot, view.topic.ref.topic_id).items() if number in missing}
    known = {*held, *told, *(number for number in missing if number in view.epochs_seen)}
    hurried = now < _known_since(view) + ADOPTION_GRACE_S
    if not known:
        return _may_tell(view) if _came_across(view) and hurried else Adopted()
    if hurried:
        return _waiting(known, f"brokers have up to {ADOPTION_GRACE_S:.0f} s to tell what they hold of them")
    absent = _absent(snapshot, held, now)
    if absent and not view.recovery_request:
        return _waiting(
            known,
            f"waiting for brokers {absent}, which may hold more. To go on without them, and to accept that "
            f'acknowledged records may be missing, set the annotation {ANNOTATION}: "true"',
        )
    lost = in_sync_lost_of(held, told, snapshot.brokers, [number for number in missing if number <= max(known)])
    if lost and not view.recovery_request:
        return _in_sync_lost(lost)
    seen = [view.epochs_seen[number] for number in known if number in view.epochs_seen]
    epochs = epochs_above([stray for each in (held, told) for stray in _all(each)], seen)
    entries = {}
    for number, holders in sorted(held.items()):
        there = _there(snapshot, holders)
        away = [stray for broker_id, stray in holders.items() if broker_id not in there]
        entries[number] = entry_of_holders(snapshot, view, there, [*told.get(number, []), *away], epochs, load)
    return Adopted(entries, frozenset({*lost, *(known if absent else ())}), max(known) + 1, epochs)


def told_before(view: TopicView, step: AddPartitions) -> float:
    """What brokers list tells of the partitions that are added if it was asked for after this time.

    That is when they had the time that they were given: a watch may be silent about what they have told since.
    """
    waited = bool(step.taken_over or step.unclean) or _came_across(view)
    return _known_since(view) + (ADOPTION_GRACE_S if waited else 0.0)


def _came_across(view: TopicView) -> bool:
    """The wish was there when this observer saw the topic first."""
    return view.generation_seen == view.first_seen


def _known_since(view: TopicView) -> float:
    return max(view.generation_seen, view.partitions_lost_at)


def _held(snapshot: Snapshot, view: TopicView, missing: list[int]) -> dict[int, dict[int, Stray]]:
    held: dict[int, dict[int, Stray]] = {}
    for broker_id, broker in sorted(snapshot.brokers.items()):
        for stray in listed_by(broker):
            if stray.topic_id == view.topic.ref.topic_id and stray.partition in missing:
                held.setdefault(stray.partition, {})[broker_id] = stray
    return held


def _all(by_number: Mapping[int, Mapping[int, Stray] | list[Stray]]) -> Iterable[Stray]:
    for strays in by_number.values():
        yield from strays if isinstance(strays, list) else strays.values()


def _absent(snapshot: Snapshot, held: Mapping[int, Mapping[int, Stray]], now: float) -> list[int]:
    """Who has to tell, and is not heard. One that was scaled away counts only while it lists data."""
    expected = {*range(snapshot.cluster.replicas), *(broker_id for holders in held.values() for broker_id in holders)}
    brokers = snapshot.brokers
    return sorted(i for i in expected if not (i in brokers and brokers[i].alive and heard(snapshot, brokers[i], now)))


def _there(snapshot: Snapshot, holders: dict[int, Stray]) -> dict[int, Stray]:
    """Whose data are taken over: who is not alive was to be gone on without, and nobody could lead in its place.

    What it lists tells who was in sync. Where nobody alive has any of it, it is waited for all the same: whoever leads
    instead begins empty, which only an election that is asked for may do.
    """
    alive = {broker_id: stray for broker_id, stray in holders.items() if snapshot.brokers[broker_id].alive}
    return alive or holders


def _may_tell(view: TopicView) -> Obstacle:
    message = (
        f"the topic has {len(view.topic.partitions)} partitions; brokers have up to {ADOPTION_GRACE_S:.0f} s to tell "
        "whether it had more before"
    )
    return Obstacle("WaitingForBrokers", message, waiting=True)


def _waiting(known: set[int], what_for: str) -> Obstacle:
    message = f"the topic had partitions {_listed(known)} before the store went back in time; {what_for}"
    return Obstacle("WaitingForBrokers", message, waiting=True)


def _in_sync_lost(lost: Mapping[int, list[int]]) -> Obstacle:
    message = (
        f"the topic had partitions {_listed(lost)} before the store went back in time, but as far as brokers know all "
        f"who were in sync list none of it any more or came back without their data ({who_was_in_sync(lost)}), "
        f"so acknowledged records may be missing. If one of their disks can be had, put it back first. Then "
        f'take over what reaches furthest, by the annotation {ANNOTATION}: "true".'
    )
    return Obstacle("InSyncLost", message, passing=True)


def _listed(numbers: Iterable[int]) -> str:
    found = sorted(numbers)
    more = f" and {len(found) - LISTED_MAX} more" if len(found) > LISTED_MAX else ""
    return f"{found[:LISTED_MAX]}{more}"

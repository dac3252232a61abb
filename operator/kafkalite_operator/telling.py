"""What is said of changes of partitions and of replacements, in the log and in Events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite_core.controller.reassignment import is_moving, origin_of
from kafkalite_core.model.replacement import Phase
from kafkalite_runtime.kube.kinds import BROKERS, CLUSTERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalite_core.controller.actions import ChangePartitions
    from kafkalite_core.model.partition import PartitionChange
    from kafkalite_core.model.replacement import Replacing
    from kafkalite_core.resources.manifests import ClusterSettings
    from kafkalite_operator.store import Store
    from kafkalite_runtime.kube.events import EventRecorder

SENTENCES_MAX = 3
WAITING_REASONS = frozenset({"WaitingForBrokers", "WaitingForCluster", "Placing"})
"""Reasons of Ready=False that pass by themselves."""

CHANGES = {
    Phase.WAITING: ("Warning", "ReplacementBlocked"),
    Phase.REMOVING: ("Normal", "ReplacementStarted"),
    Phase.REBUILDING: ("Normal", "BrokerReplaced"),
}


IN_VAIN_S = 30.0


class ToldInVain:
    """What was told of an object and has changed nothing of it: the definition of an earlier release drops fields that
    it does not know, without a word. The same is told again after `IN_VAIN_S`, and not in every round.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._told: dict[str, tuple[object, float]] = {}

    def note(self, uid: str, what: object) -> None:
        """`what` was told of that object, with its version, and that is still its version."""
        self._told[uid] = (what, self._clock() + IN_VAIN_S)

    def forget(self, uid: str) -> None:
        """The object is gone."""
        self._told.pop(uid, None)

    def knows(self, uid: str, what: object) -> bool:
        """Whether just that was told in vain a moment ago."""
        known, until = self._told.get(uid, (None, 0.0))
        return known == what and self._clock() < until


def changed(change: PartitionChange) -> dict[str, Any]:
    """What became of a partition, for the log."""
    old, new = change.expected, change.proposed
    return {
        "leader": [old.leader, new.leader],
        "leader_epoch": [old.leader_epoch, new.leader_epoch],
        "partition_epoch": new.partition_epoch,
        "isr": [[member.id, member.epoch] for member in new.isr],
    }


def grouped(reasons: Mapping[int, str], numbers: list[int]) -> dict[str, list[int]]:
    """Partitions by the reason of their change: most have the same one."""
    grouped: dict[str, list[int]] = {}
    for number in numbers:
        grouped.setdefault(reasons[number], []).append(number)
    return grouped


def moves(action: ChangePartitions, applied: list[int]) -> dict[str, list[int]]:
    """Partitions with a step of a reassignment by the reason of the Event."""
    reasons: dict[str, list[int]] = {}
    for number in applied:
        if number in action.moved:
            change = action.changes[number]
            if is_moving(change.proposed):
                reason = "ReassignmentStarted"
            elif is_moving(change.expected) and set(change.proposed.replicas) == set(origin_of(change.expected)):
                reason = "ReassignmentCancelled"
            else:
                reason = "ReassignmentCompleted"
            reasons.setdefault(reason, []).append(number)
    return reasons


def sentences(action: ChangePartitions, numbers: list[int]) -> str:
    """The reasons of some partitions, for an Event: a few of them, and how many more there are."""
    texts = [f"partition {number}: {action.reasons[number]}" for number in numbers[:SENTENCES_MAX]]
    rest = len(numbers) - SENTENCES_MAX
    return "; ".join(texts) + (f"; and {rest} more partitions" if rest > 0 else "")


def ready_event(status: str, reason: str) -> tuple[str, str]:
    """Type and reason; waiting for what is about to start is the normal course of things."""
    if status == "True":
        return "Normal", "Ready"
    return "Normal" if reason in WAITING_REASONS else "Warning", reason


def replacing_events(before: Replacing, after: Replacing) -> list[tuple[str, str, str]]:
    """Type, reason and message of the Events that tell of a change of `status.replacing`."""
    if after.phase is Phase.NONE:
        if before.phase is Phase.REBUILDING or (before.phase is Phase.REMOVING and not before.blocked_by):
            return [("Normal", "ReplacementDone", f"broker {before.broker}: nothing is left to be replaced or copied")]
        return []
    against = "; ".join(f"{each.partition} {each.reason}".strip() for each in after.blocked_by[:3])
    if (before.phase, before.broker) != (after.phase, after.broker):
        type_, reason = CHANGES[after.phase]
        message = f"broker {after.broker} ({after.cause})"
        message += f": nothing is deleted, {against}" if against else ""
        message += f" copies {after.replicas} replicas to its new volume" if after.phase is Phase.REBUILDING else ""
        return [(type_, reason, message)]
    if against and after.blocked_by != before.blocked_by:
        return [("Warning", "ReplacementBlocked", f"broker {after.broker} ({after.cause}): {against}")]
    return []


def record_of_broker(
    events: EventRecorder, store: Store, settings: ClusterSettings, broker_id: int, event: tuple[str, str, str]
) -> None:
    """An Event (type, reason, message) about a broker: of its `KafkaLiteBroker`, and of the cluster."""
    broker = store.brokers_of((settings.cluster.namespace, settings.cluster.name)).get(broker_id)
    for kind, uid in ((CLUSTERS, settings.cluster.uid), (BROKERS, broker.uid if broker is not None else "")):
        regarding = store.raw(kind, uid)
        if regarding is not None:
            events.record(regarding, *event)

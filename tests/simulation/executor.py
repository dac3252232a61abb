"""Carries an operator's actions out: one compare-and-swap each; a refused one is decided anew on what is read then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite_core.controller.actions import (
    AddPartitions,
    ChangePartitions,
    CompleteElections,
    CreateBroker,
    CreateTopicStatus,
    Fence,
    RemoveBroker,
    UpdateClusterStatus,
    UpdateTopicStatus,
)
from kafkalite_core.model.partition import TopicRef
from kafkalite_core.resources import naming, patches, topic_objects
from kafkalite_core.resources.conditions import set_conditions
from tests.simulation.api import Outcome
from tests.simulation.oracles.decided_on import DecidedOn
from tests.simulation.parsed import topic_of
from tests.simulation.removal import Removal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalite_core.controller.actions import Action
    from kafkalite_core.model.partition import PartitionChange
    from tests.simulation.operator import Operator
    from tests.simulation.patching import Json

    Done = Callable[[Outcome], None]

CLUSTER = "kafkalite"
CONFLICT_ATTEMPTS = 5
STAMP = "2026-01-01T00:00:00Z"


class Executor:
    """See the module."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    def carry_out(self, action: Action, epoch: int, done: Done) -> None:
        """Carry one action out; `done` is told how it ended."""
        if not self._operator.elector.held():
            done(Outcome.REFUSED)
            return
        if isinstance(action, Fence):
            self._fence(action, done)
        elif isinstance(action, ChangePartitions):
            self._change(action, dict(action.changes), epoch, done)
        elif isinstance(action, CreateTopicStatus):
            self._create_topic_status(action, epoch, done)
        elif isinstance(action, AddPartitions):
            operations = patches.added_partitions(
                action.topic, action.partitions, resource_version=action.resource_version, controller_epoch=epoch
            )
            self._patch("topics", action.topic.object_name, operations, done)
        elif isinstance(action, CompleteElections):
            operations = topic_objects.election_done(action.topic.uid, action.requests)
            self._patch("topics", action.topic.object_name, operations, done)
        elif isinstance(action, UpdateTopicStatus):
            self._update_topic_status(action, done)
        elif isinstance(action, UpdateClusterStatus):
            self._update_cluster_status(action, done)
        elif isinstance(action, RemoveBroker):
            Removal(self._operator, action.broker, done).look()
        else:
            assert isinstance(action, CreateBroker), action
            self._create_broker(action, done)

    # ------------------------------------------------------------ the one way to write

    def _patch(
        self,
        kind: str,
        name: str,
        operations: list[Json],
        done: Done,
        *,
        decided_on: DecidedOn | None = None,
        attempt: int = 0,
    ) -> None:
        operator = self._operator

        def answered(outcome: Outcome, result: Any) -> None:
            if outcome is Outcome.OK:
                operator.store.apply(kind, "MODIFIED", result)
                done(outcome)
            elif outcome is Outcome.CONFLICT and attempt < CONFLICT_ATTEMPTS:
                self._patch(kind, name, operations, done, decided_on=decided_on, attempt=attempt + 1)
            elif outcome in {Outcome.INVALID, Outcome.AMBIGUOUS, Outcome.NOT_FOUND}:
                self._refresh(kind, name, lambda: done(outcome))
            else:
                done(outcome)

        operator.call("patch", kind, name, operations, decided_on, answer=answered)

    def _refresh(self, kind: str, name: str, then: Callable[[], None]) -> None:
        """Read one object consistently: what it shows counts also if the store went back in time (S11)."""
        asked_s = self._operator.now_s()

        def read(outcome: Outcome, result: Any) -> None:
            if outcome is Outcome.OK:
                self._operator.store.apply(kind, "MODIFIED", result, listed_s=asked_s)
            then()

        self._operator.call("get", kind, name, answer=read)

    # ------------------------------------------------------------ brokers

    def _fence(self, action: Fence, done: Done) -> None:
        operator = self._operator
        operator.trace(f"fences broker {action.broker.id} epoch {action.broker.epoch}: {action.message}")

        def fenced(outcome: Outcome) -> None:
            if outcome is Outcome.OK and action.by_expiry:
                operator.store.expiry_fences.append(operator.now_s())
            done(outcome)

        self._patch("brokers", action.broker.object_name, patches.fence(action.broker, reason="x", since=STAMP), fenced)

    def _create_broker(self, action: CreateBroker, done: Done) -> None:
        body: dict[str, Any] = {
            "metadata": {"name": naming.broker_name(CLUSTER, action.broker_id)},
            "spec": {"clusterRef": {"name": CLUSTER}, "brokerId": action.broker_id},
        }

        def created(outcome: Outcome, result: Any) -> None:
            if outcome is Outcome.CONFLICT:
                self._refresh("brokers", body["metadata"]["name"], lambda: done(Outcome.OK))
                return
            if outcome is Outcome.OK:
                self._operator.store.apply("brokers", "ADDED", result)
            done(outcome)

        self._operator.call("create", "brokers", body, answer=created)

    # ------------------------------------------------------------ partitions

    def _change(self, action: ChangePartitions, changes: dict[int, PartitionChange], epoch: int, done: Done) -> None:
        operator, topic = self._operator, action.topic
        unclean = bool(action.unclean & set(changes))
        operations = patches.elections(
            topic,
            changes,
            controller_epoch=epoch,
            unclean_generation=action.generation if unclean else None,
            unclean_request=action.consent if unclean else "",
            recovery_request=action.recovery_request if unclean else "",
        )
        if operator.world.tracing:
            for number, change in changes.items():
                operator.trace(f"changes {topic.name}-{number}: {_show(change)}: {action.reasons[number]}")

        def changed(outcome: Outcome) -> None:
            if outcome is not Outcome.INVALID:
                done(outcome)
                return
            remaining = self._still_expected(topic, changes)
            if not remaining:
                done(Outcome.OK)
            elif len(remaining) < len(changes):
                self._change(action, remaining, epoch, done)
            elif len(changes) == 1:
                done(outcome)
            else:
                numbers = sorted(remaining)
                middle = len(numbers) // 2
                first = {number: changes[number] for number in numbers[:middle]}
                second = {number: changes[number] for number in numbers[middle:]}
                self._change(action, first, epoch, lambda _outcome: self._change(action, second, epoch, done))

        decided_on = DecidedOn(topic, {number: change.expected for number, change in changes.items()})
        self._patch("topics", topic.object_name, operations, changed, decided_on=decided_on)

    def _still_expected(self, topic: TopicRef, changes: dict[int, PartitionChange]) -> dict[int, PartitionChange]:
        obj = self._operator.store.raw("topics", topic.uid)
        if obj is None:
            return {}
        now = topic_of(obj)
        if now.ref.topic_id != topic.topic_id:
            return {}
        return {number: change for number, change in changes.items() if now.partitions.get(number) == change.expected}

    def _create_topic_status(self, action: CreateTopicStatus, epoch: int, done: Done) -> None:
        topic = action.topic
        fresh = f"{self._operator.host.chance.getrandbits(128):032x}"
        canonical = "-".join((fresh[:8], fresh[8:12], fresh[12:16], fresh[16:20], fresh[20:]))
        ref = TopicRef(topic.namespace, topic.object_name, topic.uid, action.topic_id or canonical, topic.name)
        operations = patches.first_status(
            ref,
            action.partitions,
            resource_version=action.resource_version,
            has_status=action.has_status,
            controller_epoch=epoch,
        )
        self._operator.trace(f"places {topic.name}: {action.reason}")
        self._patch("topics", topic.object_name, operations, done)

    # ------------------------------------------------------------ conditions

    def _update_topic_status(self, action: UpdateTopicStatus, done: Done) -> None:
        obj = self._operator.store.raw("topics", action.topic.uid)
        if obj is None:
            done(Outcome.OK)
            return
        fields: dict[str, Any] = self._conditions(obj, action)
        if action.in_sync != "0/0":
            fields["inSync"] = action.in_sync
        self._summary("topics", obj, fields, done)

    def _update_cluster_status(self, action: UpdateClusterStatus, done: Done) -> None:
        obj = self._operator.store.raw("clusters", action.uid)
        if obj is None:
            done(Outcome.OK)
            return
        fields = self._conditions(obj, action) | {
            "brokers": {"ready": action.brokers_ready, "total": action.brokers_total},
            "bootstrap": action.bootstrap,
        }
        self._summary("clusters", obj, fields, done, patches.partition_counts(action.partitions))

    @staticmethod
    def _conditions(obj: Json, action: UpdateTopicStatus | UpdateClusterStatus) -> dict[str, Any]:
        present = (obj.get("status") or {}).get("conditions") or []
        conditions = set_conditions(present, action.conditions, generation=action.generation, now=STAMP)
        return {"observedGeneration": action.generation, "conditions": conditions}

    def _summary(self, kind: str, obj: Json, fields: dict[str, Any], done: Done, more: Sequence[Json] = ()) -> None:
        metadata = obj["metadata"]
        operations = patches.status_summary(
            metadata["uid"],
            fields,
            resource_version=metadata["resourceVersion"],
            has_status=obj.get("status") is not None,
        )
        self._patch(kind, metadata["name"], [*operations, *more], done)

    def take_control(self, obj: Json, epoch: int, first_broker_epoch: int, done: Done) -> None:
        """Make this operator the controller with that epoch."""
        operations = patches.take_control(
            obj,
            holder=self._operator.identity,
            epoch=epoch,
            cluster_id="simulated-cluster-idXX",
            first_broker_epoch=first_broker_epoch,
        )
        self._patch("clusters", obj["metadata"]["name"], operations, done)


def _show(change: PartitionChange) -> str:
    old, new = change.expected, change.proposed
    isr = [(entry.id, entry.epoch) for entry in new.isr]
    return f"leader {old.leader}->{new.leader} epoch {new.leader_epoch} version {new.partition_epoch} isr {isr}"

"""Carries actions out: one compare-and-swap each, whose answer goes straight into the store.

A refused patch is never repeated blindly. 422: somebody was faster, so the object is read again and the next round
decides anew. 409: not applied, the same tests may be tried again. No answer: it may have been applied; the object is
read again, and since every patch tests what it was decided on, deciding anew is safe either way.
"""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kafkalite_core.controller.actions import (
    AddPartitions,
    ChangePartitions,
    CompleteElections,
    CreateBroker,
    CreateTopicStatus,
    Fence,
    UpdateClusterStatus,
    UpdateTopicStatus,
)
from kafkalite_core.model.partition import TopicRef
from kafkalite_core.model.pods import Rolling
from kafkalite_core.resources import naming, patches, topic_objects
from kafkalite_core.resources.conditions import set_conditions
from kafkalite_core.resources.fields import Fields
from kafkalite_core.resources.replacing import parse_replacing
from kafkalite_core.resources.rolling import parse_rolling, render_rolling
from kafkalite_core.resources.topics import parse_topic
from kafkalite_operator.failovers import Failovers
from kafkalite_operator.identity import cluster_id_for
from kafkalite_operator.new_brokers import NewBrokers
from kafkalite_operator.restarts import rolling_events
from kafkalite_operator.telling import ToldInVain, changed, grouped, moves, ready_event, replacing_events, sentences
from kafkalite_runtime.kube.errors import KubeConflict, KubeForbidden, KubeInvalid, KubeNotFound, KubeUnauthorized
from kafkalite_runtime.kube.kinds import BROKERS, CLUSTERS, TOPICS, Kind
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalite_core.controller.actions import Action
    from kafkalite_core.model.partition import PartitionChange
    from kafkalite_core.resources.manifests import ClusterSettings
    from kafkalite_operator.metrics import OperatorMetrics
    from kafkalite_operator.store import Store
    from kafkalite_runtime.kube.client import KubeClient
    from kafkalite_runtime.kube.events import EventRecorder

PATCH_DEADLINE_S = 3.0
CONFLICT_ATTEMPTS = 5

TOLD_ONCE = {"ScalingDown": "Normal", "NotEnoughBrokers": "Warning", "NodeLost": "Warning"}
"""Types of the Events that tell of the beginning of such a condition of a cluster."""

_log = get_logger(__name__)


def wall_time() -> str:
    """Now, for people: RFC 3339 in UTC."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Executor:
    """See the module. Methods raise errors of the client; the controller backs off and plans again."""

    def __init__(
        self,
        client: KubeClient,
        store: Store,
        metrics: OperatorMetrics,
        events: EventRecorder,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._store = store
        self._metrics = metrics
        self._events = events
        self._clock = clock
        self._failovers = Failovers(metrics)
        self._tracked: set[str] = set()
        """Uids of topics whose `managedFields` the operator was not allowed to remove."""
        self._in_vain = ToldInVain(clock)
        self._new_brokers = NewBrokers(client, store, events, self.refresh, clock)
        store.on_forget(self._forget)

    def begin_term(self) -> None:
        """This operator acts from now on."""
        self._failovers.clear()

    def _forget(self, uid: str) -> None:
        self._failovers.forget(uid)
        self._tracked.discard(uid)
        self._in_vain.forget(uid)

    async def carry_out(self, settings: ClusterSettings, action: Action, controller_epoch: int) -> None:
        """Carry one action of a cluster out."""
        match action:
            case Fence():
                await self._fence(settings, action)
            case ChangePartitions():
                await self._change(settings, action, controller_epoch)
            case CreateTopicStatus():
                await self._create_topic_status(action, controller_epoch)
            case AddPartitions():
                await self._add_partitions(action, controller_epoch)
            case CompleteElections():
                await self._complete_elections(action)
            case UpdateTopicStatus():
                await self.update_topic_status(action)
            case UpdateClusterStatus():
                await self._update_cluster_status(action, controller_epoch)
            case CreateBroker():
                await self._create_broker(settings, action)

    # -- the one way to write a status --------------------------------------------------------------------------

    async def patch(self, kind: Kind, namespace: str, name: str, operations: list[dict[str, Any]]) -> dict[str, Any]:
        """A compare-and-swap on a status. Raises KubeInvalid after reading the object again, and other errors."""
        for attempt in range(CONFLICT_ATTEMPTS):
            started = self._clock()
            try:
                answer = await self._client.json_patch(
                    kind, namespace, name, operations, subresource="status", deadline_s=PATCH_DEADLINE_S
                )
            except KubeConflict:
                self._metrics.cas_conflicts.inc()
                if attempt == CONFLICT_ATTEMPTS - 1:
                    raise
                await asyncio.sleep(random.uniform(0.0, 0.01 * 2**attempt))
            except KubeInvalid:
                self._metrics.cas_conflicts.inc()
                await self.refresh(kind, namespace, name)
                raise
            else:
                self._metrics.cas_s.observe(self._clock() - started)
                self._store.apply(kind, "MODIFIED", answer)
                return answer
        raise AssertionError("unreachable")

    async def refresh(self, kind: Kind, namespace: str, name: str, uid: str = "") -> dict[str, Any] | None:
        """Read one object consistently into the store; None when it is gone (then `uid` is forgotten)."""
        asked_at = self._clock()
        try:
            obj = await self._client.get(kind, namespace, name, deadline_s=PATCH_DEADLINE_S)
        except KubeNotFound:
            if uid:
                self._store.forget(kind, uid)
            return None
        self._store.apply(kind, "MODIFIED", obj, listed_at=asked_at)
        return obj

    def _record(self, kind: Kind, uid: str, type_: str, reason: str, message: str) -> None:
        regarding = self._store.raw(kind, uid)
        if regarding is not None:
            self._events.record(regarding, type_, reason, message)

    # -- brokers ------------------------------------------------------------------------------------------------

    async def _fence(self, settings: ClusterSettings, action: Fence) -> None:
        broker = action.broker
        assert broker.registration is not None
        namespace = settings.cluster.namespace
        key = (namespace, settings.cluster.name)
        ended = self._store.pod_notes.exit_of(key, broker.id, broker.registration.incarnation)
        seen_at = ended.seen_at if ended is not None and not action.by_expiry else self._clock()
        operations = patches.fence(broker, reason=f"{action.reason}: {action.message}", since=wall_time())
        await self.patch(BROKERS, namespace, broker.object_name, operations)
        self._failovers.failed(settings.cluster.uid, broker.id, seen_at)
        if action.by_expiry:
            self._store.note_expiry_fence(key)
        self._metrics.fences.labels(action.reason).inc()
        message = f"broker {broker.id} (epoch {broker.epoch}) is fenced: {action.message}"
        _log.warning(
            "broker fenced",
            broker=broker.id,
            epoch=broker.epoch,
            incarnation=broker.registration.incarnation,
            reason=action.reason,
            why=action.message,
        )
        self._record(BROKERS, broker.uid, "Warning", "BrokerFenced", message)

    async def _create_broker(self, settings: ClusterSettings, action: CreateBroker) -> None:
        await self._new_brokers.make(settings, action.broker_id)

    # -- partitions ---------------------------------------------------------------------------------------------

    async def _change(self, settings: ClusterSettings, action: ChangePartitions, controller_epoch: int) -> None:
        started = self._clock()
        applied = await self._change_some(action, dict(action.changes), controller_epoch)
        if not applied:
            return
        elected = sorted(applied & action.elected)
        # One line for one compare-and-swap: one for each of its partitions would cost as much as the write.
        _log.info(
            "partitions changed",
            topic=action.topic.name,
            changes={number: changed(action.changes[number]) for number in sorted(applied)},
            why=grouped(action.reasons, sorted(applied)),
        )
        if elected:
            self._failovers.measure(settings.cluster.uid, action, elected, started=started, now=self._clock())
        self._tell(action, sorted(applied), elected)

    def _tell(self, action: ChangePartitions, applied: list[int], elected: list[int]) -> None:
        uid = action.topic.uid
        for reason, numbers in moves(action, applied).items():
            self._record(TOPICS, uid, "Normal", reason, sentences(action, numbers))
        applied = [number for number in applied if number not in action.moved]
        elected = [number for number in elected if number not in action.moved]
        unclean = [number for number in elected if number in action.unclean]
        offline = [number for number in elected if not action.changes[number].proposed.has_leader]
        plain = [number for number in elected if number not in unclean and number not in offline]
        rest = [number for number in applied if number not in action.elected]
        for numbers, type_, reason in (
            (unclean, "Warning", "UncleanLeaderElection"),
            (offline, "Warning", "PartitionOffline"),
            (plain, "Normal", "LeaderElected"),
            (rest, "Normal", "PartitionChanged"),
        ):
            if numbers:
                self._record(TOPICS, uid, type_, reason, sentences(action, numbers))

    async def _change_some(
        self, action: ChangePartitions, changes: Mapping[int, PartitionChange], controller_epoch: int
    ) -> set[int]:
        """Apply what can be applied; a patch that fails as a whole is tried again without the partitions that moved
        on, then in halves. Returns the partitions that were changed.
        """
        topic = action.topic
        unclean = bool(action.unclean & set(changes))
        operations = patches.elections(
            topic,
            changes,
            controller_epoch=controller_epoch,
            unclean_generation=action.generation if unclean else None,
            unclean_request=action.consent if unclean else "",
            recovery_request=action.recovery_request if unclean else "",
        )
        try:
            await self.patch(TOPICS, topic.namespace, topic.object_name, operations)
        except KubeInvalid as error:
            remaining = self._still_expected(topic, changes)
            if len(changes) == 1 or not remaining:
                _log.info("change refused", topic=topic.name, partitions=sorted(changes), error=str(error))
                if remaining:
                    raise  # what it was decided on still stands, so a rule refused it: back off and tell
                return set()
            if len(remaining) < len(changes):
                return await self._change_some(action, remaining, controller_epoch)
            numbers = sorted(remaining)
            middle = len(numbers) // 2
            applied: set[int] = set()
            failure: KubeInvalid | None = None
            for half in (numbers[:middle], numbers[middle:]):
                try:
                    part = {number: changes[number] for number in half}
                    applied |= await self._change_some(action, part, controller_epoch)
                except KubeInvalid as refused:
                    failure = refused
            if failure is not None and not applied:
                raise failure from error
            return applied
        return set(changes)

    def _still_expected(self, topic: TopicRef, changes: Mapping[int, PartitionChange]) -> dict[int, PartitionChange]:
        obj = self._store.raw(TOPICS, topic.uid)
        if obj is None:
            return {}
        now = parse_topic(obj)
        if now.ref.topic_id != topic.topic_id:
            return {}
        return {number: change for number, change in changes.items() if now.partitions.get(number) == change.expected}

    async def _create_topic_status(self, action: CreateTopicStatus, controller_epoch: int) -> None:
        topic = action.topic
        ref = TopicRef(topic.namespace, topic.object_name, topic.uid, action.topic_id or str(uuid.uuid4()), topic.name)
        version = await self._untrack(topic, action.resource_version)
        operations = patches.first_status(
            ref,
            action.partitions,
            resource_version=version,
            has_status=action.has_status,
            controller_epoch=controller_epoch,
        )
        await self.patch(TOPICS, topic.namespace, topic.object_name, operations)
        _log.info(
            "topic placed",
            topic=topic.name,
            topic_id=ref.topic_id,
            replicas={number: list(entry.replicas) for number, entry in action.partitions.items()},
            why=action.reason,
        )
        reason = "DataAdopted" if action.topic_id else "TopicPlaced"
        count = len(action.partitions)
        message = f"{count} partition{'s' if count != 1 else ''} with topic id {ref.topic_id}: {action.reason}"
        self._metrics.unclean_elections.inc(len(action.unclean))
        self._record(TOPICS, topic.uid, "Warning" if action.unclean else "Normal", reason, message)

    async def _untrack(self, topic: TopicRef, resource_version: str) -> str:
        """Have the API server keep no record of who wrote which field; the version of the topic that follows.

        Once in the life of a topic, with what is written anyway and is not urgent: before its first status, and for
        a topic of an earlier release with its next conditions. Nothing else changes in between: the version is tested.
        Where a policy or the Role does not let the operator write the topic itself, the record stays.
        """
        obj = self._store.raw(TOPICS, topic.uid)
        operations = patches.untracked(obj, resource_version=resource_version) if obj is not None else []
        if not operations or topic.uid in self._tracked:
            return resource_version
        try:
            answer = await self._client.json_patch(
                TOPICS, topic.namespace, topic.object_name, operations, deadline_s=PATCH_DEADLINE_S
            )
        except KubeUnauthorized:
            raise
        except (KubeInvalid, KubeForbidden) as error:
            obj = await self.refresh(TOPICS, topic.namespace, topic.object_name, topic.uid)
            if obj is None or str(obj["metadata"]["resourceVersion"]) != resource_version:
                raise  # somebody was faster
            self._tracked.add(topic.uid)
            _log.info("managedFields stay", topic=topic.name, error=str(error))
            return resource_version
        self._store.apply(TOPICS, "MODIFIED", answer)
        return str(answer["metadata"]["resourceVersion"])

    async def _add_partitions(self, action: AddPartitions, controller_epoch: int) -> None:
        topic = action.topic
        operations = patches.added_partitions(
            topic, action.partitions, resource_version=action.resource_version, controller_epoch=controller_epoch
        )
        await self.patch(TOPICS, topic.namespace, topic.object_name, operations)
        _log.info("partitions added", topic=topic.name, partitions=sorted(action.partitions), why=action.reason)
        self._metrics.unclean_elections.inc(len(action.unclean))
        type_ = "Warning" if action.unclean else "Normal"
        self._record(TOPICS, topic.uid, type_, "PartitionsAdded", action.reason)

    async def _complete_elections(self, action: CompleteElections) -> None:
        """Remove the annotations. A newer wish in one of them stays, and is looked at in the next round."""
        topic = action.topic
        operations = topic_objects.election_done(topic.uid, action.requests)
        try:
            answer = await self._client.json_patch(
                TOPICS, topic.namespace, topic.object_name, operations, deadline_s=PATCH_DEADLINE_S
            )
        except KubeInvalid:
            await self.refresh(TOPICS, topic.namespace, topic.object_name, topic.uid)
            raise
        self._store.apply(TOPICS, "MODIFIED", answer)
        _log.info("elections on request", topic=topic.name, requests=dict(action.requests), outcome=action.reason)
        type_, reason = ("Normal", "ElectionsDone") if action.possible else ("Warning", "ElectionNotPossible")
        self._record(TOPICS, topic.uid, type_, reason, action.reason)

    # -- conditions ---------------------------------------------------------------------------------------------

    async def update_topic_status(self, action: UpdateTopicStatus) -> None:
        """Conditions of a topic, with or without a cluster."""
        obj = self._store.raw(TOPICS, action.topic.uid)
        if obj is None or int(obj["metadata"].get("generation", 0)) != action.generation:
            return  # what was decided on another spec says nothing of this one: the next round decides
        status = obj.get("status")
        conditions = set_conditions(
            (status or {}).get("conditions") or [], action.conditions, generation=action.generation, now=wall_time()
        )
        version = await self._untrack(action.topic, str(obj["metadata"]["resourceVersion"]))
        fields: dict[str, Any] = {"observedGeneration": action.generation, "conditions": conditions}
        if action.in_sync != "0/0":
            fields["inSync"] = action.in_sync
        operations = patches.status_summary(
            action.topic.uid, fields, resource_version=version, has_status=status is not None
        )
        await self.patch(TOPICS, action.topic.namespace, action.topic.object_name, operations)
        for condition in action.conditions:
            if condition.type == "Ready":
                event = ready_event(condition.status, condition.reason)
                self._record(TOPICS, action.topic.uid, *event, condition.message)

    async def _update_cluster_status(self, action: UpdateClusterStatus, controller_epoch: int) -> None:
        obj = self._store.raw(CLUSTERS, action.uid)
        if obj is None:
            return
        status, metadata = obj.get("status"), obj["metadata"]
        version = str(metadata["resourceVersion"])
        if self._in_vain.knows(action.uid, (version, action)):
            return
        conditions = set_conditions(
            (status or {}).get("conditions") or [], action.conditions, generation=action.generation, now=wall_time()
        )
        labels = naming.broker_labels(metadata["name"])
        fields: dict[str, Any] = {
            "observedGeneration": action.generation,
            "conditions": conditions,
            "brokers": {"ready": action.brokers_ready, "total": action.brokers_total},
            "bootstrap": action.bootstrap,
            "replicas": action.brokers_total,
            "labelSelector": ",".join(f"{name}={value}" for name, value in sorted(labels.items())),
        }
        if "rolling" not in (status or {}):
            fields["rolling"] = render_rolling(Rolling())  # so that one can wait for its end
        operations = patches.status_summary(action.uid, fields, resource_version=version, has_status=status is not None)
        operations += patches.partition_counts(action.partitions)
        if action.rolling is not None:  # whoever is no controller any more restarts nobody
            operations += patches.rolling(action.rolling, controller_epoch)
        if action.replacing is not None:
            operations += patches.replacing(status or {}, action.replacing, controller_epoch)
        before = {each["type"]: each["reason"] for each in (status or {}).get("conditions") or []}
        answer = await self.patch(CLUSTERS, metadata["namespace"], metadata["name"], operations)
        if answer["metadata"]["resourceVersion"] == version:
            self._in_vain.note(action.uid, (version, action))
        if action.rolling is not None:
            for reason, message in rolling_events(parse_rolling(Fields(status or {}, "status")), action.rolling):
                self._record(CLUSTERS, action.uid, "Normal", reason, message)
        if action.replacing is not None:
            known = parse_replacing(Fields(status or {}, "status"))
            for type_, reason, message in replacing_events(known, action.replacing):
                self._record(CLUSTERS, action.uid, type_, reason, message)
        for said in action.conditions:
            if said.reason in TOLD_ONCE and before.get(said.type) != said.reason:
                self._record(CLUSTERS, action.uid, TOLD_ONCE[said.reason], said.reason, said.message)

    async def take_control(
        self, settings: ClusterSettings, *, holder: str, epoch: int, first_broker_epoch: int
    ) -> None:
        """Write the controller and its epoch into a cluster's status (and its id and counters, once)."""
        cluster = settings.cluster
        obj = self._store.raw(CLUSTERS, cluster.uid)
        if obj is None:
            return
        cluster_id = cluster.cluster_id or await cluster_id_for(self._client, cluster)
        operations = patches.take_control(
            obj, holder=holder, epoch=epoch, cluster_id=cluster_id, first_broker_epoch=first_broker_epoch
        )
        await self.patch(CLUSTERS, cluster.namespace, cluster.name, operations)
        _log.info("controller epoch taken", cluster=cluster.name, namespace=cluster.namespace, epoch=epoch)
        message = f"{holder} is the controller with epoch {epoch}"
        self._record(CLUSTERS, cluster.uid, "Normal", "ControllerElected", message)

"""Brokers whose node or volume is gone: looking at nodes and claims, the second look, the deletions, what is told."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from kafkalite_core.controller.fencing import judge
from kafkalite_core.controller.lost_nodes import node_of, overdue
from kafkalite_core.controller.replacement import replacement
from kafkalite_core.model.replacement import Phase
from kafkalite_core.resources import patches, replacing
from kafkalite_core.resources.conditions import set_condition
from kafkalite_operator.executor import wall_time
from kafkalite_operator.telling import record_of_broker
from kafkalite_runtime.kube.errors import KubeConflict, KubeForbidden, KubeNotFound, KubeUnauthorized
from kafkalite_runtime.kube.kinds import BROKERS, PERSISTENT_VOLUME_CLAIMS, PODS
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kafkalite_core.controller.actions import EndReplaceRequest, ReplaceBroker, UpdateBrokerStatus
    from kafkalite_core.controller.snapshot import Snapshot
    from kafkalite_core.resources.manifests import ClusterSettings
    from kafkalite_operator.executor import Executor
    from kafkalite_operator.nodes import Nodes
    from kafkalite_operator.store import Store
    from kafkalite_operator.volumes import Volumes
    from kafkalite_runtime.kube.client import KubeClient
    from kafkalite_runtime.kube.events import EventRecorder

CALL_DEADLINE_S = 3.0
LOOK_S = 2.0
"""Nodes and claims are looked at so often while somebody is (to be) replaced."""

TELL_S = 5.0
"""And so often while a broker is away that nobody replaces: the cluster says what is wrong with its node."""

REFUSED_S = 60.0
"""Where the operator may not read nodes, which nobody needs then, it asks that seldom."""

_log = get_logger(__name__)


class Replacements:
    """See the module. Methods raise errors of the client; the controller backs off and plans again."""

    def __init__(
        self,
        client: KubeClient,
        store: Store,
        *,
        executor: Executor,
        nodes: Nodes,
        volumes: Volumes,
        events: EventRecorder,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._store = store
        self._executor = executor
        self._nodes = nodes
        self._volumes = volumes
        self._events = events
        self._clock = clock
        self._tell_at: dict[str, float] = {}
        """When nodes are looked at next that only have to be told of, by uid of the cluster."""
        store.on_forget(lambda uid: self._tell_at.pop(uid, None))

    def due(self, settings: ClusterSettings, snapshot: Snapshot) -> bool:
        """Somebody is (to be) replaced, or may have to be: nodes and claims have to be looked at."""
        if settings.cluster.deleting:
            return False
        if settings.cluster.node_loss != "replace":
            self._store.nodes_refused.discard(settings.cluster.uid)
        return snapshot.replacing.phase is not Phase.NONE or bool(self._suspects(snapshot) or self._away(snapshot))

    def _suspects(self, snapshot: Snapshot) -> list[int]:
        """Brokers that may be on a node that is lost."""
        automatic = snapshot.cluster.node_loss == "replace"
        return [
            broker_id
            for broker_id, broker in sorted(snapshot.brokers.items())
            if broker.replace_request
            or broker_id == snapshot.replacing.broker
            or (automatic and broker.fenced)
            or (broker_id in snapshot.pods and overdue(snapshot.pods[broker_id], self._clock()))
        ]

    def _away(self, snapshot: Snapshot) -> list[int]:
        """Brokers of which the cluster says what is wrong with their nodes, and that nobody replaces by himself."""
        cluster = snapshot.cluster
        if cluster.node_loss == "replace" or self._clock() < self._tell_at.get(cluster.uid, 0.0):
            return []
        return [
            broker_id
            for broker_id, broker in sorted(snapshot.brokers.items())
            if broker.registration is not None
            and broker.fenced
            and broker_id < cluster.replicas
            and broker_id in snapshot.pods
            and not snapshot.pods[broker_id].ready
        ]

    async def look(self, settings: ClusterSettings, snapshot: Snapshot) -> None:
        """Read the claims of all brokers, and the nodes of those that may be lost."""
        await self._volumes.look(settings)
        away = self._away(snapshot)
        names = {node_of(snapshot, broker_id) for broker_id in (*self._suspects(snapshot), *away)} - {""}
        refused = False
        for name in sorted(names):
            try:
                self._store.note_node(name, *await self._nodes.state(name))
            except KubeUnauthorized:
                raise
            except KubeForbidden:
                refused = True
        if away:
            self._tell_at[settings.cluster.uid] = self._clock() + (REFUSED_S if refused else TELL_S)
        if refused and settings.cluster.node_loss == "replace":
            self._store.nodes_refused.add(settings.cluster.uid)
        else:
            self._store.nodes_refused.discard(settings.cluster.uid)

    async def carry_out(
        self, settings: ClusterSettings, action: ReplaceBroker, read_again: Callable[[], Awaitable[Snapshot | None]]
    ) -> None:
        """Delete claim and pod, if consistent reads of everything lead to the same decision.

        The claim goes first: it stays until its pod has ended, and no pod is made for a claim that is being deleted, so
        the old volume cannot get another one.
        """
        snapshot = await read_again()
        if snapshot is None:
            return
        await self.look(settings, snapshot)
        snapshot = await read_again()
        if snapshot is None or judge(snapshot, self._clock()):
            return
        if replacement(snapshot, self._clock()).step != action:
            _log.info("replacement put off", broker=action.broker.id)
            return
        namespace, done = settings.cluster.namespace, []
        if action.claim:
            with contextlib.suppress(KubeNotFound, KubeConflict):  # that very claim is gone already
                await self._client.delete(
                    PERSISTENT_VOLUME_CLAIMS,
                    namespace,
                    action.claim,
                    uid=action.claim_uid,
                    deadline_s=CALL_DEADLINE_S,
                )
            done.append(f"claim {action.claim}")
        if action.pod:
            with contextlib.suppress(KubeNotFound, KubeConflict):
                await self._client.delete(
                    PODS,
                    namespace,
                    action.pod,
                    uid=action.pod_uid,
                    grace_period_s=0 if action.force else None,
                    deadline_s=CALL_DEADLINE_S,
                )
            done.append(f"pod {action.pod}{', whose node does not answer,' if action.force else ''}")
        message = f"broker {action.broker.id} is replaced ({action.cause}): {' and '.join(done)} deleted"
        _log.warning("broker replaced", broker=action.broker.id, deleted=done, why=action.cause)
        event = ("Warning", "VolumeDeleted", message)
        record_of_broker(self._events, self._store, settings, action.broker.id, event)
        await self._volumes.look(settings)

    async def end(self, settings: ClusterSettings, action: EndReplaceRequest) -> None:
        """Remove the annotation: it has been fulfilled."""
        broker, namespace = action.broker, settings.cluster.namespace
        answer = await self._client.json_patch(
            BROKERS,
            namespace,
            broker.object_name,
            replacing.request_done(broker, action.request),
            deadline_s=CALL_DEADLINE_S,
        )
        self._store.apply(BROKERS, "MODIFIED", answer)
        message = f"broker {broker.id} is registered with a new disk; the annotation kafkalite.io/replace is removed"
        _log.info("request to replace fulfilled", broker=broker.id)
        event = ("Normal", "ReplaceRequestDone", message)
        record_of_broker(self._events, self._store, settings, broker.id, event)

    async def update_status(self, settings: ClusterSettings, action: UpdateBrokerStatus) -> None:
        """A condition of a broker."""
        obj = self._store.raw(BROKERS, action.broker.uid)
        if obj is None:
            return
        status = obj.get("status")
        conditions = set_condition(
            (status or {}).get("conditions") or [],
            action.condition,
            generation=int(obj["metadata"].get("generation", 0)),
            now=wall_time(),
        )
        operations = patches.status_summary(
            action.broker.uid,
            {"conditions": conditions},
            resource_version=str(obj["metadata"]["resourceVersion"]),
            has_status=status is not None,
        )
        await self._executor.patch(BROKERS, settings.cluster.namespace, action.broker.object_name, operations)

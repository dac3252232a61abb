"""Taking the last broker of a cluster away, and what belongs to it, once core says that nothing is on it.

The snapshot that core decided on is as old as the last event. So topics are listed consistently before the pod ends,
and once more when it has ended, before anything is deleted that cannot be brought back. Every step may be done again:
an operator that takes over in the middle begins anew. A volume goes only if its broker, while it ran, was seen to have
had the time to list what is on it (`emptied`), and lists nothing of lost topics when it has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kafkalite_core.controller.adoption import taking_over
from kafkalite_core.controller.lost_nodes import may_force
from kafkalite_core.controller.snapshot import Snapshot
from kafkalite_core.controller.strays import why_kept
from kafkalite_core.model.topic import DEFAULT_CLUSTER_NAME
from kafkalite_core.resources import naming
from kafkalite_operator.infrastructure import NotApplied
from kafkalite_runtime.kube.errors import KubeConflict, KubeForbidden, KubeNotFound
from kafkalite_runtime.kube.kinds import (
    BROKERS,
    CLUSTERS,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    SERVICES,
    STATEFUL_SETS,
    TOPICS,
)
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalite_core.controller.actions import RemoveBroker
    from kafkalite_core.controller.emptied import Emptied
    from kafkalite_core.model.cluster import Broker
    from kafkalite_core.resources.manifests import ClusterSettings
    from kafkalite_operator.infrastructure import Infrastructure
    from kafkalite_operator.store import Store
    from kafkalite_runtime.kube.client import KubeClient
    from kafkalite_runtime.kube.events import EventRecorder

CALL_DEADLINE_S = 3.0
LIST_DEADLINE_S = 5.0
POLL_S = 0.5
PATIENCE_S = 30.0
"""A pod that takes longer to end is looked at again in a later round."""

NOT_TO_BE_DELETED = " (storage.deleteClaim is false)"

_log = get_logger(__name__)


class BrokerRemoval:
    """See the module. Raises errors of the client; the controller backs off and core decides anew."""

    def __init__(
        self,
        client: KubeClient,
        store: Store,
        infrastructure: Infrastructure,
        events: EventRecorder,
        emptied: Mapping[str, Emptied],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`emptied`: by uid of the cluster, what was seen of its brokers."""
        self._client = client
        self._store = store
        self._infrastructure = infrastructure
        self._events = events
        self._emptied = emptied
        self._clock = clock

    async def remove(self, settings: ClusterSettings, action: RemoveBroker) -> None:
        """End the pod of the broker, wait for its end, then delete what belongs to it."""
        broker = action.broker
        if not await self._empty(settings, broker.id):
            return
        if settings.delete_claim and self._awaited(settings, broker):
            _log.debug("broker not removed yet: it may be about to notice that a topic is gone", broker=broker.id)
            return
        await self._shrink(settings, action)
        if not await self._ended(settings, action):
            return
        await self._read_brokers(settings)
        known = self._store.raw(BROKERS, broker.uid)
        if not await self._empty(settings, broker.id):
            return
        await self._delete_service(settings, naming.broker_name(settings.cluster.name, broker.id))
        kept = self._why_kept(settings, action)
        volume = f"its volume stays{kept}" if kept else await self._delete_claim(settings, broker.id)
        if not volume:
            return
        if known is None or not await self._delete_object(known):
            return
        message = f"broker {broker.id} held no replica and is removed; {volume}"
        _log.info("broker removed", cluster=settings.cluster.name, broker=broker.id, volume=volume)
        cluster = self._store.raw(CLUSTERS, settings.cluster.uid)
        if cluster is not None:
            self._events.record(cluster, "Normal", "BrokerRemoved", message)

    async def _shrink(self, settings: ClusterSettings, action: RemoveBroker) -> None:
        """One pod less. What else cannot be applied, such as a Service whose port is taken, is told and in no way."""
        ids = await self.still_wanted(settings, list(range(action.remaining)))
        try:
            await self._infrastructure.ensure(settings, ids)
        except NotApplied as error:
            if any(problem.kind == STATEFUL_SETS.kind for problem in error.problems):
                raise

    def _awaited(self, settings: ClusterSettings, broker: Broker) -> bool:
        emptied = self._emptied.get(settings.cluster.uid)
        return emptied is not None and emptied.waits_for(broker, self._clock())

    def _why_kept(self, settings: ClusterSettings, action: RemoveBroker) -> str:
        """Why the volume of a broker that has ended stays, by what was just read; empty when nothing speaks for it."""
        key = (settings.cluster.namespace, settings.cluster.name)
        now = self._store.clusters().get(key)
        if now is None or not now.delete_claim:
            return NOT_TO_BE_DELETED
        topics, brokers = self._store.topics_by_cluster().get(key, {}), self._store.brokers_of(key)
        broker, emptied = brokers.get(action.broker.id), self._emptied.get(settings.cluster.uid)
        if broker is None or broker.registration is None:
            # Its object may be younger than its volume (a backup has no status): nobody has said what is on that.
            return ": the broker never registered, so what is on it is not known"
        found = Snapshot(cluster=settings.cluster, topics=topics, brokers=brokers)
        if emptied is not None:
            found = replace(found, unlisted=emptied.unlisted(found))
        if why := why_kept(found, broker) or action.unclaimed:
            return f": {why}"
        if emptied is None or not emptied.noticed(broker):
            return (
                ": its broker was not heard for long enough after its last replica went, so it may have data of a "
                "topic that was deleted meanwhile, and has not said so"
            )
        return ""

    async def _read_brokers(self, settings: ClusterSettings) -> None:
        """What all brokers list by now."""
        asked_at, namespace = self._clock(), settings.cluster.namespace
        listed = await self._client.list(BROKERS, namespace, deadline_s=LIST_DEADLINE_S)
        self._store.relist(BROKERS, listed.items, listed.resource_version, namespace, asked_at=asked_at)

    async def still_wanted(self, settings: ClusterSettings, ids: list[int]) -> list[int]:
        """`ids`, and brokers above them whose pods the StatefulSet has still, and that a consistent look finds in use.

        A plan knows of no such broker when its object and what it held are missing in what it was made of: halfway
        through the lists after a restore of the store, the topics may be older than the brokers.
        """
        name = naming.stateful_set_name(settings.cluster.name)
        try:
            found = await self._client.get(STATEFUL_SETS, settings.cluster.namespace, name, deadline_s=CALL_DEADLINE_S)
        except KubeNotFound:
            return ids
        except KubeForbidden as error:
            # Nothing of the cluster is applied then, and only here anybody hears of it.
            await self._infrastructure.not_read(settings, STATEFUL_SETS.kind, name, error)
            raise
        count = int((found.get("spec") or {}).get("replicas", 1))
        while count > len(ids) and await self._empty(settings, count - 1):
            count -= 1
        return list(range(max(count, len(ids))))

    def _still_leaves(self, settings: ClusterSettings, broker_id: int) -> bool:
        now = self._store.clusters().get((settings.cluster.namespace, settings.cluster.name))
        if now is None or now.cluster.uid != settings.cluster.uid or now.cluster.paused or now.cluster.deleting:
            return False
        return now.cluster.replicas <= broker_id

    async def _empty(self, settings: ClusterSettings, broker_id: int) -> bool:
        """Whether it still leaves, and no topic has a replica there: by a consistent list, and read as it is.

        Nor is about to have one: a topic that was made meanwhile may take over what the broker holds of a lost one.
        """
        asked_at = self._clock()
        namespace = settings.cluster.namespace
        listed = await self._client.list(TOPICS, namespace, deadline_s=LIST_DEADLINE_S)
        self._store.relist(TOPICS, listed.items, listed.resource_version, namespace, asked_at=asked_at)
        holding = [
            str(item["metadata"].get("name"))
            for item in listed.items
            if may_hold(item, settings.cluster.name, broker_id)
        ]
        key = (namespace, settings.cluster.name)
        topics, brokers = self._store.topics_by_cluster().get(key, {}), self._store.brokers_of(key)
        holding += taking_over(Snapshot(cluster=settings.cluster, topics=topics, brokers=brokers), broker_id)
        if holding:
            _log.warning("broker not removed: it is not empty", broker=broker_id, topics=holding[:5])
        return not holding and self._still_leaves(settings, broker_id)

    async def _ended(self, settings: ClusterSettings, action: RemoveBroker) -> bool:
        """Whether its pod is gone and its registration fenced; waits a while for that."""
        broker_id = action.broker.id
        name = naming.broker_name(settings.cluster.name, broker_id)
        until = self._clock() + PATIENCE_S
        while self._clock() < until and self._still_leaves(settings, broker_id):
            listed = await self._client.list(
                PODS,
                settings.cluster.namespace,
                label_selector="app.kubernetes.io/name=kafkalite,app.kubernetes.io/component=broker",
                deadline_s=LIST_DEADLINE_S,
            )
            known = self._store.brokers_of((settings.cluster.namespace, settings.cluster.name)).get(broker_id)
            gone = all(pod["metadata"]["name"] != name for pod in listed.items)
            if not gone:
                await self._force(settings, broker_id)
            if gone and (known is None or known.fenced):
                return True
            await asyncio.sleep(POLL_S)
        return False

    async def _force(self, settings: ClusterSettings, broker_id: int) -> None:
        """A pod on a node that is lost never ends by itself. With `spec.nodeLoss: replace` nobody waits for it."""
        key = (settings.cluster.namespace, settings.cluster.name)
        pod, now = self._store.pods.of(*key).get(broker_id), self._store.clusters().get(key)
        # What the spec says by now counts: it may have been changed during the wait.
        if pod is None or now is None or now.cluster.uid != settings.cluster.uid:
            return
        if not may_force(now.cluster, pod, self._store.nodes().get(pod.node), self._clock()):
            return
        with contextlib.suppress(KubeNotFound, KubeConflict):
            await self._client.delete(PODS, key[0], pod.name, uid=pod.uid, grace_period_s=0, deadline_s=CALL_DEADLINE_S)
            _log.warning("pod of a lost node deleted", pod=pod.name, node=pod.node, uid=pod.uid)
            message = f"pod {pod.name} is deleted without its node {pod.node}, which is lost (spec.nodeLoss: replace)"
            cluster = self._store.raw(CLUSTERS, settings.cluster.uid)
            if cluster is not None:
                self._events.record(cluster, "Warning", "PodForced", message)

    async def _delete_service(self, settings: ClusterSettings, name: str) -> None:
        namespace = settings.cluster.namespace
        with contextlib.suppress(KubeNotFound):
            service = await self._client.get(SERVICES, namespace, name, deadline_s=CALL_DEADLINE_S)
            owners = service["metadata"].get("ownerReferences") or []
            if any(owner.get("uid") == settings.cluster.uid for owner in owners):
                uid = service["metadata"]["uid"]
                await self._client.delete(SERVICES, namespace, name, uid=uid, deadline_s=CALL_DEADLINE_S)

    async def _delete_claim(self, settings: ClusterSettings, broker_id: int) -> str:
        """Delete the claim of a broker's volume, that very one; what became of it, empty when the broker shall stay.

        What the spec says by now counts: the end of the pod may have taken a while. Whoever raises `spec.replicas`
        again gets the old claim back under the broker, which would end with that pod, and who takes
        `storage.deleteClaim` back wants to keep the volume.
        """
        namespace, name = settings.cluster.namespace, naming.data_claim_name(settings.cluster.name, broker_id)
        listed = await self._client.list(PERSISTENT_VOLUME_CLAIMS, namespace, deadline_s=LIST_DEADLINE_S)
        uids = [claim["metadata"]["uid"] for claim in listed.items if claim["metadata"]["name"] == name]
        await self._refresh(settings)
        now = self._store.clusters().get((namespace, settings.cluster.name))
        if now is None or not self._still_leaves(settings, broker_id):
            return ""
        if not now.delete_claim:
            return f"its volume stays{NOT_TO_BE_DELETED}"
        for uid in uids:
            with contextlib.suppress(KubeNotFound):
                await self._client.delete(
                    PERSISTENT_VOLUME_CLAIMS, namespace, name, uid=uid, deadline_s=CALL_DEADLINE_S
                )
        return "its volume is deleted with it (storage.deleteClaim)"

    async def _refresh(self, settings: ClusterSettings) -> None:
        """What the spec says by now."""
        cluster = settings.cluster
        now = await self._client.get(CLUSTERS, cluster.namespace, cluster.name, deadline_s=CALL_DEADLINE_S)
        self._store.apply(CLUSTERS, "MODIFIED", now)

    async def _delete_object(self, known: Mapping[str, Any]) -> bool:
        """Delete the `KafkaLiteBroker` as it was when it was found empty: one that registered since stays."""
        metadata = known["metadata"]
        uid, version = str(metadata["uid"]), str(metadata["resourceVersion"])
        with contextlib.suppress(KubeNotFound):
            await self._client.delete(
                BROKERS,
                metadata["namespace"],
                metadata["name"],
                uid=uid,
                resource_version=version,
                deadline_s=CALL_DEADLINE_S,
            )
        self._store.forget(BROKERS, uid)
        return True


def may_hold(topic: Mapping[str, Any], cluster: str, broker_id: int) -> bool:
    """Whether a topic, as the API server shows it, has a replica on that broker, or cannot be understood."""
    try:
        reference = (topic.get("spec") or {}).get("clusterRef") or {}
        if reference.get("name", DEFAULT_CLUSTER_NAME) != cluster:
            return False
        entries = ((topic.get("status") or {}).get("partitions") or {}).values()
        return any(broker_id in {int(i) for i in entry["replicas"]} for entry in entries)
    except (AttributeError, KeyError, TypeError, ValueError):
        return True

"""The `KafkaLiteBroker`s of a cluster are the cluster's: those that an earlier one has left are owned again.

After `kubectl delete --cascade=orphan` and a cluster of the same name their spec says whose they are, and no owner:
nobody would collect them with the cluster. One that anybody controls is left alone, also where that was the earlier
cluster: the garbage collector is about to take it away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite_runtime.kube.errors import KubeInvalid, KubeNotFound
from kafkalite_runtime.kube.kinds import BROKERS
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from kafkalite_core.resources.manifests import ClusterSettings
    from kafkalite_operator.store import Store
    from kafkalite_runtime.kube.client import KubeClient

CALL_DEADLINE_S = 3.0
_log = get_logger(__name__)


class Owning:
    """See the module. `own` raises errors of the client."""

    def __init__(self, client: KubeClient, store: Store) -> None:
        self._client = client
        self._store = store

    def due(self, settings: ClusterSettings) -> bool:
        """Some broker of the cluster has no owner."""
        return bool(self._orphans(settings))

    async def own(self, settings: ClusterSettings) -> None:
        """Make the cluster their owner, if they are as they were seen."""
        namespace = settings.cluster.namespace
        for obj in self._orphans(settings):
            metadata = obj["metadata"]
            owners = [*(metadata.get("ownerReferences") or []), settings.owner()]
            operations: list[dict[str, Any]] = [
                {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
                {"op": "test", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]},
                {"op": "add", "path": "/metadata/ownerReferences", "value": owners},
            ]
            try:
                answer = await self._client.json_patch(
                    BROKERS, namespace, metadata["name"], operations, deadline_s=CALL_DEADLINE_S
                )
            except (KubeInvalid, KubeNotFound):
                continue  # it has changed: the next round looks again
            self._store.apply(BROKERS, "MODIFIED", answer)
            _log.info("broker object owned again", cluster=settings.cluster.name, broker=metadata["name"])

    def _orphans(self, settings: ClusterSettings) -> list[dict[str, Any]]:
        key = (settings.cluster.namespace, settings.cluster.name)
        found = (self._store.raw(BROKERS, broker.uid) for broker in self._store.brokers_of(key).values())
        return [obj for obj in found if obj is not None and _is_orphan(obj["metadata"], settings.cluster.uid)]


def _is_orphan(metadata: dict[str, Any], uid: str) -> bool:
    owners = metadata.get("ownerReferences") or []
    owned = any(owner.get("controller") or owner.get("uid") == uid for owner in owners)
    return not owned and "deletionTimestamp" not in metadata

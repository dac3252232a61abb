"""Keeps the objects of a cluster (StatefulSet, Services, ConfigMap, PodDisruptionBudget) as they should be."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from kafkalite_core.model.errors import KafkaLiteError
from kafkalite_core.resources.drift import differences, put_back
from kafkalite_core.resources.listener_services import with_removals
from kafkalite_core.resources.manifests import applied_hash, infrastructure
from kafkalite_operator.stateful_sets import StatefulSets
from kafkalite_runtime.kube.errors import KubeConflict, KubeForbidden, KubeInvalid, KubeNotFound
from kafkalite_runtime.kube.kinds import (
    CLUSTERS,
    CONFIG_MAPS,
    POD_DISRUPTION_BUDGETS,
    SERVICES,
    STATEFUL_SETS,
)
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite_core.resources.manifests import ClusterSettings
    from kafkalite_operator.store import Store
    from kafkalite_runtime.kube.client import KubeClient
    from kafkalite_runtime.kube.events import EventRecorder

CALL_DEADLINE_S = 3.0
RACES_MAX = 3
"""Looks at one object in a row; after that it is the turn of the others."""

_KINDS = {kind.kind: kind for kind in (STATEFUL_SETS, SERVICES, CONFIG_MAPS, POD_DISRUPTION_BUDGETS)}
_log = get_logger(__name__)


class NotYetCollected(KafkaLiteError):
    """An object of a deleted cluster is in the way of its successor's: try again."""


class Infrastructure:
    """Creates what is missing, patches what differs from what was last applied, and puts back what somebody changed of
    what matters (`drift`); the rest is left alone.
    """

    def __init__(self, client: KubeClient, store: Store, events: EventRecorder) -> None:
        self._client = client
        self._store = store
        self._events = events
        self._stateful_sets = StatefulSets(client)

    async def ensure(self, settings: ClusterSettings, broker_ids: Iterable[int]) -> None:
        """Bring all objects of one cluster up to date. Raises errors of the client.

        An object that the API server refuses, such as a Service with a port that is taken, or one that a policy denies,
        holds no other one up.
        """
        refused: KubeInvalid | KubeForbidden | None = None
        for wanted in infrastructure(settings, broker_ids):
            try:
                await self._ensure_again(settings, wanted)
            except (KubeInvalid, KubeForbidden) as error:
                refused = error
                self._tell(settings, f"{wanted['kind']} {wanted['metadata']['name']} refused: {error}", "ObjectRefused")
        if refused is not None:
            raise refused

    async def _ensure_again(self, settings: ClusterSettings, wanted: dict[str, Any]) -> None:
        """A lost race is no refusal: what somebody else has written meanwhile is compared anew."""
        for _ in range(RACES_MAX - 1):
            with contextlib.suppress(KubeConflict):
                await self._ensure_one(settings, wanted)
                return
        await self._ensure_one(settings, wanted)

    async def _ensure_one(self, settings: ClusterSettings, wanted: dict[str, Any]) -> None:
        kind = _KINDS[wanted["kind"]]
        namespace, name = settings.cluster.namespace, wanted["metadata"]["name"]
        try:
            existing = await self._client.get(kind, namespace, name, deadline_s=CALL_DEADLINE_S)
        except KubeNotFound:
            try:
                await self._client.create(kind, namespace, wanted, deadline_s=CALL_DEADLINE_S)
            except KubeConflict:
                return  # made by another replica meanwhile; the next look compares it
            self._tell(settings, f"{kind.kind} {name} made")
            return
        changed = differences(existing, wanted)
        if applied_hash(existing) == applied_hash(wanted) and not changed:
            return
        owners = existing["metadata"].get("ownerReferences") or []
        other = next((o for o in owners if o.get("controller") and o.get("uid") != settings.cluster.uid), None)
        if other is not None:
            if (other.get("kind"), other.get("name")) == (CLUSTERS.kind, settings.cluster.name):
                # The cluster was deleted and made again. What was made of the earlier one is about to be collected.
                raise NotYetCollected(f"{kind.kind} {name} belongs to the cluster of that name that was deleted")
            _log.warning("object belongs to somebody else", kind=kind.kind, name=name)
            return
        done = "updated"
        if applied_hash(existing) == applied_hash(wanted):
            done = f"put back, somebody has changed it: {', '.join(changed)}"
        if kind is STATEFUL_SETS:
            made_again = await self._stateful_sets.update(existing, wanted)
            done = made_again or done
        else:
            # Only on what was just compared: a patch that comes late must not undo what another replica has applied.
            version = existing["metadata"]["resourceVersion"]
            whole = put_back(existing, wanted)
            patch = with_removals({**whole, "metadata": {**whole["metadata"], "resourceVersion": version}}, existing)
            await self._client.merge_patch(kind, namespace, name, patch, deadline_s=CALL_DEADLINE_S)
        self._tell(settings, f"{kind.kind} {name} {done}")

    def _tell(self, settings: ClusterSettings, message: str, reason: str = "ObjectApplied") -> None:
        _log.info("object", cluster=settings.cluster.name, reason=reason, what=message)
        regarding = self._store.raw(CLUSTERS, settings.cluster.uid)
        if regarding is not None:
            type_ = "Normal" if reason == "ObjectApplied" else "Warning"
            self._events.record(regarding, type_, reason, message)

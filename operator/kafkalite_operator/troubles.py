"""What keeps the operator from its work on one object: told once, in the log and as an Event, while it lasts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite_runtime.kube.kinds import CLUSTERS
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Container

    from kafkalite_core.resources.manifests import ClusterSettings
    from kafkalite_operator.readings import Refused
    from kafkalite_operator.store import ClusterKey, Store
    from kafkalite_runtime.kube.events import EventRecorder

_log = get_logger(__name__)


class Troubles:
    """See the module."""

    def __init__(self, store: Store, events: EventRecorder) -> None:
        self._store = store
        self._events = events
        self._clusters: dict[ClusterKey, str] = {}
        self._refused: dict[str, Refused] = {}

    def round(self, clusters: Container[ClusterKey]) -> None:
        """A round begins, with these clusters: tell of objects that were not understood since the last one."""
        self._clusters = {key: told for key, told in self._clusters.items() if key in clusters}
        before, self._refused = self._refused, dict(self._store.refused)
        for uid, refused in self._refused.items():
            if before.get(uid) == refused:
                continue
            metadata = {"namespace": refused.namespace, "name": refused.name, "uid": uid}
            kind = refused.kind
            regarding: dict[str, Any] = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
            self._events.record(regarding, "Warning", "NotUnderstood", f"{refused.message}; {refused.consequence}")

    def not_controlled(self, key: ClusterKey, settings: ClusterSettings, error: Exception) -> None:
        """Planning for a cluster failed."""
        trouble = f"{error!r}"
        if self._clusters.get(key) == trouble:
            return
        self._clusters[key] = trouble
        _log.error("cluster not controlled", cluster=key, exc_info=error)
        regarding = self._store.raw(CLUSTERS, settings.cluster.uid)
        if regarding is not None:
            message = f"the operator cannot plan for this cluster and leaves it as it is: {trouble}"
            self._events.record(regarding, "Warning", "NotControlled", message)

    def controlled(self, key: ClusterKey) -> None:
        """It went well."""
        if self._clusters.pop(key, None) is not None:
            _log.info("cluster controlled again", cluster=key)

"""Restarting brokers' pods: what new ones would be made of, the second look, the deletion, what is told of it."""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING, Any

from kafkalite_core.controller.fencing import judge
from kafkalite_core.controller.resizing import why_restart
from kafkalite_core.controller.rolling import roll
from kafkalite_core.resources import naming
from kafkalite_operator.telling import record_of_broker
from kafkalite_runtime.kube.errors import KubeConflict, KubeNotFound
from kafkalite_runtime.kube.kinds import PODS, STATEFUL_SETS
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from kafkalite_core.controller.actions import RestartPods
    from kafkalite_core.controller.rolling import Restart
    from kafkalite_core.controller.snapshot import Snapshot
    from kafkalite_core.model.pods import Blocked, Rolling
    from kafkalite_core.resources.manifests import ClusterSettings
    from kafkalite_operator.metrics import OperatorMetrics
    from kafkalite_operator.store import Store
    from kafkalite_runtime.kube.client import KubeClient
    from kafkalite_runtime.kube.events import EventRecorder

CALL_DEADLINE_S = 3.0
SENTENCES_MAX = 3
FIGURES = re.compile(r"\d+")
_log = get_logger(__name__)


class Restarts:
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

    def due(self, settings: ClusterSettings, snapshot: Snapshot) -> bool:
        """Some pod is of another revision than the wanted one, and it is not known what new ones would be made of."""
        if settings.cluster.paused or settings.cluster.deleting or snapshot.revision_served:
            return False
        return snapshot.rolling.in_progress or any(why_restart(snapshot, pod) for pod in snapshot.pods.values())

    async def look(self, settings: ClusterSettings) -> None:
        """Note of which revision the StatefulSet makes pods by now.

        Its controller may still work with an older version of it: a pod that is deleted then would be of the old
        revision again, and restarted twice for one change.
        """
        namespace, name = settings.cluster.namespace, naming.stateful_set_name(settings.cluster.name)
        try:
            found = await self._client.get(STATEFUL_SETS, namespace, name, deadline_s=CALL_DEADLINE_S)
        except KubeNotFound:
            return  # it is about to be made
        self._store.served[settings.cluster.uid] = served_revision(found)

    async def carry_out(
        self, settings: ClusterSettings, action: RestartPods, read_again: Callable[[], Awaitable[Snapshot | None]]
    ) -> None:
        """Delete the pods, if consistent reads of everything lead to the same decision."""
        await self.look(settings)
        snapshot = await read_again()
        if snapshot is None or judge(snapshot, self._clock()):
            return
        agreed = {each.uid for each in roll(snapshot, self._clock()).restarts}
        chosen = [each for each in action.restarts if each.uid in agreed]
        if len(chosen) < len(action.restarts):
            _log.info("restarts put off", pods=[each.pod for each in action.restarts if each.uid not in agreed])
        await asyncio.gather(*(self._delete(settings, each) for each in chosen))

    async def _delete(self, settings: ClusterSettings, restart: Restart) -> None:
        namespace = settings.cluster.namespace
        message = f"pod {restart.pod} is restarted: {restart.reason}"
        try:
            await self._client.delete(PODS, namespace, restart.pod, uid=restart.uid, deadline_s=CALL_DEADLINE_S)
        except (KubeNotFound, KubeConflict):
            return  # somebody else has replaced it this very moment
        _log.info("pod restarted", pod=restart.pod, broker=restart.broker_id, uid=restart.uid, why=restart.reason)
        self._metrics.pod_restarts.inc()
        event = ("Normal", "BrokerRestarted", message)
        record_of_broker(self._events, self._store, settings, restart.broker_id, event)


def served_revision(stateful_set: Mapping[str, Any]) -> str:
    """The revision of pods that its controller makes from now on; "" while it may not know it yet."""
    metadata = stateful_set["metadata"]
    observed = (stateful_set.get("status") or {}).get("observedGeneration", 0)
    if "deletionTimestamp" in metadata or observed < metadata.get("generation", 1):
        return ""
    template = stateful_set["spec"]["template"].get("metadata") or {}
    return str((template.get("annotations") or {}).get(naming.ANNOTATION_REVISION, ""))


def rolling_events(before: Rolling, after: Rolling) -> list[tuple[str, str]]:
    """Reason and message of the Events that tell of a change of `status.rolling`."""
    told: list[tuple[str, str]] = []
    if after.in_progress and not before.in_progress:
        told.append(("RollingRestartStarted", f"pods to be restarted: {_listed(after.pending)}"))
    if after.restarting and after.restarting != before.restarting:
        told.append(
            ("RollingRestart", f"leaderships of {_listed(after.restarting)} move away, then they are restarted")
        )
    if not after.restarting and not _kinds(after.blocked_by) <= _kinds(before.blocked_by):
        reasons = [f"{b.pod} waits: {b.partition + ' ' if b.partition else ''}{b.reason}" for b in after.blocked_by]
        told.append(("RollingRestartWaits", _listed(reasons, "; ")))
    if before.in_progress and not after.in_progress:
        held = f"; held back: {_listed(after.pending)}" if after.pending else ""
        told.append(("RollingRestartDone", f"every pod that was to be restarted is back in all its ISRs{held}"))
    return told


def _kinds(blocked: tuple[Blocked, ...]) -> set[tuple[str, str, str]]:
    """What waits for what, without the figures: a recovery reports how far it is every few seconds."""
    return {(each.pod, each.partition, FIGURES.sub("", each.reason)) for each in blocked}


def _listed(items: tuple[str, ...] | list[str], between: str = ", ") -> str:
    rest = len(items) - SENTENCES_MAX
    return between.join(items[:SENTENCES_MAX]) + (f" and {rest} more" if rest > 0 else "")

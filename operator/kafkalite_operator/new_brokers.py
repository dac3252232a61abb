"""Makes the `KafkaLiteBroker`s that a cluster wants. Who may not is told, with the API server's own words."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from kafkalite_core.resources import naming
from kafkalite_core.resources.manifests import broker_object
from kafkalite_runtime.kube.errors import KubeConflict, KubeError, KubeThrottled, KubeUnauthorized
from kafkalite_runtime.kube.kinds import BROKERS, CLUSTERS
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kafkalite_core.resources.manifests import ClusterSettings
    from kafkalite_operator.store import Store
    from kafkalite_runtime.kube.client import KubeClient
    from kafkalite_runtime.kube.events import EventRecorder
    from kafkalite_runtime.kube.kinds import Kind

    Refresh = Callable[[Kind, str, str], Awaitable[dict[str, Any] | None]]

TOLD_AGAIN_S = 300.0
"""What lasts is told again so often; it is tried every few seconds."""

TAKEN = "taken"
_log = get_logger(__name__)


class NewBrokers:
    """See the module."""

    def __init__(
        self,
        client: KubeClient,
        store: Store,
        events: EventRecorder,
        refresh: Refresh,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`refresh(kind, namespace, name)` reads an object consistently into the store."""
        self._client = client
        self._store = store
        self._events = events
        self._refresh = refresh
        self._clock = clock
        self._told: dict[str, dict[tuple[int, str], float]] = {}
        """By uid of the cluster: when it was told last why a broker cannot be made, by its id and the reason."""
        store.on_forget(lambda uid: self._told.pop(uid, None))

    async def make(self, settings: ClusterSettings, broker_id: int) -> None:
        """Make one. Raises errors of the client."""
        namespace = settings.cluster.namespace
        name = naming.broker_name(settings.cluster.name, broker_id)
        try:
            made = await self._client.create(BROKERS, namespace, broker_object(settings, broker_id))
        except KubeConflict:
            await self._refresh(BROKERS, namespace, name)
            if broker_id not in self._store.brokers_of((namespace, settings.cluster.name)):
                # What has the name is not understood, or says that it is another broker: no next try at once.
                self._not_made(settings, broker_id, TAKEN, "what has this name is no such broker: delete it")
                raise
            return
        except (KubeThrottled, KubeUnauthorized):
            raise  # that is over in a moment
        except KubeError as error:
            self._not_made(settings, broker_id, error.reason, error.message)
            raise
        self._store.apply(BROKERS, "ADDED", made)
        _log.info("broker object made", cluster=settings.cluster.name, broker=broker_id)
        self._tell(settings, "Normal", "BrokerCreated", f"KafkaLiteBroker {name} made")

    def _not_made(self, settings: ClusterSettings, broker_id: int, reason: str, why: str) -> None:
        told, now = self._told.setdefault(settings.cluster.uid, {}), self._clock()
        if now - told.get((broker_id, reason), float("-inf")) < TOLD_AGAIN_S:
            return
        told[broker_id, reason] = now
        name = naming.broker_name(settings.cluster.name, broker_id)
        self._tell(settings, "Warning", "BrokerNotCreated", f"KafkaLiteBroker {name} cannot be made: {why}")

    def _tell(self, settings: ClusterSettings, type_: str, reason: str, message: str) -> None:
        regarding = self._store.raw(CLUSTERS, settings.cluster.uid)
        if regarding is not None:
            self._events.record(regarding, type_, reason, message)

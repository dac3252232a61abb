"""Publishes what clients of each listener are told, and takes Services of former listeners away."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from kafkalite_core.resources.fields import Fields
from kafkalite_core.resources.listener_addresses import needs_hosts, node_address, publish
from kafkalite_core.resources.listener_services import listener_services
from kafkalite_core.resources.listeners import parse_endpoints
from kafkalite_core.resources.naming import LABEL_CLUSTER, LABEL_LISTENER, broker_id_of
from kafkalite_operator.nodes import WHAT_TO_DO
from kafkalite_runtime.kube.errors import KubeConflict, KubeForbidden, KubeNotFound, KubeUnauthorized
from kafkalite_runtime.kube.kinds import SERVICES
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalite_core.resources.manifests import ClusterSettings
    from kafkalite_operator.cluster_status import ClusterStatus
    from kafkalite_operator.nodes import Nodes
    from kafkalite_operator.store import Store
    from kafkalite_runtime.kube.client import KubeClient

CONDITION = "ListenersReady"
CALL_DEADLINE_S = 3.0
WAITING_S = 1.0
"""Services are not watched: while an address is missing they are read this often, else with every look at all objects.
"""

RESYNC_S = 30.0
_log = get_logger(__name__)


class Listeners:
    """See the module. Clusters with one listener have nothing published: the brokers' registrations say it."""

    def __init__(
        self,
        client: KubeClient,
        store: Store,
        nodes: Nodes,
        status: ClusterStatus,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._store = store
        self._nodes = nodes
        self._status = status
        self._clock = clock
        self._seen: dict[str, tuple[object, float]] = {}
        store.on_forget(lambda uid: self._seen.pop(uid, None))

    def due(self, settings: ClusterSettings, broker_ids: Sequence[int]) -> bool:
        """Whether what was decided on last is different now, or may have changed where nobody is told."""
        state, next_look = self._seen.get(settings.cluster.uid, (None, 0.0))
        return state != self._state(settings, broker_ids) or self._clock() >= next_look

    def reads_nodes(self, settings: ClusterSettings) -> bool:
        """Whether a look asks for nodes: what the kubelet says of its own is enough as a rule."""
        return any(needs_hosts(each) and each.configuration.node_address_type for each in settings.listeners)

    def _state(self, settings: ClusterSettings, broker_ids: Sequence[int]) -> object:
        hosts = any(needs_hosts(listener) for listener in settings.listeners)
        places = self._places(settings) if hosts else ()
        return settings.listeners, settings.cluster.paused, tuple(broker_ids), places

    def _places(self, settings: ClusterSettings) -> tuple[tuple[int, str, str], ...]:
        """Broker id, node and the node's address of every pod."""
        cluster = settings.cluster
        places = self._store.pod_notes.places_of(cluster.namespace, cluster.name)
        found = ((broker_id_of(cluster.name, place.name), place.node, place.host) for place in places)
        return tuple((id_, node, host) for id_, node, host in found if id_ is not None)

    async def look(
        self, settings: ClusterSettings, broker_ids: Sequence[int], kept: Sequence[int] | None = None
    ) -> None:
        """One look at everything. Raises errors of the client.

        `kept`: brokers whose Services stay, by default those. While the cluster is paused no Service is deleted, and
        neither a listener of a former spec is taken back nor an address for which there is no other: nobody makes a
        Service meanwhile. Where they are now is told all the same, since nodes and load balancers go by nobody's
        annotation.
        """
        state, paused = self._state(settings, broker_ids), settings.cluster.paused
        services = await self._services(settings, broker_ids if kept is None else kept)
        if paused and len(settings.listeners) < 2:
            self._seen[settings.cluster.uid] = (state, self._clock() + RESYNC_S)
            return
        if len(settings.listeners) < 2:
            told = bool(self._status.of(settings).get("listeners"))
            await self._status.write(settings, without=(CONDITION,), fields={"listeners": []} if told else None)
            self._seen[settings.cluster.uid] = (state, self._clock() + RESYNC_S)
            return
        hosts, refused = await self._hosts(settings)
        former = parse_endpoints(Fields(self._status.of(settings), "status")) if paused else None
        published = publish(settings, broker_ids, services, hosts, former)
        condition = published.condition(refused)
        listed = published.listeners
        if paused:
            names = {each["name"] for each in listed}
            before = self._status.of(settings).get("listeners") or []
            listed = [*listed, *(each for each in before if each["name"] not in names)]
        await self._status.write(settings, condition=condition, fields={"listeners": listed})
        pause_s = WAITING_S if published.waits else RESYNC_S
        self._seen[settings.cluster.uid] = (state, self._clock() + pause_s)

    async def _services(self, settings: ClusterSettings, broker_ids: Sequence[int]) -> dict[str, dict[str, Any]]:
        """The Services of external listeners; those that nothing wants any more are deleted."""
        cluster = settings.cluster
        selector = f"{LABEL_CLUSTER}={cluster.name},{LABEL_LISTENER}"
        listed = await self._client.list(
            SERVICES, cluster.namespace, label_selector=selector, deadline_s=CALL_DEADLINE_S
        )
        wanted = {service["metadata"]["name"] for service in listener_services(settings, broker_ids)}
        found = {}
        for service in listed.items:
            metadata = service["metadata"]
            owners = metadata.get("ownerReferences") or []
            if not any(owner.get("uid") == cluster.uid for owner in owners):
                continue
            if metadata["name"] in wanted:
                found[metadata["name"]] = service
            elif "deletionTimestamp" not in metadata and not cluster.paused:
                await self._delete(cluster.namespace, metadata["name"], metadata["uid"])
        return found

    async def _delete(self, namespace: str, name: str, uid: str) -> None:
        try:
            await self._client.delete(SERVICES, namespace, name, uid=uid, deadline_s=CALL_DEADLINE_S)
        except (KubeNotFound, KubeConflict):
            return
        _log.info("Service of a former listener deleted", service=name, namespace=namespace)

    async def _hosts(self, settings: ClusterSettings) -> tuple[dict[str, dict[int, str]], str]:
        """Addresses of the nodes by listener and broker id; why some cannot be read, or the empty string."""
        found: dict[str, dict[int, str]] = {}
        refused = ""
        for listener in settings.listeners:
            if not needs_hosts(listener):
                continue
            preferred = listener.configuration.node_address_type
            hosts = found[listener.name] = {}
            for broker_id, node, host in self._places(settings):
                try:
                    # What the kubelet says of its node is enough where no other type of address is asked for.
                    hosts[broker_id] = (
                        node_address(await self._nodes.get(node), preferred) if preferred and node else host
                    )
                except KubeUnauthorized:
                    raise
                except KubeForbidden:
                    refused = WHAT_TO_DO
                except KubeNotFound:
                    continue
        return found, refused

"""Consistent lists of everything, namespace by namespace: the start of a term, and a belt for a watch that went silent.

A namespace that may not be read (its RoleBinding is gone, say) holds no other one up. What was read is controlled.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kafkalite_runtime.kube.kinds import BROKERS, CLUSTERS, PODS, TOPICS, Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite_operator.store import Store
    from kafkalite_runtime.kube.client import KubeClient

RESYNC_S = 30.0
DOUBT_S = 3.0
"""Shortest time between two lists of everything because events came in an order that needs an explanation."""

LIST_DEADLINE_S = 10.0
BROKER_PODS = "app.kubernetes.io/name=kafkalite,app.kubernetes.io/component=broker"

Namespace = str | None


class Listing:
    """See the module. `None` is the namespace of an operator that watches all of them."""

    def __init__(
        self,
        client: KubeClient,
        store: Store,
        namespaces: tuple[str, ...],
        on_read: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_read()` is called when brokers were read, or clusters."""
        self._client = client
        self._store = store
        self._namespaces: tuple[Namespace, ...] = namespaces or (None,)
        self._on_read = on_read
        self._clock = clock
        self._read_at: dict[Namespace, float] = {}
        self._doubted: set[Namespace] = set()

    def begin(self) -> None:
        """A term begins: what was read before counts for nothing."""
        self._read_at.clear()

    def due(self) -> list[Namespace]:
        """Namespaces whose last complete reading is too old, or in doubt."""
        if self._store.doubtful:
            self._store.doubtful = False
            self._doubted.update(self._namespaces)
        return [namespace for namespace in self._namespaces if self._is_due(namespace)]

    def _is_due(self, namespace: Namespace) -> bool:
        age_s = self._clock() - self._read_at.get(namespace, float("-inf"))
        return age_s > (DOUBT_S if namespace in self._doubted else RESYNC_S)

    @property
    def begun(self) -> bool:
        """Whether some namespace was read in this term."""
        return bool(self._read_at)

    def knows(self, namespace: str) -> bool:
        """Whether that namespace was read in this term: nothing is decided on what a watch has brought so far."""
        return namespace in self._read_at or None in self._read_at

    async def everything(self, namespace: Namespace) -> None:
        """Read all kinds. Raises errors of the client."""
        self._doubted.discard(namespace)
        for kind in (CLUSTERS, BROKERS, TOPICS, PODS):
            await self.kind(kind, namespace)
        self._read_at[namespace] = self._clock()

    async def kind(self, kind: Kind, namespace: Namespace) -> None:
        """Read one kind. Raises errors of the client."""
        started = self._clock()
        selector = BROKER_PODS if kind is PODS else ""
        listed = await self._client.list(kind, namespace, label_selector=selector, deadline_s=LIST_DEADLINE_S)
        self._store.relist(kind, listed.items, listed.resource_version, namespace, asked_at=started)
        if kind in {BROKERS, CLUSTERS}:
            self._on_read()

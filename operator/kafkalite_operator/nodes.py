"""Nodes, read one by one when something asks for them: most installations never do, and may not."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from kafkalite_core.model.replacement import NodeState
from kafkalite_core.resources.replacing import node_since, node_state
from kafkalite_operator.executor import wall_time
from kafkalite_runtime.kube.errors import KubeNotFound
from kafkalite_runtime.kube.kinds import NODES

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite_runtime.kube.client import KubeClient

KEPT_S = 60.0
"""Labels and addresses of nodes hardly ever change."""

KEPT_MAX = 1024
CALL_DEADLINE_S = 3.0
WHAT_TO_DO = "the operator may not read nodes: set rbac.readNodes in the chart, or apply helm/manifests/nodes"


class Nodes:
    """Reads nodes and keeps them for a while."""

    def __init__(self, client: KubeClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._known: dict[str, tuple[float, dict[str, Any]]] = {}
        self._gone: dict[str, str] = {}
        """Since when nodes are known to be gone, by name: nothing else says that."""

    async def get(self, name: str) -> dict[str, Any]:
        """A node. Raises KubeForbidden, KubeNotFound and the other errors of the client."""
        now = self._clock()
        read_at, node = self._known.get(name, (float("-inf"), {}))
        if now - read_at < KEPT_S:
            return node
        node = await self._client.get(NODES, None, name, deadline_s=CALL_DEADLINE_S)
        if len(self._known) >= KEPT_MAX:
            self._known.clear()
        self._known[name] = (now, node)
        return node

    async def state(self, name: str) -> tuple[NodeState, str]:
        """Whether a node is there and ready, right now, and since when. Raises KubeForbidden and the other errors of
        the client.
        """
        try:
            node = await self._client.get(NODES, None, name, deadline_s=CALL_DEADLINE_S)
        except KubeNotFound:
            if len(self._gone) >= KEPT_MAX:
                self._gone.clear()
            return NodeState.GONE, self._gone.setdefault(name, wall_time())
        self._gone.pop(name, None)
        return node_state(node), node_since(node)

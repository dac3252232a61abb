"""Producer ids, unique in the cluster, drawn in blocks from the cluster's status (KIP-98, KIP-730)."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING

from kafkalite_broker.clock import wall_ms
from kafkalite_broker.cluster.attempts import DEADLINE_S, backoff_s
from kafkalite_core.membership.producer_ids import ProducerIds
from kafkalite_core.model.errors import BrokerError
from kafkalite_core.model.limits import PRODUCER_ID_BLOCK_SIZE
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.resources import patches
from kafkalite_core.resources.clusters import parse_cluster
from kafkalite_core.resources.fields import ResourceError
from kafkalite_runtime.kube import CLUSTERS, KubeError, KubeInvalid, KubeUnavailable
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite_runtime.kube import KubeClient

DRAWS_MAX = 8
"""Rivals that may win the counter before a draw gives up."""

WAIT_S = 5.0
"""Longest time that a client waits for a block."""

log = get_logger(__name__)


class ProducerIdAllocator:
    """Hands out producer ids; the next block is drawn before the current one is used up.

    Args:
        client: Of the main loop.
        namespace: Of the cluster.
        cluster: Name of the `KafkaLiteCluster`.
        wall_ms: Wall clock.

    Attributes:
        highest_in_logs: Tells the greatest producer id in any log of this broker, -1 for none. Asked with every draw:
            the counter may have gone back meanwhile, and replication brings ids that other brokers gave out (S11).
    """

    def __init__(
        self, client: KubeClient, namespace: str, cluster: str, *, wall_ms: Callable[[], int] = wall_ms
    ) -> None:
        self.highest_in_logs: Callable[[], int] = lambda: -1
        self._client = client
        self._namespace = namespace
        self._cluster = cluster
        self._wall_ms = wall_ms
        self._ids = ProducerIds()
        self._draw: asyncio.Task[None] | None = None
        self._failures = 0
        self._not_before_s = 0.0
        self._complaint = ""

    async def next(self) -> int:
        """A producer id that nobody else gets.

        Raises:
            BrokerError: COORDINATOR_LOAD_IN_PROGRESS (clients retry) while no block can be drawn.
        """
        deadline_s = monotonic() + WAIT_S
        while True:
            producer_id = self._ids.take()
            if self._ids.wants_block:
                self._begin_draw()
            if producer_id is not None:
                return producer_id
            if self._draw is None or monotonic() >= deadline_s:
                raise BrokerError(
                    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                    f"no producer id can be drawn: {self._complaint or 'the API server has not answered yet'}",
                )
            await asyncio.wait({self._draw}, timeout=deadline_s - monotonic())

    async def stop(self) -> None:
        """Give up a draw under way."""
        if self._draw is not None:
            self._draw.cancel()
            await asyncio.gather(self._draw, return_exceptions=True)

    def _begin_draw(self) -> None:
        if self._draw is not None and not self._draw.done():
            return
        self._draw = None
        if monotonic() >= self._not_before_s:
            self._draw = asyncio.get_running_loop().create_task(self._draw_block(), name="draw producer ids")

    async def _draw_block(self) -> None:
        error: Exception
        try:
            for _ in range(DRAWS_MAX):
                if await self._draw_once():
                    self._failures = 0
                    self._complaint = ""
                    return
            raise ResourceError("other brokers were faster every time")
        except (KubeError, KubeUnavailable, ResourceError) as failed:
            # Also when the answer was lost: the block may be ours, but nobody knows, so it is never used.
            error = failed
        self._failures += 1
        self._not_before_s = monotonic() + backoff_s(self._failures, error)
        if str(error) != self._complaint:
            self._complaint = str(error)
            log.warning("no block of producer ids drawn", error=self._complaint)

    async def _draw_once(self) -> bool:
        """One read and one compare-and-swap; False when a rival was faster."""
        found = await self._client.get(CLUSTERS, self._namespace, self._cluster, deadline_s=DEADLINE_S)
        cluster = parse_cluster(found)
        if not cluster.cluster_id:
            raise ResourceError(f"cluster {self._cluster} has no status yet")
        self._ids.raise_floor(self.highest_in_logs())
        # Logs and the time may be far above the counter: go there in one step. Block after block would be thrown away,
        # and every producer would wait meanwhile.
        first = self._ids.beginning(cluster.next_producer_id, wall_ms=self._wall_ms())
        size = first + PRODUCER_ID_BLOCK_SIZE - cluster.next_producer_id
        operations = patches.producer_id_block(cluster, size)
        try:
            await self._client.json_patch(
                CLUSTERS, self._namespace, self._cluster, operations, subresource="status", deadline_s=DEADLINE_S
            )
        except KubeInvalid:
            return False
        self._ids.raise_floor(self.highest_in_logs())  # more may have come while the counter was asked
        self._ids.add_block(first)
        log.info("drew a block of producer ids", first=first, size=PRODUCER_ID_BLOCK_SIZE)
        return True

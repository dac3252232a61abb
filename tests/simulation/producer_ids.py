"""Producer ids, drawn in blocks from the cluster's status (KIP-98, KIP-730)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite_core.membership.producer_ids import CLOCK_MAX_MS, IDS_PER_MS
from kafkalite_core.model.limits import PRODUCER_ID_BLOCK_SIZE
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.resources import patches
from tests.simulation.api import Outcome
from tests.simulation.parsed import cluster_of
from tests.simulation.world import Violation

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.broker import Broker


class Draws:
    """Hands out ids; draws the next block when there are few."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._drawing = False

    def take(self, reply: Callable[[int, int], None]) -> None:
        """`reply(error code, producer id)`: an id that nobody else gets, or a code to try again later."""
        ids = self._broker.producer_ids
        taken = ids.take()
        if ids.wants_block and not self._drawing:
            self._drawing = True
            self._broker.call("get", "clusters", "kafkalite", answer=self._read)
        if taken is None:
            reply(int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), -1)
        else:
            reply(0, taken)

    def _read(self, outcome: Outcome, result: Any) -> None:
        if outcome is not Outcome.OK or not cluster_of(result).cluster_id:
            self._drawing = False
            return
        cluster = cluster_of(result)
        ids = self._broker.producer_ids
        ids.raise_floor(self._broker.logs.highest_producer_id())
        wall_ms = self._broker.wall_ms()
        first = ids.beginning(cluster.next_producer_id, wall_ms=wall_ms)
        if first < wall_ms * IDS_PER_MS and wall_ms < CLOCK_MAX_MS:
            raise Violation("unique producer ids", f"a block begins at {first}, below the time, which is {wall_ms}")
        size = first + PRODUCER_ID_BLOCK_SIZE - cluster.next_producer_id

        def drew(outcome: Outcome, _result: Any) -> None:
            self._drawing = False
            if outcome is Outcome.OK:
                ids.raise_floor(self._broker.logs.highest_producer_id())
                ids.add_block(first)

        operations = patches.producer_id_block(cluster, size)
        self._broker.call("patch", "clusters", "kafkalite", operations, answer=drew)

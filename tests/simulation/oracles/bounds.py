"""Queues and memory are bounded, whatever happens (threats 11, 12, 25)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.world import Violation

if TYPE_CHECKING:
    from tests.simulation.cluster import SimCluster

EVENTS_MAX = 100_000
WAITING_MAX = 5_000
PARKED_MAX = 2_000
UNSETTLED_MAX = 64
WATCHES_MAX = 1_000


class Bounded:
    """Every size that could grow stays below a bound that load and time do not move."""

    name = "bounded queues"

    def check(self, cluster: SimCluster) -> None:
        """Look at everything that is kept. Raises `Violation`."""
        self._limit("events in the queue", cluster.world.queued, EVENTS_MAX)
        self._limit("watches", len(cluster.api.watches), WATCHES_MAX)
        for host in cluster.host_list:
            broker = host.broker
            if broker is None or not broker.serving:
                continue
            self._limit(f"unsettled changes of {host.name}", len(broker.partitions.unsettled), UNSETTLED_MAX)
            for driver in broker.partitions.drivers.values():
                self._limit(f"waiting fetches of {driver.name} on {host.name}", len(driver.waiting), WAITING_MAX)
                self._limit(f"parked requests of {driver.name} on {host.name}", driver.parked, PARKED_MAX)

    def _limit(self, what: str, size: int, limit: int) -> None:
        if size > limit:
            raise Violation(self.name, f"{what}: {size}, more than {limit}")

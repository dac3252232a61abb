"""Faults at the edges of processes: of the device below a disk, and of the links to clients and to the API server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.disk import FailingDevice
from tests.simulation.strikes import Strikes
from tests.simulation.swarm import EDGE_FAULTS

if TYPE_CHECKING:
    from tests.simulation.cluster import SimCluster


class EdgeFaults(Strikes):
    """Draws from a stream of its own, at times of its own: other faults of a seed stay what they were."""

    def __init__(self, cluster: SimCluster, every_ms: float) -> None:
        super().__init__(cluster, EDGE_FAULTS, "edges", every_ms)

    # ------------------------------------------------------------ devices

    def _write_error(self) -> None:
        """A write fails with EIO, with a part of it in the file or nothing; now and then the next ones do as well."""
        self._world.arm("write_error")
        self._any_host().disk.failing_writes = FailingDevice(
            succeeds=self._chance.randrange(30),
            fails=self._chance.choice((1, 1, 3)),
            share=self._chance.choice((0.0, self._chance.random())),
        )

    def _read_error(self) -> None:
        """A read fails with EIO: of a fetch, of a group that is loaded, of a recovery, as it comes; so may the next."""
        self._world.arm("read_error")
        self._any_host().disk.failing_reads = FailingDevice(
            succeeds=self._chance.randrange(12), fails=self._chance.choice((1, 1, 2, 4))
        )

    def heal(self) -> None:
        """No new faults; all that last are ended."""
        self._healed = True
        for host in self._cluster.host_list:
            host.disk.failing_reads = host.disk.failing_writes = None

"""A machine: its disk, its clock, and the kubelet that starts its broker again and tells of its ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.resources.naming import broker_labels, broker_name
from kafkalite_core.resources.pods import render_termination_message
from tests.simulation.broker import Broker
from tests.simulation.disk import SimDisk

if TYPE_CHECKING:
    from tests.simulation.clock import Clock
    from tests.simulation.cluster import SimCluster
    from tests.simulation.world import ProcessDied

CLUSTER = "kafkalite"
RESTART_MS_MAX = 8_000.0


class Host:
    """See the module.

    Attributes:
        broker: The process that runs, None while there is none.
        rack: Its failure domain, empty for none.
        held: The kubelet does not start it.
        removed: The StatefulSet is smaller: there is no pod for it.
        damaged: The disk lost data since the last registration; the store does not know yet.
        damage_untold: The store went back to before it knew of such a loss.
        unnoted: A registration could not be noted in the directory, which was full: should the store lose it, entries with
            that broker epoch count no more, though nothing is lost (decision 011).
        forgot_unsynced: The power, or a sync, failed since the last registration: what was not synced may be gone.
        late_completions: While it is above 0, the disk has what was flushed long before the broker learns of that.
        silent: The kubelet tells nobody of an end: only the Lease does.
    """

    def __init__(self, cluster: SimCluster, broker_id: int, clock: Clock, *, fsync_ms: float, room: int) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.id = broker_id
        self.name = f"b{broker_id}"
        self.object_name = broker_name(CLUSTER, broker_id)
        self.clock = clock
        self.rack = dict(enumerate(cluster.shape.racks)).get(broker_id, "")
        self.fsync_ms = fsync_ms
        self.disk = SimDisk(
            room=room,
            wall_ms=lambda: self.clock.wall_ms(self.world.now),
            bite=self.world.bite,
            on_batch=cluster.oracles.batch_written,
        )
        self.chance = self.world.rng(f"host {broker_id}")
        self.broker: Broker | None = None
        self.incarnations = 0
        self.held = 0
        self.removed = False
        self.damaged = False
        self.damage_untold = False
        self.unnoted = False
        self.damage_told = self._forgot_told = -1
        self.forgot_unsynced = False
        self.silent = False
        self.late_completions = 0
        self._starts = 0
        self._numbers = 0

    def unique_hex(self) -> str:
        """32 hexadecimal digits that are never given again."""
        self._numbers += 1
        return f"{self.id:08x}{self._numbers:024x}"

    def start(self, delay_ms: float = 0.0) -> None:
        """Start a broker after a while, unless there is one then."""
        self._starts += 1
        self.world.at(delay_ms, None, self._start, self._starts)

    def _start(self, number: int) -> None:
        if self.broker is not None or number != self._starts:
            return
        if self.held:
            return
        self.incarnations += 1
        self.broker = Broker(self, f"i{self.id}-{self.incarnations}")
        self.broker.begin()

    def release(self) -> None:
        """The kubelet may start the broker again."""
        self.held = max(0, self.held - 1)
        if not self.held and self.broker is None:
            self.start(self.chance.random() * 500.0)

    def scale_away(self) -> None:
        """The StatefulSet becomes smaller: the broker is asked to end and not started again."""
        self.removed = True
        self.held += 1
        broker = self.broker
        if broker is not None and not broker.stopping:
            self.world.at(0.0, broker.process, broker.stop)

    def bring_back(self) -> None:
        """The StatefulSet has a pod for it again."""
        self.removed = False
        self.release()

    def lost_unheard(self, *, relaxed: bool) -> bool:
        """Whether it may lack what it once had, and the store does not know; `relaxed`: also what was not synced."""
        return self.damaged or self.damage_untold or (relaxed and self.forgot_unsynced)

    def told(self, epoch: int) -> None:
        """The broker that runs is registered with that broker epoch: the store knows of all that it knows."""
        if self.forgot_unsynced:
            self._forgot_told = epoch
        if self.damage_untold or (self.broker is not None and not self.broker.started_undamaged):
            self.damage_told = epoch
        self.forgot_unsynced = self.damage_untold = False

    def untold(self, epoch: int) -> None:
        """The store went back to the registration with that broker epoch: what was told later is not known to it."""
        self.damage_untold = self.damage_untold or epoch < self.damage_told
        self.forgot_unsynced = self.forgot_unsynced or epoch < self._forgot_told

    def died(self, death: ProcessDied) -> None:
        """The process is gone, by whatever cause."""
        broker = self.broker
        assert broker is not None
        self.broker = None
        self.disk.fuse, self.disk.process = 0, None
        self.cluster.oracles.process_ended(broker)
        if death.power:
            held = [ledger for ledger in self.cluster.oracles.ledgers.values() if ledger.relaxed and ledger.is_held()]
            self.disk.crash(self.chance)
            for ledger in held:
                ledger.destroyed |= not ledger.is_held()
        self.forgot_unsynced |= death.power or self.disk.forgot_unsynced
        self.disk.forgot_unsynced = False
        if self.world.tracing:
            self.world.trace(self.name, f"{broker.incarnation} died: {death.reason}")
        if not death.power:
            self._hang_up()
        if not self.silent:
            self._tell(broker, death.reason)
        self.start(500.0 + self.chance.random() ** 2 * RESTART_MS_MAX)

    def _hang_up(self) -> None:
        """The kernel closes the connections of a process that ended; after a power failure nobody does."""
        for other in self.cluster.host_list:
            peer = other.broker
            if peer is not None and peer.serving and not self.cluster.network.link(self.name, other.name).cut:
                self.world.at(1.0, peer.process, peer.partitions.connection_lost, self.id)

    def _tell(self, broker: Broker, reason: str) -> None:
        """The pod's status names the incarnation that ended (S7); it reaches the API server a little later."""
        message = render_termination_message(broker.incarnation, broker.broker_epoch, reason)
        self.world.at(20.0 + self.chance.random() * 200.0, None, self._write_exit, message)

    def _write_exit(self, message: str) -> None:
        api = self.cluster.api
        if not api.up:
            self.world.at(1000.0, None, self._write_exit, message)
            return
        status = {
            "containerStatuses": [
                {
                    "name": "broker",
                    "lastState": {"terminated": {"exitCode": 137, "reason": "Error", "message": message}},
                }
            ]
        }
        if self.object_name not in api.objects["pods"]:
            metadata = {"name": self.object_name, "labels": broker_labels(CLUSTER)}
            api.create("pods", {"metadata": metadata, "status": status})
        else:
            api.patch("pods", self.object_name, [{"op": "add", "path": "/status", "value": status}])

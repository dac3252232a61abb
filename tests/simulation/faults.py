"""Faults: each begins at a moment of chance, has its effect, and ends; it counts only if something felt it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_broker.log.strays import UNLISTED_MS
from kafkalite_core.model.cluster import entry_counts
from tests.simulation.edges import EdgeFaults
from tests.simulation.silence import Silences
from tests.simulation.strikes import Strikes
from tests.simulation.swarm import EDGE_FAULTS, KINDS, SILENCES

if TYPE_CHECKING:
    from tests.simulation.cluster import SimCluster
    from tests.simulation.host import Host
    from tests.simulation.oracles.ledger import Ledger


class Faults(Strikes):
    """All faults: those of `swarm.FAULTS` are drawn here, others by `EdgeFaults` and `Silences`, as often for their weight."""

    def __init__(self, cluster: SimCluster) -> None:
        shape = cluster.shape
        super().__init__(cluster, KINDS - EDGE_FAULTS.keys() - SILENCES.keys(), "faults", shape.fault_every_ms)
        self._from_clients = cluster.world.rng("isolate")
        edges, silences = (
            sum(weight for kind, weight in shape.faults.items() if kind in kinds) for kinds in (EDGE_FAULTS, SILENCES)
        )
        others = sum(self._faults.values())
        self._edges = EdgeFaults(cluster, shape.fault_every_ms * (others or 1.0) / (edges or 1.0))
        self._silences = Silences(cluster, shape.fault_every_ms * (others or 1.0) / (silences or 1.0))

    def begin(self) -> None:
        """The chaos starts."""
        super().begin()
        self._edges.begin()
        self._silences.begin()

    # ------------------------------------------------------------ processes and machines

    def _kill(self, host: Host, kind: str, *, power: bool) -> None:
        broker = host.broker
        if broker is None:
            return
        if broker.serving and broker.broker_epoch >= 0:
            self._world.bite(kind)
        host.silent = self._chance.random() < 0.3
        broker.process.paused = False
        self._world.bury_now(broker.process, kind, power=power)
        host.silent = False

    def _hold(self, host: Host, longest_ms: float) -> None:
        host.held += 1
        self._until(longest_ms, host.release)

    def _crash(self) -> None:
        host = self._any_host()
        self._kill(host, "crash", power=False)
        if self._chance.random() < 0.3:
            self._hold(host, 15_000.0)

    def _power(self) -> None:
        host = self._any_host()
        self._kill(host, "power", power=True)
        if self._chance.random() < 0.3:
            self._hold(host, 15_000.0)

    def _power_all(self) -> None:
        self._world.arm("power_all")
        for host in self._cluster.host_list:
            self._kill(host, "power_all", power=True)

    def _crash_effect(self) -> None:
        broker = self._any_host().broker
        if broker is not None and broker.serving:
            broker.fuse = self._chance.randrange(1, 40)
            broker.fuse_power = self._chance.random() < 0.5

    def _crash_disk(self) -> None:
        host = self._any_host()
        if host.broker is not None:
            host.disk.fuse = self._chance.randrange(1, 30)
            host.disk.fuse_power = self._chance.random() < 0.6

    def _stop(self) -> None:
        broker = self._any_host().broker
        if broker is not None and not broker.stopping and not broker.process.paused:
            if broker.serving:
                self._world.bite("stop")
            self._world.at(0.0, broker.process, broker.stop)

    def _pause(self) -> None:
        broker = self._any_host().broker
        if broker is not None and not broker.process.paused:
            self._world.pause(broker.process)
            self._until(12_000.0, self._resume, broker.process, "pause")

    def _resume(self, process: object, kind: str) -> None:
        if self._world.resume(process) and process.alive:  # type: ignore[arg-type, attr-defined]
            self._world.bite(kind)

    # ------------------------------------------------------------ disks

    def _survivable(self, host: Host) -> bool:
        """Whether every partition keeps a live member of the ISR, caught up and counting, on another machine."""
        return all(self._has_other(ledger, host) for ledger in self._cluster.oracles.ledgers.values())

    def _has_other(self, ledger: Ledger, host: Host) -> bool:
        entry = ledger.entry
        if entry is None or ledger.is_behind(entry):
            return ledger.forfeited or ledger.directory(host) is None  # lost, and to be found again on the disks
        if host.id not in {*entry.isr_ids(), *(member.id for member in entry.elr)}:
            return True
        oracles = self._cluster.oracles
        for member in entry.isr:
            other = oracles.hosts[member.id]
            lost = other.lost_unheard(relaxed=False) or other.disk.sync_errors
            if member.id == host.id or lost or other.broker is None:
                continue
            counts = entry_counts(member, oracles.brokers, relaxed_flush=ledger.relaxed)
            if counts and ledger.durable_end(other) >= ledger.committed_end:
                return True
        return False

    def _wipe(self) -> None:
        host = self._any_host()
        if not self._survivable(host):
            return
        self._kill(host, "wipe", power=True)
        if host.broker is None:
            self._lose_disk(host)

    def _bit_flip(self) -> None:
        host = self._any_host()
        if not self._survivable(host):
            return
        self._kill(host, "bit_flip", power=self._chance.random() < 0.5)
        if host.broker is None and host.disk.flip_bit(self._chance):
            self._damage(host)
            self._world.trace(host.name, "a bit of its disk flipped")

    def _lose_disk(self, host: Host) -> None:
        self._damage(host)
        for ledger in self._cluster.oracles.ledgers.values():
            ledger.disk_goes(host)
        host.disk.wipe()
        self._world.trace(host.name, "its disk is wiped")

    def _damage(self, host: Host) -> None:
        host.damaged = True
        for ledger in self._cluster.oracles.ledgers.values():
            entry = ledger.entry
            if entry is not None and host.id in entry.replicas:
                ledger.damaged = True

    def _disk_full(self) -> None:
        host = self._any_host()
        self._world.arm("disk_full")
        taken = host.disk.room - self._chance.randrange(2_000)
        if taken > 0:
            host.disk.room -= taken
            short = self._cluster.shape.stray_unlisted_ms == UNLISTED_MS
            self._until(8_000.0 if short else 25_000.0, self._free, host, taken)

    @staticmethod
    def _free(host: Host, taken: int) -> None:
        host.disk.room += taken

    def _sync_error(self) -> None:
        host = self._any_host()
        if self._survivable(host):
            host.disk.sync_errors = 1

    def _slow_disk(self) -> None:
        host = self._any_host()
        self._slow_down(host, 8_000.0)
        if host.broker is not None and host.broker.serving:
            self._world.bite("slow_disk")

    # ------------------------------------------------------------ network

    def _pair(self) -> tuple[str, str]:
        first, second = self._chance.sample(self._cluster.host_list, 2)
        return first.name, second.name

    def _cut(self) -> None:
        """Between two brokers, one way or both."""
        one, other = self._pair()
        pairs = [(one, other)] if self._chance.random() < 0.5 else [(one, other), (other, one)]
        self._sever(pairs, "network_cut", "watch_silent")

    def _isolate(self) -> None:
        """One broker from all others, or from all clients; the API server still hears it, or not."""
        victim = self._any_host().name
        others = [host.name for host in self._cluster.host_list if host.name != victim]
        cut = "network_cut"
        if self._from_clients.random() < 0.3:
            others, cut = [client.name for client in self._cluster.clients], "client_cut"
        if self._chance.random() < 0.4:
            others.append("api")
        pairs = [(victim, other) for other in others] + [(other, victim) for other in others]
        self._sever(pairs, cut, "watch_silent")

    def _api_cut(self) -> None:
        names = [host.name for host in self._cluster.host_list] + [host.name for host in self._cluster.operators]
        victim = self._chance.choice(names)
        pairs = [(victim, "api"), ("api", victim)]
        pairs = pairs if self._chance.random() < 0.6 else [self._chance.choice(pairs)]
        self._sever(pairs, "network_cut", "watch_silent")

    def _loss(self) -> None:
        network = self._cluster.network
        self._world.arm("network_drop")
        network.drop = self._chance.choice((0.01, 0.05, 0.2))
        self._until(5_000.0, setattr, network, "drop", 0.0)

    def _repeat(self) -> None:
        network = self._cluster.network
        self._world.arm("network_repeat")
        network.repeat = self._chance.choice((0.05, 0.3))
        self._until(8_000.0, setattr, network, "repeat", 0.0)

    def _delay(self) -> None:
        one, other = self._pair()
        self._slow([self._cluster.network.link(one, other)], "network_delay")

    def _reset(self) -> None:
        one, other = self._pair()
        self._world.arm("network_reset")
        self._cluster.network.reset(one, other)
        for name, leader in ((one, other), (other, one)):
            broker = self._cluster.hosts[int(name[1:])].broker
            if broker is not None and broker.serving and not broker.process.paused:
                self._world.at(0.0, broker.process, broker.partitions.connections_reset, int(leader[1:]))

    # ------------------------------------------------------------ clocks

    def _clock_rate(self) -> None:
        hosts = [*self._cluster.host_list, *self._cluster.operators]
        host = self._chance.choice(hosts)
        before = host.clock.rate
        host.clock.set_rate(self._world.now, self._chance.uniform(0.5, 2.0))
        self._until(10_000.0, self._clock_back, host, before)
        self._world.bite("clock_rate")

    def _clock_back(self, host: Host, rate: float) -> None:
        host.clock.set_rate(self._world.now, rate)

    def _clock_jump(self) -> None:
        host = self._any_host()
        host.clock.wall_offset_ms += self._chance.choice((-1.0, 1.0)) * self._chance.uniform(1e3, 4e6)
        if host.broker is not None and host.broker.serving:
            self._world.bite("clock_jump")

    # ------------------------------------------------------------ the API server

    def _api_outage(self) -> None:
        api = self._cluster.api
        if api.up:
            self._world.arm("api_outage")
            api.stop()
            self._until(15_000.0, api.start)

    def _api_slow(self) -> None:
        api = self._cluster.api
        api.delay_ms = self._chance.choice((100.0, 900.0))
        self._until(6_000.0, setattr, api, "delay_ms", 1.0)
        self._world.bite("api_slow")

    def _api_ambiguous(self) -> None:
        api = self._cluster.api
        name = self._chance.choice(("lose_answer", "lose_request", "delay_request"))
        self._world.arm(
            {"lose_answer": "api_lost_answer", "lose_request": "api_lost_request"}.get(name, "api_delayed_request")
        )
        setattr(api, name, self._chance.choice((0.1, 0.4, 0.8)))
        self._until(6_000.0, setattr, api, name, 0.0)

    def _api_throttle(self) -> None:
        api = self._cluster.api
        self._world.arm("api_throttle")
        api.throttle = self._chance.choice((0.2, 0.7))
        self._until(4_000.0, setattr, api, "throttle", 0.0)

    def _watch_lag(self) -> None:
        live = [watch for watch in self._cluster.api.watches if watch.process.alive and not watch.dead]
        if live:
            self._world.arm("watch_lag")
            host = self._chance.choice(live).host
            lagging = [watch for watch in live if watch.host == host and self._chance.random() < 0.7]
            for watch in lagging:
                watch.lag_ms = self._chance.choice((200.0, 3_000.0, 20_000.0))
            self._until(15_000.0, self._keep_up, lagging)

    def _watch_break(self) -> None:
        self._world.arm("watch_broken")
        self._cluster.api.break_watches()

    def _watch_expired(self) -> None:
        self._world.arm("watch_expired")
        self._cluster.api.break_watches(expired=True)

    # ------------------------------------------------------------ operators

    def _operator_crash(self) -> None:
        operator = self._chance.choice(self._cluster.operators).operator
        if operator is not None:
            if operator.elector.held():
                self._world.bite("operator_crash")
            if self._chance.random() < 0.5:
                operator.fuse = self._chance.randrange(1, 20)
            else:
                operator.process.paused = False
                self._world.bury_now(operator.process, "operator_crash")

    def _operator_pause(self) -> None:
        operator = self._chance.choice(self._cluster.operators).operator
        if operator is not None and not operator.process.paused:
            self._world.pause(operator.process)
            self._until(12_000.0, self._resume, operator.process, "operator_pause")

    # ------------------------------------------------------------ the cluster

    def _remake_cluster(self) -> None:
        """The user deletes the cluster, and makes it again; topics and disks stay, but now and then a disk is lost.

        Its brokers' objects are collected and their pods ended, each in its own time: some brokers live to see their
        object go, and register anew with the one that is made for them.
        """
        api = self._cluster.api
        if not api.up or not api.objects["clusters"] or not self._cluster.api.objects["brokers"]:
            return
        victim = self._chance.choice(self._cluster.host_list)
        survivable = self._chance.random() < 0.3 and self._survivable(victim)
        (name,) = api.objects["clusters"]
        api.delete("clusters", name)
        self._cluster.history.cluster_remade = True
        self._world.bite("remake_cluster")
        in_order = self._chance.random() < 0.5
        for host in self._cluster.host_list:
            obj = api.objects["brokers"].get(host.object_name)
            if obj is not None:
                self._world.at(self._chance.random() * 2_000.0, None, self._collect, host, obj["metadata"]["uid"])
            host.held += 1
            if in_order and host is not victim:
                self._end_pod(host)
            else:
                self._kill(host, "remake_cluster", power=self._chance.random() < 0.3)
            self._until(8_000.0, host.release)
        if survivable and victim.broker is None:
            self._lose_disk(victim)
        self._world.at(100.0 + self._chance.random() * 4_000.0, None, self._apply_cluster)

    def _end_pod(self, host: Host) -> None:
        broker = host.broker
        if broker is not None and not broker.stopping and not broker.process.paused:
            self._world.at(self._chance.random() * 2_000.0, broker.process, broker.stop)

    def _collect(self, host: Host, uid: str) -> None:
        """The garbage collector, which does not mistake a new object of that name for the old one."""
        obj = self._cluster.api.objects["brokers"].get(host.object_name)
        if not self._healed and obj is not None and obj["metadata"]["uid"] == uid:
            self._cluster.api.delete("brokers", host.object_name)

    def _apply_cluster(self) -> None:
        if not self._cluster.api.objects["clusters"]:
            self._cluster.create_cluster()

    # ------------------------------------------------------------ the end

    def heal(self) -> None:
        """No new faults; all that last are ended."""
        self._healed = True
        self._edges.heal()
        self._silences.heal()
        cluster, world = self._cluster, self._world
        cluster.network.heal()
        api = cluster.api
        api.late.clear()
        api.delay_ms, api.lose_answer, api.lose_request, api.delay_request, api.throttle = 1.0, 0.0, 0.0, 0.0, 0.0
        if not api.up:
            api.start()
        self._keep_up(list(api.watches))
        for host in cluster.host_list:
            host.held = int(host.removed)
            host.disk.room = max(host.disk.room, cluster.shape.disk_room)
            host.disk.sync_errors, host.disk.fuse = 0, 0
            host.fsync_ms, host.late_completions = cluster.shape.fsync_ms, 0
            if host.broker is None:
                host.start(host.chance.random() * 500.0)
            else:
                host.broker.fuse = 0
                world.resume(host.broker.process)
        for operator in cluster.operators:
            operator.held = 0
            if operator.operator is None:
                operator.start()
            else:
                operator.operator.fuse = 0
                world.resume(operator.operator.process)
        if not api.objects["clusters"]:
            cluster.create_cluster()
        self._create_what_is_missing()
        self._grow_again()
        if cluster.shape.scales:
            self._scale_to(cluster.shape.brokers)

"""Faults at the edges of processes: of the device below a disk, and of the links to clients and to the API server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.disk import FailingDevice
from tests.simulation.network import API
from tests.simulation.strikes import Strikes
from tests.simulation.swarm import EDGE_FAULTS

if TYPE_CHECKING:
    from tests.simulation.clients import Client
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

    # ------------------------------------------------------------ links to clients

    def _known_leader(self, client: Client) -> str:
        """A broker that it is likely to ask."""
        hosts = self._cluster.hosts
        known = [hosts[number].name for number in client.leaders.values() if number in hosts]
        return self._chance.choice(known or [host.name for host in hosts.values()])

    def _client_cut(self) -> None:
        """Between one client and one broker or all of them: requests are lost, or answers, or both."""
        client = self._chance.choice(self._cluster.clients)
        one = self._chance.random() < 0.6
        names = [self._known_leader(client)] if one else [host.name for host in self._cluster.host_list]
        requests = [(client.name, name) for name in names]
        answers = [(name, client.name) for name in names]
        self._sever(self._chance.choice((requests, answers, requests + answers)), "client_cut")

    def _client_delay(self) -> None:
        client = self._chance.choice(self._cluster.clients)
        pair = [client.name, self._known_leader(client)]
        self._chance.shuffle(pair)
        self._slow([self._cluster.network.link(*pair)], "client_delay")

    def _client_reset(self) -> None:
        """What is under way between one client and one broker is lost, and the client knows at once."""
        client = self._chance.choice(self._cluster.clients)
        name = self._known_leader(client)
        self._world.arm("client_reset")
        self._cluster.network.reset(client.name, name)
        self._world.at(0.0, client.process, client.connection_lost, name)

    # ------------------------------------------------------------ links to the API server

    def _any_of_the_api(self) -> str:
        return self._chance.choice([host.name for host in (*self._cluster.host_list, *self._cluster.operators)])

    def _api_reset(self) -> None:
        """Calls and watches of one process, or of all of them, break off; the server goes on."""
        cluster = self._cluster
        everybody = [host.name for host in (*cluster.host_list, *cluster.operators)]
        self._world.arm("api_reset")
        for name in everybody if self._chance.random() < 0.2 else [self._any_of_the_api()]:
            cluster.api.reset(name)

    def _api_delay(self) -> None:
        """Calls and watches of one process take much longer, both ways or one."""
        name, network = self._any_of_the_api(), self._cluster.network
        links = [network.link(name, API), network.link(API, name)]
        self._slow(links if self._chance.random() < 0.5 else [self._chance.choice(links)], "api_delay")

    def _api_reject(self) -> None:
        """Patches of topics are refused whatever they say, as by an admission webhook that fails, and reads fail."""
        api = self._cluster.api
        self._world.arm("api_reject")
        api.reject = self._chance.choice((0.3, 0.8))
        self._until(4_000.0, setattr, api, "reject", 0.0)

    def _late_list(self) -> None:
        api = self._cluster.api
        self._world.arm("late_list")
        api.late_lists = self._chance.choice((0.3, 0.9))
        self._until(6_000.0, setattr, api, "late_lists", 0.0)

    def _lagging_server(self) -> None:
        """One of several API servers is behind, and one process watches that one; now and then it has just come there."""
        name, api = self._any_of_the_api(), self._cluster.api
        if name in api.lags:
            return
        self._world.arm("lagging_server")
        lag_ms = api.lags[name] = self._chance.choice((200.0, 2_000.0, 8_000.0))
        if self._chance.random() < 0.5:
            api.break_watches(host=name)
        for watch in api.watches:
            if watch.host == name:
                watch.lag_ms = lag_ms * (0.5 + self._chance.random())
        self._until(15_000.0, self._keeps_up, name)

    def _keeps_up(self, name: str) -> None:
        api = self._cluster.api
        api.lags.pop(name, None)
        self._keep_up([watch for watch in api.watches if watch.host == name])

    def heal(self) -> None:
        """No new faults; all that last are ended."""
        self._healed = True
        for host in self._cluster.host_list:
            host.disk.failing_reads = host.disk.failing_writes = None
        self._cluster.api.late_lists = self._cluster.api.reject = 0.0
        self._cluster.api.lags.clear()

"""Builds what a scenario needs around its cluster: disks, network, proxy, clocks; takes it down in the right order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.chaos.api_faults import CLIENTS, OPERATOR, ApiProxy, pod_of, upstream_of
from tests.chaos.clock_faults import Clocks
from tests.chaos.cluster import Cluster
from tests.chaos.disks import Disks
from tests.chaos.faults import CLOCKS, DISKS, NETWORK, PROXY, Run
from tests.chaos.network import EVERYBODY, Network
from tests.chaos.workloads import Traffic

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack
    from pathlib import Path
    from random import Random

    from tests.chaos.scenarios import Scenario


def build(scenario: Scenario, folder: Path, random: Random, stack: ExitStack, say: Callable[[str], None]) -> Run:
    """A cluster that is up, with what the fault needs, and traffic that has not begun; the stack takes it all down."""
    needs = scenario.fault.needs
    network = proxy = disks = None
    if NETWORK in needs:
        network = Network(folder)
        network.make()  # first of all: what is started from here on is started in there
    cluster = Cluster(folder, network)
    if needs & {NETWORK, PROXY}:
        forwards = network.forwards(cluster.ports) if network else ()
        proxy = ApiProxy(folder, EVERYBODY if network else "127.0.0.1", upstream_of(cluster.ports), forwards)
        stack.callback(proxy.close)
    clocks = Clocks(folder) if CLOCKS in needs else None
    lines = _configure(cluster, network, proxy, clocks)
    if DISKS in needs:
        disks = Disks(folder, cluster)
        disks.make()
    stack.callback(cluster.down)
    cluster.up()
    cluster.follow()
    traffic = Traffic(cluster, scenario.workload, folder / "history")
    return Run(
        cluster=cluster,
        traffic=traffic,
        random=random,
        network=network,
        proxy=proxy,
        disks=disks,
        clocks=clocks,
        pod_lines=lines,
        say=say,
    )


def _configure(
    cluster: Cluster, network: Network | None, proxy: ApiProxy | None, clocks: Clocks | None
) -> dict[str, list[str]]:
    """How the pods' processes start, by client."""
    lines: dict[str, list[str]] = {client: [] for client in CLIENTS}
    for client in CLIENTS:
        if proxy:
            lines[client] += proxy.lines_for(client)
        if network and client != OPERATOR:
            lines[client] += network.lines_for(int(client.rpartition("-")[2]), cluster.launcher)
        if clocks:
            lines[client] += clocks.lines_for(client)
        if lines[client]:
            cluster.launcher.configure(pod_of(client), lines[client])
    return lines

"""Nodes hang, stop and are drained under load: what they hold comes back with them, and nothing is lost or doubled."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.e2e.cluster import PATIENCE, Cluster, CommandError, broker_pod
from tests.e2e.load import BROKERS, under_load

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.harm import Nodes

pytestmark = pytest.mark.timeout(600 * PATIENCE)
MOVE_LIMIT_S = 60
RETURN_LIMIT_S = 120


def test_a_node_hangs(cluster: Cluster, nodes: Nodes, tmp_path: Path):
    """Nobody tells that its processes stand still: their Leases run out."""
    with under_load(cluster, "paused", tmp_path) as load:
        victim = load.victim()
        victim.about_to("pause of the node")
        with nodes.paused(victim.node):
            victim.replaced(MOVE_LIMIT_S)
        victim.back(RETURN_LIMIT_S)


def test_a_node_stops(cluster: Cluster, nodes: Nodes, tmp_path: Path):
    """The volume is on the node, so that the broker returns with it."""
    with under_load(cluster, "stopped", tmp_path) as load:
        victim = load.victim()
        uid = cluster.get(f"pod/{victim.pod}")["metadata"]["uid"]
        victim.about_to("stop of the node")
        with nodes.stopped(victim.node):
            victim.replaced(MOVE_LIMIT_S)
        victim.back(RETURN_LIMIT_S)
        assert cluster.get(f"pod/{victim.pod}")["metadata"]["uid"] == uid


def test_a_node_is_drained(cluster: Cluster, release: float, tmp_path: Path):
    """One broker at a time may be evicted; it waits for its node, and returns when that is uncordoned."""
    with under_load(cluster, "drained", tmp_path) as load:
        victim = load.victim()
        victim.about_to("drain of the node")
        try:
            cluster.kubectl("drain", victim.node, "--ignore-daemonsets", "--delete-emptydir-data", "--force",
                            f"--timeout={90 * PATIENCE:.0f}s", limit_s=90 * PATIENCE + 30)  # fmt: skip
            victim.replaced(MOVE_LIMIT_S)
            waits = f"{victim.pod} waits"
            cluster.until(lambda: cluster.get(f"pod/{victim.pod}")["status"]["phase"] == "Pending", waits, 60)
            with pytest.raises(CommandError, match="disruption budget"):
                evict(cluster, broker_pod((victim.broker + 1) % BROKERS))
        finally:
            cluster.kubectl("uncordon", victim.node)
        victim.back(RETURN_LIMIT_S)
        assert cluster.node_of(victim.pod) == victim.node


def evict(cluster: Cluster, pod: str) -> None:
    """Ask for it as a drain does."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": cluster.namespace}}
    path = f"/api/v1/namespaces/{cluster.namespace}/pods/{pod}/eviction"
    cluster.kubectl("create", f"--raw={path}", "--filename=-", text=json.dumps(body))

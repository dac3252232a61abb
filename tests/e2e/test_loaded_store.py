"""etcd is restored from a snapshot under load: what the brokers know since then counts, and nothing is lost or doubled (S11)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kafkalite_runtime.kube import TOPICS
from tests.e2e.cluster import PATIENCE
from tests.e2e.harm import CONTROL_PLANE
from tests.e2e.load import PARTITIONS, under_load

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.cluster import Cluster
    from tests.e2e.harm import Killer, Nodes

pytestmark = pytest.mark.timeout(900 * PATIENCE)
TOPIC = "restored"
SERVED_LIMIT_S = 60
RETURN_LIMIT_S = 120
NOTICED_LIMIT_S = 120


def test_etcd_is_restored(cluster: Cluster, nodes: Nodes, killer: Killer, tmp_path: Path):
    """A broker hangs with its node meanwhile: nobody leads before it has said what it holds."""
    with under_load(cluster, TOPIC, tmp_path, one_history=False) as load:
        nodes.back_up_etcd()
        old = cluster.partitions(TOPIC)
        for _ in range(2):
            victim = load.victim()
            victim.about_to("SIGKILL, after the snapshot,")
            killer.signal("SIGKILL", victim.pod)
            victim.replaced(SERVED_LIMIT_S)
            victim.back(RETURN_LIMIT_S)
            load.whole()
        before = cluster.partitions(TOPIC)
        changed = [number for number in before if before[number]["leaderEpoch"] > old[number]["leaderEpoch"]]
        assert changed

        hung = load.victim(besides=cluster.node_of(cluster.acting_operator()))
        others = [each["metadata"]["name"] for each in cluster.items("nodes") if each["metadata"]["name"] != hung.node]
        assert CONTROL_PLANE in others
        load.fault(f"etcd restored, broker {hung.broker} hanging", range(PARTITIONS))
        with nodes.paused(hung.node, new_agents=True):
            nodes.restore_etcd()
            for node in others:
                nodes.restart_agents(node)
            cluster.until(
                lambda: ready(cluster)["reason"] == "StoreWentBack" and named(hung.broker, ready(cluster)["message"]),
                f"the topic waits for broker {hung.broker}",
                NOTICED_LIMIT_S,
            )
        cluster.until(
            lambda: all(
                cluster.partitions(TOPIC)[each]["leaderEpoch"] > before[each]["leaderEpoch"] for each in changed
            ),
            "leaders in epochs above all that brokers know",
            RETURN_LIMIT_S,
        )
        load.served()
        load.whole()
        # It is written after what it tells of.
        cluster.until(lambda: ready(cluster)["reason"] == "Serving", "the topic says that it serves", RETURN_LIMIT_S)


def ready(cluster: Cluster) -> dict[str, Any]:
    """The condition of the topic."""
    conditions = cluster.read(TOPICS, TOPIC)["status"]["conditions"]
    return next(each for each in conditions if each["type"] == "Ready")


def named(broker: int, message: str) -> bool:
    return f"broker {broker}" in message

"""The API server is away under load: brokers go on, and when it is back nothing has been lost or doubled."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.e2e.cluster import OPERATOR_PODS, PATIENCE, broker_pod
from tests.e2e.load import BROKERS, PARTITIONS, RATE, under_load

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.cluster import Cluster
    from tests.e2e.harm import Nodes

pytestmark = pytest.mark.timeout(600 * PATIENCE)
AWAY_S = 30  # six times the Leases of brokers and operator
SERVED_LIMIT_S = 30


@pytest.mark.parametrize("how", ["stopped", "killed", "hung"])
def test_the_api_server_is_away(cluster: Cluster, nodes: Nodes, tmp_path: Path, how: str):
    topic = f"api-{how}"
    with under_load(cluster, topic, tmp_path) as load:
        before, epochs, count = starts(cluster), cluster.epochs(), load.tell("count")
        load.fault(f"API server {how}", range(PARTITIONS))
        harms = {"stopped": nodes.api_server_stopped, "killed": nodes.api_server_killed, "hung": nodes.api_server_hung}
        with harms[how]():
            time.sleep(AWAY_S)  # that long is the fault; exec needs the API server, so the load is asked afterwards
        load.fault("API server back", range(PARTITIONS))
        load.served(limit_s=SERVED_LIMIT_S)
        meanwhile = load.tell("count") - count
        assert meanwhile > RATE * AWAY_S / 2, f"{meanwhile} records acknowledged without API server"
    # by now whoever was silent for too long would have been noticed
    assert starts(cluster) == before, "the API server's absence restarts nobody"
    assert cluster.epochs() == epochs, "nor is anybody fenced"


def starts(cluster: Cluster) -> dict[str, int]:
    """How often each broker's container was restarted."""
    names = [broker_pod(broker) for broker in range(BROKERS)]
    names += [pod["metadata"]["name"] for pod in cluster.items("pods", OPERATOR_PODS)]
    return {name: cluster.get(f"pod/{name}")["status"]["containerStatuses"][0]["restartCount"] for name in names}

"""The API server is away under load: brokers go on, and when it is back nothing has been lost or doubled."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.e2e.cluster import OPERATOR_PODS, PATIENCE, broker_pod
from tests.e2e.load import BROKERS, PARTITIONS, RATE, topic_object, under_load
from tests.e2e.test_first_cluster import end_producing, start_producing

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.cluster import Cluster
    from tests.e2e.harm import Nodes

pytestmark = pytest.mark.timeout(600 * PATIENCE)
AWAY_S = 30  # six times the Leases of brokers and operator
SERVED_LIMIT_S = 30
HEARD_LIMIT_S = 120


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
        all_hear(cluster, f"heard-{how}")
    # by now whoever was silent for too long would have been noticed
    assert starts(cluster) == before, "the API server's absence restarts nobody"
    assert cluster.epochs() == epochs, "nor is anybody fenced"


def all_hear(cluster: Cluster, name: str) -> None:
    """Wait until every broker hears of changes again, by a topic that is new to all of them.

    kube-proxy leads to the API server again after up to half a minute. Whoever did not see that a topic was deleted has to
    take it for lost, and while no broker saw it, no volume with its data is given up: `test_a_node_is_lost` would wait for ever.
    """
    cluster.apply(topic_object(name, BROKERS, partitions=1))
    cluster.wait("condition=Ready", f"klt/{name}", limit_s=HEARD_LIMIT_S)
    end_producing(start_producing(cluster, name, topic=name))  # acknowledged by every replica that is in the ISR
    cluster.until(lambda: cluster.whole(name, 1, BROKERS), "every broker is in the ISR", HEARD_LIMIT_S)
    cluster.kubectl("delete", f"klt/{name}", limit_s=120)


def starts(cluster: Cluster) -> dict[str, int]:
    """How often each broker's container was restarted."""
    names = [broker_pod(broker) for broker in range(BROKERS)]
    names += [pod["metadata"]["name"] for pod in cluster.items("pods", OPERATOR_PODS)]
    return {name: cluster.get(f"pod/{name}")["status"]["containerStatuses"][0]["restartCount"] for name in names}

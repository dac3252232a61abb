"""A Prometheus scrapes the pods that the chart's monitors select: dashboard and alerts have their answers of them."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.e2e.cluster import NAMESPACE, PATIENCE
from tests.e2e.load import BROKERS, under_load
from tests.e2e.scraping import documents, scraping, selected
from tests.helm.conftest import only
from tests.helm.prometheus import chosen, put, targets

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from tests.e2e.cluster import Cluster
    from tests.e2e.harm import Killer
    from tests.helm.prometheus import Prometheus

pytestmark = pytest.mark.timeout(600 * PATIENCE)
OPERATORS = 2
SEEN_LIMIT_S = 60
SERVED_LIMIT_S = 30
RETURN_LIMIT_S = 90
# A rate needs two scrapes, and a busy machine has some of them late.
RATE_INTERVAL = "20s"
EMPTY_PANELS = {
    "Room on the volumes": "the volumes of a test cluster are folders of its nodes: their kubelets do not measure them",
    "Failed actions": "a kind of action has a series once one has failed",
}
UNDER_REPLICATED = "KafkaLiteUnderReplicatedPartitions"


def test_a_prometheus_sees_a_broker_die(cluster: Cluster, killer: Killer, tmp_path: Path):
    made = documents(cluster)
    document = json.loads(only(made, "ConfigMap")["data"]["kafkalite.json"])
    groups = only(made, "PrometheusRule")["spec"]["groups"]
    alerts = {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}
    folder = tmp_path / "prometheus"
    folder.mkdir()
    with ExitStack() as stack:
        load = stack.enter_context(under_load(cluster, "monitored", tmp_path))
        monitors = [only(made, kind) for kind in ("PodMonitor", "ServiceMonitor")]
        asked = [target for monitor in monitors for target in selected(cluster, monitor)]
        assert len(asked) == BROKERS + OPERATORS, asked
        server = stack.enter_context(scraping(cluster, asked, folder))
        began = time.time()
        cluster.until(lambda: len(server.instant("up == 1")) == len(asked), "all pods are scraped", SEEN_LIMIT_S)
        cluster.until(lambda: _silent(server, alerts), "what the alerts look at is well", SEEN_LIMIT_S)
        assert _now(server, "sum(kafka_controller_kafkacontroller_activecontrollercount)") == 1
        assert _now(server, "sum(kafka_server_replicamanager_underreplicatedpartitions)") == 0

        victim = load.victim()
        victim.about_to("SIGKILL")
        killer.signal("SIGKILL", victim.pod)
        victim.replaced(SERVED_LIMIT_S)
        victim.back(RETURN_LIMIT_S)
        cluster.until(
            lambda: _empty(server, document, began).keys() <= EMPTY_PANELS.keys(),
            "every panel has data; the output says which have none",
            SEEN_LIMIT_S,
        )
        assert server.series(alerts[UNDER_REPLICATED], began, time.time()), "nobody told of the replicas out of sync"


def _now(server: Prometheus, expression: str) -> float:
    [found] = server.instant(expression)
    return float(found["value"][1])


OF_THE_MACHINE = {"KafkaLiteSlowDisk", "KafkaLiteEventLoopLag"}
"""They look at means over ten minutes, and there are not that many yet: one slow moment is in them for long."""


def _silent(server: Prometheus, alerts: dict[str, str]) -> bool:
    found = {name: server.instant(expression) for name, expression in alerts.items() if name not in OF_THE_MACHINE}
    spoke = {name: series for name, series in found.items() if series}
    print(f"alerts that would wait to fire: {spoke}")
    return not spoke


def _empty(server: Prometheus, document: dict[str, Any], began: float) -> dict[str, str]:
    """Title -> expression of the panels that had no data since."""
    now = time.time()
    variables = chosen(server, document, began, now)
    assert variables["namespace"][1] == {NAMESPACE}
    values = {"__rate_interval": RATE_INTERVAL} | {name: value for name, (value, _) in variables.items()}
    expressions = [(title, put(values, expression)) for title, expression in targets(document)]
    found = {title: text for title, text in expressions if not server.series(text, began, now)}
    print(f"panels without data: {found}")
    return found

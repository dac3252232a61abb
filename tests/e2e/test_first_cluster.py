"""From an empty namespace to records that are read."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

import pytest

from kafkalite_runtime.kube import BROKERS as KAFKALITE_BROKERS
from tests.e2e.cluster import BROKER_PODS, OPERATOR_PODS, PATIENCE
from tests.e2e.installation import ZONE

if TYPE_CHECKING:
    import subprocess

    from tests.e2e.cluster import Cluster

TOPIC = "first"
FIRST_RECORD_LIMIT_S = 60
BROKERS = 3
pytestmark = pytest.mark.timeout(600 * PATIENCE)


@pytest.fixture(scope="module")
def topic(cluster: Cluster, release: float) -> float:
    """Three partitions with three replicas each. The value is the time at which the installation of the chart began."""
    spec = {"partitions": 3, "replicas": BROKERS, "config": {"min.insync.replicas": "2"}}
    cluster.apply({"apiVersion": "kafkalite.io/v1alpha1", "kind": "KafkaLiteTopic",
                   "metadata": {"name": TOPIC}, "spec": spec})  # fmt: skip
    return release


def start_producing(cluster: Cluster, prefix: str, topic: str = TOPIC) -> subprocess.Popen[str]:
    """Returns when the first record is acknowledged."""
    producer = cluster.in_client("produce.py", cluster.bootstrap, topic, prefix)
    assert producer.stdout is not None
    assert producer.stdout.readline() == "first\n"
    return producer


def end_producing(producer: subprocess.Popen[str]) -> list[str]:
    """What was acknowledged, and that was everything."""
    said, _ = producer.communicate("", timeout=120 * PATIENCE)
    told = json.loads(said)
    assert told["failed"] == []
    assert len(told["acknowledged"]) == told["sent"] > 0
    return told["acknowledged"]


def test_a_client_produces_and_consumes_within_a_minute(cluster: Cluster, topic: float):
    cluster.wait("condition=Ready", f"klt/{TOPIC}", limit_s=180)
    ready = time.monotonic() - topic
    acknowledged = end_producing(start_producing(cluster, "first"))
    assert sorted(cluster.consumed(TOPIC)) == sorted(acknowledged)
    elapsed = time.monotonic() - topic
    print(f"topic ready after {ready:.1f} s, first record read after {elapsed:.1f} s", file=sys.stderr)
    assert elapsed < FIRST_RECORD_LIMIT_S * PATIENCE
    cluster.until(lambda: cluster.containers_ready() == BROKERS, "three brokers ready", 30)


def test_the_charts_own_test_passes(cluster: Cluster, topic: float):
    said = cluster.helm("test", "kafkalite", f"--timeout={120 * PATIENCE:.0f}s", limit_s=120 * PATIENCE + 60)
    assert "Phase:          Succeeded" in said


def test_brokers_are_spread_over_the_nodes(cluster: Cluster, topic: float):
    pods = cluster.items("pods", BROKER_PODS)
    assert len({pod["spec"]["nodeName"] for pod in pods}) == BROKERS


def test_brokers_register_the_zone_of_their_node_as_their_rack(cluster: Cluster, topic: float):
    """Kubernetes copies labels of nodes onto pods from 1.35 on; before, the operator does."""
    zones = {node["metadata"]["name"]: node["metadata"]["labels"].get(ZONE, "") for node in cluster.items("nodes")}
    pods = cluster.items("pods", BROKER_PODS)
    expected = {pod["metadata"]["name"]: zones[pod["spec"]["nodeName"]] for pod in pods}

    def racks() -> dict[str, str]:
        brokers = cluster.read(KAFKALITE_BROKERS)["items"]
        return {each["metadata"]["name"]: each["status"]["registration"].get("rack", "") for each in brokers}

    assert racks() == expected
    assert len(set(expected.values())) == BROKERS


def test_kopf_runs_in_the_operator(cluster: Cluster, topic: float):
    """Without it the operator acts on what it reads every half a minute."""
    logs = cluster.kubectl("logs", OPERATOR_PODS, "--tail=-1")
    ended = [json.loads(line)["exception"].splitlines()[-1] for line in logs.splitlines() if '"kopf ended"' in line]
    assert ended == []

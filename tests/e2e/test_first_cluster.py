"""From an empty namespace to records that survive the loss of brokers."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.conftest import NAMESPACE, PATIENCE, ROOT, TOPIC, bootstrap, image

if TYPE_CHECKING:
    import subprocess

    from tests.e2e.conftest import Cluster

FIRST_RECORD_LIMIT_S = 60
RECOVERY_LIMIT_S = 60
BROKERS = 3
pytestmark = pytest.mark.timeout(600 * PATIENCE)


@pytest.fixture(scope="module")
def topic(cluster: Cluster, release: float) -> float:
    """Three partitions with three replicas each. The value is the time at which the installation of the chart began."""
    spec = {"partitions": 3, "replicas": BROKERS, "config": {"min.insync.replicas": "2"}}
    cluster.apply({"apiVersion": "kafkalite.io/v1alpha1", "kind": "KafkaLiteTopic",
                   "metadata": {"name": TOPIC}, "spec": spec})  # fmt: skip
    return release


def start_producing(cluster: Cluster, prefix: str) -> subprocess.Popen[str]:
    """Returns when the first record is acknowledged."""
    producer = cluster.in_client("produce.py", bootstrap(), TOPIC, prefix)
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


def partitions(cluster: Cluster) -> dict[str, Any]:
    return cluster.get(f"klt/{TOPIC}").get("status", {}).get("partitions", {})


def in_full_isr(cluster: Cluster, broker: int, epoch: int) -> bool:
    """Whether every replica is in sync, and that of this broker since it registered anew."""
    return all(
        len(partition["isr"]) == BROKERS
        and any(entry["id"] == broker and entry["epoch"] > epoch for entry in partition["isr"])
        for partition in partitions(cluster).values()
    )


def epoch_of(cluster: Cluster, broker: int) -> int:
    return next(entry["epoch"] for entry in partitions(cluster)["0"]["isr"] if entry["id"] == broker)


def containers_ready(cluster: Cluster) -> int:
    pods = cluster.get("pods", "--selector=app.kubernetes.io/component=broker")["items"]
    return sum(status["ready"] for pod in pods for status in pod["status"].get("containerStatuses", []))


def leads_first_partition(cluster: Cluster) -> int:
    return partitions(cluster)["0"]["leader"]


def test_a_client_produces_and_consumes_within_a_minute(cluster: Cluster, topic: float):
    cluster.wait("condition=Ready", f"klt/{TOPIC}", limit_s=180)
    ready = time.monotonic() - topic
    acknowledged = end_producing(start_producing(cluster, "first"))
    assert sorted(cluster.consumed()) == sorted(acknowledged)
    elapsed = time.monotonic() - topic
    print(f"topic ready after {ready:.1f} s, first record read after {elapsed:.1f} s", file=sys.stderr)
    assert elapsed < FIRST_RECORD_LIMIT_S * PATIENCE
    cluster.until(lambda: containers_ready(cluster) == BROKERS, "three brokers ready", 30)


def test_the_charts_own_test_passes(cluster: Cluster, topic: float):
    assert "Phase:          Succeeded" in cluster.helm("test", "kafkalite", "--timeout=2m")


def test_brokers_are_spread_over_the_nodes(cluster: Cluster, topic: float):
    pods = cluster.get("pods", "--selector=app.kubernetes.io/component=broker")["items"]
    assert len({pod["spec"]["nodeName"] for pod in pods}) == BROKERS


def test_kopf_runs_in_the_operator(cluster: Cluster, topic: float):
    """Without it the operator acts on what it reads every half a minute."""
    logs = cluster.kubectl("logs", "--selector=app.kubernetes.io/component=operator", "--tail=-1")
    ended = [json.loads(line)["exception"].splitlines()[-1] for line in logs.splitlines() if '"kopf ended"' in line]
    assert ended == []


def test_a_deleted_pod_comes_back_into_every_isr_and_nothing_is_lost(cluster: Cluster, topic: float):
    broker = leads_first_partition(cluster)
    pod, epoch = f"pod/kafkalite-broker-{broker}", epoch_of(cluster, broker)
    uid = cluster.get(pod)["metadata"]["uid"]
    producer = start_producing(cluster, "deleted")
    began = time.monotonic()
    cluster.kubectl("delete", pod, limit_s=120)
    cluster.until(lambda: in_full_isr(cluster, broker, epoch), "the broker is in every ISR", RECOVERY_LIMIT_S)
    print(f"deleted pod in every ISR after {time.monotonic() - began:.1f} s", file=sys.stderr)
    assert cluster.get(pod)["metadata"]["uid"] != uid
    check(cluster, "deleted", end_producing(producer))


def test_a_killed_broker_comes_back_into_every_isr_and_nothing_is_lost(cluster: Cluster, topic: float):
    broker = leads_first_partition(cluster)
    name = f"kafkalite-broker-{broker}"
    pod, epoch = cluster.get(f"pod/{name}"), epoch_of(cluster, broker)
    restarts = pod["status"]["containerStatuses"][0]["restartCount"]
    producer = start_producing(cluster, "killed")
    began = time.monotonic()
    cluster.apply(killer(pod["spec"]["nodeName"], pod["metadata"]["uid"]))
    cluster.wait("jsonpath={.status.phase}=Succeeded", "pod/killer", limit_s=60)
    cluster.until(lambda: in_full_isr(cluster, broker, epoch), "the broker is in every ISR", RECOVERY_LIMIT_S)
    print(f"killed broker in every ISR after {time.monotonic() - began:.1f} s", file=sys.stderr)
    status = cluster.get(f"pod/{name}")["status"]["containerStatuses"][0]
    assert status["restartCount"] == restarts + 1
    assert status["lastState"]["terminated"]["exitCode"] == 137
    check(cluster, "killed", end_producing(producer))


def check(cluster: Cluster, prefix: str, acknowledged: list[str]) -> None:
    """Each acknowledged record is there, once."""
    found = [value for value in cluster.consumed() if value.startswith(f"{prefix}-")]
    assert sorted(found) == sorted(acknowledged)


def killer(node: str, uid: str) -> dict[str, Any]:
    program = (ROOT / "tests" / "e2e" / "client" / "kill.py").read_text()
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "killer", "namespace": NAMESPACE},
        "spec": {
            "nodeName": node,
            "hostPID": True,
            "restartPolicy": "Never",
            "containers": [{
                "name": "killer",
                "image": f"{image('kafkalite-e2e-client')}:0.1.0",
                "command": ["python3", "-c", program, uid],
                "securityContext": {"privileged": True, "runAsUser": 0},
            }],
        },
    }  # fmt: skip

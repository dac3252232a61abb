"""What changes pods and volumes under load: every broker is restarted, volumes grow, and nothing is lost or doubled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.cluster import BROKER_PODS, OPERATOR_PODS, PATIENCE, REGISTRY
from tests.e2e.installation import CHART, RELEASE
from tests.e2e.load import BROKERS, PARTITIONS, under_load

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.cluster import Cluster

pytestmark = pytest.mark.timeout(900 * PATIENCE)
CLUSTER = "klc/kafkalite"
ROLL_LIMIT_S = 300
GROW_LIMIT_S = 60
ANOTHER = "docker.io/library/kafkalite-"
"""The whole name of what is otherwise called kafkalite-."""


def uids(cluster: Cluster, pods: str = BROKER_PODS) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in cluster.items("pods", pods)}


def rolling(cluster: Cluster) -> dict[str, Any]:
    return cluster.get(CLUSTER).get("status", {}).get("rolling", {})


def test_every_broker_is_restarted_for_a_change_that_needs_it(cluster: Cluster, release: float, tmp_path: Path):
    with under_load(cluster, "rolled", tmp_path) as load:
        before, epochs = uids(cluster), cluster.epochs()
        load.fault("roll of every broker", range(PARTITIONS))
        cluster.patch(CLUSTER, {"spec": {"config": {"log.retention.check.interval.ms": "5000"}}})
        every = "every broker is restarted"
        cluster.until(lambda: not set(before.values()) & set(uids(cluster).values()), every, ROLL_LIMIT_S)
        cluster.until(lambda: rolling(cluster).get("inProgress") is False, "the roll is over", ROLL_LIMIT_S)
        load.whole()
        after = cluster.epochs()
        assert len(uids(cluster)) == BROKERS
        assert all(after[broker] > epoch for broker, epoch in epochs.items())


def images(cluster: Cluster, pods: str) -> set[str]:
    """What the pods were asked to run; those that are on their way out do not count."""
    found = [pod for pod in cluster.items("pods", pods) if "deletionTimestamp" not in pod["metadata"]]
    return {container["image"].rpartition(":")[0] for pod in found for container in pod["spec"]["containers"]}


@pytest.mark.skipif(bool(REGISTRY), reason="a registry's images have one name each, and a new version has another one")
def test_the_chart_is_upgraded(cluster: Cluster, release: float, tmp_path: Path):
    """To images of another name, which are the same: operator and brokers are replaced as for a new version."""
    with under_load(cluster, "upgraded", tmp_path) as load:
        operators = uids(cluster, OPERATOR_PODS)
        load.fault("upgrade of the chart", range(PARTITIONS))
        cluster.helm("upgrade", RELEASE, str(CHART), "--reuse-values", "--wait", f"--timeout={180 * PATIENCE:.0f}s",
                     f"--set=image.repository={ANOTHER}operator",
                     f"--set=brokers.image.repository={ANOTHER}broker", limit_s=180 * PATIENCE + 60)  # fmt: skip
        every = "every broker has the new image"
        cluster.until(lambda: images(cluster, BROKER_PODS) == {f"{ANOTHER}broker"}, every, ROLL_LIMIT_S)
        cluster.until(lambda: rolling(cluster).get("inProgress") is False, "the roll is over", ROLL_LIMIT_S)
        load.whole()
        assert len(uids(cluster)) == BROKERS
        assert images(cluster, OPERATOR_PODS) == {f"{ANOTHER}operator"}
        assert not set(operators.values()) & set(uids(cluster, OPERATOR_PODS).values())


def memory_limits(cluster: Cluster) -> set[str]:
    """Of the broker containers, as the kubelet has made them."""
    statuses = [s for pod in cluster.items("pods", BROKER_PODS) for s in pod["status"]["containerStatuses"]]
    return {s.get("resources", {}).get("limits", {}).get("memory", "") for s in statuses if s["name"] == "broker"}


def test_memory_changes_under_running_brokers(cluster: Cluster, release: float, tmp_path: Path):
    with under_load(cluster, "resized", tmp_path) as load:
        before = uids(cluster)
        load.fault("other limits of memory", range(PARTITIONS))
        containers = cluster.get(CLUSTER)["spec"]["template"]["pod"]["spec"]["containers"]
        broker = next(each for each in containers if each["name"] == "broker")
        broker["resources"]["limits"]["memory"] = "2100Mi"
        cluster.patch(CLUSTER, {"spec": {"template": {"pod": {"spec": {"containers": containers}}}}})
        cluster.until(lambda: memory_limits(cluster) == {"2100Mi"}, "every limit is another one", GROW_LIMIT_S)
        load.whole()
        assert uids(cluster) == before, "nobody was restarted"
        assert rolling(cluster).get("inProgress") is False


def test_volumes_grow_under_their_brokers(cluster: Cluster, release: float, tmp_path: Path):
    with under_load(cluster, "grown", tmp_path) as load:
        before = uids(cluster)
        load.fault("growth of volumes", range(PARTITIONS))
        cluster.patch(CLUSTER, {"spec": {"storage": {"size": "12Gi"}}})
        claims = [f"pvc/data-{pod}" for pod in sorted(before)]
        for claim in claims:
            cluster.wait("jsonpath={.status.capacity.storage}=12Gi", claim, limit_s=GROW_LIMIT_S)
        load.whole()
        assert uids(cluster) == before, "volumes grow without a restart"
        kept = cluster.get("statefulset/kafkalite-broker")["spec"]["volumeClaimTemplates"]
        assert [claim["spec"]["resources"]["requests"]["storage"] for claim in kept] == ["12Gi"]

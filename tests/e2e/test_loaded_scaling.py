"""The cluster grows to five brokers and shrinks to three in one edit each, under load."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.cluster import BROKER_PODS, PATIENCE
from tests.e2e.load import BROKERS, PARTITIONS, topic_object, under_load

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.cluster import Cluster

pytestmark = pytest.mark.timeout(1200 * PATIENCE)
CLUSTER = "klc/kafkalite"
MORE = 5
SCALE_LIMIT_S = 300


def serving(cluster: Cluster) -> set[int]:
    """Brokers that have a pod and are registered."""
    pods = {pod["metadata"]["name"] for pod in cluster.items("pods", BROKER_PODS)}
    return {broker for broker, epoch in cluster.epochs().items() if epoch > 0 and f"kafkalite-broker-{broker}" in pods}


def test_three_brokers_become_five_and_three_again(cluster: Cluster, release: float, tmp_path: Path):
    """What was placed on the new ones is moved away before they go."""
    with under_load(cluster, "scaled", tmp_path) as load:
        load.fault("three brokers become five", range(PARTITIONS))
        cluster.patch(CLUSTER, {"spec": {"replicas": MORE}})
        cluster.until(lambda: serving(cluster) == set(range(MORE)), "five brokers are registered", SCALE_LIMIT_S)
        cluster.apply(topic_object("wide", partitions=2 * MORE))
        cluster.until(
            lambda: cluster.whole("wide", 2 * MORE, BROKERS), "a topic on the new brokers is in sync", SCALE_LIMIT_S
        )
        placed = {broker for entry in cluster.partitions("wide").values() for broker in entry["replicas"]}
        assert placed >= set(range(BROKERS, MORE)), "the new ones, which have least, get replicas"
        load.fault("five brokers become three", range(PARTITIONS))
        cluster.patch(CLUSTER, {"spec": {"replicas": BROKERS}})
        cluster.until(lambda: serving(cluster) == set(range(BROKERS)), "three brokers are left", SCALE_LIMIT_S)
        cluster.until(lambda: cluster.whole("wide", 2 * MORE, BROKERS), "its replicas were moved", SCALE_LIMIT_S)
        cluster.kubectl("delete", "klt/wide", limit_s=120)

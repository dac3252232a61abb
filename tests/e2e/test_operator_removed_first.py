"""The operator is removed before what it looks after: nobody is left to take finalizers off, and nothing is stuck.

These are the last tests: they take away what the others use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.cluster import BROKER_PODS, OPERATOR_PODS, PATIENCE
from tests.e2e.installation import DEFINITIONS, RELEASE, install
from tests.e2e.load import BROKERS, PARTITIONS, topic_object
from tests.e2e.test_first_cluster import end_producing, start_producing
from tests.e2e.test_namespace_deleted import gone

if TYPE_CHECKING:
    import subprocess

    from tests.e2e.cluster import Cluster
    from tests.e2e.harm import Nodes

pytestmark = pytest.mark.timeout(600 * PATIENCE)
TOPIC = "outlives"
READY_LIMIT_S = 180
GONE_LIMIT_S = 120
CLAIMS = "--selector=app.kubernetes.io/name=kafkalite"


def remove_operator(cluster: Cluster) -> None:
    """As somebody does who has not read what to delete first."""
    cluster.helm("uninstall", RELEASE, "--wait")
    cluster.until(lambda: not cluster.items("pods", OPERATOR_PODS), "no operator is there", 60)


def written(cluster: Cluster) -> list[str]:
    """Some records more."""
    producer: subprocess.Popen[str] = start_producing(cluster, "outlives", topic=TOPIC)
    return end_producing(producer)


def volumes(cluster: Cluster) -> dict[str, str]:
    """Of the brokers: the uid of each claim, which has to be bound."""
    claims = cluster.items("pvc", CLAIMS)
    assert {claim["status"]["phase"] for claim in claims} == {"Bound"}
    return {claim["metadata"]["name"]: claim["metadata"]["uid"] for claim in claims}


def test_records_outlive_operator_and_definitions(cluster: Cluster, nodes: Nodes):
    """Brokers go on without an operator; their volumes stay when the definitions are deleted, and are taken up again.

    Definitions are of the whole cluster, so this is done to one of our own alone.
    """
    cluster.apply(topic_object(TOPIC, BROKERS, PARTITIONS))
    cluster.until(lambda: cluster.whole(TOPIC, PARTITIONS, BROKERS), "every ISR full", READY_LIMIT_S)
    records = written(cluster)
    remove_operator(cluster)
    records += written(cluster)
    assert sorted(cluster.consumed(TOPIC)) == sorted(records)

    before = volumes(cluster)
    assert len(before) >= BROKERS
    definitions = [f"crd/{name}.kafkalite.io" for name in DEFINITIONS]
    cluster.kubectl("delete", *definitions, "--wait=false")
    cluster.wait("delete", *definitions, limit_s=GONE_LIMIT_S)
    cluster.until(lambda: not cluster.items("pods", BROKER_PODS), "no broker is there", GONE_LIMIT_S)
    assert volumes(cluster) == before

    install(cluster)
    again = topic_object(TOPIC, BROKERS, PARTITIONS)
    again["metadata"]["annotations"] = {"kafkalite.io/adopt-strays": "true"}
    cluster.apply(again)
    cluster.until(lambda: cluster.whole(TOPIC, PARTITIONS, BROKERS), "every ISR full again", READY_LIMIT_S)
    assert volumes(cluster) == before
    assert sorted(cluster.consumed(TOPIC)) == sorted(records)


def test_a_namespace_without_operator_is_gone_when_it_is_deleted(cluster: Cluster, release: float):
    """Cluster, topics and brokers are still in it."""
    assert cluster.items("klt,klc,klb")
    remove_operator(cluster)
    found = [claim["spec"]["volumeName"] for claim in cluster.items("pvc")]
    cluster.kubectl("delete", "namespace", cluster.namespace, "--wait=false")
    cluster.until(lambda: gone(cluster), "the namespace is gone", GONE_LIMIT_S)
    for volume in found:
        cluster.wait("delete", f"pv/{volume}", limit_s=60)

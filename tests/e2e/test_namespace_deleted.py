"""A namespace with everything in it is deleted under load, and is gone; a cluster in another one notices nothing."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import pytest

from tests.e2e.cluster import PATIENCE
from tests.e2e.installation import install, namespace
from tests.e2e.load import BROKERS, PARTITIONS, Load, topic_object, under_load

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.cluster import Cluster

pytestmark = pytest.mark.timeout(600 * PATIENCE)
GONE_LIMIT_S = 180


def test_nothing_of_a_namespace_stays_terminating(cluster: Cluster, release: float, tmp_path: Path):
    """Operator, brokers, topics and load end in any order. What is judged is the load on the neighbour."""
    other = dataclasses.replace(cluster, namespace="kafkalite-e2e-gone")
    with under_load(cluster, "neighbour", tmp_path) as neighbour, namespace(other):
        install(other, "crds.enabled=false")
        other.apply(topic_object("gone"))
        other.until(lambda: other.whole("gone", PARTITIONS, BROKERS), "every ISR full", 120)
        load = Load(other, "gone")
        load.start()
        volumes = [claim["spec"]["volumeName"] for claim in other.items("pvc")]
        assert len(volumes) == BROKERS
        neighbour.fault("the other namespace is deleted", range(PARTITIONS))
        other.kubectl("delete", "namespace", other.namespace, "--wait=false")
        other.until(lambda: gone(other), "the namespace is gone", GONE_LIMIT_S)
        for volume in volumes:
            cluster.kubectl(
                "wait", "--for=delete", f"pv/{volume}", f"--timeout={60 * PATIENCE:.0f}s", limit_s=90 * PATIENCE
            )


def gone(cluster: Cluster) -> bool:
    found = cluster.kubectl("get", f"namespace/{cluster.namespace}", "--ignore-not-found", "--output=json")
    if not found:
        return True
    conditions = json.loads(found)["status"].get("conditions", [])
    remaining = [each["message"] for each in conditions if each["status"] == "True"]
    print(f"terminating: {remaining}" if remaining else "terminating")
    return False

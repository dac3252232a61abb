"""What users change in specs under load: it happens, and nothing is lost or doubled meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.cluster import PATIENCE
from tests.e2e.load import BROKERS, PARTITIONS, under_load

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.cluster import Cluster

pytestmark = pytest.mark.timeout(600 * PATIENCE)


def test_a_topic_gets_a_third_replica(cluster: Cluster, release: float, tmp_path: Path):
    with under_load(cluster, "third", tmp_path, replicas=BROKERS - 1) as load:
        load.fault("replicas: 2 to 3", range(PARTITIONS))
        cluster.patch("klt/third", {"spec": {"replicas": BROKERS}})
        load.replicas = BROKERS

"""Brokers and operators end under load: nothing is lost or doubled, and all come back into every ISR."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.cluster import OPERATOR_PODS, PATIENCE
from tests.e2e.load import under_load

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.cluster import Cluster
    from tests.e2e.harm import Killer

pytestmark = pytest.mark.timeout(600 * PATIENCE)
SERVED_LIMIT_S = 30
RETURN_LIMIT_S = 90
OPERATORS = 2


def test_a_broker_is_killed(cluster: Cluster, killer: Killer, tmp_path: Path):
    with under_load(cluster, "killed", tmp_path) as load:
        victim = load.victim()
        before = cluster.restarts(victim.pod)
        victim.about_to("SIGKILL")
        killer.signal("SIGKILL", victim.pod)
        victim.replaced(SERVED_LIMIT_S)
        victim.back(RETURN_LIMIT_S)
        load.whole()
        # The kubelet writes it a moment after the container was started.
        again = "the broker's container is started again"
        cluster.until(lambda: cluster.restarts(victim.pod) == before + 1, again, RETURN_LIMIT_S)
        state = cluster.get(f"pod/{victim.pod}")["status"]["containerStatuses"][0]["lastState"]
        assert state["terminated"]["exitCode"] == 137


def test_the_pod_of_a_broker_is_deleted(cluster: Cluster, release: float, tmp_path: Path):
    with under_load(cluster, "deleted", tmp_path) as load:
        victim = load.victim()
        uid = cluster.get(f"pod/{victim.pod}")["metadata"]["uid"]
        victim.about_to("deletion")
        cluster.kubectl("delete", f"pod/{victim.pod}", limit_s=120)
        victim.replaced(SERVED_LIMIT_S)
        victim.back(RETURN_LIMIT_S)
        load.whole()
        assert cluster.get(f"pod/{victim.pod}")["metadata"]["uid"] != uid


def test_the_operator_is_killed_in_the_moment_of_a_broker(cluster: Cluster, killer: Killer, tmp_path: Path):
    with under_load(cluster, "both-killed", tmp_path) as load:
        operator = cluster.acting_operator()
        victim, before = load.victim(), cluster.restarts(operator)
        victim.about_to("SIGKILL, with the operator,")
        killer.signal("SIGKILL", victim.pod, operator)
        victim.replaced(2 * SERVED_LIMIT_S)
        victim.back(RETURN_LIMIT_S)
        cluster.until(lambda: cluster.restarts(operator) == before + 1, "the operator is started again", RETURN_LIMIT_S)


def test_a_standby_acts_when_the_pod_of_the_operator_is_gone(cluster: Cluster, killer: Killer, tmp_path: Path):
    """One operator first: it is scaled to two under load, then the one that acts is removed without notice."""
    with under_load(cluster, "standby", tmp_path) as load:
        try:
            scale_operator(cluster, 1)
            first = cluster.acting_operator()
            scale_operator(cluster, OPERATORS)
            victim = load.victim()
            cluster.kubectl("delete", f"pod/{first}", "--grace-period=0", "--force", limit_s=60)
            victim.about_to("SIGKILL, the operator being gone,")
            killer.signal("SIGKILL", victim.pod)
            victim.replaced(2 * SERVED_LIMIT_S)
            assert cluster.acting_operator() != first
            victim.back(RETURN_LIMIT_S)
        finally:
            scale_operator(cluster, OPERATORS)


def scale_operator(cluster: Cluster, replicas: int) -> None:
    """Returns when so many are ready, and no more are there."""
    [deployment] = cluster.items("deployments", OPERATOR_PODS)
    name = f"deployment/{deployment['metadata']['name']}"
    cluster.kubectl("scale", name, f"--replicas={replicas}")
    cluster.kubectl("rollout", "status", name, f"--timeout={60 * PATIENCE:.0f}s", limit_s=60 * PATIENCE + 30)
    cluster.until(lambda: len(cluster.items("pods", OPERATOR_PODS)) == replicas, f"{replicas} operators", 60)

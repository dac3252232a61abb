"""A broker whose node is lost, or that is declared gone, gets a new volume under load: nothing is lost or doubled."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.e2e.cluster import PATIENCE, Cluster, registered
from tests.e2e.load import under_load

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.harm import Nodes
    from tests.e2e.load import Victim

pytestmark = pytest.mark.timeout(1200 * PATIENCE)
CLUSTER = "klc/kafkalite"
LOST_S = 10
"""The shortest time that spec.nodeLossSeconds takes. Kubernetes takes 40 to 50 s before to say that a node is not ready."""
MOVE_LIMIT_S = 60
REPLACE_LIMIT_S = 300


def claim_uid(cluster: Cluster, victim: Victim) -> str:
    """Of the claim that the broker has now; empty while there is none."""
    found = cluster.items("pvc", f"--field-selector=metadata.name=data-{victim.pod}")
    return str(found[0]["metadata"]["uid"]) if found else ""


def disk(cluster: Cluster, victim: Victim) -> str:
    """Id of the data directory that the broker is registered with."""
    registration = cluster.get(f"klb/{victim.pod}")["status"]["registration"]
    return str(registration["directoryId"])


def replaced(cluster: Cluster, victim: Victim, before: tuple[str, str]) -> None:
    """Wait until it is registered with another disk and in all its ISRs, and nobody has anything left to do."""

    def over() -> bool:
        status = cluster.get(CLUSTER)["status"]
        return "replacing" not in status and disk(cluster, victim) != before[1]

    took_s = cluster.until(over, f"broker {victim.broker} has a new volume and is in all ISRs", REPLACE_LIMIT_S)
    print(f"broker {victim.broker} replaced in {took_s:.1f} s")
    assert claim_uid(cluster, victim) != before[0]
    assert registered(cluster.get(f"klb/{victim.pod}")) > victim.epoch


def reasons(cluster: Cluster) -> set[str]:
    return {event["reason"] for event in cluster.items("events")}


def test_a_node_is_lost(cluster: Cluster, release: float, nodes: Nodes, tmp_path: Path):
    """The broker is rebuilt on another node while its own is off; that one comes back later and does no harm."""
    cluster.patch(CLUSTER, {"spec": {"nodeLoss": "replace", "nodeLossSeconds": LOST_S}})
    try:
        with under_load(cluster, "lost", tmp_path) as load:
            victim = load.victim()
            before = claim_uid(cluster, victim), disk(cluster, victim)
            victim.about_to("loss of the node")
            with nodes.stopped(victim.node):
                victim.replaced(MOVE_LIMIT_S)
                replaced(cluster, victim, before)
                assert cluster.node_of(victim.pod) != victim.node
                load.whole()
            assert disk(cluster, victim) != before[1]
        assert {"ReplacementStarted", "VolumeDeleted", "ReplacementDone"} <= reasons(
            cluster
        )  # copying may be too short to be told
    finally:
        cluster.patch(CLUSTER, {"spec": {"nodeLoss": "wait", "nodeLossSeconds": None}})


def test_a_broker_that_runs_is_declared_gone(cluster: Cluster, release: float, tmp_path: Path):
    """It hands its leaderships over before it goes. After the test above, this spreads the brokers over the nodes again."""
    with under_load(cluster, "declared", tmp_path) as load:
        victim = load.victim()
        before = claim_uid(cluster, victim), disk(cluster, victim)
        victim.about_to("replacement")
        cluster.kubectl("annotate", f"klb/{victim.pod}", "kafkalite.io/replace=true")
        victim.replaced(MOVE_LIMIT_S)
        replaced(cluster, victim, before)
        annotations = cluster.get(f"klb/{victim.pod}")["metadata"].get("annotations") or {}
        assert "kafkalite.io/replace" not in annotations, json.dumps(annotations)
    assert "ReplaceRequestDone" in reasons(cluster)

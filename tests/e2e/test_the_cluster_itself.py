"""What the tests expect of a cluster, and `make kind-up` promises: zones, names, volumes on the pod's node that grow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.cluster import PATIENCE, image

if TYPE_CHECKING:
    from tests.e2e.cluster import Cluster

pytestmark = pytest.mark.timeout(300 * PATIENCE)
WRITE = "open('/data/mark', 'w').write('kept'); import signal; signal.pause()"


@pytest.fixture(scope="module")
def claim(cluster: Cluster, release: float) -> str:
    """A claim with a pod that has written into its volume."""
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "writer"},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "securityContext": {"fsGroup": 10001},
                "containers": [{
                    "name": "writer",
                    "image": f"{image('kafkalite-e2e-client')}:0.1.0",
                    "command": ["python3", "-c", WRITE],
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
            },
        },
    )  # fmt: skip
    cluster.wait("condition=Ready", "pod/writer", limit_s=60)
    return "pvc/data"


def test_three_nodes_in_three_zones_take_pods(cluster: Cluster):
    nodes = cluster.get("nodes")["items"]
    workers = [node for node in nodes if not node["spec"].get("taints")]
    assert len(workers) >= 3
    assert len({node["metadata"]["labels"].get("topology.kubernetes.io/zone") for node in workers}) >= 3


def test_a_volume_is_on_the_node_of_its_pod(cluster: Cluster, claim: str):
    node = cluster.get("pod/writer")["spec"]["nodeName"]
    volume = cluster.get(f"pv/{cluster.get(claim)['spec']['volumeName']}")
    [term] = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert [expression["values"] for expression in term["matchExpressions"]] == [[node]]


def test_a_volume_grows_under_a_pod(cluster: Cluster, claim: str):
    cluster.kubectl("patch", claim, "--patch", '{"spec": {"resources": {"requests": {"storage": "3Gi"}}}}')
    cluster.wait("jsonpath={.status.capacity.storage}=3Gi", claim, limit_s=30)
    volume = cluster.get(f"pv/{cluster.get(claim)['spec']['volumeName']}")
    assert volume["spec"]["capacity"]["storage"] == "3Gi"
    assert cluster.kubectl("exec", "writer", "--", "python3", "-c", "print(open('/data/mark').read())") == "kept\n"


def test_a_claim_that_is_gone_takes_its_volume_along(cluster: Cluster, claim: str):
    volume = cluster.get(claim)["spec"]["volumeName"]
    cluster.kubectl("delete", "pod/writer", claim)
    cluster.kubectl(
        "wait", "--for=delete", f"pv/{volume}", f"--timeout={30 * PATIENCE:.0f}s", limit_s=30 * PATIENCE + 30
    )

"""What the images of operator and brokers have, and have not: asked of the containers that run."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from tests.e2e.cluster import OPERATOR_PODS, PATIENCE, REGISTRY

if TYPE_CHECKING:
    from tests.e2e.cluster import Cluster

pytestmark = pytest.mark.timeout(300 * PATIENCE)
COMPILERS = ("gcc", "cc", "c++", "clang", "ld", "make", "rustc", "cargo", "go")
INSTALLERS = ("pip", "pip3", "apt-get")
# Every folder with programs, whatever PATH says, and the modules of every Python that there is.
PROBE = """
import glob, json, sys
places = ["/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/opt/kafkalite/bin"]
patterns = [f"{place}/{name}" for place in places for name in [*sys.argv[1:], "*-gcc*"]]
patterns += [f"{root}/python3*/*-packages/pip" for root in ("/usr/lib", "/usr/local/lib", "/opt/kafkalite/lib")]
print(json.dumps([path for pattern in patterns for path in glob.glob(pattern)]))
"""


@pytest.fixture(scope="module")
def pods(cluster: Cluster, release: float) -> list[str]:
    """One of each image: the client's stands for the base alone."""
    operator = cluster.items("pods", OPERATOR_PODS)[0]["metadata"]["name"]
    cluster.apply({"apiVersion": "kafkalite.io/v1alpha1", "kind": "KafkaLiteTopic", "metadata": {"name": "first"},
                   "spec": {"partitions": 3, "replicas": 3, "config": {"min.insync.replicas": "2"}}})  # fmt: skip
    cluster.wait("condition=Ready", "klt/first", limit_s=180)
    return [operator, "kafkalite-broker-0"]


def test_our_images_have_neither_compiler_nor_pip(cluster: Cluster, pods: list[str]):
    if REGISTRY or os.environ.get("BASE_IMAGE") or os.geteuid() != 0:
        pytest.skip("their base is somebody else's, such as python:3.13-slim, which has pip")
    found = {
        pod: json.loads(cluster.kubectl("exec", pod, "--", "python3", "-c", PROBE, *COMPILERS, *INSTALLERS))
        for pod in pods
    }
    assert found == {pod: [] for pod in pods}


def test_what_we_add_has_neither_whatever_the_base(cluster: Cluster, pods: list[str]):
    for pod in pods:
        found = json.loads(cluster.kubectl("exec", pod, "--", "python3", "-c", PROBE, *COMPILERS, *INSTALLERS))
        assert [path for path in found if path.startswith("/opt/kafkalite")] == []

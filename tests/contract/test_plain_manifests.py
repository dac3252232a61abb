"""`kubectl apply --server-side -k helm/manifests` on a real server: it takes every object, and its admission the pods.

That these are the chart's objects is tests/helm/test_written_files.py's matter.
"""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from kafkalite_core.resources.manifests import cluster_settings, infrastructure
from tests.contract.conftest import ROOT, cluster
from tests.contract.test_kubectl import Kubectl, kubectl_binary, manifest

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["kubectl_binary"]
NAMESPACE = "kafkalite"
MANIFESTS = ROOT / "helm" / "manifests"


@pytest.fixture
def kubectl(real: None, kubectl_binary: Path, kubeconfig: Path, tmp_path: Path):
    tool = Kubectl(kubectl_binary, kubeconfig, NAMESPACE, tmp_path)
    yield tool
    tool.run("delete", "namespace", NAMESPACE, quiet=False)
    tool.run("delete", "--ignore-not-found", "-k", str(MANIFESTS / "nodes"), quiet=False)


def apply(kubectl: Kubectl, folder: Path) -> str:
    """Without a warning: the namespace asks for one for every template of a pod that it would not take."""
    return kubectl.run("apply", "--server-side", "-k", str(folder))


def pod_of(workload: dict[str, Any], name: str) -> dict[str, Any]:
    template = copy.deepcopy(workload["spec"]["template"])
    return {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {**template["metadata"], "name": name}}


def admitted(kubectl: Kubectl, pod: dict[str, Any]) -> str:
    return kubectl.run("create", "--dry-run=server", "--output=name", "-f", "-", stdin=json.dumps(pod))


def test_the_server_takes_the_plain_manifests_and_their_pods(kubectl: Kubectl):
    made = apply(kubectl, MANIFESTS).splitlines()
    described = [each for file in ("namespace.yaml", "operator.yaml") for each in documents(MANIFESTS / file)]
    definitions = list((ROOT / "crds").glob("*.yaml"))
    assert len(made) == len(described) + len(definitions)
    assert all(line.endswith(" serverside-applied") for line in made)
    assert "serverside-applied" in apply(kubectl, MANIFESTS / "nodes")

    def versions() -> list[str]:
        listed = json.loads(kubectl.run("get", "-k", str(MANIFESTS), "-o", "json"))
        return [each["metadata"]["resourceVersion"] for each in listed["items"]]

    before = versions()
    apply(kubectl, MANIFESTS)
    assert versions() == before, "again there is nothing to do"

    [deployment] = [each for each in described if each["kind"] == "Deployment"]
    operator = pod_of(deployment, "operator")
    assert admitted(kubectl, operator) == "pod/operator\n"
    operator["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    refused = kubectl.run("create", "--dry-run=server", "-f", "-", stdin=json.dumps(operator), fails=True)
    assert 'violates PodSecurity "restricted' in refused, "somebody looks"


def test_the_namespace_takes_the_brokers(kubectl: Kubectl):
    apply(kubectl, MANIFESTS)
    kubectl.run("apply", "-f", "-", stdin=manifest(cluster("c", rack={"topologyKey": "zone"})))
    owner = json.loads(kubectl.run("get", "klc", "c", "-o", "json"))
    made = infrastructure(cluster_settings(owner), range(3))
    kubectl.run("apply", "--server-side", "-f", "-", stdin=manifest(*made))
    [stateful_set] = [each for each in made if each["kind"] == "StatefulSet"]
    pod = pod_of(stateful_set, "c-broker-0")
    for claim in stateful_set["spec"]["volumeClaimTemplates"]:  # as the StatefulSet's controller adds them
        name = claim["metadata"]["name"]
        pod["spec"]["volumes"].append({"name": name, "persistentVolumeClaim": {"claimName": f"{name}-c-broker-0"}})
    assert admitted(kubectl, pod) == "pod/c-broker-0\n"


def documents(file: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(file.read_text()))

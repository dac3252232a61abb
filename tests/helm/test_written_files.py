"""What `make chart` writes is up to date, and the plain manifests are the chart."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest
import yaml

from kafkalite_core.resources.manifests import DEFAULT_SERVICE_ACCOUNT
from tests.helm.cases import CASES
from tests.helm.conftest import API, CHART, ROOT, Helm, built
from tests.helm.schemas import problems
from tests.unit.kube_calls import granted
from tools.chart import MANIFESTS, definitions, manifests, without_helm
from tools.chart.schema import definition

if TYPE_CHECKING:
    from pathlib import Path


def test_every_written_file_is_up_to_date(helm: Helm):
    different = [path for path, text in (without_helm() | manifests()).items() if path.read_text() != text]
    assert [str(path.relative_to(ROOT)) for path in different] == [], "run make chart"


def test_the_chart_has_the_definitions_and_nothing_else():
    names = {path.name for path in (CHART / "files/crds").iterdir()}
    assert names == {path.name for path in definitions()} | {"kustomization.yaml"}
    kustomization = yaml.safe_load((CHART / "files/crds/kustomization.yaml").read_text())
    assert set(kustomization["resources"]) == {path.name for path in definitions()}


def test_the_rendered_definitions_are_those_of_the_repository(helm: Helm):
    rendered = {doc["metadata"]["name"]: doc for doc in helm.template() if doc["kind"] == "CustomResourceDefinition"}
    assert rendered == {
        doc["metadata"]["name"]: doc for path in definitions() for doc in [yaml.safe_load(path.read_text())]
    }


def test_a_keyword_that_cannot_be_converted_is_an_error():
    with pytest.raises(ValueError, match="does not know how to convert"):
        definition({"type": "object", "dependencies": {}})


def test_what_may_be_null_and_what_is_open_stay_so():
    texts = {"type": "object", "nullable": True, "additionalProperties": {"type": "string"}}
    open_ = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"labels": texts}}
    assert definition(open_) == {
        "type": "object",
        "properties": {"labels": {"type": ["object", "null"], "additionalProperties": {"type": "string"}}},
    }


@pytest.fixture(scope="module")
def kubectl() -> str:
    return str(built("kubectl/build.sh"))


def kustomize(kubectl: str, folder: object) -> list[dict]:
    done = subprocess.run([kubectl, "kustomize", str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def without(doc: dict, *labels: str) -> dict:
    for metadata in (doc["metadata"], doc["spec"]["template"]["metadata"] if doc["kind"] == "Deployment" else {}):
        for label in labels:
            metadata.get("labels", {}).pop(label, None)
    return doc


def test_the_plain_manifests_are_the_chart(helm: Helm, kubectl: str):
    plain = {(doc["kind"], doc["metadata"]["name"]): doc for doc in kustomize(kubectl, MANIFESTS)}
    namespace = plain.pop(("Namespace", "kafkalite"))
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    text = helm.run("template", "kafkalite", str(CHART), "--namespace=kafkalite", "--skip-tests")
    rendered = [
        without(doc, "helm.sh/chart", "app.kubernetes.io/managed-by") for doc in yaml.safe_load_all(text) if doc
    ]
    assert plain == {(doc["kind"], doc["metadata"]["name"]): doc for doc in rendered}
    assert [problem for doc in [*plain.values(), namespace] for problem in problems(doc)] == []


def overlaid(kubectl: str, name: str, overlay: dict) -> list[dict]:
    """What an overlay over helm/manifests makes. kustomize takes no absolute paths."""
    folder = ROOT / ".cache" / f"overlay-{name}"
    folder.mkdir()
    try:
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
        return kustomize(kubectl, folder)
    finally:
        (folder / "kustomization.yaml").unlink(missing_ok=True)
        folder.rmdir()


def test_an_overlay_moves_everything_to_another_namespace(kubectl: str, tmp_path: Path):
    overlay = {
        "resources": ["../../helm/manifests"],
        "namespace": "mine",
        "images": [{"name": "kafkalite-operator", "newName": "registry.example/kafkalite-operator", "newTag": "1"}],
        "replicas": [{"name": "kafkalite-operator", "count": 3}],
    }
    documents = overlaid(kubectl, tmp_path.name, overlay)
    assert {doc["metadata"]["namespace"] for doc in documents if "namespace" in doc["metadata"]} == {"mine"}
    assert [doc["metadata"]["name"] for doc in documents if doc["kind"] == "Namespace"] == ["mine"]
    subjects = [subject for doc in documents if doc["kind"] == "RoleBinding" for subject in doc["subjects"]]
    assert subjects
    assert {subject["namespace"] for subject in subjects} == {"mine"}
    [deployment] = [doc for doc in documents if doc["kind"] == "Deployment"]
    assert deployment["spec"]["replicas"] == 3
    assert "kafkalite" not in [
        entry.get("value") for entry in deployment["spec"]["template"]["spec"]["containers"][0]["env"]
    ]
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "registry.example/kafkalite-operator:1"


def test_the_manifests_of_nodes_are_for_the_clusters_that_the_values_name():
    [values] = re.findall(r"((?:  # .*\n)+)  readNodes:", (CHART / "values.yaml").read_text())
    [manifests_] = re.findall(r"\A((?:# .*\n)+)", (MANIFESTS / "nodes" / "kustomization.yaml").read_text())
    named = set(re.findall(r"spec\.\w+|preferred\w+", values))
    assert {"spec.rack", "spec.nodeLoss", "preferredNodePortAddressType"} == named
    assert set(re.findall(r"spec\.\w+|preferred\w+", manifests_)) == named


def test_an_overlay_of_both_folders_lets_the_operator_there_read_nodes(kubectl: str, tmp_path: Path):
    """As docs/helm.md shows it."""
    page = (ROOT / "docs" / "helm.md").read_text()
    [shown] = [block for block in re.findall(r"```\n(resources:.*?)```", page, re.DOTALL) if "manifests/nodes" in block]
    overlay = yaml.safe_load(shown.replace("../kafkalite/", "../../"))
    documents = overlaid(kubectl, tmp_path.name, overlay)
    bindings = [
        doc for doc in documents if doc["kind"].endswith("Binding") and doc["metadata"]["name"].endswith("-nodes")
    ]
    assert sorted(doc["kind"] for doc in bindings) == ["ClusterRoleBinding", "RoleBinding"]
    accounts = {
        (doc["metadata"]["namespace"], doc["metadata"]["name"]) for doc in documents if doc["kind"] == "ServiceAccount"
    }
    for binding in bindings:
        [subject] = binding["subjects"]
        assert (subject["namespace"], subject["name"]) == ("mine", "kafkalite-operator")
        assert (subject["namespace"], subject["name"]) in accounts
        known = {(doc["kind"], doc["metadata"].get("namespace"), doc["metadata"]["name"]) for doc in documents}
        role = binding["roleRef"]
        assert (role["kind"], binding["metadata"].get("namespace"), role["name"]) in known


# --- the Roles of every set of values --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_the_roles_are_those_that_the_unit_tests_compare_with_the_code(helm: Helm, name: str):
    """tests/unit/operator and tests/unit/broker_cluster look at helm/manifests; other values change nothing but this."""
    plain = list(yaml.safe_load_all((MANIFESTS / "operator.yaml").read_text()))
    operator, lease, broker = (
        granted(role)
        for wanted in ("kafkalite-operator", "kafkalite-operator-lease", DEFAULT_SERVICE_ACCOUNT)
        for role in plain
        if role["kind"] == "Role" and role["metadata"]["name"] == wanted
    )
    besides = yaml.safe_load_all((MANIFESTS / "nodes" / "rbac.yaml").read_text())
    nodes = {doc["kind"]: granted(doc) for doc in besides if doc["kind"] in {"Role", "ClusterRole"}}
    if not CASES[name].get("defaultCluster", {}).get("enabled", True):
        operator -= {("kafkalite.io", "kafkaliteclusters", "create")}
    given: dict[str | None, set] = {}
    for role in helm.template(CASES[name], API):
        if (
            role["kind"] not in {"Role", "ClusterRole"}
            or role["metadata"]["labels"]["app.kubernetes.io/component"] == "user"
        ):
            continue
        component = role["metadata"]["labels"]["app.kubernetes.io/component"]
        if role["metadata"]["name"].endswith("-nodes"):
            assert granted(role) == nodes[role["kind"]]
        elif role["metadata"]["name"].endswith("-lease"):
            assert granted(role) == lease
        elif component == "broker":
            assert granted(role) == broker
            given.setdefault(role["metadata"]["namespace"], set())
        else:
            given.setdefault(role["metadata"].get("namespace"), set()).update(granted(role))
    everywhere = given.pop(None, set())
    watched = [namespace for namespace in CASES[name].get("watchNamespaces", []) if namespace in given]
    run = CASES[name].get("brokers", {}).get("namespaces") or watched or list(given)
    for namespace, permitted in given.items():
        if namespace in run:
            assert permitted | everywhere == operator, namespace
        else:
            assert permitted < operator, namespace

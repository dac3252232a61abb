"""What the chart renders, with every set of values, is what Kubernetes takes and what it recommends."""

from __future__ import annotations

import copy
import json
import re
from collections import Counter

import pytest

from kafkalite_core.resources.manifests import cluster_settings
from kafkalite_core.resources.statefulset import stateful_set
from kafkalite_operator.settings import OperatorSettings
from tests.helm.cases import CASES
from tests.helm.conftest import API, CHART, ROOT, Helm, load, only, pod_template
from tests.helm.schemas import problems

CLUSTER_SCOPED = {
    "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding",
    "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
}  # fmt: skip
LABELS = {f"app.kubernetes.io/{name}" for name in ("name", "instance", "version", "component", "part-of", "managed-by")}


@pytest.fixture(scope="module", params=CASES, ids=str)
def documents(request: pytest.FixtureRequest, helm: Helm) -> list[dict]:
    """All documents of one set of values, those of `helm test` included."""
    text = helm.run("template", "release", str(CHART), "--namespace=kafka", API, values=CASES[request.param])
    return load(text)


@pytest.mark.parametrize("name", CASES)
def test_lint_has_nothing_to_say(helm: Helm, name: str):
    said = helm.run(
        "lint",
        "--strict",
        "--quiet",
        str(CHART),
        "--namespace=kafka",
        "--kube-version=1.34",
        values=values_to_lint(name),
    )
    assert not re.search(r"\[(WARNING|ERROR)\]", said), said


def values_to_lint(name: str) -> dict:
    """lint cannot be told of custom resource definitions, and what needs them is refused without."""
    return {key: value for key, value in CASES[name].items() if key not in ("cluster", "topics")}


def test_every_object_fits_its_schema(documents: list[dict]):
    assert {f"{doc['kind']} {doc['metadata']['name']}": found for doc in documents if (found := problems(doc))} == {}


def test_the_check_of_schemas_finds_mistakes(helm: Helm):
    deployment = only(helm.template(), "Deployment")
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    container["imagePullPolice"] = "Always"
    container["ports"][0]["containerPort"] = "9404"
    del deployment["spec"]["selector"]
    found = "\n".join(problems(deployment))
    assert "imagePullPolice" in found
    assert "'9404' is not of type 'integer'" in found
    assert "'selector' is a required property" in found
    cluster = {"apiVersion": "kafkalite.io/v1alpha1", "kind": "KafkaLiteCluster", "spec": {"replica": 1}}
    assert "replica" in "\n".join(problems(cluster))


def test_every_object_is_in_a_namespace_and_there_once(documents: list[dict]):
    for doc in documents:
        assert ("namespace" in doc["metadata"]) != (doc["kind"] in CLUSTER_SCOPED), doc["metadata"]["name"]
    keys = Counter((doc["kind"], doc["metadata"].get("namespace"), doc["metadata"]["name"]) for doc in documents)
    assert [key for key, count in keys.items() if count > 1] == []


def test_every_object_has_the_recommended_labels(documents: list[dict]):
    templates = [doc["spec"]["template"] for doc in documents if doc["kind"] == "Deployment"]
    for doc in [*documents, *templates]:
        if doc.get("kind") == "CustomResourceDefinition":  # shared by all releases
            continue
        labels = doc["metadata"]["labels"]
        assert labels.keys() >= LABELS | {"helm.sh/chart"}
        assert labels["app.kubernetes.io/name"] == "kafkalite"
        assert labels["app.kubernetes.io/instance"] == "release"


def pods(documents: list[dict]) -> dict[str, dict]:
    """Every pod that comes of the chart: the operator's, that of `helm test`, and the brokers' of its clusters."""
    found = {"operator": pod_template(documents)}
    for pod in [doc for doc in documents if doc["kind"] == "Pod"]:
        found["test"] = pod
    environment = {entry["name"]: entry.get("value") for entry in found["operator"]["spec"]["containers"][0]["env"]}
    specs = {doc["metadata"]["name"]: doc["spec"] for doc in documents if doc["kind"] == "KafkaLiteCluster"}
    if default := environment.get("KAFKALITE_DEFAULT_CLUSTER"):
        specs["default"] = json.loads(default)
    for name, spec in specs.items():
        cluster = {"metadata": {"name": name, "namespace": "kafka", "uid": "uid", "resourceVersion": "1"}, "spec": spec}
        settings = cluster_settings(cluster, default_image=environment["KAFKALITE_BROKER_IMAGE"] or "")
        found[f"brokers of {name}"] = stateful_set(settings, 1)["spec"]["template"]
    return found


def restricted(pod: dict) -> list[str]:
    """What the restricted Pod Security Standard has against a pod (version 1.34 of the standard)."""
    spec = pod["spec"]
    found = [name for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]
    allowed = {
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
    found += [volume["name"] for volume in spec.get("volumes", []) if not volume.keys() & allowed]
    for container in [*spec["containers"], *spec.get("initContainers", []), *spec.get("ephemeralContainers", [])]:
        outer, inner = spec.get("securityContext", {}), container.get("securityContext", {})
        context = {**outer, **inner}
        wanted = {
            "runAsNonRoot": context.get("runAsNonRoot") is True,
            "runAsUser": context.get("runAsUser") != 0,
            "seccompProfile": context.get("seccompProfile", {}).get("type") in {"RuntimeDefault", "Localhost"},
            "allowPrivilegeEscalation": inner.get("allowPrivilegeEscalation") is False,
            "privileged": not inner.get("privileged"),
            "capabilities": inner.get("capabilities", {}).get("drop") == ["ALL"] and "add" not in inner["capabilities"],
            "procMount": inner.get("procMount", "Default") == "Default",
            "hostPort": not any(port.get("hostPort") for port in container.get("ports", [])),
            "hostProcess": not context.get("windowsOptions", {}).get("hostProcess"),
        }
        found += [f"{container['name']}: {name}" for name, fine in wanted.items() if not fine]
        found += [f"{container['name']}: {name}" for name in ("sysctls", "seLinuxOptions") if context.get(name)]
    return found


def test_every_pod_meets_the_restricted_standard_and_more(documents: list[dict]):
    for name, pod in pods(documents).items():
        assert restricted(pod) == [], name
        for container in pod["spec"]["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True, name


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("securityContext", {}),
        ("securityContext", {"runAsNonRoot": True}),
        ("hostNetwork", True),
        ("volumes", [{"name": "v", "hostPath": {"path": "/"}}]),
        ("container", {"allowPrivilegeEscalation": False}),
        ("container", {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]}}),
        ("container", {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsUser": 0}),
    ],
)
def test_the_check_of_the_standard_finds_what_it_forbids(helm: Helm, where: str, value: object):
    pod = copy.deepcopy(pod_template(helm.template()))
    assert restricted(pod) == []
    if where == "container":
        pod["spec"]["containers"][0]["securityContext"] = value
    else:
        pod["spec"][where] = value
    assert restricted(pod) != []


def test_every_container_has_resources_and_probes(documents: list[dict]):
    for name, pod in pods(documents).items():
        if name in {"brokers of main", "test"}:
            continue  # `main` is made without; a test ends by itself and is asked nothing
        [container] = pod["spec"]["containers"]
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys(), name
        assert "memory" in container["resources"]["limits"], name
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert "httpGet" in container[probe], (name, probe)
        assert container["livenessProbe"]["httpGet"]["path"] == "/healthz", "liveness never depends on the API server"


def test_no_image_moves(documents: list[dict]):
    for name, pod in pods(documents).items():
        for container in pod["spec"]["containers"]:
            image = container["image"]
            assert re.fullmatch(r"[^@]+@sha256:[0-9a-f]{64}|.+:[^:/]+", image), (name, image)
            assert not image.endswith(":latest"), (name, image)


def test_the_operator_takes_the_environment_that_it_is_given(documents: list[dict]):
    environment = {}
    for entry in pod_template(documents)["spec"]["containers"][0]["env"]:
        assert entry["name"] not in environment, "given twice"
        path = entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        environment[entry["name"]] = entry.get("value", str(path).replace(".", "-"))
    settings = OperatorSettings.from_environment(environment)
    assert settings.namespace == "metadata-namespace"
    assert settings.instance == "metadata-name_metadata-uid"
    assert settings.default_image.partition(":")[0].endswith("kafkalite-broker") or "@sha256" in settings.default_image
    if settings.default_cluster is not None:
        made = {"apiVersion": "kafkalite.io/v1alpha1", "kind": "KafkaLiteCluster", "spec": settings.default_cluster}
        assert problems(made) == []


def test_the_operator_reads_every_variable_that_the_chart_sets():
    """A misspelt one would be set in vain."""
    text = (CHART / "templates/operator-deployment.yaml").read_text()
    modules = ("operator/kafkalite_operator/settings.py", "runtime/kafkalite_runtime/logging.py")
    source = "".join((ROOT / module).read_text() for module in modules)
    names = set(re.findall(r"- name: ((?:KAFKALITE|POD)_[A-Z_]+)", text))
    assert len(names) >= 8
    assert [name for name in sorted(names) if f'"{name}"' not in source] == []

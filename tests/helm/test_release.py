"""The life of a release on a real API server: install, upgrade, rollback, uninstall, install again.

The server is one of our own (tests/cluster); KAFKALITE_HELM_KUBECONFIG names another, which must not hold a release.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.cluster.control_plane import control_plane
from tests.helm.cases import CASES
from tests.helm.conftest import CHART, Helm, built
from tests.helm.schemas import problems

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMED = os.environ.get("KAFKALITE_HELM_KUBECONFIG", "")
VALUES: dict[str, Any] = {"networkPolicy": {"enabled": True}}
CRD = "customresourcedefinitions"
ADMISSION = "validatingadmissionpolicies,validatingadmissionpolicybindings"
KEPT = {f"{kind}.kafkalite.io" for kind in ("kafkalitetopics", "kafkaliteclusters", "kafkalitebrokers")}


@dataclass
class Server:
    helm: Helm
    kubectl: str
    kubeconfig: Path
    namespace: str = ""

    def run(self, *arguments: str, values: Any = None, fails: bool = False) -> str:
        return self.helm.run(
            *arguments, f"--namespace={self.namespace}", values=values, fails=fails, kubeconfig=self.kubeconfig
        )

    def install(
        self, *arguments: str, name: str = "kl", chart: Path = CHART, values: Any = VALUES, fails: bool = False
    ) -> str:
        return self.run("install", name, str(chart), "--create-namespace", *arguments, values=values, fails=fails)

    def objects(self, kind: str) -> dict[str, Any]:
        """All objects of a kind by name."""
        command = [
            self.kubectl,
            f"--kubeconfig={self.kubeconfig}",
            "get",
            kind,
            f"--namespace={self.namespace}",
            "--output=json",
        ]
        home = os.environ | {"HOME": str(self.helm.home)}
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=home)
        return {item["metadata"]["name"]: item for item in json.loads(done.stdout)["items"]}

    def kubectl_run(self, *arguments: str, stdin: Any = None) -> str:
        """Standard output of kubectl; `stdin` goes there as JSON."""
        done = self._kubectl(*arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def kubectl_said(self, *arguments: str, stdin: Any = None) -> str:
        """All that kubectl said, whether it succeeded or not."""
        done = self._kubectl(*arguments, stdin=stdin)
        return done.stdout + done.stderr

    def _kubectl(self, *arguments: str, stdin: Any) -> subprocess.CompletedProcess[str]:
        command = [self.kubectl, f"--kubeconfig={self.kubeconfig}", f"--namespace={self.namespace}", *arguments]
        home = os.environ | {"HOME": str(self.helm.home)}
        text = json.dumps(stdin) if stdin is not None else ""
        return subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=60, env=home)

    def make(self, kind: str, name: str, **spec: Any) -> None:
        """A custom resource, as the operator, kubectl or a Kafka client makes one."""
        metadata = {"name": name, "namespace": self.namespace}
        body = {"apiVersion": "kafkalite.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}
        self.kubectl_run("apply", "-f", "-", stdin=body)

    def spec(self, kind: str, name: str) -> dict[str, Any]:
        return self.objects(kind)[name]["spec"]

    def clear(self) -> None:
        """No release and no definitions any more. The namespace stays: its end takes a controller manager."""
        for name in re.findall(r"^(\S+)", self.run("list", "--all", "--no-headers"), re.MULTILINE):
            self.run("uninstall", name)
        self.kubectl_run("delete", ADMISSION, "--all")
        command = [self.kubectl, f"--kubeconfig={self.kubeconfig}", "delete", CRD, *sorted(KEPT), "--ignore-not-found"]
        try:
            subprocess.run(command, capture_output=True, check=True, timeout=60)
        except subprocess.TimeoutExpired:  # kubectl has been seen waiting for ever for what was gone
            subprocess.run(command, capture_output=True, check=True, timeout=60)


@pytest.fixture(scope="module")
def running(helm: Helm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    kubectl = str(built("kubectl/build.sh"))
    if NAMED:
        yield Server(helm, kubectl, Path(NAMED))
        return
    with control_plane(tmp_path_factory.mktemp("helm") / "control-plane") as plane:
        yield Server(helm, kubectl, plane.kubeconfig)


@pytest.fixture
def server(running: Server) -> Iterator[Server]:
    """A namespace of its own, and no definitions."""
    mine = replace(running, namespace=f"kafka-{uuid.uuid4().hex[:8]}")
    mine.clear()
    yield mine
    mine.clear()


def next_version(folder: Path) -> Path:
    """The chart as a later version of it could be: one more column, one more replica."""
    chart = folder / "kafkalite"
    shutil.copytree(CHART, chart)
    path = chart / "files/crds/kafkalitetopics.yaml"
    crd = yaml.safe_load(path.read_text())
    column = {"name": "Later", "type": "string", "jsonPath": ".status.topicId"}
    crd["spec"]["versions"][0]["additionalPrinterColumns"].append(column)
    path.write_text(yaml.safe_dump(crd))
    for name, old, new in [
        ("Chart.yaml", "ersion: 0.1.0", "ersion: 0.2.0"),
        ("values.yaml", "replicas: 2", "replicas: 3"),
    ]:
        text = (chart / name).read_text()
        assert old in text
        (chart / name).write_text(text.replace(old, new))
    return chart


def columns(server: Server) -> list[str]:
    [version] = server.objects(CRD)["kafkalitetopics.kafkalite.io"]["spec"]["versions"]
    return [column["name"] for column in version["additionalPrinterColumns"]]


def test_install_upgrade_rollback_uninstall(server: Server, tmp_path: Path):
    notes = server.install()
    assert f"kubectl rollout status -n {server.namespace} deployment/kl-kafkalite-operator" in notes
    assert server.objects(CRD).keys() >= KEPT
    before = server.objects("deployments")["kl-kafkalite-operator"]
    assert before["spec"]["replicas"] == 2
    assert "Later" not in columns(server)

    server.run("upgrade", "kl", str(next_version(tmp_path)), values=VALUES)
    after = server.objects("deployments")["kl-kafkalite-operator"]
    assert (after["metadata"]["uid"], after["spec"]["replicas"]) == (before["metadata"]["uid"], 3)
    assert after["spec"]["selector"] == before["spec"]["selector"]
    assert after["spec"]["template"]["spec"]["containers"][0]["image"] == "kafkalite-operator:0.2.0"
    assert "Later" in columns(server), "definitions are upgraded with the chart"

    server.run("rollback", "kl", "1")
    assert server.objects("deployments")["kl-kafkalite-operator"]["spec"] == before["spec"]
    assert "Later" not in columns(server)

    said = server.run("uninstall", "kl")
    assert all(name in said for name in KEPT), "helm says what it keeps"
    assert server.objects("deployments") == {}
    assert server.objects(CRD).keys() >= KEPT
    assert server.objects("serviceaccounts").keys() - {"default"} == {"kafkalite-broker"}
    assert server.objects("networkpolicies").keys() == {"kl-kafkalite-broker"}, "brokers go on, closed as before"


def test_clusters_and_topics_come_with_an_upgrade_and_stay(server: Server):
    wanted = {**VALUES, "cluster": {"create": True, "name": "main"}, "topics": {"orders": {"partitions": 6}}}
    said = server.install(values=wanted, fails=True)
    assert "install the chart without them first, then run helm upgrade with them" in said
    assert server.objects("deployments") == {}, "it is refused before anything is made"

    server.install()
    assert f"kubectl get -n {server.namespace} klt" in server.run("upgrade", "kl", str(CHART), values=wanted)
    [topic] = server.objects("kafkalitetopics").values()
    assert (topic["metadata"]["name"], topic["spec"]["clusterRef"]) == ("orders", {"name": "main"})
    made = {kind: server.objects(kind) for kind in ("kafkaliteclusters", "kafkalitetopics")}

    server.run("upgrade", "kl", str(CHART), values=VALUES)
    assert {kind: server.objects(kind) for kind in made} == made, "what is taken out of the values stays"
    server.run("upgrade", "kl", str(CHART), values=wanted)
    server.run("uninstall", "kl")
    left = {kind: server.objects(kind) for kind in made}
    assert {kind: [obj["metadata"]["uid"] for obj in objects.values()] for kind, objects in left.items()} == {
        kind: [obj["metadata"]["uid"] for obj in objects.values()] for kind, objects in made.items()
    }


def test_a_release_takes_up_what_it_left(server: Server):
    server.install()
    [account] = [obj for name, obj in server.objects("serviceaccounts").items() if name == "kafkalite-broker"]
    server.run("uninstall", "kl")
    server.install()
    assert server.objects("serviceaccounts")["kafkalite-broker"]["metadata"]["uid"] == account["metadata"]["uid"], (
        "tokens of brokers that run are still good"
    )


def test_another_release_has_to_ask_for_it(server: Server):
    server.install()
    server.run("uninstall", "kl")
    assert "exists and cannot be imported into the current release" in server.install(name="other", fails=True)
    server.install("--take-ownership", name="other")
    assert server.objects("deployments").keys() == {"other-kafkalite-operator"}


def test_whether_the_chart_makes_the_cluster_matters_to_no_topic(server: Server):
    topics = {"a": {"partitions": 1}}
    server.install()
    for create in (False, True, False):
        values = {"topics": topics, "cluster": {"create": create}}
        server.run("upgrade", "kl", str(CHART), values=values)
        assert "clusterRef" not in server.spec("kafkalitetopics", "a")

    topics |= {"b": {"partitions": 1}}
    for create in (True, False):
        values = {"topics": topics, "cluster": {"create": create, "name": "main"}}
        server.run("upgrade", "kl", str(CHART), values=values)
        assert "clusterRef" not in server.spec("kafkalitetopics", "a"), "it stays where its records are"
        assert server.spec("kafkalitetopics", "b")["clusterRef"] == {"name": "main"}


def test_an_install_passes_over_nothing_that_the_values_say(server: Server):
    """helm would say that all is well and leave what it takes up as it is."""
    plain = {"name": "plain", "type": "internal", "port": 9092}
    listeners = [plain, {"name": "nodes", "type": "nodeport", "port": 9094, "configuration": {}}]
    values = {
        "cluster": {"create": True, "spec": {"replicas": 3, "listeners": []}},
        "topics": {"a": {"partitions": 2, "config": {"retention.ms": "1"}}},
    }
    server.install()
    server.run("upgrade", "kl", str(CHART), values=values)
    server.run("uninstall", "kl")
    server.install(values=values)
    server.run("uninstall", "kl")

    changed = {
        "cluster": {"create": True, "spec": {"replicas": 5, "listeners": listeners}},
        "topics": {"a": {"partitions": 4, "config": {"retention.ms": "1", "segment.ms": "2"}}},
    }
    said = server.install(values=changed, fails=True)
    assert "clusters or topics of an earlier release are there" in said
    for line in (
        "klc/kafkalite spec.replicas: 5 in the values, 3 there",
        'klc/kafkalite spec.listeners: [{"name":"plain"',
        "klt/a spec.partitions: 4 in the values, 2 there",
        'klt/a spec.config.segment.ms: "2" in the values, nothing there',
    ):
        assert line in said
    assert "retention.ms" not in said
    assert server.objects("deployments") == {}, "it is refused before anything is made"

    for what, spec in (("klc/kafkalite", changed["cluster"]["spec"]), ("klt/a", changed["topics"]["a"])):
        server.kubectl_run("patch", what, "--type=merge", f"--patch={json.dumps({'spec': spec})}")
    server.install(values=changed)


def test_what_somebody_else_has_made_can_be_taken_up(server: Server):
    """The first topic brings a cluster with it, whose maker is the operator."""
    server.install()
    server.make("KafkaLiteCluster", "kafkalite", replicas=3)
    server.make("KafkaLiteTopic", "orders", partitions=3, replicas=3)
    values = {"cluster": {"create": True}, "topics": {"orders": {"partitions": 6}}}
    said = server.run("upgrade", "kl", str(CHART), values=values, fails=True)
    assert "klc/kafkalite, klt/orders: there already" in said
    assert "klt/orders spec.partitions: 6 in the values, 3 there" in said
    commands = re.findall(r"^  kubectl (.*)$", said, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        server.kubectl_run(*command.split())
    server.kubectl_run("patch", "klt", "orders", "--type=merge", '--patch={"spec":{"partitions":6}}')
    server.run("upgrade", "kl", str(CHART), values=values)
    server.run("upgrade", "kl", str(CHART), values={**values, "topics": {"orders": {"partitions": 9}}})
    assert server.spec("kafkalitetopics", "orders")["partitions"] == 9


def test_the_definitions_have_one_owner(server: Server):
    server.install()
    other = replace(server, namespace=f"{server.namespace}-other")
    try:
        for arguments in ((), ("--take-ownership",)):
            said = other.install(*arguments, fails=True)
            assert f"belong to release kl in namespace {server.namespace}: set crds.enabled=false here" in said
        other.install(values={**VALUES, "crds": {"enabled": False}})
        assert f"release kl is in namespace {server.namespace} already" in server.install(name="second", fails=True)
    finally:
        other.clear()


ANNOTATE = ("annotate", "klc/kafkalite", "kafkalite.io/paused=true")
LEASE = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"name": ""},
    "spec": {"holderIdentity": "i"},
}


def test_a_broker_may_write_no_more_than_it_does(server: Server):
    """RBAC lets it patch clusters and Leases; which of them, and what, the admission policies say."""
    server.install(values={"brokers": {"admissionPolicy": {"enabled": True}}})
    server.make("KafkaLiteCluster", "kafkalite", replicas=3, config={"a": "b"}, rack={"topologyKey": "zone"})
    operators = {**LEASE, "metadata": {"name": "kafkalite-operator"}}
    server.kubectl_run("create", "-f", "-", stdin=operators)
    broker = f"--as=system:serviceaccount:{server.namespace}:kafkalite-broker"

    def patch(what: str, body: Any, *more: str) -> tuple[str, ...]:
        return ("patch", what, "--type=merge", f"--patch={json.dumps(body)}", *more)

    end = time.monotonic() + 60  # the API server hears of a policy a moment after it was made
    while "changes no metadata" not in server.kubectl_said(*ANNOTATE, "--overwrite", broker):
        assert time.monotonic() < end
    refused = {
        "nothing of a cluster's spec but its config": [
            patch("klc/kafkalite", {"spec": {"image": "mine"}}, broker),
            patch("klc/kafkalite", {"spec": {"template": {"pod": {"spec": {"hostPID": True}}}}}, broker),
            patch("klc/kafkalite", {"spec": {"rack": None}}, broker),
            patch("klc/kafkalite", {"spec": {"replicas": 1, "config": {"c": "d"}}}, broker),
        ],
        "changes no metadata of a cluster": [
            ("label", "klc/kafkalite", "a=b", broker),
            patch("klc/kafkalite", {"metadata": {"finalizers": ["a/b"]}}, broker),
        ],
        "Leases of brokers alone": [
            patch("lease/kafkalite-operator", {"spec": {"holderIdentity": "me"}}, broker),
        ],
    }
    for message, commands in refused.items():
        for command in commands:
            said = server.kubectl_said(*command)
            assert message in said, (command, said)
    said = server.kubectl_said("create", "-f", "-", broker, stdin={**LEASE, "metadata": {"name": "c-broker-x"}})
    assert "Leases of brokers alone" in said

    server.kubectl_run(*patch("klc/kafkalite", {"spec": {"config": {"a": None, "c": "d"}}}, broker))
    server.kubectl_run(*patch("klc/kafkalite", {"spec": {"config": None}}, broker))
    # kubectl reads what it patches, and brokers need not read a status alone.
    server.kubectl_run("create", "role", "more", "--verb=get", "--resource=kafkaliteclusters.kafkalite.io/status")
    account = f"--serviceaccount={server.namespace}:kafkalite-broker"
    server.kubectl_run("create", "rolebinding", "more", "--role=more", account)
    server.kubectl_run(*patch("klc/kafkalite", {"status": {"nextBrokerEpoch": 1}}, "--subresource=status", broker))
    server.kubectl_run("create", "-f", "-", broker, stdin={**LEASE, "metadata": {"name": "kafkalite-broker-10"}})
    server.kubectl_run(*patch("lease/kafkalite-broker-10", {"spec": {"holderIdentity": "me"}}, broker))
    server.kubectl_run(*patch("klc/kafkalite", {"spec": {"image": "mine"}}))  # everybody else as before
    server.kubectl_run(*ANNOTATE, "--overwrite")


def test_policies_of_admission_that_are_turned_off_stay_until_they_are_deleted_as_the_notes_say(server: Server):
    server.install(values={"brokers": {"admissionPolicy": {"enabled": True}}})
    notes = server.run("upgrade", "kl", str(CHART), values={"brokers": {"admissionPolicy": {"enabled": False}}})
    assert len(server.objects(ADMISSION)) == 2, "a policy and its binding have one name"
    [command] = re.findall(r"kubectl (delete validatingadmissionpolicy,.*\n.*)", notes)
    server.kubectl_run(*command.replace("\\\n", " ").split())
    assert server.objects(ADMISSION) == {}


def test_clusters_without_permissions_are_named(server: Server):
    server.install()
    server.make("KafkaLiteCluster", "kafkalite", replicas=3)
    values = {"watchAllNamespaces": True, "brokers": {"namespaces": ["default"]}}
    notes = server.run("upgrade", "kl", str(CHART), values=values)
    warning = f"there are clusters in {server.namespace}, which brokers.namespaces does not list"
    assert warning in " ".join(notes.split())
    values["brokers"]["namespaces"].append(server.namespace)
    assert "WARNING" not in server.run("upgrade", "kl", str(CHART), values=values)


def test_a_dry_run_changes_nothing(server: Server):
    text = server.run("install", "kl", str(CHART), "--dry-run=client", values=VALUES)
    assert "kind: Deployment" in text
    assert server.objects("deployments") == {}
    server.install("--dry-run=server")
    assert server.objects("deployments") == {}


@pytest.fixture(scope="module")
def notes_alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart without objects, since a dry run asks the server for every kind, and has no monitors."""
    chart = tmp_path_factory.mktemp("notes") / "kafkalite"
    shutil.copytree(CHART, chart)
    for path in [*chart.glob("templates/*.yaml"), *chart.glob("templates/tests/*.yaml")]:
        path.unlink()
    return chart


@pytest.mark.parametrize("name", CASES)
def test_the_notes_are_whole_and_their_manifests_fit(running: Server, notes_alone: Path, name: str):
    mine = replace(running, namespace="kafka")
    words = ["install", "kl", str(notes_alone), "--dry-run=client", "--output=json"]
    notes = json.loads(mine.run(*words, values=CASES[name]))["info"]["notes"]
    assert "kubectl rollout status -n kafka deployment/" in notes
    assert "<no value>" not in notes
    assert not re.search(r"\n\n\n|[ \t]\n", notes), notes
    several = len(CASES[name].get("cluster", {}).get("spec", {}).get("listeners", [])) > 1
    assert (".status.listeners[*]" in notes) is several, "it says where to ask for addresses"
    blocks = re.findall(r"<<EOF\n(.*?)\n  EOF", notes, re.DOTALL)
    assert len(blocks) == (0 if CASES[name].get("topics") else 1)
    offered = [yaml.safe_load(block) for block in blocks]
    assert [problem for each in offered for problem in problems(each)] == []
    for each in offered:
        if each["kind"] == "KafkaLiteCluster":
            usual = yaml.safe_load((CHART / "values.yaml").read_text())["defaultCluster"]["spec"]["template"]
            assert each["spec"]["template"] == usual, "no brokers without requests are offered"

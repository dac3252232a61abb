"""An unmodified kubectl 1.34 against the server."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.cluster.control_plane import programs
from tests.contract.conftest import config_map, entry, topic

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def kubectl_binary() -> Path:
    """kubectl as `make kubernetes` builds it with the rest, of the same module as `make kubectl`."""
    return programs() / "kubectl"


class Kubectl:
    def __init__(self, binary: Path, kubeconfig: Path, namespace: str, home: Path) -> None:
        self.command = [str(binary), "--kubeconfig", str(kubeconfig), "--namespace", namespace]
        self.environment = {**os.environ, "HOME": str(home)}  # its discovery cache belongs to the test

    def run(self, *arguments: str, stdin: str = "", fails: bool = False, quiet: bool = True) -> str:
        done = subprocess.run(
            [*self.command, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=self.environment,
        )
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        assert fails or not quiet or not done.stderr, done.stderr
        return done.stdout + done.stderr

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen([*self.command, *arguments], stdout=subprocess.PIPE, text=True, env=self.environment)


@pytest.fixture
def kubectl(kubectl_binary: Path, kubeconfig: Path, tmp_path: Path):
    namespace = f"kubectl-{uuid.uuid4().hex[:8]}"
    tool = Kubectl(kubectl_binary, kubeconfig, namespace, tmp_path)
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    tool.run("apply", "-f", "-", stdin=json.dumps(made))
    yield tool
    tool.run("delete", "namespace", namespace, "--wait=false", quiet=False)


def manifest(*objects) -> str:
    return yaml.safe_dump_all(objects)


CLUSTER = {
    "apiVersion": "kafkalite.io/v1alpha1",
    "kind": "KafkaLiteCluster",
    "metadata": {"name": "kafkalite"},
    "spec": {"replicas": 3},
}


def test_apply_get_describe_delete(kubectl):
    text = manifest(topic("orders", clusterRef={"name": "kafkalite"}), CLUSTER)
    assert "kafkalitetopic.kafkalite.io/orders created" in kubectl.run("apply", "-f", "-", stdin=text)
    assert "kafkalitetopic.kafkalite.io/orders unchanged" in kubectl.run("apply", "-f", "-", stdin=text)
    lines = kubectl.run("get", "klt,klc,klb").splitlines()
    assert lines[0].split() == ["NAME", "CLUSTER", "PARTITIONS", "REPLICAS", "IN-SYNC", "READY", "AGE"]
    assert lines[1].split()[:4] == ["kafkalitetopic.kafkalite.io/orders", "kafkalite", "3", "3"]
    assert any(line.startswith("kafkalitecluster.kafkalite.io/kafkalite") for line in lines)
    assert "REASON" in kubectl.run("get", "klt", "-o", "wide")
    assert json.loads(kubectl.run("get", "klt", "orders", "-o", "json"))["spec"]["replicas"] == 3
    assert yaml.safe_load(kubectl.run("get", "klt", "orders", "-o", "yaml"))["spec"]["partitions"] == 3
    assert kubectl.run("get", "klt", "-o", "jsonpath={.items[*].spec.deletionPolicy}") == "Delete"
    described = kubectl.run("describe", "klt", "orders")
    assert "Deletion Policy:  Delete" in described
    assert "Events:" in described
    assert 'kafkalitetopic.kafkalite.io "orders" deleted' in kubectl.run("delete", "klt", "orders")
    assert "NotFound" in kubectl.run("get", "klt", "orders", fails=True)


def test_apply_changes_what_the_manifest_changes(kubectl):
    kubectl.run("apply", "-f", "-", stdin=manifest(topic("orders", config={"retention.ms": "1", "flush.ms": "2"})))
    kubectl.run("patch", "klt", "orders", "--type=merge", "-p", '{"spec":{"config":{"by.hand":"x"}}}')
    kubectl.run("apply", "-f", "-", stdin=manifest(topic("orders", partitions=4, config={"retention.ms": "9"})))
    stored = json.loads(kubectl.run("get", "klt", "orders", "-o", "json"))["spec"]
    assert stored["partitions"] == 4
    assert stored["config"] == {"retention.ms": "9", "by.hand": "x"}


def test_refusals_are_readable(kubectl):
    kubectl.run("apply", "-f", "-", stdin=manifest(topic("orders")))
    smaller = kubectl.run("apply", "-f", "-", stdin=manifest(topic("orders", partitions=1)), fails=True)
    assert "partitions can only grow" in smaller
    misspelt = kubectl.run("apply", "-f", "-", stdin=manifest(topic("x", partitons=1)), fails=True)
    assert 'unknown field "spec.partitons"' in misspelt
    unknown = kubectl.run("apply", "-f", "-", "--validate=false", stdin=manifest(topic("x", replicas=99)), fails=True)
    assert "spec.replicas in body should be less than or equal to 16" in unknown


def test_watch_prints_changes(kubectl):
    kubectl.run("apply", "-f", "-", stdin=manifest(topic("orders")))
    watch = kubectl.start("get", "klt", "-w")
    assert watch.stdout is not None
    try:
        assert watch.stdout.readline().startswith("NAME")
        assert watch.stdout.readline().split()[1:3] == ["3", "3"]
        status = json.dumps({"status": {"inSync": "9/9", "partitions": {"0": entry()}}})
        kubectl.run("patch", "klt", "orders", "--subresource=status", "--type=merge", "-p", status)
        assert "9/9" in watch.stdout.readline()
    finally:
        watch.terminate()
        watch.wait(10)
        watch.stdout.close()


def test_explain(kubectl):
    assert "Kafka's own topic configuration keys" in kubectl.run("explain", "klt.spec.config")
    fields = kubectl.run("explain", "klt.status.partitions")
    assert "leaderEpoch\t<integer> -required-" in fields
    assert "Rises whenever a leader is elected" in fields
    assert "brokerId" in kubectl.run("explain", "klb.spec")
    assert "ObjectMeta" in kubectl.run("explain", "klc.metadata")


def test_scale_patch_label_annotate_edit(kubectl):
    kubectl.run("apply", "-f", "-", stdin=manifest(CLUSTER))
    assert "scaled" in kubectl.run("scale", "klc", "kafkalite", "--replicas=5")
    assert kubectl.run("get", "klc", "kafkalite", "-o", "jsonpath={.spec.replicas}") == "5"
    guarded = kubectl.run("scale", "klc", "kafkalite", "--current-replicas=3", "--replicas=4", fails=True)
    assert "Expected replicas to be 3, was 5" in guarded
    kubectl.run("label", "klc", "kafkalite", "team=a")
    kubectl.run("annotate", "klc", "kafkalite", "kafkalite.io/paused=true")
    kubectl.environment["EDITOR"] = "sed -i s/nodeLoss:.wait/nodeLoss:\\ replace/"
    assert "edited" in kubectl.run("edit", "klc", "kafkalite")
    stored = json.loads(kubectl.run("get", "klc", "-l", "team=a", "-o", "json"))["items"][0]
    assert stored["spec"]["nodeLoss"] == "replace"
    assert stored["metadata"]["annotations"]["kafkalite.io/paused"] == "true"
    kubectl.run("wait", "--for=jsonpath={.spec.replicas}=5", "klc/kafkalite", "--timeout=50s")


def without_a_record(kubectl) -> None:
    """As the operator does before the first status."""
    reset = [{"op": "add", "path": "/metadata/managedFields", "value": [{}]}]
    kubectl.run("patch", "klt", "orders", "--type=json", "-p", json.dumps(reset))


def managers(kubectl) -> dict[str, str]:
    """Who has written fields of the topic, and how."""
    stored = json.loads(kubectl.run("get", "klt", "orders", "-o", "json", "--show-managed-fields"))
    return {each["manager"]: each["operation"] for each in stored["metadata"].get("managedFields", [])}


def config_of(kubectl) -> dict[str, str]:
    return json.loads(kubectl.run("get", "klt", "orders", "-o", "json"))["spec"].get("config", {})


def test_apply_and_edit_of_a_topic_without_a_record_of_its_fields(kubectl):
    both = {"retention.ms": "60000", "segment.ms": "1000"}
    kubectl.run("apply", "-f", "-", stdin=manifest(topic("orders", config=both)))
    without_a_record(kubectl)
    kubectl.run("apply", "-f", "-", stdin=manifest(topic("orders", partitions=4, config={"segment.ms": "1000"})))
    assert config_of(kubectl) == {"segment.ms": "1000"}
    kubectl.environment["EDITOR"] = "sed -i 's/partitions: 4/partitions: 5/'"
    assert "edited" in kubectl.run("edit", "klt", "orders")
    assert kubectl.run("get", "klt", "orders", "-o", "jsonpath={.spec.partitions}") == "5"
    assert managers(kubectl) == {}


def test_server_side_apply_of_a_topic_without_a_record_of_its_fields(kubectl, real):
    """As with a record: what was applied by the client is taken over, and what is left out later disappears."""
    both = {"retention.ms": "60000", "segment.ms": "1000"}
    kubectl.run("apply", "-f", "-", stdin=manifest(topic("orders", config=both)))
    without_a_record(kubectl)
    for config in (both, {"segment.ms": "1000"}):
        wanted = manifest(topic("orders", partitions=4, config=config))
        kubectl.run("apply", "--server-side", "-f", "-", stdin=wanted)
        assert config_of(kubectl) == config
    assert set(managers(kubectl).values()) == {"Apply"}


def test_server_side_apply_of_a_topic_that_was_created_otherwise(kubectl, real):
    """As with a record, other values are a conflict; but the other manager is not known by its name."""
    kubectl.run("create", "-f", "-", stdin=manifest(topic("orders")))
    without_a_record(kubectl)
    other = manifest(topic("orders", partitions=4))
    refused = kubectl.run("apply", "--server-side", "-f", "-", stdin=other, fails=True)
    assert 'conflict with "before-first-apply"' in refused
    assert managers(kubectl) == {}
    kubectl.run("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=other)
    assert managers(kubectl) == {"kubectl": "Apply", "before-first-apply": "Update"}


def test_built_in_kinds(kubectl):
    labels = {"app": "x"}
    pod = {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 1}]}]}
    objects = [
        config_map("settings"),
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}},
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": "set"},
            "spec": {
                "serviceName": "s",
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        },
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": labels}, "spec": pod},
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        },
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "l"},
            "spec": {"holderIdentity": "me"},
        },
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "b"},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels}},
        },
    ]
    kubectl.run("apply", "-f", "-", stdin=manifest(*objects))
    objects[2]["spec"]["template"]["spec"] = {"containers": [{"name": "c", "image": "j"}]}
    assert "statefulset.apps/set configured" in kubectl.run("apply", "-f", "-", stdin=manifest(*objects))
    image = "jsonpath={.spec.template.spec.containers[0].image}"
    assert kubectl.run("get", "sts", "set", "-o", image) == "j"
    listed = kubectl.run("get", "pods,sts,svc,pvc,cm,lease,pdb")
    for name in ("pod/p", "statefulset.apps/set", "service/s", "persistentvolumeclaim/data", "configmap/settings"):
        assert name in listed
    assert "statefulset.apps/set" in kubectl.run("get", "all")
    assert "scaled" in kubectl.run("scale", "sts", "set", "--replicas=2")
    for kind, name in (("pod", "p"), ("sts", "set"), ("svc", "s"), ("pvc", "data")):
        assert "Name:" in kubectl.run("describe", kind, name)
    kubectl.run("delete", "-f", "-", stdin=manifest(*objects))


def test_events_show_under_describe(kubectl):
    kubectl.run("apply", "-f", "-", stdin=manifest(topic("orders")))
    stored = json.loads(kubectl.run("get", "klt", "orders", "-o", "json"))
    regarding = {key: stored["metadata"][key] for key in ("name", "namespace", "uid")}
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "orders.1", "namespace": regarding["namespace"]},
        "involvedObject": {"kind": "KafkaLiteTopic", "apiVersion": stored["apiVersion"], **regarding},
        "reason": "LeaderElected",
        "message": "broker 1 leads partition 0",
        "type": "Normal",
        "firstTimestamp": "2026-01-02T03:04:05Z",
        "lastTimestamp": "2026-01-02T03:04:05Z",
        "count": 1,
        "source": {"component": "kafkalite-operator"},
    }
    kubectl.run("create", "-f", "-", stdin=json.dumps(event))
    assert "broker 1 leads partition 0" in kubectl.run("describe", "klt", "orders")
    assert "LeaderElected" in kubectl.run("get", "events")


def test_api_resources(kubectl):
    listed = kubectl.run("api-resources")
    assert any(line.split()[:2] == ["kafkalitetopics", "klt"] for line in listed.splitlines())
    kubectl.run("apply", "-f", "-", stdin=manifest(CLUSTER))
    assert "kafkalite" in kubectl.run("get", "kafkalite"), "the category lists every kind of the project"
    assert "v1.34" in kubectl.run("version")

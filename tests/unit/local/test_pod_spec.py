import copy

import pytest

from kafkalite_local.kubelet.pod_spec import LaunchError, plan_launch
from kafkalite_local.kubelet.probes import Probe, port_offset
from kafkalite_local.pod_names import log_name, pod_key
from kafkalite_runtime.home import Home

POD = {
    "metadata": {
        "name": "kafkalite-broker-1",
        "namespace": "default",
        "uid": "u",
        "labels": {"app.kubernetes.io/component": "broker", "kafkalite.io/cluster": "kafkalite"},
    },
    "spec": {
        "nodeName": "local",
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data-1"}},
            {"name": "config", "configMap": {"name": "c"}},
            {"name": "scratch", "emptyDir": {}},
        ],
        "containers": [
            {
                "name": "broker",
                "command": ["serve"],
                "args": ["--data", "/var/data/x", "--config=/etc/k", "$(POD_NAME)", "$(NONE)", "$$(POD_NAME)"],
                "env": [
                    {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                    {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                    {
                        "name": "WHICH",
                        "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['kafkalite.io/cluster']"}},
                    },
                    {"name": "DATA", "value": "/var/data"},
                    {"name": "LOOKALIKE", "value": "/var/database"},
                    {"name": "CONFIG", "value": "/etc/k/broker.json"},
                    {"name": "END", "value": "/dev/termination-log"},
                    {"name": "BOTH", "value": "$(POD_NAME)@$(IP)"},
                ],
                "volumeMounts": [
                    {"name": "data", "mountPath": "/var/data", "subPath": "sub"},
                    {"name": "config", "mountPath": "/etc/k/"},
                    {"name": "scratch", "mountPath": "/tmp"},
                ],
            }
        ],
    },
}


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "bin" / "serve"
    path.parent.mkdir()
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def launch(tmp_path, pod=POD):
    return plan_launch(
        pod, home=Home(tmp_path / "h"), search=str(tmp_path / "bin"), base_env={"PATH": "x", "DATA": "y"}
    )


def test_command_environment_and_mounts(tmp_path, program):
    planned = launch(tmp_path)
    home = tmp_path / "h"
    volumes = home / "pods" / "kafkalite-broker-1" / "volumes"
    assert planned.argv == (
        str(program),
        "--data",
        f"{home}/volumes/data-1/sub/x",
        "--config=/etc/k",
        "kafkalite-broker-1",
        "$(NONE)",
        "$(POD_NAME)",
    )
    assert (
        planned.env.items()
        >= {
            "PATH": "x",
            "POD_NAME": "kafkalite-broker-1",
            "IP": "127.0.0.1",
            "WHICH": "kafkalite",
            "DATA": f"{home}/volumes/data-1/sub",
            "LOOKALIKE": "/var/database",
            "CONFIG": f"{volumes}/config/broker.json",
            "END": f"{home}/pods/kafkalite-broker-1/termination-log",
            "BOTH": "kafkalite-broker-1@127.0.0.1",
            "KUBECONFIG": f"{home}/kubeconfig",
        }.items()
    )
    assert planned.mounts["/tmp"] == volumes / "scratch"


def change(path, value):
    pod = copy.deepcopy(POD)
    place = pod["spec"]
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return pod


CONTAINER = ("containers", 0)


@pytest.mark.parametrize(
    ("pod", "reason", "word"),
    [
        (change((*CONTAINER, "command"), ["absent"]), "CreateContainerError", "no program 'absent'"),
        (change((*CONTAINER, "command"), []), "CreateContainerError", "no command"),
        (change(("initContainers",), [{}]), "CreateContainerError", "exactly one container"),
        (change((*CONTAINER, "envFrom"), [{}]), "CreateContainerConfigError", "envFrom"),
        (change(("volumes", 2), {"name": "s", "secret": {}}), "CreateContainerConfigError", "secret"),
        (
            change((*CONTAINER, "volumeMounts", 0), {"name": "q", "mountPath": "/q"}),
            "CreateContainerConfigError",
            "no volume q",
        ),
        (
            change((*CONTAINER, "env", 0), {"name": "A", "valueFrom": {"secretKeyRef": {}}}),
            "CreateContainerConfigError",
            "fieldRef",
        ),
        (
            change((*CONTAINER, "env", 0), {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.magic"}}}),
            "CreateContainerConfigError",
            "spec.magic",
        ),
    ],
)
def test_what_cannot_be_started_says_why(tmp_path, program, pod, reason, word):
    with pytest.raises(LaunchError, match=word) as caught:
        launch(tmp_path, pod)
    assert caught.value.reason == reason


def test_names():
    assert pod_key(POD["metadata"]) == "kafkalite-broker-1"
    assert pod_key({"name": "a", "namespace": "ns"}) == "ns.a"
    assert log_name(POD) == "broker-1"
    other = copy.deepcopy(POD)
    other["metadata"]["labels"]["kafkalite.io/cluster"] = "second"
    assert log_name(other) == "kafkalite-broker-1"
    operator = {"metadata": {"name": "kafkalite-operator-local", "labels": {"app.kubernetes.io/component": "operator"}}}
    assert log_name(operator) == "operator"
    operator["metadata"]["name"] = "another-operator"
    assert log_name(operator) == "another-operator"


def test_probe_defaults_and_named_ports():
    container = {"ports": [{"name": "metrics", "containerPort": 9404}]}
    assert Probe.parse(None, container) is None
    probe = Probe.parse({"httpGet": {"path": "/readyz", "port": "metrics"}, "periodSeconds": 2}, container, 2)
    assert probe == Probe(url="http://127.0.0.1:9406/readyz", period_s=2)
    with pytest.raises(LaunchError, match="no port named x"):
        Probe.parse({"httpGet": {"port": "x"}}, container)
    with pytest.raises(LaunchError, match="httpGet"):
        Probe.parse({"exec": {}}, container)


def test_replicas_on_one_host_are_probed_at_their_own_port():
    pod = {"metadata": {"labels": {"apps.kubernetes.io/pod-index": "2"}}, "spec": {"hostNetwork": True}}
    assert port_offset(pod) == 2
    assert port_offset(pod | {"spec": {}}) == 0
    assert port_offset({"metadata": {}, "spec": {"hostNetwork": True}}) == 0

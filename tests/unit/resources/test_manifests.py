import json
import re

import pytest

from kafkalite_core.resources.fields import ResourceError
from kafkalite_core.resources.manifests import (
    applied_hash,
    bootstrap_address,
    broker_config,
    broker_object,
    cluster_settings,
    infrastructure,
)
from kafkalite_core.resources.statefulset import merge
from tests.unit.resources.builders import cluster_object

HOSTPORT = {
    "listeners": [{"name": "PLAIN_local", "type": "hostport", "port": 9092, "host": "127.0.0.1"}],
    "metrics": {"port": 9192},
}


def objects(spec=None, ids=(0, 1, 2)):
    made = infrastructure(cluster_settings(cluster_object(spec=spec)), ids)
    return {(obj["kind"], obj["metadata"]["name"]): obj for obj in made}


def test_everything_that_a_cluster_needs_is_made_and_owned():
    made = objects()
    assert set(made) == {
        ("ConfigMap", "kafkalite-config"),
        ("Service", "kafkalite-brokers"),
        ("Service", "kafkalite-bootstrap"),
        ("Service", "kafkalite-broker-0"),
        ("Service", "kafkalite-broker-1"),
        ("Service", "kafkalite-broker-2"),
        ("PodDisruptionBudget", "kafkalite-broker"),
        ("StatefulSet", "kafkalite-broker"),
    }
    for obj in made.values():
        assert obj["metadata"]["ownerReferences"][0]["uid"] == "cluster-uid"
        assert obj["metadata"]["labels"]["kafkalite.io/cluster"] == "kafkalite"
        assert applied_hash(obj)
    assert made["Service", "kafkalite-brokers"]["spec"]["clusterIP"] == "None"


def test_pods_are_restricted_and_replaced_by_the_operator_alone():
    spec = objects()["StatefulSet", "kafkalite-broker"]["spec"]
    assert (spec["updateStrategy"], spec["podManagementPolicy"]) == ({"type": "OnDelete"}, "Parallel")
    assert spec["serviceName"] == "kafkalite-brokers"
    pod = spec["template"]["spec"]
    assert [each["topologyKey"] for each in pod["topologySpreadConstraints"]] == ["kubernetes.io/hostname"]
    (apart,) = pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert apart["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    assert (
        apart["podAffinityTerm"]["labelSelector"]["matchLabels"].items()
        <= spec["template"]["metadata"]["labels"].items()
    )
    racks = objects({"rack": {"topologyKey": "zone"}})["StatefulSet", "kafkalite-broker"]["spec"]["template"]["spec"]
    assert [each["topologyKey"] for each in racks["topologySpreadConstraints"]] == ["zone", "kubernetes.io/hostname"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["command"] == ["kafkalite-broker"]
    env = {item["name"]: item.get("value", item.get("valueFrom")) for item in container["env"]}
    assert env["KAFKALITE_DATA_DIR"] == "/var/lib/kafkalite/data"
    assert env["KAFKALITE_CONFIG"] == "/etc/kafkalite/broker.json"
    assert env["POD_NAME"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert "KAFKALITE_RACK_DIR" not in env
    probes = {name: container[name]["httpGet"]["path"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert probes == {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
    assert "hostNetwork" not in pod


def test_host_ports_need_the_host_network():
    made = objects(HOSTPORT)
    assert made["StatefulSet", "kafkalite-broker"]["spec"]["template"]["spec"]["hostNetwork"] is True
    names = [port["name"] for port in made["Service", "kafkalite-bootstrap"]["spec"]["ports"]]
    assert names == ["plain-local", "tcp-prometheus"], "a port's name has 15 characters of a kind"
    assert (
        bootstrap_address(cluster_settings(cluster_object(spec=HOSTPORT)))
        == "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"
    )


@pytest.mark.parametrize(
    ("listeners", "ports"),
    [
        (["plain", "EXTERNAL_CLIENTS_TLS", "_"], ["plain", "external-client", "port-9094"]),
        (["9", "2024-01-01-12345-a", "tcp-prometheus", "_TCP_Prometheus-2"], [None, None, None, None]),
        (["A", "a", "a--b", "a_b"], ["a", None, "a-b", None]),
        (["external-clients-a", "external-clients-b"], ["external-client", None]),
        (["9", "tcp-kafka-9092", "tcp-kafka-9094"], ["0-kafka-9092", "tcp-kafka-9092", "tcp-kafka-9094"]),
    ],
)
def test_ports_of_any_listeners_have_names_that_kubernetes_takes(listeners, ports):
    """A pod whose port has another name is refused, so the cluster would have no brokers."""
    spec = {"listeners": [{"name": each, "type": "internal", "port": 9092 + n} for n, each in enumerate(listeners)]}
    made = objects(spec)
    [container] = made["StatefulSet", "kafkalite-broker"]["spec"]["template"]["spec"]["containers"]
    names = [port["name"] for port in container["ports"]]
    wanted = [each or f"tcp-kafka-{9092 + n}" for n, each in enumerate(ports)]
    assert names == [*wanted, "tcp-prometheus"]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch("(?=.*[a-z])(?!.*--)[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?", name) for name in names)
    assert [port["name"] for port in made["Service", "kafkalite-brokers"]["spec"]["ports"]] == names


def test_broker_json_is_what_brokers_read():
    spec = HOSTPORT | {
        "config": {"num.io.threads": 4},
        "failureDetection": {"leaseDurationSeconds": 6, "renewIntervalSeconds": 2},
    }
    settings = cluster_settings(cluster_object(spec=spec))
    data = json.loads(objects(spec)["ConfigMap", "kafkalite-config"]["data"]["broker.json"])
    assert data == broker_config(settings)
    assert data["failureDetection"] == {"leaseDurationSeconds": 6, "renewIntervalSeconds": 2}
    assert '"leaseDurationSeconds": 6,' in objects(spec)["ConfigMap", "kafkalite-config"]["data"]["broker.json"]
    assert data["config"] == {"num.io.threads": "4"}
    assert data["listeners"][0]["type"] == "hostport"


def test_the_hash_changes_with_the_content_only():
    same, other = objects(), objects({"image": "elsewhere/broker:2"})
    key = ("StatefulSet", "kafkalite-broker")
    assert applied_hash(objects()[key]) == applied_hash(same[key])
    assert applied_hash(other[key]) != applied_hash(same[key])
    assert applied_hash({"metadata": {}}) == ""


def test_occupied_brokers_keep_their_pods():
    assert objects(ids=(0, 4))["StatefulSet", "kafkalite-broker"]["spec"]["replicas"] == 5


def test_pod_template_of_the_user_is_merged_by_name():
    spec = {
        "template": {
            "pod": {
                "spec": {
                    "priorityClassName": "high",
                    "containers": [{"name": "broker", "resources": {"limits": {"memory": "1Gi"}}}],
                }
            }
        }
    }
    pod = objects(spec)["StatefulSet", "kafkalite-broker"]["spec"]["template"]["spec"]
    assert pod["priorityClassName"] == "high"
    assert pod["containers"][0]["resources"] == {"limits": {"memory": "1Gi"}}
    assert pod["containers"][0]["command"] == ["kafkalite-broker"]
    assert merge({"a": [1], "b": {"c": 1}}, {"a": [2], "b": {"d": 2}}) == {"a": [2], "b": {"c": 1, "d": 2}}


def test_broker_object_and_wrong_listeners():
    obj = broker_object(cluster_settings(cluster_object()), 2)
    assert obj["metadata"]["name"] == "kafkalite-broker-2"
    assert obj["spec"]["brokerId"] == 2
    with pytest.raises(ResourceError, match="'tls' is not one of: internal, hostport, nodeport, loadbalancer"):
        cluster_settings(cluster_object(spec={"listeners": [{"name": "a", "type": "tls", "port": 1}]}))

"""External listeners and racks in the chart: what they add, and only then."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helm.cases import LISTENERS
from tests.helm.conftest import API, Helm, kinds, only

ZONE = {"rack": {"topologyKey": "topology.kubernetes.io/zone"}}
ADDRESS = {
    "listeners": [LISTENERS[0], {**LISTENERS[2], "configuration": {"preferredNodePortAddressType": "ExternalIP"}}]
}
LOSS = {"nodeLoss": "replace"}
NODES = "release-kafkalite-operator-nodes"


def cluster(spec: dict[str, Any]) -> dict[str, Any]:
    return {"cluster": {"create": True, "spec": spec}}


@pytest.mark.parametrize(
    "values",
    [
        {},
        cluster({}),
        cluster({"listeners": LISTENERS}),
        {"cluster": {"create": False, "spec": ZONE}},
        {"defaultCluster": {"enabled": False, "spec": ZONE}},
        {"rbac": {"readNodes": True, "create": False}},
    ],
)
def test_nobody_reads_nodes_without_need(helm: Helm, values: dict):
    documents = helm.template(values, API)
    assert not [doc for doc in documents if doc["metadata"]["name"].endswith("-nodes")]
    assert "ClusterRole" not in kinds(documents)


@pytest.mark.parametrize("values", [cluster(LOSS), {"defaultCluster": {"spec": LOSS}}])
def test_lost_nodes_are_looked_at_and_no_pod_is_annotated(helm: Helm, values: dict):
    documents = helm.template(values, API)
    assert only(documents, "ClusterRole", f"kafka-{NODES}")["rules"][0]["verbs"] == ["get"]
    assert not [doc for doc in documents if doc["kind"] == "Role" and doc["metadata"]["name"] == NODES]


@pytest.mark.parametrize(
    "values", [{"rbac": {"readNodes": True}}, cluster(ZONE), cluster(ADDRESS), {"defaultCluster": {"spec": ZONE}}]
)
def test_those_who_need_it_read_nodes_and_annotate_pods(helm: Helm, values: dict):
    documents = helm.template(values, API)
    role = only(documents, "ClusterRole", f"kafka-{NODES}")
    assert role["rules"] == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]
    pods = only(documents, "Role", NODES)
    assert (pods["metadata"]["namespace"], pods["rules"]) == (
        "kafka",
        [{"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]}],
    )
    for kind, name, of in (
        ("ClusterRoleBinding", f"kafka-{NODES}", "ClusterRole"),
        ("RoleBinding", NODES, "Role"),
    ):
        binding = only(documents, kind, name)
        assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == (of, name)
        [subject] = binding["subjects"]
        account = only(documents, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"]
        assert (subject["name"], subject["namespace"]) == (account, "kafka")


def test_pods_are_annotated_where_brokers_are(helm: Helm):
    values = {"rbac": {"readNodes": True}, "watchNamespaces": ["a", "b"], "brokers": {"namespaces": ["b"]}}
    documents = helm.template(values)
    assert [doc["metadata"]["namespace"] for doc in documents if doc["metadata"]["name"] == NODES] == ["b", "b"]


def test_two_releases_do_not_share_a_cluster_role(helm: Helm):
    names = {
        doc["metadata"]["name"]
        for namespace in ("a", "b")
        for doc in helm.template({"rbac": {"readNodes": True}}, namespace=namespace)
        if doc["kind"] == "ClusterRole"
    }
    assert len(names) == 2


def test_the_network_policy_knows_the_ports_of_the_values_clusters(helm: Helm):
    values = cluster({"listeners": LISTENERS}) | {"networkPolicy": {"enabled": True}}
    policy = only(helm.template(values, API), "NetworkPolicy", "release-kafkalite-broker")
    assert [port["port"] for port in policy["spec"]["ingress"][0]["ports"]] == [9092, 9094, 9095]

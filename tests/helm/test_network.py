"""The NetworkPolicies let through the flows of this list, and no other."""

from __future__ import annotations

import pytest

from kafkalite_core.resources.manifests import cluster_settings
from kafkalite_core.resources.naming import broker_labels
from kafkalite_core.resources.statefulset import stateful_set
from tests.helm.cases import PEER
from tests.helm.conftest import API, Helm, kinds, only
from tests.helm.network import ANYBODY, API_SERVER, BROKERS, CLIENTS, OPERATOR, SCRAPER, SCRAPERS, TEST, flows

# From, to, port. The operator asks the API server alone: it never talks to a broker, nor a broker to it.
OPEN = {
    (ANYBODY, OPERATOR, "TCP 9404"),
    (ANYBODY, BROKERS, "TCP 9092"),
    (ANYBODY, BROKERS, "TCP 9404"),
    (BROKERS, BROKERS, "TCP 9092"),
}
CLOSED = {
    (SCRAPERS, OPERATOR, "TCP 9404"),
    (TEST, OPERATOR, "TCP 9404"),
    (CLIENTS, BROKERS, "TCP 9092"),
    (SCRAPERS, BROKERS, "TCP 9404"),
    (BROKERS, BROKERS, "TCP 9092"),
}
OUT = {
    (who, what, port)
    for who in (OPERATOR, BROKERS)
    for what, port in [
        ("names", "UDP 53"),
        ("names", "TCP 53"),
        (API_SERVER, "TCP 443"),
        (API_SERVER, "TCP 6443"),
    ]
}


def test_there_are_none_unless_asked_for(helm: Helm):
    assert "NetworkPolicy" not in kinds(helm.template())


def test_open_to_everybody(helm: Helm):
    assert flows(helm.template({"networkPolicy": {"enabled": True}})) == OPEN | OUT


@pytest.mark.parametrize("cidrs", [[], ["10.0.0.0/8"]])
def test_closed_but_for_those_who_are_named(helm: Helm, cidrs: list[str]):
    values = {"enabled": True, "clientsFrom": [PEER], "metricsFrom": [SCRAPER], "apiServerCidrs": cidrs}
    documents = helm.template({"networkPolicy": values})
    assert flows(documents) == CLOSED | OUT
    blocks = [
        peer["ipBlock"]["cidr"]
        for doc in documents
        if doc["kind"] == "NetworkPolicy"
        for rule in doc["spec"]["egress"]
        for peer in rule.get("to", [])
        if "ipBlock" in peer
    ]
    assert blocks == cidrs * 2


def test_every_namespace_of_brokers_has_one(helm: Helm):
    documents = helm.template({"networkPolicy": {"enabled": True}, "watchNamespaces": ["a", "b"]})
    found = [
        (doc["metadata"]["namespace"], doc["metadata"]["name"]) for doc in documents if doc["kind"] == "NetworkPolicy"
    ]
    assert sorted(found) == [
        ("a", "release-kafkalite-broker"),
        ("b", "release-kafkalite-broker"),
        ("kafka", "release-kafkalite-operator"),
    ]


def test_a_listener_more(helm: Helm):
    values = {"enabled": True, "listenerPorts": [9092, 9094], "brokerMetricsPort": 9405, "apiServerPorts": [8443]}
    found = flows(helm.template({"networkPolicy": values}))
    assert {port for source, target, port in found if (source, target) == (BROKERS, BROKERS)} == {
        "TCP 9092",
        "TCP 9094",
    }
    assert (ANYBODY, BROKERS, "TCP 9405") in found
    assert {port for _, target, port in found if target == API_SERVER} == {"TCP 8443"}


def test_ports_of_the_clusters_of_the_values_are_open_too(helm: Helm):
    values = {
        "networkPolicy": {"enabled": True},
        "defaultCluster": {"spec": {"metrics": {"port": 9500}}},
        "cluster": {
            "create": True,
            "spec": {"metrics": {"port": 9501}, "listeners": [{"name": "a", "type": "internal", "port": 9100}]},
        },
    }
    found = {
        port for source, target, port in flows(helm.template(values, API)) if (source, target) == (ANYBODY, BROKERS)
    }
    assert found == {"TCP 9092", "TCP 9100", "TCP 9404", "TCP 9500", "TCP 9501"}


def test_the_ports_are_those_that_a_cluster_has_by_default(helm: Helm):
    policy = only(helm.template({"networkPolicy": {"enabled": True}}), "NetworkPolicy", "release-kafkalite-broker")
    cluster = {"metadata": {"name": "c", "namespace": "kafka", "uid": "u", "resourceVersion": "1"}, "spec": {}}
    container = stateful_set(cluster_settings(cluster), 1)["spec"]["template"]["spec"]["containers"][0]
    open_ = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
    assert open_ == {port["containerPort"] for port in container["ports"]}
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= broker_labels("c", 0).items()

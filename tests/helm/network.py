"""The flows that NetworkPolicies let through, as triples: from, to, port."""

from __future__ import annotations

from kafkalite_core.resources.manifests import cluster_settings
from kafkalite_core.resources.statefulset import stateful_set
from tests.helm.cases import PEER
from tests.helm.conftest import pod_template

ANYBODY, CLIENTS, SCRAPERS = "anybody", "clients", "scrapers"
OPERATOR, BROKERS, TEST, API_SERVER = "operator", "brokers", "helm test", "API server"
SCRAPER = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}


def name_of_peer(peer: dict) -> str:
    if peer == PEER:
        return CLIENTS
    if peer == SCRAPER:
        return SCRAPERS
    if "ipBlock" in peer:
        return API_SERVER
    component = peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
    assert peer.keys() == {"podSelector"}, "a pod of the same namespace"
    return {"broker": BROKERS, "operator": OPERATOR, "test": TEST}[component]


def ports(rule: dict, pod: dict) -> list[str]:
    named = {port["name"]: port["containerPort"] for port in pod["spec"]["containers"][0]["ports"]}
    return [f"{port['protocol']} {named.get(port['port'], port['port'])}" for port in rule["ports"]]


def flows(documents: list[dict]) -> set[tuple[str, str, str]]:
    """What the policies of the operator and of the brokers of one namespace let through."""
    cluster = {"metadata": {"name": "c", "namespace": "kafka", "uid": "u", "resourceVersion": "1"}, "spec": {}}
    pods = {
        OPERATOR: pod_template(documents),
        BROKERS: stateful_set(cluster_settings(cluster), 1)["spec"]["template"],
    }
    found = set()
    for policy in [doc for doc in documents if doc["kind"] == "NetworkPolicy"]:
        selector = policy["spec"]["podSelector"]["matchLabels"]
        [who] = [name for name, pod in pods.items() if selector.items() <= pod["metadata"]["labels"].items()]
        assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"], "what is not named is open"
        for rule in policy["spec"]["ingress"]:
            sources = [name_of_peer(peer) for peer in rule["from"]] if "from" in rule else [ANYBODY]
            found |= {(source, who, port) for source in sources for port in ports(rule, pods[who])}
        for rule in policy["spec"]["egress"]:
            for port in ports(rule, pods[who]):
                targets = (
                    [name_of_peer(peer) for peer in rule["to"]]
                    if "to" in rule
                    else ["names" if port.endswith(" 53") else API_SERVER]
                )
                found |= {(who, target, port) for target in targets}
    return found

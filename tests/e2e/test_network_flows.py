"""What operator and brokers are connected to while clients are at work is what the chart's NetworkPolicies let through."""

from __future__ import annotations

import ipaddress
import json
import sys
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.e2e.cluster import BROKER_PODS, OPERATOR_PODS, PATIENCE
from tests.e2e.installation import CHART, RELEASE
from tests.e2e.load import under_load
from tests.helm.cases import PEER
from tests.helm.network import API_SERVER, BROKERS, CLIENTS, OPERATOR, SCRAPER, flows

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.cluster import Cluster

pytestmark = pytest.mark.timeout(600 * PATIENCE)
READ = "print(open('/proc/net/tcp').read() + open('/proc/net/tcp6').read())"
LISTENING = "0A"
ROUNDS = 5
OUTLAST = {  # connections that stay: whoever looks sees them
    (CLIENTS, BROKERS, "TCP 9092"),
    (BROKERS, BROKERS, "TCP 9092"),
    (BROKERS, API_SERVER, "TCP 443"),
    (OPERATOR, API_SERVER, "TCP 443"),
}


def test_connections_are_those_that_the_policies_let_through(cluster: Cluster, release: float, tmp_path: Path):
    """The policies are the strictest: clients and scrapers are named. Probes come from the node, which none can refuse."""
    policy = {"enabled": True, "clientsFrom": [PEER], "metricsFrom": [SCRAPER]}
    said = cluster.helm("template", RELEASE, str(CHART), f"--set-json=networkPolicy={json.dumps(policy)}")
    allowed = flows([document for document in yaml.safe_load_all(said) if document])
    seen: set[tuple[str, str, str]] = set()
    with under_load(cluster, "flows", tmp_path) as load:
        for _ in range(ROUNDS):
            seen |= connections(cluster)
            load.acknowledged(round(load.rate))
    print(f"seen: {sorted(seen)}", file=sys.stderr)
    assert seen <= allowed, f"no policy lets these through: {sorted(seen - allowed)}"
    assert seen >= OUTLAST, f"not seen: {sorted(OUTLAST - seen)}"


def connections(cluster: Cluster) -> set[tuple[str, str, str]]:
    """Of every operator and broker, as its kernel has them at the moment."""
    names = {each["status"].get("podIP"): CLIENTS for each in cluster.items("pods")}
    ours = {}
    for who, selector in ((OPERATOR, OPERATOR_PODS), (BROKERS, BROKER_PODS)):
        for each in cluster.items("pods", selector):
            ours[each["metadata"]["name"]] = who
            names[each["status"]["podIP"]] = who
    names[cluster.get("--namespace=default", "service/kubernetes")["spec"]["clusterIP"]] = API_SERVER
    nodes = of_nodes(cluster)
    found = set()
    for pod, who in ours.items():
        for inward, address, port in sockets(cluster.kubectl("exec", pod, "--", "python3", "-c", READ)):
            if inward and address in nodes:
                continue  # the kubelet
            if inward:  # also from a pod that is gone by now
                found.add((names.get(address, CLIENTS), who, f"TCP {port}"))
            else:
                found.add((who, names.get(address, address), f"TCP {port}"))
    return found


def of_nodes(cluster: Cluster) -> set[str]:
    """By which a kubelet may ask its pods: those of its node, and the node's end of the pods' network."""
    found = set()
    for node in cluster.items("nodes"):
        found |= {each["address"] for each in node["status"]["addresses"]}
        found |= {str(ipaddress.ip_network(pods)[1]) for pods in node["spec"].get("podCIDRs", [])}
    return found


def sockets(text: str) -> list[tuple[bool, str, int]]:
    """Of the lines of /proc/net/tcp and tcp6 those that have another end: inward or not, its address, the server's port."""
    rows = [line.split()[1:4] for line in text.splitlines() if ":" in line]
    serving = {endpoint(local)[1] for local, _, state in rows if state == LISTENING}
    found = []
    for local, remote, state in rows:
        address, port = endpoint(remote)
        if state != LISTENING and not ipaddress.ip_address(address).is_loopback:
            own = endpoint(local)[1]
            found.append((own in serving, address, own if own in serving else port))
    return found


def endpoint(text: str) -> tuple[str, int]:
    """The kernel writes addresses as words in the machine's byte order, in hexadecimal."""
    words, port = text.split(":")
    raw = bytes.fromhex(words)
    octets = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
    address = ipaddress.ip_address(octets)
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address), int(port, 16)

"""Clients that are not in the network of pods: by ports of the nodes, and by addresses that load balancers would have.

The cluster `outside` has one listener of each kind (docs/listeners.md). Its client by nodes runs beside them, where neither pods
nor Services can be reached.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from kafkalite_runtime.kube import CLUSTERS, TOPICS
from tests.e2e.cluster import PATIENCE
from tests.e2e.load import topic_object

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.cluster import Cluster
    from tests.e2e.harm import Nodes

pytestmark = pytest.mark.timeout(300 * PATIENCE)
NAME = "outside"
BROKERS = 3
PARTITIONS = 6
RECORDS = 50
"""For each partition."""
NODE_PORT = 30_080
"""Below 30,086 Kubernetes gives no port away by itself while there are others (KEP-3668): there nobody can be in the way."""
BALANCED_PORT = 9096
READY_LIMIT_S = 180
ADDRESSES_LIMIT_S = 30
# Documentation addresses (RFC 5737): nobody has them, and kube-proxy leads pods from there to the Service all the same.
BALANCER = "203.0.113.{}"
LISTENERS = [
    {"name": "plain", "type": "internal", "port": 9092},
    {"name": "nodes", "type": "nodeport", "port": 9094},
    {
        "name": "templated",
        "type": "nodeport",
        "port": 9095,
        "configuration": {
            "preferredNodePortAddressType": "InternalIP",
            "externalTrafficPolicy": "Local",
            "advertisedPortTemplate": "3008{nodeId}",
            "brokers": [{"broker": broker, "nodePort": NODE_PORT + broker} for broker in range(BROKERS)],
        },
    },
    {"name": "balanced", "type": "loadbalancer", "port": BALANCED_PORT},
]


@pytest.fixture(scope="module")
def topic(cluster: Cluster, release: float) -> Iterator[str]:
    """On a cluster of its own, which goes with its volumes."""
    spec = {"replicas": BROKERS, "storage": {"size": "1Gi", "deleteClaim": True}, "listeners": LISTENERS}
    body = topic_object(NAME, BROKERS, PARTITIONS)
    body["spec"]["clusterRef"] = {"name": NAME}
    cluster.apply(
        {"apiVersion": "kafkalite.io/v1alpha1", "kind": "KafkaLiteCluster", "metadata": {"name": NAME}, "spec": spec},
        body,
    )
    cluster.wait("condition=Ready", f"klt/{NAME}", limit_s=READY_LIMIT_S)
    yield NAME
    made = [each["metadata"]["name"] for each in cluster.read(TOPICS)["items"] if of(each) == NAME]  # and of groups
    cluster.kubectl("delete", *(f"klt/{name}" for name in made), f"klc/{NAME}", limit_s=180)


def of(topic: dict[str, Any]) -> str:
    """The cluster that a topic names."""
    return topic["spec"].get("clusterRef", {}).get("name", "")


def listener(cluster: Cluster, name: str) -> dict[str, Any]:
    """What clients of it are told."""
    [found] = [each for each in cluster.read(CLUSTERS, NAME)["status"]["listeners"] if each["name"] == name]
    return found


def addresses(cluster: Cluster, name: str) -> dict[int, str]:
    return {each["broker"]: f"{each['host']}:{each['port']}" for each in listener(cluster, name)["addresses"]}


def addresses_ready(cluster: Cluster) -> dict[str, Any]:
    """The condition ListenersReady."""
    conditions = cluster.read(CLUSTERS, NAME).get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == "ListenersReady"), {"status": "", "message": ""})


def node_addresses(cluster: Cluster) -> dict[int, str]:
    """Of the node of each broker, as the kubelet reports it."""
    return {broker: cluster.get(f"pod/{NAME}-broker-{broker}")["status"]["hostIP"] for broker in range(BROKERS)}


def went_through(said: str, expected: dict[int, str]) -> None:
    """Judge what client/through.py says."""
    told = json.loads(said)
    assert told["errors"] == []
    assert told["brokers"] == {str(broker): address for broker, address in expected.items()}
    every = {str(partition): RECORDS for partition in range(PARTITIONS)}
    assert (told["acknowledged"], told["read"]) == (every, every)


@pytest.mark.parametrize("name", ["nodes", "templated"])
def test_a_client_beside_the_nodes_uses_their_ports(cluster: Cluster, nodes: Nodes, topic: str, name: str):
    ports = {
        broker: cluster.get(f"service/{NAME}-broker-{broker}-{name}")["spec"]["ports"][0]["nodePort"]
        for broker in range(BROKERS)
    }
    if name == "templated":
        assert ports == {broker: NODE_PORT + broker for broker in range(BROKERS)}
    expected = {broker: f"{host}:{ports[broker]}" for broker, host in node_addresses(cluster).items()}
    cluster.until(lambda: addresses(cluster, name) == expected, f"addresses of {name} are known", ADDRESSES_LIMIT_S)
    servers = listener(cluster, name)["bootstrapServers"]
    assert sorted(servers.split(",")) == sorted(expected.values())
    went_through(nodes.outside("through.py", servers, topic, str(RECORDS)), expected)


def test_any_node_leads_to_the_bootstrap_service(cluster: Cluster, nodes: Nodes, topic: str):
    """Which is what a user writes down who knows one node, be it one without a broker."""
    port = cluster.get(f"service/{NAME}-bootstrap-nodes")["spec"]["ports"][0]["nodePort"]
    [plane] = cluster.items("nodes", "--selector=node-role.kubernetes.io/control-plane")
    [host] = [each["address"] for each in plane["status"]["addresses"] if each["type"] == "InternalIP"]
    went_through(nodes.outside("through.py", f"{host}:{port}", topic, str(RECORDS)), addresses(cluster, "nodes"))


def test_clients_are_told_the_addresses_of_load_balancers(cluster: Cluster, topic: str):
    """No load balancer is here: the test says in its place which addresses Services have."""
    waiting = addresses_ready(cluster)
    assert waiting["status"] == "False"
    assert f"Service {NAME}-broker-0-balanced has no address yet" in waiting["message"]
    assert addresses(cluster, "balanced") == {}

    balance(cluster, "bootstrap-balanced", {"ip": BALANCER.format(9)})
    balance(cluster, "broker-0-balanced", {"hostname": "kafka-0.example.com"})
    named = {0: f"kafka-0.example.com:{BALANCED_PORT}"}
    cluster.until(lambda: addresses(cluster, "balanced") == named, "the first address is told", ADDRESSES_LIMIT_S)
    assert addresses_ready(cluster)["status"] == "False"

    for broker in range(BROKERS):
        balance(cluster, f"broker-{broker}-balanced", {"ip": BALANCER.format(10 + broker)})
    found = {broker: f"{BALANCER.format(10 + broker)}:{BALANCED_PORT}" for broker in range(BROKERS)}
    cluster.until(lambda: addresses(cluster, "balanced") == found, "all addresses are told", ADDRESSES_LIMIT_S)
    cluster.until(lambda: addresses_ready(cluster)["status"] == "True", "ListenersReady", ADDRESSES_LIMIT_S)
    servers = listener(cluster, "balanced")["bootstrapServers"]
    assert servers == f"{BALANCER.format(9)}:{BALANCED_PORT}"
    client = cluster.in_client("through.py", servers, topic, str(RECORDS))
    said, _ = client.communicate(timeout=120 * PATIENCE)
    went_through(said, found)


def balance(cluster: Cluster, service: str, address: dict[str, str]) -> None:
    """Give a Service an address, as the provider of load balancers does."""
    change = {"status": {"loadBalancer": {"ingress": [address]}}}
    cluster.kubectl(
        "patch", f"service/{NAME}-{service}", "--subresource=status", "--type=merge", f"--patch={json.dumps(change)}"
    )

"""A cluster with two listeners: clients of the second are told addresses of the second alone."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kubernetes.client import CoreV1Api

from kafkalite_core.resources.naming import broker_labels
from kafkalite_local.pytest_plugin import free_ports
from kafkalite_runtime.home import NODE_NAME
from tests.integration.cluster import GROUP, NAMESPACE, VERSION

NAME = "two-listeners"
BROKERS = 2
RECORDS = 200
DEADLINE_S = 120.0


def wait(check, what: str):
    end = time.monotonic() + DEADLINE_S
    while not (found := check()):
        assert time.monotonic() < end, what
        time.sleep(0.1)
    return found


@pytest.fixture(scope="module")
def ports():
    first = free_ports().base
    return first, first + 10


@pytest.fixture(scope="module")
def two_listeners(shared_cluster, ports):
    """A second cluster beside the shared one, and a topic; gone afterwards."""
    inside, outside = ports
    spec = {
        "replicas": BROKERS,
        "listeners": [
            {"name": "inside", "type": "hostport", "port": inside},
            {
                "name": "outside",
                "type": "hostport",
                "port": outside,
                # Another name of the same address: what clients are told shows which listener they came in on.
                "configuration": {"advertisedHostTemplate": "localhost"},
            },
        ],
        "metrics": {"port": inside + 20},
        "rack": {"topologyKey": "kubernetes.io/hostname"},
    }
    kinds = {"kafkaliteclusters": ("KafkaLiteCluster", spec)}
    topic = {"clusterRef": {"name": NAME}, "partitions": 4, "replicas": 2, "config": {"min.insync.replicas": "1"}}
    kinds["kafkalitetopics"] = ("KafkaLiteTopic", topic)
    for plural, (kind, body) in kinds.items():
        document = {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "metadata": {"name": NAME}, "spec": body}
        shared_cluster.api.create_namespaced_custom_object(GROUP, VERSION, NAMESPACE, plural, document)
    try:
        yield shared_cluster
    finally:
        for plural in reversed(kinds):
            shared_cluster.api.delete_namespaced_custom_object(GROUP, VERSION, NAMESPACE, plural, NAME)
        labels = ",".join(f"{key}={value}" for key, value in broker_labels(NAME).items())
        core = CoreV1Api(shared_cluster.api.api_client)
        wait(lambda: not core.list_namespaced_pod(NAMESPACE, label_selector=labels).items, "the pods are still there")


def condition(cluster, plural, type_):
    obj = cluster.api.get_namespaced_custom_object(GROUP, VERSION, NAMESPACE, plural, NAME)
    found = [each for each in obj.get("status", {}).get("conditions", []) if each["type"] == type_]
    return found[0]["status"] if found else None


def told(bootstrap: str) -> dict[int, tuple[str, int]]:
    """The brokers that Metadata names."""
    metadata = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30)
    return {number: (broker.host, broker.port) for number, broker in metadata.brokers.items()}


def test_clients_stay_on_the_listener_that_they_came_in_on(two_listeners, ports):
    inside, outside = ports
    wait(lambda: condition(two_listeners, "kafkalitetopics", "Healthy") == "True", "the topic is not healthy")
    wait(lambda: condition(two_listeners, "kafkaliteclusters", "ListenersReady") == "True", "no addresses")
    assert told(f"127.0.0.1:{inside}") == {n: ("127.0.0.1", inside + n) for n in range(BROKERS)}
    wanted = {n: ("localhost", outside + n) for n in range(BROKERS)}
    assert told(f"127.0.0.1:{outside}") == wanted
    assert told(f"127.0.0.1:{outside + 1}") == wanted

    bootstrap = {"bootstrap.servers": f"localhost:{outside}"}
    producer = Producer(bootstrap | {"acks": "all", "enable.idempotence": True})
    failed = []
    for number in range(RECORDS):
        producer.produce(
            NAME, value=b"%d" % number, key=b"%d" % number, on_delivery=lambda e, _: e and failed.append(e)
        )
    assert producer.flush(60) == 0
    assert not failed
    # With a group, so that the coordinator is looked up, too.
    config = {"group.id": "outside", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer(bootstrap | config)
    consumer.subscribe([NAME])
    values = set()
    end = time.monotonic() + DEADLINE_S
    while len(values) < RECORDS and time.monotonic() < end:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            values.add(int(message.value()))
    assert values == set(range(RECORDS))
    committed = consumer.commit(asynchronous=False)
    assert {each.offset for each in committed} == {
        consumer.position([TopicPartition(NAME, each.partition)])[0].offset for each in committed
    }
    consumer.close()


def test_brokers_have_the_rack_of_their_node(two_listeners):
    """`kubernetes.io/hostname` is a label that no Kubernetes copies to pods: the operator does."""

    def racks():
        found = [
            two_listeners.api.get_namespaced_custom_object(
                GROUP, VERSION, NAMESPACE, "kafkalitebrokers", f"{NAME}-broker-{number}"
            )
            for number in range(BROKERS)
        ]
        return [each.get("status", {}).get("registration", {}).get("rack") for each in found]

    wait(lambda: racks() == [NODE_NAME] * BROKERS, f"{racks()}, not {NODE_NAME}")
    assert condition(two_listeners, "kafkaliteclusters", "RacksKnown") == "True"

"""Deletions and a restored etcd with real brokers on a real API server: what their disks hold is not lost by accident.

As tests/integration/test_store_restored.py and its neighbours, on a control plane whose history, watch caches, garbage
collector and versions are Kubernetes'.
"""

from __future__ import annotations

import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml
from confluent_kafka import Consumer, Producer, TopicPartition
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from kafkalite_cli.verify.load import Load
from tests.cluster.control_plane import control_plane
from tests.contract.conftest import ROOT
from tests.ha.real_brokers import RealBrokers
from tests.integration.cluster import GROUP, NAMESPACE, VERSION, condition, in_sync

pytestmark = pytest.mark.timeout(300)
RATE = 100
RECORDS = 200
LIMIT_S = 120.0
TICKS = 3_000
"""Versions of etcd: of ten minutes at least, with some Leases and a topic under load."""


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """A control plane of this file's own, which goes back in time for everybody, and three brokers."""
    folder = tmp_path_factory.mktemp("real-brokers")
    with control_plane(folder / "control-plane") as plane:
        brokers = RealBrokers(plane, folder)
        brokers.up()
        try:
            yield plane, brokers
        finally:
            brokers.close()
            brokers.down()


@pytest.fixture
def plane(started):
    return started[0]


@pytest.fixture
def cluster(started):
    return started[1]


def write(cluster, topic: str, records: int = RECORDS) -> list[str]:
    """So many acknowledged records in partition 0."""
    written, failed = [], []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True})
    for number in range(records):
        value = f"{topic}-{number}"
        producer.produce(
            topic, value.encode(), partition=0, on_delivery=lambda error, _: failed.append(error) if error else None
        )
        written.append(value)
    assert producer.flush(60) == 0
    assert not failed
    return written


def read(cluster, topic: str, count: int = RECORDS) -> list[str]:
    """The first records of partition 0."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[str] = []
    end = time.monotonic() + 60
    try:
        while len(found) < count and time.monotonic() < end:
            for message in consumer.consume(count - len(found), 0.5):
                if message.error() is None:
                    found.append(message.value().decode())
    finally:
        consumer.close()
    return found


def manifest(name: str, *, adopt: bool = False, **spec) -> dict:
    annotations = {"kafkalite.io/adopt-strays": "true"} if adopt else {}
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "KafkaLiteTopic",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"partitions": 1, "replicas": 3, "config": {"min.insync.replicas": "2"}, **spec},
    }


def apply(cluster, body: dict) -> None:
    """Again until the API serves the kind."""
    end = time.monotonic() + 60
    while True:
        try:
            cluster.api.create_namespaced_custom_object(GROUP, VERSION, NAMESPACE, "kafkalitetopics", body)
        except ApiException as error:
            if error.status != 404 or time.monotonic() > end:
                raise
            time.sleep(0.1)
        else:
            return


def is_ready(topic: dict) -> bool:
    ready = condition(topic, "Ready")
    return ready is not None and ready["status"] == "True" and in_sync(topic)


def test_a_topic_that_was_kept_comes_back_with_its_records(cluster):
    apply(cluster, manifest("kept", deletionPolicy="Retain"))
    old = cluster.wait_topic("kept", is_ready, LIMIT_S)["status"]
    cluster.wait_known("kept", 1)
    written = write(cluster, "kept")
    cluster.delete_topic("kept")
    apply(cluster, manifest("kept"))
    new = cluster.wait_topic("kept", is_ready, LIMIT_S)["status"]
    assert new["topicId"] == old["topicId"]
    for epoch in ("leaderEpoch", "partitionEpoch"):
        assert new["partitions"]["0"][epoch] > old["partitions"]["0"][epoch]
    assert read(cluster, "kept") == written


def test_a_cluster_that_was_deleted_comes_back_with_its_records(cluster):
    """For its topics are there, the operator makes it again; id and volumes are those that it had.

    Its brokers are new registrations, and their directories prove what they had reported: nobody has to consent.
    """
    apply(cluster, manifest("orders"))
    before = cluster.wait_topic("orders", is_ready, LIMIT_S)["status"]["partitions"]["0"]
    cluster.wait_known("orders", 1)
    written = write(cluster, "orders")
    plural = (GROUP, VERSION, NAMESPACE, "kafkaliteclusters")
    old = cluster.api.get_namespaced_custom_object(*plural, "kafkalite")
    cluster.api.delete_namespaced_custom_object(*plural, "kafkalite")

    def again(made: dict) -> bool:
        return made["metadata"]["uid"] != old["metadata"]["uid"] and made.get("status", {}).get("clusterId", "") != ""

    made = cluster._wait("kafkaliteclusters", "kafkalite", again, LIMIT_S)
    assert made["status"]["clusterId"] == old["status"]["clusterId"]
    brokers_of(cluster, made)

    def led_anew(topic: dict) -> bool:
        return is_ready(topic) and topic["status"]["partitions"]["0"]["leaderEpoch"] > before["leaderEpoch"]

    after = cluster.wait_topic("orders", led_anew, LIMIT_S)["status"]["partitions"]["0"]
    events = client.CoreV1Api(cluster.api.api_client).list_namespaced_event(
        NAMESPACE, field_selector="reason=UncleanLeaderElection"
    )
    assert not events.items
    assert min(after["isrBrokerEpochs"]) > max(before["isrBrokerEpochs"]), "no broker epoch is used twice"
    cluster.wait_known("orders", 1)
    assert read(cluster, "orders") == written


def brokers_of(cluster, made: dict) -> None:
    """Wait until the brokers of this cluster, not of one before it, run."""
    for number in range(3):

        def runs(broker: dict) -> bool:
            owner = broker["metadata"]["ownerReferences"][0]["uid"]
            state = (broker.get("status", {}).get("registration") or {}).get("state")
            return owner == made["metadata"]["uid"] and state == "Running"

        cluster.wait_broker(number, runs, LIMIT_S)


def test_records_outlive_the_definitions(cluster):
    """`kubectl delete crd` deletes every topic under the brokers' eyes: within the hour they can be had back."""
    apply(cluster, manifest("audit"))
    old = cluster.wait_topic("audit", is_ready, LIMIT_S)["status"]
    cluster.wait_known("audit", 1)
    written = write(cluster, "audit")
    definitions = client.ApiextensionsV1Api(cluster.api.api_client)
    documents = [yaml.safe_load(file.read_text()) for file in sorted((ROOT / "crds").glob("*.yaml"))]
    for document in documents:
        definitions.delete_custom_resource_definition(document["metadata"]["name"])
    end = time.monotonic() + 60
    while definitions.list_custom_resource_definition().items:
        assert time.monotonic() < end, "a definition is stuck"
        time.sleep(0.1)
    for document in documents:
        definitions.create_custom_resource_definition(document)
    apply(cluster, manifest("audit", adopt=True))
    new = cluster.wait_topic("audit", is_ready, LIMIT_S)["status"]
    assert new["topicId"] == old["topicId"]
    cluster.wait_known("audit", 1)
    assert read(cluster, "audit") == written


def hours_pass(cluster) -> None:
    """As far as etcd's revision tells: what is made from now on has a version that a restored store is long in giving out."""
    core = client.CoreV1Api(cluster.api.api_client)
    core.create_namespaced_config_map(NAMESPACE, {"metadata": {"name": "clock"}})

    def tick(number: int) -> None:
        core.patch_namespaced_config_map("clock", NAMESPACE, {"data": {"ticks": str(number)}})

    with ThreadPoolExecutor(4) as several:
        list(several.map(tick, range(TICKS)))


def test_etcd_is_restored_under_load(plane, cluster, tmp_path):
    """Brokers and operator notice (S11), nothing acknowledged is lost, and they go on in new epochs."""
    cluster.create_topic("restored", partitions=3, min_insync_replicas="2")
    with Load(cluster.bootstrap, "restored", rate=RATE) as load:
        load.wait_acks(RATE, timeout_s=60)
        plane.back_up(tmp_path / "snapshot")
        old = cluster.topic("restored")["status"]["partitions"]
        for broker in (0, 1):
            cluster.signal(broker, signal.SIGKILL)
            cluster.wait_healed()
        hours_pass(cluster)
        cluster.create_topic("made-later", partitions=1)
        load.wait_acks(4 * RATE, timeout_s=60)
        before = cluster.topic("restored")["status"]["partitions"]
        changed = [number for number in before if before[number]["leaderEpoch"] > old[number]["leaderEpoch"]]
        assert changed
        plane.restore(tmp_path / "snapshot")

        def beyond_the_past(topic: dict) -> bool:
            partitions = topic.get("status", {}).get("partitions") or {}
            return in_sync(topic) and all(
                partitions[number]["leaderEpoch"] > before[number]["leaderEpoch"] for number in changed
            )

        cluster.wait_topic("restored", beyond_the_past, timeout=LIMIT_S)
        cluster.wait_healed()
        load.wait_acks(8 * RATE, timeout_s=LIMIT_S)
    verdict = load.report()
    assert verdict.ok, verdict
    # The topic that the snapshot did not have: what is left of it comes back with it.
    made = cluster.create_topic("made-later", partitions=1)
    assert made["status"]["partitions"]["0"]["leaderEpoch"] > 0

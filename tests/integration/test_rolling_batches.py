"""A roll of five brokers under load in which two go at once: nothing is lost, no partition falls below its minimum."""

from __future__ import annotations

import threading

import pytest
from kubernetes import watch
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from kafkalite_cli.verify.load import Load
from tests.integration.cluster import GROUP, NAMESPACE, VERSION, in_sync, running, started
from tests.integration.test_rolling import Watcher, change, uids

RATE = 300
BROKERS = 5
# Brokers 0 and 1 have no partition in common with 3 and 4: one of each pair may be away, at the same time.
ASSIGNMENT = [[0, 1, 2], [1, 2, 0], [2, 0, 1], [2, 3, 4], [3, 4, 2], [4, 2, 3]]


class Changes(threading.Thread):
    """Every version of one object, as the watch tells them."""

    def __init__(self, cluster, plural, name):
        super().__init__(daemon=True)
        self._list = cluster.api.list_namespaced_custom_object
        self._where = (GROUP, VERSION, NAMESPACE, plural)
        self._name = name
        self._version = self._list(*self._where)["metadata"]["resourceVersion"]
        self._over = threading.Event()
        self.seen = []
        self.missed = []

    def run(self):
        while not self._over.is_set():
            try:
                for event in watch.Watch().stream(
                    self._list,
                    *self._where,
                    field_selector=f"metadata.name={self._name}",
                    resource_version=self._version,
                    timeout_seconds=2,
                ):
                    self._version = event["object"]["metadata"]["resourceVersion"]
                    self.seen.append(event["object"])
            except (HTTPError, ApiException) as error:
                self.missed.append(error)
                return

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self.join(30)
        assert self.missed == []


@pytest.fixture
def own_cluster(tmp_path):
    with started(tmp_path / "home") as cluster:
        change(cluster, {"replicas": BROKERS})
        for number in range(BROKERS):
            cluster.wait_broker(number, running, timeout=120)
        yield cluster


def make(cluster, name):
    body = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "KafkaLiteTopic",
        "metadata": {"name": name},
        "spec": {
            "partitions": len(ASSIGNMENT),
            "replicas": 3,
            "replicaAssignment": {str(number): ids for number, ids in enumerate(ASSIGNMENT)},
            "config": {"min.insync.replicas": "2"},
        },
    }
    cluster.api.create_namespaced_custom_object(GROUP, VERSION, NAMESPACE, "kafkalitetopics", body)
    cluster.wait_topic(name, in_sync)
    cluster.wait_known(name, len(ASSIGNMENT), brokers=range(BROKERS))


def test_two_brokers_go_at_once_and_every_partition_keeps_its_minimum(own_cluster, topic_name):
    make(own_cluster, topic_name)
    before = uids(own_cluster)
    load = Load(own_cluster.bootstrap, topic_name, rate=RATE)
    rolls = Changes(own_cluster, "kafkaliteclusters", "kafkalite")
    partitions = Changes(own_cluster, "kafkalitetopics", topic_name)
    with load, rolls, partitions, Watcher(own_cluster, topic_name) as watcher:
        load.wait_acks(RATE, timeout_s=60)
        load.fault("rolling restart", range(len(ASSIGNMENT)))
        change(own_cluster, {"config": {"log.retention.check.interval.ms": "5000"}})
        own_cluster.wait_cluster(lambda obj: obj["status"].get("rolling", {}).get("inProgress") is True)
        own_cluster.wait_cluster(lambda obj: obj["status"]["rolling"]["inProgress"] is False)
        load.wait_acks(RATE, timeout_s=60)
    verdict = load.report()
    assert verdict.ok, verdict
    after = uids(own_cluster)
    assert before.keys() == after.keys()
    assert not set(before.values()) & set(after.values()), "each was restarted"
    batches = [obj["status"]["rolling"]["restarting"] for obj in rolls.seen if "rolling" in obj.get("status", {})]
    print(f"batches: {[batch for at, batch in enumerate(batches) if batch not in batches[:at]]}; {verdict.pauses}")
    pairs = [sorted(int(name.rpartition("-")[2]) for name in batch) for batch in batches if len(batch) == 2]
    assert pairs
    assert all({low in {0, 1}, high in {3, 4}} == {True} for low, high in pairs), pairs
    assert watcher.most_away == 2, "they really were away at the same time"
    in_sync_counts = {
        len(entry["isr"]) for obj in partitions.seen for entry in (obj["status"].get("partitions") or {}).values()
    }
    assert in_sync_counts == {2, 3}

"""Three brokers become five and three again under load; nothing acknowledged is lost, doubled or reordered.

What is asked for is one edit of the KafkaLiteCluster each; who holds what meanwhile is read from the custom resources.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter

import pytest
from kubernetes import client, watch
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from kafkalite_cli.verify.load import Load
from tests.integration.cluster import GROUP, NAMESPACE, VERSION, condition, in_sync, running, started

RATE = 300
PARTITIONS = 6
CLUSTER = (GROUP, VERSION, NAMESPACE, "kafkaliteclusters", "kafkalite")


@pytest.fixture
def own_cluster(tmp_path):
    """A cluster of its own: others expect three brokers."""
    with started(tmp_path / "home") as cluster:
        yield cluster


class Witness(threading.Thread):
    """Looks at every pod that is asked to end: what had its broker then?"""

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self._core = client.CoreV1Api(cluster.api.api_client)
        self._cluster = cluster
        self._over = threading.Event()
        self.ended = []
        self.held = []

    def run(self):
        version = self._core.list_namespaced_pod(NAMESPACE).metadata.resource_version
        while not self._over.is_set():
            try:
                for event in watch.Watch().stream(
                    self._core.list_namespaced_pod, NAMESPACE, resource_version=version, timeout_seconds=2
                ):
                    pod = event["object"]
                    version = pod.metadata.resource_version
                    if pod.metadata.deletion_timestamp and pod.metadata.name not in self.ended:
                        self.ended.append(pod.metadata.name)
                        number = int(pod.metadata.name.rsplit("-", 1)[1])
                        self.held += [name for name, count in replicas_on(self._cluster, number).items() if count]
            except (HTTPError, ApiException):
                version = self._core.list_namespaced_pod(NAMESPACE).metadata.resource_version

    def stop(self):
        self._over.set()
        self.join(30)


def topics(cluster):
    return cluster.api.list_namespaced_custom_object(GROUP, VERSION, NAMESPACE, "kafkalitetopics")["items"]


def replicas_on(cluster, broker):
    return {
        topic["metadata"]["name"]: sum(
            broker in entry["replicas"] for entry in (topic.get("status", {}).get("partitions") or {}).values()
        )
        for topic in topics(cluster)
    }


def held(topic):
    return Counter(broker for entry in topic["status"]["partitions"].values() for broker in entry["replicas"])


def scale(cluster, replicas):
    cluster.api.patch_namespaced_custom_object(*CLUSTER, {"spec": {"replicas": replicas}})


def wait_scaled(cluster, replicas, timeout=240):
    """So many brokers run, and nothing is left to be done."""

    def scaled(found):
        said = condition(found, "Progressing") or {}
        counts = found["status"].get("brokers")
        seen = said.get("observedGeneration", 0) >= found["metadata"]["generation"]
        return seen and said["reason"] == "Stable" and counts == {"ready": replicas, "total": replicas}

    return cluster._wait("kafkaliteclusters", "kafkalite", scaled, timeout)


def broker_ids(cluster):
    items = cluster.api.list_namespaced_custom_object(GROUP, VERSION, NAMESPACE, "kafkalitebrokers")["items"]
    return sorted(item["spec"]["brokerId"] for item in items)


def test_three_become_five_and_three_again_under_load(own_cluster, topic_name):
    cluster = own_cluster
    cluster.create_topic(topic_name, partitions=PARTITIONS, replicas=3, min_insync_replicas="2")
    pinned = f"{topic_name}-pinned"
    load = Load(cluster.bootstrap, topic_name, rate=RATE, size=200)
    with load:
        load.wait_acks(RATE, timeout_s=60)
        scale(cluster, 5)
        for number in (3, 4):
            cluster.wait_broker(number, running, timeout=120)
        wait_scaled(cluster, 5)
        cluster.run("rebalance", "--execute", "--wait", timeout=300)
        spread = held(cluster.wait_topic(topic_name, in_sync))
        assert set(spread) == {0, 1, 2, 3, 4}
        # One more, placed by hand on brokers that will leave, without anybody else.
        cluster.run("topics", "create", pinned, "--assignment", "4:3")
        cluster.wait_topic(pinned, in_sync)
        load.wait_acks(RATE, timeout_s=60)

        witness = Witness(cluster)
        witness.start()
        begun = load.fault("five become three", range(PARTITIONS))
        started = time.monotonic()
        scale(cluster, 3)
        wait_scaled(cluster, 3)
        print(f"five to three: {time.monotonic() - started:.1f} s")
        pause_s = load.pause_after(begun, range(PARTITIONS), timeout_s=30)
        print(f"pause: {pause_s:.3f} s")
        load.wait_acks(2 * RATE, timeout_s=60)
        witness.stop()
    verdict = load.report()
    assert verdict.ok, verdict
    assert witness.ended == ["kafkalite-broker-4", "kafkalite-broker-3"], "one by one, the last one first"
    assert witness.held == [], "who ended had nothing left"
    for name in (topic_name, pinned):
        after = cluster.wait_topic(name, in_sync)
        assert set(held(after)) <= {0, 1, 2}
    assert broker_ids(cluster) == [0, 1, 2]
    assert not [
        each
        for each in json.loads(cluster.run("doctor", "-o", "json").stdout)["findings"]
        if each["severity"] == "problem"
    ]


def test_fewer_brokers_than_replicas_are_refused_and_a_change_of_mind_is_heeded(own_cluster, topic_name):
    cluster = own_cluster
    cluster.create_topic(topic_name, partitions=3, replicas=3, min_insync_replicas="2")
    before = cluster.topic(topic_name)["status"]["partitions"]
    scale(cluster, 2)

    def refused(found):
        said = condition(found, "Progressing") or {}
        return said.get("reason") == "NotEnoughBrokers" and said

    found = cluster._wait("kafkaliteclusters", "kafkalite", refused, 60)
    assert f"{topic_name} (3)" in condition(found, "Progressing")["message"]
    assert condition(found, "Ready")["status"] == "True"
    found = {
        each["code"]: each for each in json.loads(cluster.run("doctor", "-o", "json", check=False).stdout)["findings"]
    }
    assert "cannot leave" in found["NotEnoughBrokers"]["what"]
    scale(cluster, 3)
    wait_scaled(cluster, 3)
    after = cluster.topic(topic_name)["status"]["partitions"]
    assert {n: e["replicas"] for n, e in after.items()} == {n: e["replicas"] for n, e in before.items()}

"""Changes of a cluster that take restarts, and changes of its volumes, on three real brokers under load."""

from __future__ import annotations

import threading
import time

import pytest
from kubernetes import client

from kafkalite_cli.verify.load import Load
from tests.integration.cluster import GROUP, NAMESPACE, VERSION, in_sync, running, started

RATE = 400
PARTITIONS = 6
NAME = "kafkalite"


@pytest.fixture(scope="module")
def own_cluster(tmp_path_factory):
    with started(tmp_path_factory.mktemp("rolling") / "home") as cluster:
        yield cluster


def change(cluster, spec):
    return cluster.api.patch_namespaced_custom_object(
        GROUP, VERSION, NAMESPACE, "kafkaliteclusters", NAME, {"spec": spec}
    )


def wait_cluster(cluster, predicate, timeout=180):
    return cluster.wait_cluster(predicate, timeout)


def uids(cluster):
    pods = client.CoreV1Api(cluster.api.api_client).list_namespaced_pod(
        NAMESPACE, label_selector=f"kafkalite.io/cluster={NAME}"
    )
    return {pod.metadata.name: pod.metadata.uid for pod in pods.items}


def condition_of(obj, type_):
    return next((c for c in obj.get("status", {}).get("conditions", []) if c["type"] == type_), {})


class Watcher:
    """Looks at the brokers all the time: how many are away at once, and how many pods each of them has had."""

    def __init__(self, cluster, topic):
        self._cluster, self._topic = cluster, topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.looks = 0
        self._seen = threading.Event()
        self.most_away = 0
        self.smallest_isr = 99
        self.pods: dict[str, set[str]] = {}
        self.failure = None

    def __enter__(self):
        self._thread.start()
        assert self._seen.wait(60), "a change before the first look would be compared with nothing"
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join(30)
        assert self.failure is None, self.failure
        assert self.looks > 20

    def _run(self):
        try:
            while not self._stop.is_set():
                self._look()
        except Exception as error:
            self.failure = error
            self._seen.set()

    def _look(self):
        listed = self._cluster.api.list_namespaced_custom_object(GROUP, VERSION, NAMESPACE, "kafkalitebrokers")
        self.most_away = max(self.most_away, sum(not running(broker) for broker in listed["items"]))
        partitions = self._cluster.topic(self._topic)["status"]["partitions"].values()
        self.smallest_isr = min(self.smallest_isr, *(len(each["isr"]) for each in partitions))
        for name, uid in uids(self._cluster).items():
            self.pods.setdefault(name, set()).add(uid)
        self.looks += 1
        self._seen.set()


def test_a_change_that_needs_a_restart_rolls_every_broker_once_under_load(own_cluster, topic_name):
    own_cluster.create_topic(topic_name, partitions=PARTITIONS, min_insync_replicas="2")
    led_before = own_cluster.topic(topic_name)["status"]["partitions"]
    load = Load(own_cluster.bootstrap, topic_name, rate=RATE)
    with load, Watcher(own_cluster, topic_name) as watcher:
        load.wait_acks(RATE, timeout_s=60)
        load.fault("rolling restart", range(PARTITIONS))
        began = time.monotonic()
        change(own_cluster, {"config": {"log.retention.check.interval.ms": "5000"}})
        wait_cluster(own_cluster, lambda obj: obj["status"].get("rolling", {}).get("inProgress") is True)
        over = wait_cluster(own_cluster, lambda obj: obj["status"]["rolling"]["inProgress"] is False)
        took_s = time.monotonic() - began
        load.wait_acks(RATE, timeout_s=60)
    report = load.report()
    assert report.ok, report
    (pause,) = report.pauses
    print(f"three brokers in {took_s:.1f} s; longest pause of a partition {pause.gap_ms:.0f} ms; {pause.gaps_ms}")
    assert over["status"]["rolling"] == {"inProgress": False, "pending": [], "restarting": [], "blockedBy": []}
    assert {name: len(seen) for name, seen in watcher.pods.items()} == {f"{NAME}-broker-{i}": 2 for i in range(3)}
    assert watcher.most_away == 1
    assert watcher.smallest_isr == 2
    back = own_cluster.wait_topic(
        topic_name,
        lambda topic: (
            in_sync(topic)
            and all(e["leader"] == led_before[n]["leader"] for n, e in topic["status"]["partitions"].items())
        ),
    )
    assert back
    config = (own_cluster.home / "pods").glob("*/volumes/config/broker.json")
    assert all('"log.retention.check.interval.ms": "5000"' in path.read_text() for path in config)
    own_cluster.delete_topic(topic_name)


def test_a_change_that_brokers_follow_while_they_run_restarts_nobody(own_cluster):
    before = uids(own_cluster)
    obj = change(own_cluster, {"config": {"replica.lag.time.max.ms": "20000", "no.such.key": "1"}})
    generation = obj["metadata"]["generation"]
    seen = wait_cluster(own_cluster, lambda obj: obj["status"]["observedGeneration"] >= generation)
    assert condition_of(seen, "Healthy")["reason"] == "InvalidConfig"
    assert seen["status"]["rolling"]["inProgress"] is False
    stateful_set = client.AppsV1Api(own_cluster.api.api_client).read_namespaced_stateful_set(
        f"{NAME}-broker", NAMESPACE
    )
    annotation = stateful_set.spec.template.metadata.annotations["kafkalite.io/revision"]
    pods = client.CoreV1Api(own_cluster.api.api_client).list_namespaced_pod(
        NAMESPACE, label_selector=f"kafkalite.io/cluster={NAME}"
    )
    assert {pod.metadata.annotations["kafkalite.io/revision"] for pod in pods.items} == {annotation}
    assert uids(own_cluster) == before
    change(own_cluster, {"config": {"no.such.key": None}})
    wait_cluster(own_cluster, lambda obj: condition_of(obj, "Healthy")["status"] == "True")


def test_a_broker_on_hold_is_left_out_until_it_is_not(own_cluster):
    before = uids(own_cluster)
    own_cluster.api.patch_namespaced_custom_object(
        GROUP, VERSION, NAMESPACE, "kafkalitebrokers", f"{NAME}-broker-1", {"spec": {"hold": True}}
    )
    change(own_cluster, {"config": {"log.retention.check.interval.ms": "4000"}})
    held = wait_cluster(
        own_cluster,
        lambda obj: (
            obj["status"]["rolling"]["pending"] == [f"{NAME}-broker-1"] and not obj["status"]["rolling"]["inProgress"]
        ),
    )
    assert "hold" in held["status"]["rolling"]["blockedBy"][0]["reason"]
    after = uids(own_cluster)
    assert {name for name in before if before[name] != after[name]} == {f"{NAME}-broker-0", f"{NAME}-broker-2"}
    own_cluster.api.patch_namespaced_custom_object(
        GROUP, VERSION, NAMESPACE, "kafkalitebrokers", f"{NAME}-broker-1", {"spec": {"hold": False}}
    )
    wait_cluster(own_cluster, lambda obj: obj["status"]["rolling"]["pending"] == [])
    wait_cluster(own_cluster, lambda obj: obj["status"]["rolling"]["inProgress"] is False)
    own_cluster.wait_healed()


def claims(cluster):
    listed = client.CoreV1Api(cluster.api.api_client).list_namespaced_persistent_volume_claim(NAMESPACE)
    return {
        claim.metadata.name: (claim.spec.resources.requests["storage"], (claim.status.capacity or {}).get("storage"))
        for claim in listed.items
    }


def test_volumes_grow_without_a_restart_and_never_shrink(own_cluster):
    apps = client.AppsV1Api(own_cluster.api.api_client)
    old = apps.read_namespaced_stateful_set(f"{NAME}-broker", NAMESPACE).metadata.uid
    before = uids(own_cluster)
    change(own_cluster, {"storage": {"size": "20Gi"}})
    grown = {f"data-{NAME}-broker-{i}": ("20Gi", "20Gi") for i in range(3)}
    end = time.monotonic() + 60
    while (seen := claims(own_cluster)) != grown:
        assert time.monotonic() < end, seen
        time.sleep(0.1)
    wait_cluster(own_cluster, lambda obj: condition_of(obj, "VolumesSized").get("status") in {None, "True"})
    stateful_set = apps.read_namespaced_stateful_set(f"{NAME}-broker", NAMESPACE)
    assert stateful_set.metadata.uid != old
    (template,) = stateful_set.spec.volume_claim_templates
    assert template.spec.resources.requests["storage"] == "20Gi", "the volume of the next broker is as great"
    own_cluster.wait_healed()
    assert uids(own_cluster) == before, "its pods went on"
    change(own_cluster, {"storage": {"size": "5Gi"}})
    told = wait_cluster(
        own_cluster, lambda obj: condition_of(obj, "VolumesSized").get("reason") == "ShrinkNotSupported"
    )
    assert "set it back to 20Gi" in condition_of(told, "VolumesSized")["message"]
    assert claims(own_cluster) == grown
    change(own_cluster, {"storage": {"size": "20Gi"}})
    wait_cluster(own_cluster, lambda obj: condition_of(obj, "VolumesSized").get("status") == "True")
    # The new StatefulSet owns its pods: it makes one again that is gone.
    client.CoreV1Api(own_cluster.api.api_client).delete_namespaced_pod(f"{NAME}-broker-0", NAMESPACE)
    end = time.monotonic() + 60
    while uids(own_cluster).get(f"{NAME}-broker-0") in {None, before[f"{NAME}-broker-0"]}:
        assert time.monotonic() < end
        time.sleep(0.1)
    own_cluster.wait_healed()

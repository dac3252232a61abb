"""Topics by custom resource: what is refused, what is explained in a condition, growth, deletion, configuration."""

import time

import pytest
from kubernetes.client.exceptions import ApiException

from tests.integration.cluster import GROUP, NAMESPACE, VERSION, condition, in_sync


def explained(*words: str):
    def is_explained(topic: dict) -> bool:
        ready = condition(topic, "Ready")
        return ready is not None and ready["status"] == "False" and all(word in ready["message"] for word in words)

    return is_explained


def test_more_replicas_than_brokers_waits_and_says_so(cluster, topic_name):
    cluster.create_topic(topic_name, replicas=5, wait=False)
    cluster.wait_topic(topic_name, explained("5", "3"))
    cluster.delete_topic(topic_name)


def test_an_unknown_key_is_named(cluster, topic_name):
    body = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "KafkaLiteTopic",
        "metadata": {"name": topic_name},
        "spec": {"partitions": 1, "replicas": 3, "config": {"retention.sm": "1"}},
    }
    cluster.api.create_namespaced_custom_object(GROUP, VERSION, NAMESPACE, "kafkalitetopics", body)

    def names_the_key(topic: dict) -> bool:
        return any("retention.sm" in entry["message"] for entry in topic.get("status", {}).get("conditions", []))

    cluster.wait_topic(topic_name, names_the_key)
    cluster.delete_topic(topic_name)


def test_fewer_partitions_are_refused_by_the_schema(cluster, topic_name):
    cluster.create_topic(topic_name, partitions=2)
    with pytest.raises(ApiException) as refusal:
        cluster.patch_topic(topic_name, {"spec": {"partitions": 1}})
    assert refusal.value.status == 422
    assert "partitions" in refusal.value.body
    cluster.delete_topic(topic_name)


@pytest.mark.parametrize("value", ["0", "-1", "many", "4"])
def test_a_bad_min_insync_replicas_is_refused(cluster, topic_name, value):
    body = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "KafkaLiteTopic",
        "metadata": {"name": topic_name},
        "spec": {"partitions": 1, "replicas": 3, "config": {"min.insync.replicas": value}},
    }
    with pytest.raises(ApiException) as refusal:
        cluster.api.create_namespaced_custom_object(GROUP, VERSION, NAMESPACE, "kafkalitetopics", body)
    assert refusal.value.status == 422
    assert "min.insync.replicas" in refusal.value.body


def test_partitions_grow(cluster, topic_name):
    cluster.create_topic(topic_name, partitions=2)
    before = cluster.topic(topic_name)["status"]["partitions"]
    cluster.patch_topic(topic_name, {"spec": {"partitions": 5}})
    after = cluster.wait_topic(topic_name, in_sync)["status"]["partitions"]
    assert {number: entry["replicas"] for number, entry in after.items() if number in before} == {
        number: entry["replicas"] for number, entry in before.items()
    }
    assert len(after) == 5
    cluster.delete_topic(topic_name)


def test_a_changed_min_insync_replicas_reaches_the_partition_entry(cluster, topic_name):
    cluster.create_topic(topic_name, min_insync_replicas="1")
    cluster.patch_topic(topic_name, {"spec": {"config": {"min.insync.replicas": "2"}}})

    def reached(topic: dict) -> bool:
        return topic["status"]["partitions"]["0"]["minIsr"] == 2

    cluster.wait_topic(topic_name, reached)
    cluster.delete_topic(topic_name)


def made_directory(cluster, topic):
    """The status says that the replica is there a moment before the broker has seen it and made the directory."""
    end = time.monotonic() + 20
    while True:
        try:
            return cluster.log_directory(0, topic)
        except StopIteration:
            assert time.monotonic() < end, "no directory"
            time.sleep(0.02)


def test_a_deleted_topic_is_set_aside_and_not_removed(cluster, topic_name):
    cluster.create_topic(topic_name)
    directory = made_directory(cluster, topic_name)
    topic_id = cluster.topic(topic_name)["status"]["topicId"]
    cluster.delete_topic(topic_name)
    parent = directory.parent
    cluster.wait_broker(0, lambda broker: topic_id in {s["topicId"] for s in broker["status"].get("strays", ())})
    assert not directory.exists()
    assert [path for path in parent.iterdir() if path.name.startswith(topic_name) and path.name.endswith(".stray")]

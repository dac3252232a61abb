"""Configurations, records, elections and disks by Kafka's admin clients, and that `kubectl` shows the same."""

import contextlib
import signal
import time
import warnings

import pytest
from confluent_kafka import Consumer, ElectionType, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)
from kubernetes.client import CoreV1Api

from kafkalite_core.protocol.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.integration.cluster import GROUP, NAMESPACE, VERSION
from tests.integration.compaction import restart
from tests.integration.waiting import WAIT_S, wait_until, watermarks
from tests.integration.wire import Wire

with warnings.catch_warnings():
    # It reads its schemas in a way that Python deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.admin import ConfigResource as PythonResource
    from kafka.admin import ConfigResourceType as PythonType
    from kafka.admin import KafkaAdminClient

BROKER, INCREMENTAL_ALTER_CONFIGS = 4, 44
BROKERS = "kafkalite.io/cluster=kafkalite,kafkalite.io/broker-id"
SET, DELETE, APPEND = AlterConfigOpType.SET, AlterConfigOpType.DELETE, AlterConfigOpType.APPEND


def admin_client(cluster):
    """A new one after a broker was killed: librdkafka forgets brokers, with requests that wait for them."""
    return AdminClient({"bootstrap.servers": cluster.bootstrap, "socket.timeout.ms": 20_000})


@pytest.fixture
def admin(cluster):
    return admin_client(cluster)


def done(futures):
    """The one result of a call on one thing; raises what it failed with."""
    (future,) = futures.values()
    return future.result(WAIT_S)


def described(admin, kind, name):
    return done(admin.describe_configs([ConfigResource(kind, name)], request_timeout=WAIT_S))


def alter(admin, kind, name, *changes):
    """`changes` are (key, operation, value)."""
    entries = [ConfigEntry(key, value, incremental_operation=operation) for key, operation, value in changes]
    done(admin.incremental_alter_configs([ConfigResource(kind, name, incremental_configs=entries)]))


def refusal(admin, kind, name, *changes):
    with pytest.raises(KafkaException) as failure:
        alter(admin, kind, name, *changes)
    return failure.value.args[0]


def cluster_object(cluster):
    return cluster.api.get_namespaced_custom_object(GROUP, VERSION, NAMESPACE, "kafkaliteclusters", "kafkalite")


def rolling(cluster):
    return cluster_object(cluster)["status"].get("rolling") or {}


def broker_pods(cluster):
    return CoreV1Api(cluster.api.api_client).list_namespaced_pod(NAMESPACE, label_selector=BROKERS).items


def hold(cluster, held):
    """Keep the operator from restarting brokers, or let it again."""
    for broker_id in range(3):
        name, body = f"kafkalite-broker-{broker_id}", {"spec": {"hold": held}}
        cluster.api.patch_namespaced_custom_object(GROUP, VERSION, NAMESPACE, "kafkalitebrokers", name, body)


def patch_cluster(cluster, body):
    cluster.api.patch_namespaced_custom_object(GROUP, VERSION, NAMESPACE, "kafkaliteclusters", "kafkalite", body)


def deliveries(cluster, topic, *values):
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    errors = []
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(WAIT_S) == 0
    return errors


def produce(cluster, topic, *values):
    assert deliveries(cluster, topic, *values) == [None] * len(values)


def takes(cluster, topic, value):
    (error,) = deliveries(cluster, topic, value)
    assert error is None or error.code() == KafkaError.MSG_SIZE_TOO_LARGE
    return error is None


def moved_away(preferred):
    def moved(topic):
        return topic["status"]["partitions"]["0"]["leader"] not in {preferred, -1}

    return moved


# ------------------------------------------------------------------------------------------------- configurations


def test_a_topics_configuration_through_clients_and_kubectl(cluster, admin, topic_name):
    cluster.create_topic(topic_name, retention_ms="86400000")
    found = described(admin, ResourceType.TOPIC, topic_name)
    retention = found["retention.ms"]
    assert (retention.value, retention.source) == ("86400000", ConfigSource.DYNAMIC_TOPIC_CONFIG.value)
    assert [(name, layer.value) for name, layer in retention.synonyms.items()] == [
        ("retention.ms", "86400000"), ("log.retention.ms", "604800000"),
    ]  # fmt: skip
    assert found["segment.bytes"].source == ConfigSource.DEFAULT_CONFIG.value
    alter(
        admin, ResourceType.TOPIC, topic_name,
        ("retention.ms", DELETE, None), ("max.message.bytes", SET, "2048"), ("cleanup.policy", APPEND, "compact"),
    )  # fmt: skip
    config = cluster.topic(topic_name)["spec"]["config"]
    assert config == {"max.message.bytes": "2048", "cleanup.policy": "delete,compact"}
    # In force, with every broker: the leader refuses what is too large now.
    assert not takes(cluster, topic_name, b"x" * 3000)
    # kubectl changes it, and clients see that.
    cluster.patch_topic(topic_name, {"spec": {"config": {"retention.bytes": "4096", "cleanup.policy": None}}})
    wait_until(lambda: described(admin, ResourceType.TOPIC, topic_name)["retention.bytes"].value == "4096")
    error = refusal(admin, ResourceType.TOPIC, topic_name, ("retention.ms", SET, "soon"))
    assert error.code() == KafkaError.INVALID_CONFIG
    assert "whole number" in error.str()
    assert refusal(admin, ResourceType.TOPIC, "absent", ("retention.ms", SET, "1")).code() == (
        KafkaError.UNKNOWN_TOPIC_OR_PART
    )
    cluster.delete_topic(topic_name)


def test_kafka_python_and_the_configuration_that_replaces(cluster, topic_name):
    cluster.create_topic(topic_name, retention_ms="1000", segment_ms="5000")
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
    try:
        resource = PythonResource(PythonType.TOPIC, topic_name, configs={"retention.ms": "7000"})
        admin.alter_configs([resource])
        wait_until(lambda: cluster.topic(topic_name)["spec"]["config"]["retention.ms"] == "7000")
        assert "retention.ms" in str(admin.describe_configs([PythonResource(PythonType.TOPIC, topic_name)]))
    finally:
        admin.close()
    cluster.delete_topic(topic_name)


def alter_defaults(cluster, key, value):
    """The empty name of a broker stands for all of them; neither Python client lets it pass. (code, sentence)."""
    with Wire(("127.0.0.1", cluster.port + 1), timeout=WAIT_S) as wire:
        resource = AlterConfigsResource(BROKER, "", [AlterableConfig(key, SET.value, value)])
        (response,) = wire.request(INCREMENTAL_ALTER_CONFIGS, 1, IncrementalAlterConfigsRequest([resource])).responses
        return response.error_code, response.error_message


def test_defaults_of_all_brokers_are_the_clusters_configuration(cluster, admin, topic_name):
    cluster.create_topic(topic_name)
    try:
        assert alter_defaults(cluster, "log.segment.bytes", "65536") == (0, None)
        assert cluster_object(cluster)["spec"]["config"]["log.segment.bytes"] == "65536"
        for broker in range(3):
            wait_until(
                lambda broker=str(broker): (
                    described(admin, ResourceType.BROKER, broker)["log.segment.bytes"].value == "65536"
                )
            )
        segment = described(admin, ResourceType.TOPIC, topic_name)["segment.bytes"]
        assert (segment.value, segment.source) == ("65536", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value)
        # In force at once, with every leader, without a restart.
        assert alter_defaults(cluster, "message.max.bytes", "2048") == (0, None)
        wait_until(lambda: not takes(cluster, topic_name, b"x" * 3000))
        assert alter_defaults(cluster, "num.io.threads", "16") == (0, None)
        assert alter_defaults(cluster, "log.cleaner.threads", "2") == (0, None)
        code, sentence = alter_defaults(cluster, "num.io.threads", "64")
        assert (code, "too far from 16" in sentence) == (KafkaError.INVALID_CONFIG, True)
        code, sentence = alter_defaults(cluster, "log.retention.check.interval.ms", "2")
        assert (code, "restart" in sentence) == (KafkaError.INVALID_REQUEST, True)
        own = described(admin, ResourceType.BROKER, "1")
        assert (own["node.id"].value, own["log.retention.check.interval.ms"].is_read_only) == ("1", True)
        assert own["advertised.listeners"].value.endswith(str(cluster.port + 1))
        # As the reassignment tool does, broker by broker.
        for broker in ("0", "1"):
            alter(admin, ResourceType.BROKER, broker, ("leader.replication.throttled.rate", DELETE, None))
    finally:
        changed = ("log.segment.bytes", "message.max.bytes", "num.io.threads", "log.cleaner.threads")
        patch_cluster(cluster, {"spec": {"config": dict.fromkeys(changed)}})
    wait_until(lambda: takes(cluster, topic_name, b"x" * 3000))
    cluster.delete_topic(topic_name)


def impatient(address):
    """A connection that is asked in a moment whether it is closed; to be made it has all the time that it needs."""
    wire = Wire(address)
    wire.socket.settimeout(0.01)
    return wire


def test_brokers_follow_another_limit_of_connections_while_they_run(cluster, admin):
    address = ("127.0.0.1", cluster.port + 1)
    pods = {pod.metadata.uid for pod in broker_pods(cluster)}

    def alter_limit(operation, value):
        resource = AlterConfigsResource(BROKER, "", [AlterableConfig("max.connections", operation.value, value)])
        (answer,) = wire.request(INCREMENTAL_ALTER_CONFIGS, 1, IncrementalAlterConfigsRequest([resource])).responses
        return answer.error_code

    def limit():
        found = described(admin, ResourceType.BROKER, "0")["max.connections"]
        return found.value, found.source, found.is_read_only

    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(impatient(address)) for _ in range(30)]
        wire = stack.enter_context(Wire(address, timeout=WAIT_S))
        try:
            # Who spoke last stays; the broker counts milliseconds, and 31 connections take it less than one.
            assert alter_limit(DELETE, None) == 0
            time.sleep(0.01)
            assert alter_limit(SET, "20") == 0
            wait_until(lambda: limit() == ("20", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value, False))
            wait_until(lambda: sum(each.closed_by_broker() for each in idle) >= 11)
            wait_until(lambda: stack.enter_context(Wire(address, timeout=1)).closed_by_broker())
            assert alter_limit(DELETE, None) == 0
            wait_until(lambda: limit() == ("10000", ConfigSource.DEFAULT_CONFIG.value, False))
            more = [stack.enter_context(impatient(address)) for _ in range(30)]
            assert alter_defaults(cluster, "unheard.of", "1")[0] == KafkaError.INVALID_CONFIG, "it is served"
            assert not any(each.closed_by_broker() for each in more)
        finally:
            patch_cluster(cluster, {"spec": {"config": {"max.connections": None}}})
    generation = cluster_object(cluster)["metadata"]["generation"]
    wait_until(lambda: cluster_object(cluster)["status"]["observedGeneration"] >= generation)
    assert not rolling(cluster).get("pending")
    assert {pod.metadata.uid for pod in broker_pods(cluster)} == pods, "nobody was restarted"


# ------------------------------------------------------------------------------------------------- records


def test_deleted_records_are_gone_for_consumers_and_on_every_replica(cluster, admin, topic_name):
    cluster.create_topic(topic_name)
    produce(cluster, topic_name, *[str(number).encode() for number in range(10)])
    began = time.monotonic()
    deleted = done(admin.delete_records([TopicPartition(topic_name, 0, 7)], request_timeout=WAIT_S))
    assert deleted.low_watermark == 7
    assert time.monotonic() - began < 15
    assert watermarks(cluster, topic_name) == (7, 10)
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": topic_name, "auto.offset.reset": "earliest"}
    )
    consumer.assign([TopicPartition(topic_name, 0, 0)])
    message = consumer.poll(WAIT_S)
    consumer.close()
    assert (message.offset(), message.value()) == (7, b"7")
    with pytest.raises(KafkaException) as failure:
        done(admin.delete_records([TopicPartition(topic_name, 0, 11)], request_timeout=WAIT_S))
    assert failure.value.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE
    # The leader dies: the next one has the same start.
    old = cluster.leader(topic_name)
    cluster.kill(old)
    cluster.wait_topic(topic_name, moved_away(old))
    assert watermarks(cluster, topic_name) == (7, 10)
    cluster.wait_healed()
    admin = admin_client(cluster)
    assert done(admin.delete_records([TopicPartition(topic_name, 0, -1)], request_timeout=WAIT_S)).low_watermark == 10
    assert watermarks(cluster, topic_name) == (10, 10)
    cluster.delete_topic(topic_name)


# ------------------------------------------------------------------------------------------------- elections, disks


def test_the_preferred_leader_comes_back_when_asked_for_and_follows_a_changed_retention(cluster, topic_name):
    """The broker is killed, so it also takes a key that needs that: how often it looks for old segments."""
    cluster.create_topic(topic_name, segment_bytes="1024", file_delete_delay_ms="0")
    for _ in range(6):
        produce(cluster, topic_name, b"x" * 600)
    partition = TopicPartition(topic_name, 0)
    preferred = cluster.partition(topic_name)["replicas"][0]
    hold(cluster, True)
    # The operator shall not put the leader back before it is asked to.
    changed = {"log.retention.check.interval.ms": "200", "auto.leader.rebalance.enable": "false"}
    patch_cluster(cluster, {"spec": {"config": changed}})
    try:
        file = cluster.home / "pods" / f"kafkalite-broker-{preferred}" / "volumes" / "config" / "broker.json"
        wait_until(lambda: "log.retention.check.interval.ms" in file.read_text())
        wait_until(lambda: len(rolling(cluster).get("pending", ())) == 3)
        cluster.kill(preferred)
        cluster.wait_topic(topic_name, moved_away(preferred))
        cluster.wait_healed()
        cluster.wait_known(topic_name, 1)
        admin = admin_client(cluster)
        assert described(admin, ResourceType.BROKER, str(preferred))["log.retention.check.interval.ms"].value == "200"
        outcome = admin.elect_leaders(ElectionType.PREFERRED, [partition, TopicPartition(topic_name, 1)])
        errors = outcome.result(WAIT_S)
        assert errors[partition] is None
        assert errors[TopicPartition(topic_name, 1)].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        assert cluster.leader(topic_name) == preferred
        for kind in (ElectionType.PREFERRED, ElectionType.UNCLEAN):
            error = admin.elect_leaders(kind, [partition]).result(WAIT_S)[partition]
            assert error.code() == KafkaError.ELECTION_NOT_NEEDED
        assert watermarks(cluster, topic_name) == (0, 6)
        alter(admin, ResourceType.TOPIC, topic_name, ("retention.bytes", SET, "1"))
        wait_until(lambda: watermarks(cluster, topic_name)[0] > 0)
        produce(cluster, topic_name, b"after")
    finally:
        patch_cluster(cluster, {"spec": {"config": dict.fromkeys(changed)}})
        wait_until(lambda: not rolling(cluster).get("pending"))
        hold(cluster, False)
    # Its pod is of the revision that is wanted again, so nobody restarts it: others' old records would not last there.
    wait_until(lambda: "log.retention.check.interval.ms" not in file.read_text())
    restart(cluster, preferred, how=signal.SIGTERM)
    cluster.delete_topic(topic_name)


def test_disks_partitions_and_reassignments_by_kafka_python(cluster, topic_name):
    cluster.create_topic(topic_name, partitions=2)
    produce(cluster, topic_name, *[b"x" * 1000] * 5)
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
    try:
        found = admin.describe_log_dirs()
        assert len(found) == 3
        for broker in found:
            (directory,) = broker["log_dirs"]
            assert 0 < directory["usable_bytes"] < directory["total_bytes"]
            (mine,) = [topic for topic in directory["topics"] if topic["name"] == topic_name]
            sizes = {part["partition_index"]: part["partition_size"] for part in mine["partitions"]}
            assert sizes.keys() == {0, 1}
            assert sizes[0] > 5000
            assert sizes[1] == 0
        page = admin.describe_topic_partitions([topic_name], response_partition_limit=1)
        assert [len(topic["partitions"]) for topic in page["topics"]] == [1]
        assert page["next_cursor"]["partition_index"] == 1
        assert not page["topics"][0]["partitions"][0]["eligible_leader_replicas"]
        assert admin.list_partition_reassignments() == {}
        assert len(admin.describe_cluster()["brokers"]) == 3
    finally:
        admin.close()
    cluster.delete_topic(topic_name)

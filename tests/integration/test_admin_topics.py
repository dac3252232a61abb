"""Topics by Kafka's own admin clients on real processes, and that `kubectl` and the clients show the same."""

import contextlib
import statistics
import threading
import time
import warnings

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AsyncNewPartitions
from aiokafka.admin import NewTopic as AsyncNewTopic
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from kubernetes.client.exceptions import ApiException

from kafkalite_core.resources.naming import topic_object_name
from tests.integration.cluster import GROUP, NAMESPACE, VERSION, condition, in_sync
from tests.integration.waiting import WAIT_S, wait_until, watermarks

with warnings.catch_warnings():
    # It reads its schemas in a way that Python deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.admin import KafkaAdminClient
    from kafka.admin import NewPartitions as PythonNewPartitions
    from kafka.admin import NewTopic as PythonNewTopic
    from kafka.errors import TopicAlreadyExistsError


@pytest.fixture
def admin(cluster):
    return AdminClient({"bootstrap.servers": cluster.bootstrap, "socket.timeout.ms": 20_000})


def done(futures):
    """The one result of a confluent-kafka call on one topic; raises what it failed with."""
    (future,) = futures.values()
    return future.result(WAIT_S)


def refused(futures):
    with pytest.raises(KafkaException) as failure:
        done(futures)
    return failure.value.args[0]


def names(admin):
    return set(admin.list_topics(timeout=WAIT_S).topics)


def objects(cluster):
    listed = cluster.api.list_namespaced_custom_object(GROUP, VERSION, NAMESPACE, "kafkalitetopics")["items"]
    return {item["spec"].get("topicName", item["metadata"]["name"]): item for item in listed}


def produce(cluster, topic, *values):
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    errors = []
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(WAIT_S) == 0
    assert errors == [None] * len(values)


# ------------------------------------------------------------------------------------------------- the three clients


def test_confluent_kafka_from_creation_to_deletion(cluster, admin, topic_name):
    done(admin.create_topics([NewTopic(topic_name, 2, 3, config={"retention.ms": "86400000"})]))
    cluster.wait_known(topic_name, 2)
    topic = admin.list_topics(topic_name, timeout=WAIT_S).topics[topic_name]
    assert sorted(topic.partitions) == [0, 1]
    assert all(len(partition.replicas) == 3 and partition.leader >= 0 for partition in topic.partitions.values())

    found = cluster.topic(topic_name)
    assert (found["spec"]["partitions"], found["spec"]["replicas"]) == (2, 3)
    assert found["spec"]["config"] == {"retention.ms": "86400000"}

    done(admin.create_partitions([NewPartitions(topic_name, 4)]))
    cluster.wait_known(topic_name, 4)
    assert len(admin.list_topics(topic_name, timeout=WAIT_S).topics[topic_name].partitions) == 4
    assert cluster.topic(topic_name)["spec"]["partitions"] == 4

    done(admin.delete_topics([topic_name]))
    wait_until(lambda: topic_name not in names(admin))
    with pytest.raises(ApiException) as gone:
        cluster.topic(topic_name)
    assert gone.value.status == 404


def test_kafka_python_from_creation_to_deletion(cluster, topic_name):
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        admin.create_topics([PythonNewTopic(topic_name, 2, 3)])
        cluster.wait_known(topic_name, 2)
        with pytest.raises(TopicAlreadyExistsError, match="already exists"):
            admin.create_topics([PythonNewTopic(topic_name, 2, 3)])
        assert topic_name in admin.list_topics()
        admin.create_partitions({topic_name: PythonNewPartitions(3)})
        cluster.wait_known(topic_name, 3)
        (topic,) = admin.describe_topics([topic_name])
        assert len(topic["partitions"]) == 3
        assert topic["topic_id"] == cluster.topic(topic_name)["status"]["topicId"]
        admin.delete_topics([topic_name])
        wait_until(lambda: topic_name not in admin.list_topics())
    finally:
        admin.close()


async def test_aiokafka_from_creation_to_deletion(cluster, topic_name):
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    await admin.start()
    try:
        made = await admin.create_topics([AsyncNewTopic(topic_name, 2, 3)])
        again = await admin.create_topics([AsyncNewTopic(topic_name, 2, 3)])
        assert [made.topic_errors[0][1], again.topic_errors[0][1]] == [0, KafkaError.TOPIC_ALREADY_EXISTS]
        cluster.wait_known(topic_name, 2)
        assert topic_name in await admin.list_topics()
        await admin.create_partitions({topic_name: AsyncNewPartitions(3)})
        cluster.wait_known(topic_name, 3)
        (topic,) = await admin.describe_topics([topic_name])
        assert len(topic["partitions"]) == 3
        gone = await admin.delete_topics([topic_name])
        assert gone.topic_error_codes[0][1] == 0
    finally:
        await admin.close()


# ------------------------------------------------------------------------------------------------ kubectl and clients


def test_a_name_that_is_no_object_name(cluster, admin, topic_name):
    name = topic_name.replace("-", "_").upper()
    done(admin.create_topics([NewTopic(name, 1, 3)]))
    found = cluster.topic(topic_object_name(name))
    assert found["spec"]["topicName"] == name
    produce(cluster, name, b"v")
    assert refused(admin.create_topics([NewTopic(name, 1, 3)])).code() == KafkaError.TOPIC_ALREADY_EXISTS
    collision = refused(admin.create_topics([NewTopic(name.replace("_", ".", 1), 1, 3)]))
    assert collision.code() == KafkaError.TOPIC_EXCEPTION
    assert "collides" in collision.str()
    done(admin.delete_topics([name]))


def test_a_topic_by_kubectl_is_the_clients_topic(cluster, admin, topic_name):
    body = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "KafkaLiteTopic",
        "metadata": {"name": topic_name},
        "spec": {"topicName": f"{topic_name}_X", "partitions": 1, "replicas": 3},
    }
    cluster.api.create_namespaced_custom_object(GROUP, VERSION, NAMESPACE, "kafkalitetopics", body)
    cluster.wait_topic(topic_name, in_sync)
    assert refused(admin.create_topics([NewTopic(f"{topic_name}_X", 1, 3)])).code() == KafkaError.TOPIC_ALREADY_EXISTS
    done(admin.create_partitions([NewPartitions(f"{topic_name}_X", 2)]))
    assert cluster.topic(topic_name)["spec"]["partitions"] == 2
    # A topic whose own name is the object name of that one is another topic.
    done(admin.create_topics([NewTopic(topic_name, 1, 3)]))
    assert len({item["metadata"]["uid"] for name, item in objects(cluster).items() if name.startswith(topic_name)}) == 2
    for name in (topic_name, f"{topic_name}_X"):
        done(admin.delete_topics([name]))


def test_a_topic_that_is_made_again_is_empty(cluster, admin, topic_name):
    done(admin.create_topics([NewTopic(topic_name, 1, 3)]))
    cluster.wait_known(topic_name, 1)
    produce(cluster, topic_name, b"a", b"b", b"c")
    assert watermarks(cluster, topic_name) == (0, 3)
    first = cluster.topic(topic_name)["status"]["topicId"]
    done(admin.delete_topics([topic_name]))
    done(admin.create_topics([NewTopic(topic_name, 1, 3)]))
    cluster.wait_known(topic_name, 1)
    assert cluster.topic(topic_name)["status"]["topicId"] != first
    assert watermarks(cluster, topic_name) == (0, 0)
    produce(cluster, topic_name, b"new")
    assert watermarks(cluster, topic_name) == (0, 1)
    done(admin.delete_topics([topic_name]))


def test_a_deletion_is_undone_by_annotation(cluster, admin, topic_name):
    done(admin.create_topics([NewTopic(topic_name, 1, 3)]))
    cluster.wait_known(topic_name, 1)
    produce(cluster, topic_name, b"a", b"b")
    topic_id = cluster.topic(topic_name)["status"]["topicId"]
    done(admin.delete_topics([topic_name]))
    for broker in range(3):
        cluster.wait_broker(broker, lists_deleted_stray(topic_id))
    body = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "KafkaLiteTopic",
        "metadata": {"name": topic_name, "annotations": {"kafkalite.io/adopt-strays": "true"}},
        "spec": {"partitions": 1, "replicas": 3},
    }
    cluster.api.create_namespaced_custom_object(GROUP, VERSION, NAMESPACE, "kafkalitetopics", body)
    back = cluster.wait_topic(topic_name, in_sync)
    assert back["status"]["topicId"] == topic_id
    cluster.wait_known(topic_name, 1)
    assert watermarks(cluster, topic_name) == (0, 2)
    done(admin.delete_topics([topic_name]))


def lists_deleted_stray(topic_id):
    def is_listed(broker):
        strays = broker.get("status", {}).get("strays") or []
        return any(stray["topicId"] == topic_id and stray.get("deleted") for stray in strays)

    return is_listed


# ---------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("wish", "code", "words"),
    [
        ({"topic": "no spaces"}, KafkaError.TOPIC_EXCEPTION, "alphanumerics"),
        ({"num_partitions": 0}, KafkaError.INVALID_PARTITIONS, "non-positive"),
        ({"num_partitions": 257}, KafkaError.INVALID_PARTITIONS, "256"),
        ({"replication_factor": 4}, KafkaError.INVALID_REPLICATION_FACTOR, "only 3 broker"),
        ({"config": {"retention.sm": "1"}}, KafkaError.INVALID_CONFIG, "retention.sm"),
        ({"config": {"retention.ms": "soon"}}, KafkaError.INVALID_CONFIG, "soon"),
        ({"config": {"min.insync.replicas": "4"}}, KafkaError.INVALID_CONFIG, "min.insync.replicas"),
        ({"replica_assignment": [[0, 9]]}, KafkaError.INVALID_REPLICA_ASSIGNMENT, "broker 9"),
    ],
)
def test_bad_input_has_kafkas_code_and_a_sentence(cluster, admin, topic_name, wish, code, words):
    wish = {"topic": topic_name, "num_partitions": 1, "replication_factor": 3, **wish}
    if "replica_assignment" in wish:
        del wish["replication_factor"]
    for validate_only in (True, False):
        error = refused(admin.create_topics([NewTopic(**wish)], validate_only=validate_only))
        assert error.code() == code
        assert words in error.str()
    assert wish["topic"] not in objects(cluster)


def test_other_bad_wishes(cluster, admin, topic_name):
    assert refused(admin.delete_topics([topic_name])).code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    error = refused(admin.create_partitions([NewPartitions(topic_name, 3)]))
    assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    done(admin.create_topics([NewTopic(topic_name, 3, 3)], validate_only=True))
    assert topic_name not in objects(cluster)
    done(admin.create_topics([NewTopic(topic_name, 3, 3)]))
    cluster.wait_known(topic_name, 3)
    for count, words in ((3, "already has 3"), (2, "not be an increase"), (257, "256")):
        error = refused(admin.create_partitions([NewPartitions(topic_name, count)]))
        assert error.code() == KafkaError.INVALID_PARTITIONS
        assert words in error.str()
    done(admin.delete_topics([topic_name]))


# ------------------------------------------------------------------------------------------------ many, fast, at once


def test_a_topic_that_is_made_has_leaders_soon(cluster, admin, topic_name):
    times = []
    for number in range(7):
        began = time.monotonic()
        done(admin.create_topics([NewTopic(f"{topic_name}-{number}", 3, 3)]))
        times.append(time.monotonic() - began)
    for future in admin.delete_topics([f"{topic_name}-{number}" for number in range(7)]).values():
        future.result(WAIT_S)
    print("seconds until the leaders were elected:", [round(each, 3) for each in times])
    assert statistics.median(times) < 10, times


def test_a_hundred_topics_in_one_request(cluster, admin, topic_name):
    wanted = [f"{topic_name}-{number}" for number in range(100)]
    patient = {"operation_timeout": 60, "request_timeout": 70}
    for future in admin.create_topics([NewTopic(name, 1, 3) for name in wanted], **patient).values():
        future.result(90)
    found = objects(cluster)
    assert set(wanted) <= set(found)
    assert all(found[name]["status"]["partitions"]["0"]["leader"] >= 0 for name in wanted)
    for future in admin.delete_topics(wanted, **patient).values():
        future.result(90)
    assert not set(wanted) & set(objects(cluster))


def test_three_brokers_are_asked_for_one_topic_at_once(cluster, topic_name):
    """Any broker takes the request, so the API server alone decides: kafka-python asks the broker that it is given."""
    codes, start = [], threading.Barrier(3)

    def create(broker):
        admin = KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{cluster.port + broker}")
        try:
            start.wait(WAIT_S)
            answer = admin.create_topics([PythonNewTopic(topic_name, 1, 3)], raise_errors=False)
            codes.append(answer["topics"][0]["error_code"])
        finally:
            admin.close()

    threads = [threading.Thread(target=create, args=(broker,)) for broker in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert sorted(codes) == [0, KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.TOPIC_ALREADY_EXISTS]
    cluster.delete_topic(topic_name)


# ------------------------------------------------------------------------------------------------------------ failures


def test_a_creation_while_the_api_server_hangs_times_out_and_makes_at_most_one(cluster, topic_name):
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.list_topics(timeout=WAIT_S)
    with cluster.frozen("apiserver"):
        began = time.monotonic()
        error = refused(admin.create_topics([NewTopic(topic_name, 1, 3)], operation_timeout=3))
        assert 2.5 < time.monotonic() - began < 20
    assert error.code() == KafkaError.REQUEST_TIMED_OUT
    assert "may or may not" in error.str()
    # The request that hung may be carried out now. Whatever came of it, the next one finds one topic and no more.
    with contextlib.suppress(KafkaException):
        done(admin.create_topics([NewTopic(topic_name, 1, 3)]))
    cluster.wait_known(topic_name, 1)
    wait_until(lambda: topic_name in names(admin))
    owners = [item for name, item in objects(cluster).items() if name == topic_name]
    assert [item["metadata"]["name"] for item in owners] == [topic_name]
    cluster.wait_topic(topic_name, in_sync)
    done(admin.delete_topics([topic_name]))


def test_deletion_while_somebody_produces(cluster, admin, topic_name):
    done(admin.create_topics([NewTopic(topic_name, 1, 3)]))
    cluster.wait_known(topic_name, 1)
    outcomes = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "message.timeout.ms": 5000, "linger.ms": 0})
    deleted = threading.Event()

    def run():
        while not deleted.is_set() and len(outcomes) < 100_000:
            with contextlib.suppress(BufferError):
                producer.produce(topic_name, b"x" * 100, on_delivery=lambda error, _: outcomes.append(error))
            producer.poll(0.001)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: len(outcomes) > 20)
    done(admin.delete_topics([topic_name]))
    deleted.set()
    thread.join(WAIT_S)
    assert producer.flush(WAIT_S) == 0, "every record is either acknowledged or failed"
    assert any(error is None for error in outcomes)
    done(admin.create_topics([NewTopic(topic_name, 1, 3)]))
    cluster.wait_known(topic_name, 1)
    assert watermarks(cluster, topic_name) == (0, 0)
    done(admin.delete_topics([topic_name]))


# ------------------------------------------------------------------------------------------- on demand, and elections


def test_topics_on_demand(cluster, admin, topic_name):
    def config(value):
        body = {"spec": {"config": {"auto.create.topics.enable": value, "num.partitions": value and "2"}}}
        cluster.api.patch_namespaced_custom_object(GROUP, VERSION, NAMESPACE, "kafkaliteclusters", "kafkalite", body)

    config("true")
    try:
        wait_until(lambda: on_demand(cluster, f"{topic_name}-probe"))
        produce(cluster, topic_name, b"first")
        assert len(cluster.topic(topic_name)["status"]["partitions"]) == 2
    finally:
        config(None)
    for name in (topic_name, f"{topic_name}-probe"):
        done(admin.delete_topics([name]))


def on_demand(cluster, topic):
    """Ask for a topic; whether it is there by now."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    return producer.list_topics(topic, timeout=WAIT_S).topics[topic].error is None


def test_an_election_by_annotation(cluster, admin, topic_name):
    done(admin.create_topics([NewTopic(topic_name, num_partitions=1, replica_assignment=[[1, 0, 2]])]))
    assert cluster.leader(topic_name) == 1
    cluster.kill(1)

    def led_by_another(topic):
        return topic["status"]["partitions"]["0"]["leader"] not in {1, -1}

    cluster.wait_topic(topic_name, led_by_another)
    cluster.wait_topic(topic_name, in_sync)
    cluster.patch_topic(topic_name, {"metadata": {"annotations": {"kafkalite.io/elect-preferred": "0"}}})

    def elected(topic):
        annotations = topic["metadata"].get("annotations") or {}
        return topic["status"]["partitions"]["0"]["leader"] == 1 and "kafkalite.io/elect-preferred" not in annotations

    cluster.wait_topic(topic_name, elected)
    done(admin.delete_topics([topic_name]))


def test_two_objects_that_claim_one_name(cluster, admin, topic_name):
    """The older one has it; the other one says so, and the clients see one topic."""
    done(admin.create_topics([NewTopic(topic_name, 1, 3)]))
    cluster.wait_known(topic_name, 1)
    body = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "KafkaLiteTopic",
        "metadata": {"name": f"{topic_name}-rival"},
        "spec": {"topicName": topic_name, "partitions": 2, "replicas": 3},
    }
    cluster.api.create_namespaced_custom_object(GROUP, VERSION, NAMESPACE, "kafkalitetopics", body)

    def explained(topic):
        ready = condition(topic, "Ready")
        return ready is not None and ready["reason"] == "ResourceConflict"

    cluster.wait_topic(f"{topic_name}-rival", explained)
    assert len(admin.list_topics(topic_name, timeout=WAIT_S).topics[topic_name].partitions) == 1
    cluster.delete_topic(f"{topic_name}-rival")
    done(admin.delete_topics([topic_name]))

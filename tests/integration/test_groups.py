"""Consumer groups of unmodified clients on a cluster of processes; members and coordinators are killed."""

import signal
import subprocess
import time

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from kafkalite_core.protocol.describe_groups import DescribeGroupsRequest
from tests.integration.cluster import GROUP, NAMESPACE, VERSION
from tests.integration.coordinators import committed_offsets, coordinator_of, without_initial_delay
from tests.integration.group_matrix.run import GENEROUS
from tests.integration.members import Member, all_read, settled
from tests.integration.wire import Wire

CLIENTS = ["confluent", "kafka-python", "aiokafka"]
PARTITIONS = 6
SESSION_S = 6


@pytest.fixture(scope="module", autouse=True)
def no_initial_delay(shared_cluster):
    """The first rebalance of a group does not wait for more members."""
    with without_initial_delay(shared_cluster):
        yield


@pytest.fixture
def topic(cluster, topic_name):
    cluster.create_topic(topic_name, partitions=PARTITIONS, min_insync_replicas="2")
    yield topic_name
    cluster.delete_topic(topic_name)


def produce(cluster, topic, count):
    """That many records into each partition, each once, whatever becomes of its leader."""
    failed = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "linger.ms": 5, "log_level": 0, "enable.idempotence": True}
    )
    for number in range(count):
        for partition in range(PARTITIONS):
            producer.produce(
                topic, b"%d" % number, partition=partition, on_delivery=lambda error, _: error and failed.append(error)
            )
    assert producer.flush(30) == 0
    assert failed == []


def records(first, last):
    return {(partition, offset) for partition in range(PARTITIONS) for offset in range(first, last)}


def committed(cluster, group, topic):
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "log_level": 0})
    try:
        return [entry.offset for entry in committed_offsets(consumer, topic, PARTITIONS)]
    finally:
        consumer.close()


def described(cluster, group):
    with Wire(("127.0.0.1", cluster.port + coordinator_of(cluster, group))) as wire:
        (found,) = wire.request(15, 5, DescribeGroupsRequest(groups=[group])).groups
    return found.group_state, sorted(member.member_id for member in found.members)


# ---------------------------------------------------------------------------------------------------- one member


@pytest.mark.parametrize("client", CLIENTS)
def test_a_member_commits_and_the_next_one_goes_on_there(cluster, topic, client):
    produce(cluster, topic, 20)
    with Member(cluster, client, topic, topic) as first:
        first.wait(lambda member: member.committed == 20 * PARTITIONS)
        assert set(first.records) == records(0, 20)
        assert first.assigned == list(range(PARTITIONS))
        assert first.leave() < 5.0
    assert committed(cluster, topic, topic) == [20] * PARTITIONS
    produce(cluster, topic, 10)
    with Member(cluster, client, topic, topic) as second:
        second.wait(lambda member: member.committed == 10 * PARTITIONS)
        assert set(second.records) == records(20, 30)


def test_kcat_in_a_group(cluster, topic):
    def consume(count):
        result = subprocess.run(
            ["kcat", "-b", cluster.bootstrap, "-X", "auto.offset.reset=earliest", "-c", str(count), "-f", "%p %o\n",
             "-G", topic, topic],
            capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        return {tuple(map(int, line.split())) for line in result.stdout.splitlines() if line[:1].isdigit()}

    produce(cluster, topic, 10)
    assert consume(10 * PARTITIONS) == records(0, 10)
    produce(cluster, topic, 5)
    assert consume(5 * PARTITIONS) == records(10, 15)


def test_closing_a_consumer_that_commits_by_itself_takes_no_time(cluster, topic):
    produce(cluster, topic, 5)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    left = 5 * PARTITIONS
    while left:
        message = consumer.poll(20)
        assert message is not None
        assert message.error() is None
        left -= 1
    began = time.monotonic()
    consumer.close()
    assert time.monotonic() - began < 4.5  # it commits by itself every 5 s
    assert committed(cluster, topic, topic) == [5] * PARTITIONS


# ---------------------------------------------------------------------------------------------------- several members


def test_a_killed_members_partitions_are_taken_over_when_its_session_ends(cluster, topic):
    produce(cluster, topic, 5)
    with (
        Member(cluster, "confluent", topic, topic, partition_assignment_strategy="range") as first,
        Member(cluster, "kafka-python", topic, topic) as second,
        Member(cluster, "aiokafka", topic, topic) as third,
    ):
        members = [first, second, third]
        print(f"three clients settled after {settled(members, PARTITIONS):.2f} s")
        assert {len(member.assigned) for member in members} == {2}
        first.kill()
        took = settled([second, third], PARTITIONS)
        print(f"taken over after {took:.2f} s")
        assert took < SESSION_S + GENEROUS.waiting_s
        produce(cluster, topic, 5)
        all_read([second, third], records(5, 10))
        assert second.leave() < 5.0
        took = settled([third], PARTITIONS)
        print(f"after a departure settled within {took:.2f} s")
        assert took < 5.0


def test_cooperative_members_keep_what_they_need_not_give(cluster, topic):
    options = {"partition_assignment_strategy": "cooperative-sticky"}
    with Member(cluster, "confluent", topic, topic, **options) as first:
        settled([first], PARTITIONS)
        with Member(cluster, "confluent", topic, topic, **options) as second:
            print(f"settled after {settled([first, second], PARTITIONS):.2f} s")
            assert (len(first.assigned), len(second.assigned)) == (3, 3)
            kept = set(first.assigned)
            assert all(kept <= set(each) for each in first.assignments if each), "what stays is never taken away"
            second.leave()
        settled([first], PARTITIONS)
        produce(cluster, topic, 2)
        first.wait(lambda member: member.committed == 2 * PARTITIONS)


def test_a_static_member_comes_back_unnoticed(cluster, topic):
    def member(name):
        return Member(cluster, "confluent", topic, topic, group_instance_id=name)

    produce(cluster, topic, 5)
    with member("one") as first:
        with member("two") as second:
            settled([first, second], PARTITIONS)
            all_read([first, second], records(0, 5))
            mine, changes = second.assigned, len(first.assignments)
        # SIGKILL, and another process under the same name before the session ends.
        with member("two") as second:
            second.wait(lambda member: member.assigned == mine)
            produce(cluster, topic, 2)
            all_read([first, second], records(5, 7))
            assert len(first.assignments) == changes, "the other member had not to join again"


def test_offsets_without_membership(cluster, topic):
    """A consumer that assigns itself partitions may commit under a name as long as nobody is a member there."""
    produce(cluster, topic, 3)
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": topic, "enable.auto.commit": False, "log_level": 0}
    consumer = confluent_kafka.Consumer(settings)
    consumer.assign([confluent_kafka.TopicPartition(topic, 2, 0)])
    done = consumer.commit(offsets=[confluent_kafka.TopicPartition(topic, 2, 2)], asynchronous=False)
    assert [entry.error for entry in done] == [None]
    assert committed(cluster, topic, topic)[2] == 2
    with Member(cluster, "confluent", topic, topic) as member:
        member.wait(lambda member: member.committed == 3 * PARTITIONS - 2)
        assert min(offset for partition, offset in member.records if partition == 2) == 2
        with pytest.raises(confluent_kafka.KafkaException) as refused:
            consumer.commit(offsets=[confluent_kafka.TopicPartition(topic, 2, 0)], asynchronous=False)
        assert refused.value.args[0].code() == confluent_kafka.KafkaError.UNKNOWN_MEMBER_ID
    consumer.close()


# ---------------------------------------------------------------------------------------------------- brokers die


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped in order"])
def test_a_coordinator_goes_and_its_group_goes_on(cluster, topic, how):
    with (
        Member(cluster, "confluent", topic, topic) as first,
        Member(cluster, "confluent", topic, topic) as second,
    ):
        settled([first, second], PARTITIONS)
        produce(cluster, topic, 5)  # not before: who has all partitions for a moment reads, and may not come to commit
        all_read([first, second], records(0, 5))
        state, ids = described(cluster, topic)
        assert (state, len(ids)) == ("Stable", 2)
        before, changes = committed(cluster, topic, topic), [len(m.assignments) for m in (first, second)]
        coordinator = coordinator_of(cluster, topic)
        began = time.monotonic()
        cluster.signal(coordinator, how)
        while coordinator_of(cluster, topic) == coordinator:
            assert time.monotonic() - began < 30
        print(f"another coordinator after {time.monotonic() - began:.2f} s")
        produce(cluster, topic, 5)
        all_read([first, second], records(5, 10))
        print(f"committed there after {time.monotonic() - began:.2f} s")
        after = committed(cluster, topic, topic)
        assert all(late >= early for late, early in zip(after, before, strict=True)), (before, after)
        assert after == [10] * PARTITIONS
        assert described(cluster, topic) == ("Stable", ids), "members outlive their coordinator"
        assert [len(m.assignments) for m in (first, second)] == changes, "nobody had to join again"
        assert sorted(first.records + second.records) == sorted(records(0, 10)), "nothing was read twice"


def test_offsets_outlive_all_brokers(cluster, topic):
    produce(cluster, topic, 7)
    with Member(cluster, "confluent", topic, topic) as first:
        first.wait(lambda member: member.committed == 7 * PARTITIONS)
        first.leave()
    for number in range(3):
        cluster.signal(number, signal.SIGKILL)
    cluster.wait_healed()
    assert committed(cluster, topic, topic) == [7] * PARTITIONS
    produce(cluster, topic, 3)
    with Member(cluster, "confluent", topic, topic) as second:
        second.wait(lambda member: member.committed == 3 * PARTITIONS, timeout=60)
        assert set(second.records) == records(7, 10)


# ---------------------------------------------------------------------------------------------------- administration


def test_groups_are_listed_described_and_deleted(cluster, topic):
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    produce(cluster, topic, 1)
    with Member(cluster, "confluent", topic, topic) as member:
        member.wait(lambda member: member.committed == PARTITIONS)
        listed = {group.group_id: group for group in admin.list_consumer_groups().result(20).valid}
        assert listed[topic].state == confluent_kafka.ConsumerGroupState.STABLE
        found = admin.describe_consumer_groups([topic])[topic].result(20)
        assert found.coordinator.id == coordinator_of(cluster, topic)
        (one,) = found.members
        assert sorted(entry.partition for entry in one.assignment.topic_partitions) == list(range(PARTITIONS))
        with pytest.raises(confluent_kafka.KafkaException) as refused:
            admin.delete_consumer_groups([topic])[topic].result(20)
        assert refused.value.args[0].code() == confluent_kafka.KafkaError.NON_EMPTY_GROUP
        member.leave()
    admin.delete_consumer_groups([topic])[topic].result(20)
    assert topic not in {group.group_id for group in admin.list_consumer_groups().result(20).valid}
    assert committed(cluster, topic, topic) == [confluent_kafka.OFFSET_INVALID] * PARTITIONS


def test_the_topic_behind_it_is_an_ordinary_one_that_clients_may_not_write_to(cluster):
    coordinator_of(cluster, "any")
    items = cluster.api.list_namespaced_custom_object(GROUP, VERSION, NAMESPACE, "kafkalitetopics")["items"]
    (found,) = [item for item in items if item["spec"].get("topicName") == "__consumer_offsets"]
    assert (found["spec"]["partitions"], found["spec"]["replicas"]) == (16, 3)
    assert found["spec"]["config"]["cleanup.policy"] == "compact"
    failed = []
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
    producer.produce("__consumer_offsets", b"v", b"k", on_delivery=lambda error, _: failed.append(error))
    producer.flush(20)
    assert [error.code() for error in failed] == [confluent_kafka.KafkaError.TOPIC_EXCEPTION]


def test_a_topic_made_again_begins_without_the_offsets_of_the_first(cluster, topic_name):
    cluster.create_topic(topic_name, partitions=PARTITIONS)
    produce(cluster, topic_name, 4)
    with Member(cluster, "confluent", topic_name, topic_name) as member:
        member.wait(lambda member: member.committed == 4 * PARTITIONS)
        member.leave()
    cluster.delete_topic(topic_name)
    end = time.monotonic() + 20
    while set(committed(cluster, topic_name, topic_name)) != {confluent_kafka.OFFSET_INVALID}:
        assert time.monotonic() < end
    cluster.create_topic(topic_name, partitions=PARTITIONS)
    produce(cluster, topic_name, 2)
    with Member(cluster, "confluent", topic_name, topic_name) as member:
        member.wait(lambda member: member.committed == 2 * PARTITIONS)
        assert set(member.records) == records(0, 2)
    cluster.delete_topic(topic_name)

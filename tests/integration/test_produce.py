"""Acknowledgement levels, min.insync.replicas, idempotence, and divergent tails, over the wire."""

import signal
import time

import confluent_kafka
import pytest

from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkalite_core.protocol.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkalite_core.protocol.record_batch import SimpleRecord, build_batch, iter_batches
from tests.integration.cluster import in_sync, running
from tests.integration.test_hostile import address, produce
from tests.integration.wire import Wire

TIMESTAMP = 1_700_000_000_000


def batch(text: bytes = b"v", **producer: int) -> bytes:
    return bytes(build_batch([SimpleRecord(TIMESTAMP, b"k", text)], **producer))


def end_offset(wire: Wire, topic: str, timestamp: int = -1) -> int:
    answer = wire.request(
        2,
        7,
        ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)],
                )
            ],
        ),
    )
    partition = answer.topics[0].partitions[0]
    assert partition.error_code == 0
    return partition.offset


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_every_acks_level_stores_the_record(cluster, topic_name, acks):
    cluster.create_topic(topic_name, min_insync_replicas="2")
    delivered = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "acks": acks, "enable.idempotence": False}
    )
    for number in range(100):
        producer.produce(topic_name, str(number), on_delivery=lambda error, message: delivered.append((error, message)))
    assert producer.flush(30) == 0
    assert [error for error, _ in delivered] == [None] * 100
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "unused"})
    consumer.assign([confluent_kafka.TopicPartition(topic_name, 0, 0)])
    messages = consumer.consume(100, timeout=20)
    consumer.close()
    assert [message.value() for message in messages] == [str(number).encode() for number in range(100)]
    cluster.delete_topic(topic_name)


def test_acks_all_is_refused_below_min_insync_replicas(cluster, topic_name):
    cluster.create_topic(topic_name, min_insync_replicas="3")
    leader = cluster.leader(topic_name)
    follower = (leader + 1) % 3
    with cluster.frozen(follower):

        def shrunk(topic: dict) -> bool:
            return len(topic["status"]["partitions"]["0"]["isr"]) == 2

        cluster.wait_topic(topic_name, shrunk, timeout=60)
        cluster.wait_known(topic_name, 1, brokers=[leader])
        with Wire(address(cluster, leader)) as wire:
            assert produce(wire, topic_name, batch()).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
            assert produce(wire, topic_name, batch(), acks=1).error_code == 0
            # Strict min ISR: what the leader alone took is not visible.
            assert end_offset(wire, topic_name) == 0
    cluster.wait_topic(topic_name, in_sync)
    cluster.wait_known(topic_name, 1)
    with Wire(address(cluster, cluster.leader(topic_name))) as wire:
        assert produce(wire, topic_name, batch()).error_code == 0
        assert end_offset(wire, topic_name) == 2
    cluster.delete_topic(topic_name)


def test_a_repeated_batch_of_an_idempotent_producer_gets_its_first_offset(cluster, topic_name):
    cluster.create_topic(topic_name, min_insync_replicas="2")
    with Wire(address(cluster, cluster.leader(topic_name))) as wire:
        ids = wire.request(22, 4, _init_producer_id())
        first = batch(b"a", producer_id=ids.producer_id, producer_epoch=0, base_sequence=0)
        second = batch(b"b", producer_id=ids.producer_id, producer_epoch=0, base_sequence=1)
        gap = batch(b"d", producer_id=ids.producer_id, producer_epoch=0, base_sequence=3)
        assert produce(wire, topic_name, first).base_offset == 0
        assert produce(wire, topic_name, second).base_offset == 1
        again = produce(wire, topic_name, first)
        assert (again.error_code, again.base_offset) == (0, 0)
        # For 5 s after its election the leader takes it that the batch before was refused a moment ago.
        deadline = time.monotonic() + 30
        code = produce(wire, topic_name, gap).error_code
        while code == ErrorCode.NOT_LEADER_OR_FOLLOWER and time.monotonic() < deadline:
            time.sleep(0.1)
            code = produce(wire, topic_name, gap).error_code
        assert code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert end_offset(wire, topic_name) == 2
    cluster.delete_topic(topic_name)


def _init_producer_id():
    from kafkalite_core.protocol.init_producer_id import InitProducerIdRequest

    return InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)


def test_a_repeated_batch_is_known_after_a_failover(cluster, topic_name):
    cluster.create_topic(topic_name, min_insync_replicas="2")
    leader = cluster.leader(topic_name)
    with Wire(address(cluster, leader)) as wire:
        ids = wire.request(22, 4, _init_producer_id())
        first = batch(b"a", producer_id=ids.producer_id, producer_epoch=0, base_sequence=0)
        assert produce(wire, topic_name, first).base_offset == 0
    cluster.signal(leader, signal.SIGKILL)

    def moved(topic: dict) -> bool:
        return topic["status"]["partitions"]["0"]["leader"] not in {leader, -1}

    cluster.wait_topic(topic_name, moved)
    cluster.wait_known(topic_name, 1)
    with Wire(address(cluster, cluster.leader(topic_name))) as wire:
        answer = produce(wire, topic_name, first)
    if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:  # the former one is back, and leads again
        cluster.wait_healed()
        cluster.wait_known(topic_name, 1)
        with Wire(address(cluster, cluster.leader(topic_name))) as wire:
            answer = produce(wire, topic_name, first)
    assert (answer.error_code, answer.base_offset) == (0, 0)
    cluster.wait_broker(leader, running)
    cluster.delete_topic(topic_name)


def test_offsets_by_time(cluster, topic_name):
    cluster.create_topic(topic_name)
    with Wire(address(cluster, cluster.leader(topic_name))) as wire:
        for number in range(5):
            data = bytes(build_batch([SimpleRecord(TIMESTAMP + number * 1000, b"k", b"v")]))
            assert produce(wire, topic_name, data).error_code == 0
        assert end_offset(wire, topic_name, TIMESTAMP + 2500) == 3
        assert end_offset(wire, topic_name, TIMESTAMP) == 0
        assert end_offset(wire, topic_name, TIMESTAMP + 9999) == -1
        assert end_offset(wire, topic_name, -2) == 0
        assert end_offset(wire, topic_name, -3) == 4
    cluster.delete_topic(topic_name)


def fetch_values(wire: Wire, topic_id, size_max: int = 1 << 20, wait_ms: int = 500, offset: int = 0):
    answer = wire.request(
        1,
        13,
        FetchRequest(
            replica_id=-1,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=size_max,
            session_epoch=-1,
            topics=[
                FetchTopic(
                    topic_id=topic_id,
                    partitions=[
                        FetchPartition(
                            partition=0,
                            current_leader_epoch=-1,
                            fetch_offset=offset,
                            last_fetched_epoch=-1,
                            log_start_offset=-1,
                            partition_max_bytes=size_max,
                        )
                    ],
                )
            ],
        ),
    )
    return answer.responses[0].partitions[0]


def test_a_batch_larger_than_the_limit_is_returned_alone_so_that_readers_get_on(cluster, topic_name):
    from uuid import UUID

    cluster.create_topic(topic_name)
    topic_id = UUID(cluster.topic(topic_name)["status"]["topicId"])
    with Wire(address(cluster, cluster.leader(topic_name))) as wire:
        for _ in range(3):
            assert produce(wire, topic_name, batch(b"x" * 5000)).error_code == 0
        partition = fetch_values(wire, topic_id, size_max=100)
        assert [header.base_offset for _, header in iter_batches(memoryview(bytes(partition.records)))] == [0]
        beyond = fetch_values(wire, topic_id, offset=99)
        assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    cluster.delete_topic(topic_name)

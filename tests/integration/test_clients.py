"""Unmodified clients produce and consume, with every compression; what is stored carries the codec that was asked for."""

import asyncio
import subprocess
import warnings

import confluent_kafka
import pytest

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
RECORDS = 200


def value(number: int) -> bytes:
    return b"record %d " % number * 20


def stored_codecs(cluster, topic: str) -> set[int]:
    """Codec bits of every batch in the leader's log."""
    directory = cluster.log_directory(cluster.leader(topic), topic)
    codecs = set()
    for segment in directory.glob("*.log"):
        data, position = segment.read_bytes(), 0
        while position + 61 <= len(data):
            size = int.from_bytes(data[position + 8 : position + 12], "big")
            codecs.add(int.from_bytes(data[position + 21 : position + 23], "big") & 7)
            position += 12 + size
    return codecs


def produce_confluent(cluster, topic: str, codec: str) -> None:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "compression.type": codec,
            "enable.idempotence": True,
            "linger.ms": 50,
        }
    )
    failed = []
    for number in range(RECORDS):
        producer.produce(
            topic, key=str(number), value=value(number), on_delivery=lambda error, _: error and failed.append(error)
        )
    assert producer.flush(30) == 0
    assert failed == []


def consume_confluent(cluster, topic: str) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "unused", "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    values = []
    try:
        while len(values) < RECORDS:
            message = consumer.poll(20)
            assert message is not None, f"only {len(values)} of {RECORDS} arrived"
            assert message.error() is None
            assert message.offset() == len(values)
            values.append(message.value())
    finally:
        consumer.close()
    return values


def produce_kafka_python(cluster, topic: str, codec: str) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=cluster.bootstrap.split(","),
        compression_type=None if codec == "none" else codec,
        acks="all",
        linger_ms=50,
    )
    futures = [producer.send(topic, key=b"%d" % n, value=value(n)) for n in range(RECORDS)]
    for future in futures:
        future.get(timeout=30)
    producer.close()


def consume_kafka_python(cluster, topic: str) -> list[bytes]:
    from kafka import KafkaConsumer
    from kafka.structs import TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap.split(","), group_id=None, consumer_timeout_ms=20_000)
    try:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        values = []
        for message in consumer:
            values.append(message.value)
            if len(values) == RECORDS:
                break
    finally:
        consumer.close()
    return values


def produce_aiokafka(cluster, topic: str, codec: str) -> None:
    from aiokafka import AIOKafkaProducer

    async def run() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap,
            compression_type=None if codec == "none" else codec,
            acks="all",
            enable_idempotence=True,
            linger_ms=50,
        )
        await producer.start()
        try:
            futures = [await producer.send(topic, key=b"%d" % n, value=value(n)) for n in range(RECORDS)]
            await asyncio.wait_for(asyncio.gather(*futures), 30)
        finally:
            await producer.stop()

    asyncio.run(run())


def consume_aiokafka(cluster, topic: str) -> list[bytes]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def run() -> list[bytes]:
        consumer = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        try:
            consumer.assign([TopicPartition(topic, 0)])
            await consumer.seek_to_beginning()
            values = []
            async with asyncio.timeout(30):
                while len(values) < RECORDS:
                    values.append((await consumer.getone()).value)
            return values
        finally:
            await consumer.stop()

    return asyncio.run(run())


def kcat(cluster, *arguments: str, data: bytes = b"") -> bytes:
    result = subprocess.run(
        ["kcat", "-b", cluster.bootstrap, "-m", "30", *arguments],
        input=data,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout


def produce_kcat(cluster, topic: str, codec: str) -> None:
    lines = b"\n".join(value(n) for n in range(RECORDS))
    kcat(cluster, "-P", "-t", topic, "-p", "0", "-z", codec, "-X", "acks=all", "-X", "linger.ms=50", data=lines)


def consume_kcat(cluster, topic: str) -> list[bytes]:
    return kcat(cluster, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q").splitlines()


CLIENTS = {
    "confluent": (produce_confluent, consume_confluent),
    "kafka-python": (produce_kafka_python, consume_kafka_python),
    "aiokafka": (produce_aiokafka, consume_aiokafka),
    "kcat": (produce_kcat, consume_kcat),
}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_reads_what_it_wrote_and_the_codec_is_kept(cluster, topic_name, name, codec):
    produce, consume = CLIENTS[name]
    cluster.create_topic(topic_name, min_insync_replicas="2")
    with warnings.catch_warnings():
        # Deprecations inside the clients are not ours to mend.
        warnings.simplefilter("ignore", DeprecationWarning)
        produce(cluster, topic_name, codec)
        assert consume(cluster, topic_name) == [value(n) for n in range(RECORDS)]
    assert stored_codecs(cluster, topic_name) == {CODECS[codec]}
    cluster.delete_topic(topic_name)


def test_every_client_reads_what_every_other_wrote(cluster, topic_name):
    cluster.create_topic(topic_name, min_insync_replicas="2")
    produce_confluent(cluster, topic_name, "zstd")
    expected = [value(n) for n in range(RECORDS)]
    for _, consume in CLIENTS.values():
        assert consume(cluster, topic_name) == expected
    cluster.delete_topic(topic_name)


def test_all_topics_are_listed_to_every_client(cluster, topic_name):
    with warnings.catch_warnings():
        # Deprecations inside the client are not ours to mend.
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka import KafkaConsumer

    cluster.create_topic(topic_name, partitions=2)
    listed = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "unused"})
    assert len(listed.list_topics(timeout=20).topics[topic_name].partitions) == 2
    listed.close()
    assert f'topic "{topic_name}" with 2 partitions' in kcat(cluster, "-L").decode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap.split(","), group_id=None)
        assert topic_name in consumer.topics()
        consumer.close()
    cluster.delete_topic(topic_name)

"""There are no transactions here, and clients are told so at once instead of waiting for their time-outs."""

import asyncio
import subprocess
import time
import warnings

import confluent_kafka
import pytest

from tests.integration.java_tools import command_line

AT_ONCE_S = 20.0
"""On a busy machine; the clients' time-outs are a minute."""


def test_confluent_kafka(cluster, topic_name):
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": topic_name, "log_level": 0}
    )
    began = time.monotonic()
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        producer.init_transactions(60)
    took = time.monotonic() - began
    error = refused.value.args[0]
    print(f"after {took:.2f} s: {error.str()}")
    assert error.code() == confluent_kafka.KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert not error.retriable()
    assert took < AT_ONCE_S


def test_kafka_python(cluster, topic_name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # inside the client
        from kafka import KafkaProducer
        from kafka.errors import TransactionalIdAuthorizationFailedError

        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap.split(","), transactional_id=topic_name)
        began = time.monotonic()
        with pytest.raises(TransactionalIdAuthorizationFailedError):
            producer.init_transactions()
        took = time.monotonic() - began
        producer.close(timeout=5)
    print(f"after {took:.2f} s")
    assert took < AT_ONCE_S


def test_aiokafka(cluster, topic_name):
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaError

    async def start() -> tuple[float, KafkaError]:
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, transactional_id=topic_name)
        began = time.monotonic()
        try:
            with pytest.raises(KafkaError) as refused:
                await asyncio.wait_for(producer.start(), 60)
            return time.monotonic() - began, refused.value
        finally:
            await producer.stop()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # inside the client
        took, error = asyncio.run(start())
    print(f"after {took:.2f} s: {error!r}")
    assert took < AT_ONCE_S


def test_java(cluster, topic_name):
    cluster.create_topic(topic_name)
    began = time.monotonic()
    done = subprocess.run(
        command_line(
            "kafka-producer-perf-test", "--bootstrap-server", cluster.bootstrap, "--topic", topic_name,
            "--num-records", "1", "--record-size", "10", "--throughput", "-1", "--transactional-id", topic_name,
        ),
        capture_output=True, text=True, timeout=90, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    took = time.monotonic() - began
    print(f"after {took:.2f} s, the start of the JVM included")
    assert done.returncode != 0
    assert "TransactionalIdAuthorizationException" in done.stdout + done.stderr
    assert took < AT_ONCE_S + 25, "the start of a JVM on a busy machine included; the client's time-out is 60 s"
    cluster.delete_topic(topic_name)

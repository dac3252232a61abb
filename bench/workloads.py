"""The workloads: the same confluent-kafka clients for every system."""

from __future__ import annotations

import os
import statistics
import threading
import time
from typing import TYPE_CHECKING

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from processes import cpu_s

if TYPE_CHECKING:
    from systems import System

LIMIT_S = 300.0
CLIENT = {"log_level": 2}


def producer_of(system: System, *, batch: int, linger_ms: float) -> Producer:
    """acks=all, no compression; idempotence off, as librdkafka has it by default."""
    settings = {"batch.size": batch, "linger.ms": linger_ms, "queue.buffering.max.kbytes": 32768}
    return Producer({**CLIENT, "bootstrap.servers": system.bootstrap, "acks": "all", **settings})


def consumer_of(system: System, topic: str, offset: int) -> Consumer:
    """All partitions assigned, no group."""
    settings = {
        "group.id": "bench",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 500,
        "fetch.queue.backoff.ms": 10,
    }
    queue = {"queued.min.messages": 1_000_000, "queued.max.messages.kbytes": 262_144}
    consumer = Consumer({**CLIENT, "bootstrap.servers": system.bootstrap, **settings, **queue})
    partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, offset) for partition in partitions])
    return consumer


def records_in(system: System, topic: str) -> int:
    """How many records a topic holds below its high watermarks."""
    consumer = consumer_of(system, topic, OFFSET_END)
    try:
        return sum(records_of(consumer, partition) for partition in consumer.assignment())
    finally:
        consumer.close()


def records_of(consumer: Consumer, partition: TopicPartition) -> int:
    """The same for a partition. Its leader may not know yet that it leads a topic that was made a moment ago."""
    until = time.monotonic() + 20
    while True:
        try:
            low, high = consumer.get_watermark_offsets(partition, timeout=20)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION or time.monotonic() > until:
                raise
            time.sleep(0.05)
        else:
            return high - low


def produce(system: System, topic: str, *, size: int, count: int, batch: int) -> dict[str, float]:
    """Send `count` records of `size` bytes as fast as they go; MB/s, records/s and CPU seconds per 100 MB."""
    producer = producer_of(system, batch=batch, linger_ms=5)
    producer.list_topics(topic, timeout=20)  # connected before the clock starts
    before = records_in(system, topic)
    brokers, control = system.brokers(), system.control()
    value = os.urandom(size)
    cpu, control_cpu, began = cpu_s(brokers), cpu_s(control), time.monotonic()
    for _ in range(count):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.005)
    unanswered = producer.flush(LIMIT_S)
    seconds = time.monotonic() - began
    cpu, control_cpu = cpu_s(brokers) - cpu, cpu_s(control) - control_cpu
    stored = records_in(system, topic) - before
    if unanswered or stored < count:
        raise RuntimeError(f"{system.name}: {stored} of {count} records are there, {unanswered} without an answer")
    megabytes = size * count / 1e6
    return {
        "mb_per_s": megabytes / seconds,
        "records_per_s": count / seconds,
        "broker_cpu_s_per_100_mb": cpu / megabytes * 100,
        "control_cpu_s_per_100_mb": control_cpu / megabytes * 100,
    }


def consume(system: System, topic: str, *, size: int, count: int) -> dict[str, float]:
    """Read `count` records from the beginning; the clock starts at the first."""
    brokers = system.brokers()
    cpu = cpu_s(brokers)
    consumer = consumer_of(system, topic, OFFSET_BEGINNING)
    limit = time.monotonic() + LIMIT_S
    read, began = 0, 0.0
    try:
        while read < count and time.monotonic() < limit:
            messages = [
                message for message in consumer.consume(min(5000, count - read), 1.0) if message.error() is None
            ]
            if messages and not began:
                began = time.monotonic()
                count -= len(messages)  # what came before the clock started does not count
            else:
                read += len(messages)
        seconds = time.monotonic() - began
    finally:
        consumer.close()
    if read < count:
        raise RuntimeError(f"{system.name}: read {read} of {count} records in {LIMIT_S:.0f} s")
    megabytes = size * read / 1e6
    return {"mb_per_s": megabytes / seconds, "broker_cpu_s_per_100_mb": (cpu_s(brokers) - cpu) / megabytes * 100}


def percentile(values: list[float], share: float) -> float:
    """The value below which `share` of the values lie (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def latency(system: System, topic: str, *, rate: float, seconds: float, linger_ms: float) -> dict[str, float]:
    """At a steady rate: from produce() to the acknowledgement, and to the consumer; the first tenth is not counted."""
    total = round(rate * seconds)
    consumer = consumer_of(system, topic, OFFSET_BEGINNING)
    silent = {partition.partition for partition in consumer.assignment()}
    arrived: list[float] = []
    ready, done = threading.Event(), threading.Event()

    def read() -> None:
        while not done.is_set():
            for message in consumer.consume(1, 0.05):  # a larger number would wait for more to come
                value = message.value()
                if message.error() is not None or len(value) != 1024:
                    silent.discard(message.partition())
                    if not silent:
                        ready.set()
                    continue
                arrived.append(time.monotonic() - int(value[:20]) / 1e9)
                if len(arrived) == total:
                    done.set()

    reader = threading.Thread(target=read)
    reader.start()
    producer = producer_of(system, batch=16384, linger_ms=linger_ms)
    for partition in tuple(silent):  # every connection is used once before the clock starts
        producer.produce(topic, b"ready", partition=partition)
    producer.flush(60)
    if not ready.wait(60):
        done.set()
        raise RuntimeError(f"{system.name}: partitions {silent} of {topic} cannot be read")
    acknowledged: list[float] = []
    began = time.monotonic()
    for index in range(total):
        while (delay_s := began + index / rate - time.monotonic()) > 0:
            producer.poll(delay_s)
        sent = time.monotonic()
        producer.produce(
            topic,
            b"%020d" % time.monotonic_ns() + b"." * 1004,
            on_delivery=lambda error, _, sent=sent: acknowledged.append(time.monotonic() - sent) if not error else None,
        )
        producer.poll(0)
    producer.flush(60)
    done.wait(20)
    done.set()
    reader.join()
    consumer.close()
    if len(acknowledged) < total or len(arrived) < total:
        raise RuntimeError(f"{system.name}: {len(acknowledged)} acknowledged and {len(arrived)} read of {total}")
    figures = {}
    for name, values in (("ack", acknowledged[total // 10 :]), ("end_to_end", arrived[total // 10 :])):
        figures[f"{name}_p50_ms"] = statistics.median(values) * 1000
        figures[f"{name}_p99_ms"] = percentile(values, 0.99) * 1000
    return figures

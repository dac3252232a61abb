"""One consumer of a group, of one of the Python clients, as a process: prints `partition offset value` for each record.

    python tests/integration/client_process.py CLIENT BOOTSTRAP GROUP TOPIC

CLIENT: confluent-kafka, kafka-python or aiokafka. SIGTERM ends it in order: it commits and leaves the group.
"""

import asyncio
import contextlib
import signal
import sys
import threading
import warnings

SESSION_MS = 6000
HEARTBEAT_MS = 300


def show(partition: int, offset: int, value: bytes) -> None:
    print(partition, offset, value.decode(), flush=True)


def confluent_kafka(bootstrap: str, group: str, topic: str, stop: threading.Event) -> None:
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": "confluent-kafka",
            "partition.assignment.strategy": "range",
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "auto.commit.interval.ms": 200,
            "auto.offset.reset": "earliest",
            "log_level": 2,
        }
    )
    consumer.subscribe([topic])
    while not stop.is_set():
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            show(message.partition(), message.offset(), message.value())
    consumer.close()


def kafka_python(bootstrap: str, group: str, topic: str, stop: threading.Event) -> None:
    from kafka import KafkaConsumer
    from kafka.coordinator.assignors.range import RangePartitionAssignor

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap.split(","),
        group_id=group,
        client_id="kafka-python",
        partition_assignment_strategy=[RangePartitionAssignor],
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        auto_commit_interval_ms=200,
        auto_offset_reset="earliest",
    )
    while not stop.is_set():
        for messages in consumer.poll(timeout_ms=100).values():
            for message in messages:
                show(message.partition, message.offset, message.value)
    consumer.close()


def aiokafka(bootstrap: str, group: str, topic: str, stop: threading.Event) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor

    async def run() -> None:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            client_id="aiokafka",
            partition_assignment_strategy=(RangePartitionAssignor,),
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            auto_commit_interval_ms=200,
            auto_offset_reset="earliest",
        )
        await consumer.start()
        try:
            while not stop.is_set():
                for messages in (await consumer.getmany(timeout_ms=100)).values():
                    for message in messages:
                        show(message.partition, message.offset, message.value)
        finally:
            await consumer.stop()

    asyncio.run(run())


CLIENTS = {"confluent-kafka": confluent_kafka, "kafka-python": kafka_python, "aiokafka": aiokafka}


def main() -> None:
    name, bootstrap, group, topic = sys.argv[1:]
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    warnings.simplefilter("ignore", DeprecationWarning)  # inside the clients
    with contextlib.suppress(KeyboardInterrupt):
        CLIENTS[name](bootstrap, group, topic, stop)


if __name__ == "__main__":
    main()

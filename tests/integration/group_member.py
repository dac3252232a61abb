"""One member of a group as a process; it reads, commits each time it has read something, and says so line by line.

    python tests/integration/group_member.py CLIENT BOOTSTRAP GROUP TOPIC '{"setting": "value"}'

CLIENT: confluent, kafka-python or aiokafka. The settings are those of confluent; the other two know of them only
partition.assignment.strategy. Lines: `assigned P…` (all partitions that it owns from now on), `record P OFFSET`,
`committed` (everything printed before it), `leaving`, `left`. SIGTERM: it leaves.
"""

import asyncio
import json
import signal
import sys
import threading
import warnings

SESSION_MS = 6000
HEARTBEAT_MS = 300


def say(*words: object) -> None:
    print(*words, flush=True)


def confluent(bootstrap: str, group: str, topic: str, settings: dict, stop: threading.Event) -> None:
    from confluent_kafka import Consumer, KafkaException

    owned: set[int] = set()

    def assigned(_, partitions) -> None:
        owned.update(partition.partition for partition in partitions)
        say("assigned", *sorted(owned))

    def revoked(_, partitions) -> None:
        owned.difference_update(partition.partition for partition in partitions)
        say("assigned", *sorted(owned))

    config = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "log_level": 2,
    }
    consumer = Consumer({**config, **settings})
    consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
    dirty = False
    while not stop.is_set():
        message = consumer.poll(0.05)
        if message is not None and message.error() is None:
            say("record", message.partition(), message.offset())
            dirty = True
        elif message is None and dirty:
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as error:
                print(f"commit: {error}", file=sys.stderr, flush=True)
            else:
                say("committed")
                dirty = False
    say("leaving")
    consumer.close()


def kafka_python(bootstrap: str, group: str, topic: str, settings: dict, stop: threading.Event) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.errors import KafkaError

    assignors = {"range": RangePartitionAssignor, "cooperative-sticky": CooperativeStickyAssignor}
    owned: set[int] = set()

    class Listener(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked) -> None:
            owned.difference_update(partition.partition for partition in revoked)
            say("assigned", *sorted(owned))

        def on_partitions_assigned(self, assigned) -> None:
            owned.update(partition.partition for partition in assigned)
            say("assigned", *sorted(owned))

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap.split(","),
        group_id=group,
        partition_assignment_strategy=[assignors[settings.get("partition.assignment.strategy", "range")]],
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    consumer.subscribe([topic], listener=Listener())
    while not stop.is_set():
        # Long enough for joining: when its time is over in the middle of that, kafka-python 3.0 forgets the assignment.
        found = consumer.poll(timeout_ms=3000)
        for message in (message for messages in found.values() for message in messages):
            say("record", message.partition, message.offset)
        if found:
            try:
                consumer.commit()
            except KafkaError as error:
                print(f"commit: {error}", file=sys.stderr, flush=True)
            else:
                say("committed")
    say("leaving")
    consumer.close()


def aiokafka(bootstrap: str, group: str, topic: str, settings: dict, stop: threading.Event) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from aiokafka.errors import KafkaError

    assignors = {"range": RangePartitionAssignor, "sticky": StickyPartitionAssignor}

    class Listener(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked) -> None:
            say("assigned")

        async def on_partitions_assigned(self, assigned) -> None:
            say("assigned", *sorted(partition.partition for partition in assigned))

    async def run() -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            partition_assignment_strategy=(assignors[settings.get("partition.assignment.strategy", "range")],),
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        consumer.subscribe([topic], listener=Listener())
        await consumer.start()
        while not stop.is_set():
            found = await consumer.getmany(timeout_ms=50)
            for message in (message for messages in found.values() for message in messages):
                say("record", message.partition, message.offset)
            if found:
                try:
                    await consumer.commit()
                except KafkaError as error:
                    print(f"commit: {error}", file=sys.stderr, flush=True)
                else:
                    say("committed")
        say("leaving")
        await consumer.stop()

    asyncio.run(run())


CLIENTS = {"confluent": confluent, "kafka-python": kafka_python, "aiokafka": aiokafka}


def main() -> None:
    name, bootstrap, group, topic, settings = sys.argv[1:]
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    warnings.simplefilter("ignore", DeprecationWarning)  # inside the clients
    CLIENTS[name](bootstrap, group, topic, json.loads(settings), stop)
    say("left")


if __name__ == "__main__":
    main()

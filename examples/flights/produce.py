"""Produce the flights of 2013 to a topic: idempotent, acks=all, keyed by carrier, event time in the record's timestamp.

python examples/flights/produce.py [--bootstrap 127.0.0.1:9092] [--topic flights] [--rate 0]

Every record carries a header `row`: its number in the table, by which `demo.py` counts what is missing or there twice.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from flights import COUNT, flights
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

PROGRESS_EVERY = 1000
FLUSH_LIMIT_S = 120.0


@dataclass(slots=True)
class Produced:
    """What became of the flights.

    Attributes:
        acknowledged: one byte per row of the table, 1 when the broker acknowledged it.
        count: how many were.
        failed: error -> how many records it hit.
        ends: partition -> offset behind the last acknowledged record.
    """

    acknowledged: bytearray = field(default_factory=lambda: bytearray(COUNT))
    count: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)


OnAck = Callable[[int, int, float, float], None]


def produce_flights(
    bootstrap: str, topic: str, *, rate: float = 0, limit: int = COUNT, on_ack: OnAck | None = None
) -> Produced:
    """Send the first `limit` flights, at `rate` records per second (0: as fast as they go), and wait for their answers.

    `on_ack` is called as on_ack(count, partition, sent, acknowledged) after each acknowledgement (monotonic seconds).
    """
    produced = Produced()
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 5,
            "compression.type": "lz4",
            "log_level": 2,  # a dead broker is no news for the demonstration; failed records are counted below
        }
    )

    def delivery(row: int, sent: float) -> Callable[[KafkaError | None, Message], None]:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                produced.failed[error.name()] = produced.failed.get(error.name(), 0) + 1
                return
            produced.acknowledged[row] = 1
            produced.count += 1
            partition, offset = message.partition(), message.offset()
            produced.ends[partition] = max(produced.ends.get(partition, 0), offset + 1)
            if on_ack is not None:
                on_ack(produced.count, partition, sent, time.monotonic())

        return delivered

    began = time.monotonic()
    for row, flight in zip(range(limit), flights(), strict=False):
        while rate and (delay_s := began + row / rate - time.monotonic()) > 0:
            producer.poll(delay_s)
        while True:
            try:
                producer.produce(
                    topic,
                    flight.value,
                    flight.key,
                    timestamp=flight.timestamp_ms,
                    headers=[("row", b"%d" % row)],
                    on_delivery=delivery(row, time.monotonic()),
                )
                break
            except BufferError:  # the client's queue is full: serve acknowledgements until it is not
                producer.poll(0.1)
        producer.poll(0)
    unanswered = producer.flush(FLUSH_LIMIT_S)
    if unanswered:
        produced.failed["no answer"] = unanswered
    return produced


def progress_bar() -> Progress:
    """A progress bar for records."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TaskProgressColumn())
    return Progress(*columns, TimeRemainingColumn())


def main() -> int:
    """Produce everything with a progress bar; exit code 1 when a record was not acknowledged."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="flights")
    parser.add_argument("--rate", type=float, default=0, help="records per second; 0: no limit")
    parser.add_argument("--count", type=int, default=COUNT)
    arguments = parser.parse_args()
    with progress_bar() as progress:
        task = progress.add_task("flights", total=arguments.count)

        def on_ack(count: int, *_: float) -> None:
            if count % PROGRESS_EVERY == 0 or count == arguments.count:
                progress.update(task, completed=count)

        try:
            produced = produce_flights(
                arguments.bootstrap, arguments.topic, rate=arguments.rate, limit=arguments.count, on_ack=on_ack
            )
        except KafkaException as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    print(f"{produced.count:,} flights acknowledged on {len(produced.ends)} partitions")
    for name, count in produced.failed.items():
        print(f"{count:,} not acknowledged: {name}", file=sys.stderr)
    return 1 if produced.failed else 0


if __name__ == "__main__":
    sys.exit(main())

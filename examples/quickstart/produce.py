"""Send greetings to the topic `quickstart`, each acknowledged by every in-sync replica.

python examples/quickstart/produce.py [--bootstrap 127.0.0.1:9092] [--count 10]
"""

from __future__ import annotations

import argparse
import sys

from confluent_kafka import KafkaError, Message, Producer


def main() -> int:
    """Send `count` records and print where each one went."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="quickstart")
    parser.add_argument("--count", type=int, default=10)
    arguments = parser.parse_args()

    failures = 0

    def delivered(error: KafkaError | None, message: Message) -> None:
        nonlocal failures
        if error is not None:
            failures += 1
            print(f"failed: {error}", file=sys.stderr)
        else:
            print(f"{message.key().decode()} -> partition {message.partition()}, offset {message.offset()}")

    # Idempotent: a retry after a broker's death cannot write a record twice. It implies acks=all.
    producer = Producer({"bootstrap.servers": arguments.bootstrap, "enable.idempotence": True})
    for number in range(arguments.count):
        producer.produce(arguments.topic, f"hello {number}", key=f"greeting-{number}", on_delivery=delivered)
        producer.poll(0)  # serves delivery reports
    unsent = producer.flush(30)
    return 1 if failures or unsent else 0


if __name__ == "__main__":
    sys.exit(main())

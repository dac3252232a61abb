"""Print everything in the topic `quickstart` from the beginning, then stop (--follow: wait for more).

The program assigns all partitions itself, so it needs no consumer group.

python examples/quickstart/consume.py [--bootstrap 127.0.0.1:9092] [--follow]
"""

from __future__ import annotations

import argparse
import sys

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition


def main() -> int:
    """Read until every partition is at its end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="quickstart")
    parser.add_argument("--follow", action="store_true")
    arguments = parser.parse_args()

    consumer = Consumer(
        {
            "bootstrap.servers": arguments.bootstrap,
            "group.id": "unused",  # the client asks for a name; nothing is committed
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    known = consumer.list_topics(arguments.topic, timeout=10).topics[arguments.topic]
    if known.error is not None:
        print(f"{arguments.topic}: {known.error}", file=sys.stderr)
        return 1
    open_partitions = set(known.partitions)
    consumer.assign([TopicPartition(arguments.topic, partition, OFFSET_BEGINNING) for partition in known.partitions])
    count = 0
    try:
        while open_partitions or arguments.follow:
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is None:
                count += 1
                key, value = (message.key() or b"").decode(), (message.value() or b"").decode()
                print(f"{message.partition()}/{message.offset()}: {key} = {value}")
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client's public name for it
                open_partitions.discard(message.partition())
            else:
                print(error, file=sys.stderr)
    except KeyboardInterrupt:
        pass
    finally:
        consumer.close()
    print(f"{count} records")
    return 0


if __name__ == "__main__":
    sys.exit(main())

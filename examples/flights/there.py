"""Is there anything in the topic `flights`? Exit code 0: yes; 1: no, with what to do about it.

python examples/flights/there.py 127.0.0.1:9092
"""

from __future__ import annotations

import sys

from confluent_kafka import Consumer, KafkaException, TopicPartition

TOPIC = "flights"
LIMIT_S = 10.0


def count(bootstrap: str) -> int:
    """Records between the first and the end offsets; 0 when there is no such topic. Raises KafkaException."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "flights-there"})
    try:
        partitions = consumer.list_topics(TOPIC, timeout=LIMIT_S).topics
        records = 0
        for number in partitions[TOPIC].partitions:
            first, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, number), timeout=LIMIT_S)
            records += end - first
        return records
    finally:
        consumer.close()


def main(bootstrap: str) -> int:
    """Say what to do when there is nothing."""
    try:
        if count(bootstrap):
            return 0
        problem = f"the topic {TOPIC} is missing or empty: run `make demo` first, which fills it"
    except KafkaException as error:
        problem = f"{bootstrap}: {error}"
    sys.stderr.write(f"error: {problem}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

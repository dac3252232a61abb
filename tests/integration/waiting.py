"""Waiting for what no event announces to a client: each broker hears of changes in its own time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.cluster import Cluster

WAIT_S = 30.0
# The broker that was asked does not lead yet, or does not know yet what its predecessor had committed. librdkafka gives
# both back to the program, which has to ask again.
ASK_AGAIN = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}


def wait_until(
    check: Callable[[], object], timeout: float = 60.0, words: str = "waited in vain", pause: float = 0.02
) -> None:
    """Poll until `check` is true."""
    end = time.monotonic() + timeout
    while not check():
        assert time.monotonic() < end, words
        time.sleep(pause)


def watermarks(cluster: Cluster, topic: str, partition: int = 0) -> tuple[int, int]:
    """The log start and the high watermark of a partition, as a client is told."""
    end = time.monotonic() + WAIT_S
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "offsets"})
    try:
        while True:
            try:
                return consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=WAIT_S)
            except KafkaException as failure:
                if failure.args[0].code() not in ASK_AGAIN or time.monotonic() > end:
                    raise
            time.sleep(0.05)
    finally:
        consumer.close()

"""What a cluster at rest comes to: on every replica the same high watermark, which is what clients are told.

Records whose producer never heard of them lie below it as well, and so does what a consumer group has committed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaException, TopicPartition

from kafkalite_cli.verify.replica_log import DirectoryError, open_directory
from tests.chaos.cluster import BROKERS, NotHealedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.chaos.cluster import Cluster

OFFSETS_TOPIC = "__consumer_offsets"
REST_LIMIT_S = 90.0  # brokers write their high watermarks down every 5 s
LOOK_S = 0.5
ASK_TIMEOUT_S = 10.0
Ends = dict[tuple[str, int], int]


def ends_at_rest(cluster: Cluster, topics: Iterable[str], timeout_s: float = REST_LIMIT_S) -> Ends:
    """(topic, partition) -> high watermark, of these topics and of the groups' offsets where there are any.

    Nobody may write any more. Waits until every broker has written down what the leaders tell clients. Raises
    NotHealedError with the partitions of which that does not come true.
    """
    client = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "chaos-rest", "isolation.level": "read_uncommitted", "log_level": 2}
    )  # fmt: skip
    limit = time.monotonic() + timeout_s
    try:
        while True:
            told: Ends = {}
            apart = _ask(client, [*topics, OFFSETS_TOPIC], told) or _differing(written_down(cluster), told)
            if not apart:
                return told
            if time.monotonic() > limit:
                raise NotHealedError(f"high watermarks at rest: {'; '.join(apart)[:1500]}")
            time.sleep(LOOK_S)  # a checkpoint is a file; nothing tells when it changes
    finally:
        client.close()


def _ask(client: Consumer, topics: Iterable[str], told: Ends) -> list[str]:
    """Fill in what the leaders say; what could not be learned, in words."""
    try:
        known = client.list_topics(timeout=ASK_TIMEOUT_S).topics
        for topic in topics:
            if topic not in known and topic == OFFSETS_TOPIC:
                continue
            for number in known[topic].partitions:
                asked = TopicPartition(topic, number)
                told[topic, number] = int(client.get_watermark_offsets(asked, ASK_TIMEOUT_S, cached=False)[1])
    except KafkaException as error:
        return [error.args[0].str()]
    except (KeyError, TypeError):  # a topic that a broker does not know yet; no answer in time
        return ["brokers do not tell of every partition"]
    return []


def written_down(cluster: Cluster) -> dict[tuple[str, int], dict[int, int]]:
    """(topic, partition) -> broker -> high watermark, by the checkpoints of those brokers that have the partition."""
    found: dict[tuple[str, int], dict[int, int]] = {}
    for broker in range(BROKERS):
        try:
            _, logs = open_directory(cluster.data_directory(broker))
        except DirectoryError:
            continue  # what is not there differs
        for key, log in logs.items():
            found.setdefault((key.topic, key.partition), {})[broker] = log.high_watermark
    return found


def _differing(marks: dict[tuple[str, int], dict[int, int]], told: Ends) -> list[str]:
    """Partitions of which not every broker has written down what was told."""
    return [
        f"{topic}-{number}: clients are told {end}, brokers have {marks.get((topic, number), {})}"
        for (topic, number), end in told.items()
        if marks.get((topic, number), {}) != dict.fromkeys(range(BROKERS), end)
    ]

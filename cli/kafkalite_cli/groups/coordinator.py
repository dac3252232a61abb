"""Requests to a group's coordinator that librdkafka's Python binding does not offer, by KafkaLite's own codec."""

from __future__ import annotations

import time

from confluent_kafka import KafkaError

from kafkalite_cli.errors import Failure
from kafkalite_cli.groups.model import Partition
from kafkalite_cli.groups.takeover import COMING, COORDINATOR_S, RETRY_S
from kafkalite_cli.kafka import sentence, split_address
from kafkalite_cli.wire import Connection
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.find_coordinator import FindCoordinatorRequest
from kafkalite_core.protocol.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)

FIND_COORDINATOR = (10, 3)
OFFSET_DELETE = (47, 0)


def delete_offsets(bootstrap: str, group_id: str, partitions: list[Partition]) -> dict[Partition, int]:
    """Kafka's error code for each partition. Raises Failure when the coordinator refuses all of them."""
    topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
    for each in partitions:
        topics.setdefault(each.topic, []).append(OffsetDeleteRequestPartition(partition_index=each.number))
    wanted = [OffsetDeleteRequestTopic(name=name, partitions=numbers) for name, numbers in topics.items()]
    request = OffsetDeleteRequest(group_id=group_id, topics=wanted)
    limit = time.monotonic() + COORDINATOR_S
    while True:
        with Connection(find_coordinator(bootstrap, group_id, limit)) as connection:
            response: OffsetDeleteResponse = connection.request(*OFFSET_DELETE, request)
        if response.error_code not in COMING or time.monotonic() > limit:
            break
        time.sleep(RETRY_S)
    if response.error_code:
        raise Failure(f"group {group_id!r}: {sentence(KafkaError(response.error_code))}")
    return {
        Partition(topic.name, each.partition_index): int(each.error_code)
        for topic in response.topics
        for each in topic.partitions
    }


def find_coordinator(bootstrap: str, group_id: str, limit: float) -> tuple[str, int]:
    """Host and port, asked for until `limit` (monotonic) while it is being elected. Raises Failure."""
    code = int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    problem: Failure | None = None
    while True:
        for address in bootstrap.split(","):
            try:
                with Connection(split_address(address)) as connection:
                    found = connection.request(*FIND_COORDINATOR, FindCoordinatorRequest(key=group_id, key_type=0))
            except Failure as error:
                problem = error
                continue
            if found.error_code == ErrorCode.NONE:
                return str(found.host), int(found.port)
            code, problem = int(found.error_code), None
        if code not in COMING or time.monotonic() > limit:
            raise problem or Failure(f"group {group_id!r}: {sentence(KafkaError(code))}")
        time.sleep(RETRY_S)

"""Requests as clients send them, in short."""

from uuid import UUID

from kafkalite_core.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkalite_core.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3


def produce_request(*parts, topic="orders", acks=-1, timeout_ms=5000):
    data = [PartitionProduceData(index=index, records=records) for index, records in parts]
    return ProduceRequest(
        acks=acks, timeout_ms=timeout_ms, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )


async def produce(client, *parts, version=9, **options):
    """Answers in the order of the parts. A partition that comes again does so in a further request, as clients do it."""
    requests = []
    for part in parts:
        turn = sum(part[0] == other[0] for request in requests for other in request)
        if turn == len(requests):
            requests.append([])
        requests[turn].append(part)
    answers = [
        answer
        for request in requests
        for topic in (await client.ask(PRODUCE, version, produce_request(*request, **options))).responses
        for answer in topic.partition_responses
    ]
    sent = [part for request in requests for part in request]
    return [answers[next(n for n, one in enumerate(sent) if one is part)] for part in parts]


def fetch_request(*offsets, topic="orders", topic_id=None, wait_ms=0, min_bytes=1, max_bytes=1 << 20, **part):
    partitions = [FetchPartition(partition=n, fetch_offset=o, **{"partition_max_bytes": 1 << 20, **part})
                  for n, o in enumerate(offsets)]  # fmt: skip
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[FetchTopic(topic=topic, topic_id=topic_id or UUID(int=0), partitions=partitions)],
    )


async def fetch(client, *offsets, version=12, **options):
    response = await client.ask(FETCH, version, fetch_request(*offsets, **options))
    return [part for topic in response.responses for part in topic.partitions]

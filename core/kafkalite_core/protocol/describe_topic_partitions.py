"""DescribeTopicPartitions (key 75): its messages and their codec."""

from kafkalite_core.protocol.generated.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)

__all__ = [
    "Cursor",
    "DescribeTopicPartitionsRequest",
    "DescribeTopicPartitionsResponse",
    "DescribeTopicPartitionsResponsePartition",
    "DescribeTopicPartitionsResponseTopic",
    "TopicRequest",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
]

"""CreatePartitions (key 37): its messages and their codec."""

from kafkalite_core.protocol.generated.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)

__all__ = [
    "CreatePartitionsAssignment",
    "CreatePartitionsRequest",
    "CreatePartitionsResponse",
    "CreatePartitionsTopic",
    "CreatePartitionsTopicResult",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
]

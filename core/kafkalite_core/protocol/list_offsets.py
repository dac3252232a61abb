"""ListOffsets (key 2): its messages and their codec."""

from kafkalite_core.protocol.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)

__all__ = [
    "ListOffsetsPartition",
    "ListOffsetsPartitionResponse",
    "ListOffsetsRequest",
    "ListOffsetsResponse",
    "ListOffsetsTopic",
    "ListOffsetsTopicResponse",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
]

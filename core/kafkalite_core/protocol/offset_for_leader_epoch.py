"""OffsetForLeaderEpoch (key 23): its messages and their codec."""

from kafkalite_core.protocol.generated.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)

__all__ = [
    "EpochEndOffset",
    "OffsetForLeaderEpochRequest",
    "OffsetForLeaderEpochResponse",
    "OffsetForLeaderPartition",
    "OffsetForLeaderTopic",
    "OffsetForLeaderTopicResult",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
]

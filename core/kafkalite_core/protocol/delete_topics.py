"""DeleteTopics (key 20): its messages and their codec."""

from kafkalite_core.protocol.generated.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)

__all__ = [
    "DeletableTopicResult",
    "DeleteTopicState",
    "DeleteTopicsRequest",
    "DeleteTopicsResponse",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
]

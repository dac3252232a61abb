"""CreateTopics (key 19): its messages and their codec."""

from kafkalite_core.protocol.generated.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)

__all__ = [
    "CreatableReplicaAssignment",
    "CreatableTopic",
    "CreatableTopicConfig",
    "CreatableTopicConfigs",
    "CreatableTopicResult",
    "CreateTopicsRequest",
    "CreateTopicsResponse",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
]

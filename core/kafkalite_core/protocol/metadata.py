"""Metadata (key 3): its messages and their codec."""

from kafkalite_core.protocol.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)

__all__ = [
    "MetadataRequest",
    "MetadataRequestTopic",
    "MetadataResponse",
    "MetadataResponseBroker",
    "MetadataResponsePartition",
    "MetadataResponseTopic",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
]

"""AlterPartitionReassignments (key 45): its messages and their codec."""

from kafkalite_core.protocol.generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)

__all__ = [
    "AlterPartitionReassignmentsRequest",
    "AlterPartitionReassignmentsResponse",
    "ReassignablePartition",
    "ReassignablePartitionResponse",
    "ReassignableTopic",
    "ReassignableTopicResponse",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
]

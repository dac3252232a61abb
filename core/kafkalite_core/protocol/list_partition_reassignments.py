"""ListPartitionReassignments (key 46): its messages and their codec."""

from kafkalite_core.protocol.generated.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)

__all__ = [
    "ListPartitionReassignmentsRequest",
    "ListPartitionReassignmentsResponse",
    "ListPartitionReassignmentsTopics",
    "OngoingPartitionReassignment",
    "OngoingTopicReassignment",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
]

"""ElectLeaders (key 43): its messages and their codec."""

from kafkalite_core.protocol.generated.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)

__all__ = [
    "ElectLeadersRequest",
    "ElectLeadersResponse",
    "PartitionResult",
    "ReplicaElectionResult",
    "TopicPartitions",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
]

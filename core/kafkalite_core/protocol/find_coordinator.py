"""FindCoordinator (key 10): its messages and their codec."""

from kafkalite_core.protocol.generated.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)

__all__ = [
    "Coordinator",
    "FindCoordinatorRequest",
    "FindCoordinatorResponse",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
]

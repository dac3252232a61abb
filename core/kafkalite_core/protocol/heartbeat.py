"""Heartbeat (key 12): its messages and their codec."""

from kafkalite_core.protocol.generated.heartbeat import (
    HeartbeatRequest,
    HeartbeatResponse,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)

__all__ = [
    "HeartbeatRequest",
    "HeartbeatResponse",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
]

"""SyncGroup (key 14): its messages and their codec."""

from kafkalite_core.protocol.generated.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)

__all__ = [
    "SyncGroupRequest",
    "SyncGroupRequestAssignment",
    "SyncGroupResponse",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
]

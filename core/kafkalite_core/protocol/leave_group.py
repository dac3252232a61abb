"""LeaveGroup (key 13): its messages and their codec."""

from kafkalite_core.protocol.generated.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)

__all__ = [
    "LeaveGroupRequest",
    "LeaveGroupResponse",
    "MemberIdentity",
    "MemberResponse",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
]

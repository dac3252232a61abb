"""JoinGroup (key 11): its messages and their codec."""

from kafkalite_core.protocol.generated.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)

__all__ = [
    "JoinGroupRequest",
    "JoinGroupRequestProtocol",
    "JoinGroupResponse",
    "JoinGroupResponseMember",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
]

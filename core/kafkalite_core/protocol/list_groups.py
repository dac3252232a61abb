"""ListGroups (key 16): its messages and their codec."""

from kafkalite_core.protocol.generated.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)

__all__ = [
    "ListGroupsRequest",
    "ListGroupsResponse",
    "ListedGroup",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
]

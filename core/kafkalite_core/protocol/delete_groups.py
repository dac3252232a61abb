"""DeleteGroups (key 42): its messages and their codec."""

from kafkalite_core.protocol.generated.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)

__all__ = [
    "DeletableGroupResult",
    "DeleteGroupsRequest",
    "DeleteGroupsResponse",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
]

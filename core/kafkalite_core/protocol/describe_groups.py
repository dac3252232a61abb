"""DescribeGroups (key 15): its messages and their codec."""

from kafkalite_core.protocol.generated.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)

__all__ = [
    "DescribeGroupsRequest",
    "DescribeGroupsResponse",
    "DescribedGroup",
    "DescribedGroupMember",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
]

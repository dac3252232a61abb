"""DescribeConfigs (key 32): its messages and their codec."""

from kafkalite_core.protocol.generated.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)

__all__ = [
    "DescribeConfigsRequest",
    "DescribeConfigsResource",
    "DescribeConfigsResourceResult",
    "DescribeConfigsResponse",
    "DescribeConfigsResult",
    "DescribeConfigsSynonym",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
]

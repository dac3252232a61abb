"""DescribeCluster (key 60): its messages and their codec."""

from kafkalite_core.protocol.generated.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)

__all__ = [
    "DescribeClusterBroker",
    "DescribeClusterRequest",
    "DescribeClusterResponse",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
]

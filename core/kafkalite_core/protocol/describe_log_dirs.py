"""DescribeLogDirs (key 35): its messages and their codec."""

from kafkalite_core.protocol.generated.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)

__all__ = [
    "DescribableLogDirTopic",
    "DescribeLogDirsPartition",
    "DescribeLogDirsRequest",
    "DescribeLogDirsResponse",
    "DescribeLogDirsResult",
    "DescribeLogDirsTopic",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
]

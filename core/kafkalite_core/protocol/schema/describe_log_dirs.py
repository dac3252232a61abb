"""DescribeLogDirs (key 35)."""

from kafkalite_core.protocol.schema.notation import api, array, field, struct

_ASKED = struct("DescribableLogDirTopic", field("topic", "string"), field("partitions", array("int32")))
_PARTITION = struct(
    "DescribeLogDirsPartition",
    field("partition_index", "int32"),
    field("partition_size", "int64"),
    field("offset_lag", "int64"),
    field("is_future_key", "bool"),
)
_TOPIC = struct("DescribeLogDirsTopic", field("name", "string"), field("partitions", array(_PARTITION)))
_RESULT = struct(
    "DescribeLogDirsResult",
    field("error_code", "int16"),
    field("log_dir", "string"),
    field("topics", array(_TOPIC)),
    field("total_bytes", "int64", "4+", default=-1),
    field("usable_bytes", "int64", "4+", default=-1),
)

DESCRIBE_LOG_DIRS = api(
    35,
    "DescribeLogDirs",
    "describe_log_dirs",
    "1-4",
    flexible=2,
    # Null means every partition of the broker.
    request=struct("DescribeLogDirsRequest", field("topics", array(_ASKED), nullable="0+")),
    response=struct(
        "DescribeLogDirsResponse",
        field("throttle_time_ms", "int32"),
        field("error_code", "int16", "3+"),
        field("results", array(_RESULT)),
    ),
)

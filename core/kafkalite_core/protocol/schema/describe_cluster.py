"""DescribeCluster (key 60)."""

from kafkalite_core.protocol.schema.notation import api, array, field, struct

_BROKER = struct(
    "DescribeClusterBroker",
    field("broker_id", "int32"),
    field("host", "string"),
    field("port", "int32"),
    field("rack", "string", nullable="0+", default_null=True),
)

DESCRIBE_CLUSTER = api(
    60,
    "DescribeCluster",
    "describe_cluster",
    "0-1",
    flexible=0,
    request=struct(
        "DescribeClusterRequest",
        field("include_cluster_authorized_operations", "bool"),
        field("endpoint_type", "int8", "1+", default=1),
    ),
    response=struct(
        "DescribeClusterResponse",
        field("throttle_time_ms", "int32"),
        field("error_code", "int16"),
        field("error_message", "sentence", nullable="0+", default_null=True),
        field("endpoint_type", "int8", "1+", default=1),
        field("cluster_id", "string"),
        field("controller_id", "int32", default=-1),
        field("brokers", array(_BROKER)),
        field("cluster_authorized_operations", "int32", default=-(2**31)),
    ),
)

"""Metadata (key 3)."""

from kafkalite_core.protocol.schema.notation import api, array, field, struct

_TOPIC = struct(
    "MetadataRequestTopic", field("topic_id", "uuid", "10+"), field("name", "string", nullable="10+", default="")
)
_BROKER = struct(
    "MetadataResponseBroker",
    field("node_id", "int32"),
    field("host", "string"),
    field("port", "int32"),
    field("rack", "string", "1+", nullable="1+", default_null=True),
)
_PARTITION = struct(
    "MetadataResponsePartition",
    field("error_code", "int16"),
    field("partition_index", "int32"),
    field("leader_id", "int32"),
    field("leader_epoch", "int32", "7+", default=-1),
    field("replica_nodes", array("int32")),
    field("isr_nodes", array("int32")),
    field("offline_replicas", array("int32"), "5+"),
)
_TOPIC_RESPONSE = struct(
    "MetadataResponseTopic",
    field("error_code", "int16"),
    field("name", "string", nullable="12+"),
    field("topic_id", "uuid", "10+"),
    field("is_internal", "bool", "1+"),
    field("partitions", array(_PARTITION)),
    field("topic_authorized_operations", "int32", "8+", default=-(2**31)),
)

METADATA = api(
    3,
    "Metadata",
    "metadata",
    "0-12",
    flexible=9,
    request=struct(
        "MetadataRequest",
        field("topics", array(_TOPIC), nullable="1+"),
        field("allow_auto_topic_creation", "bool", "4+", default=True),
        field("include_cluster_authorized_operations", "bool", "8-10"),
        field("include_topic_authorized_operations", "bool", "8+"),
    ),
    response=struct(
        "MetadataResponse",
        field("throttle_time_ms", "int32", "3+"),
        field("brokers", array(_BROKER)),
        field("cluster_id", "string", "2+", nullable="2+", default_null=True),
        field("controller_id", "int32", "1+", default=-1),
        field("topics", array(_TOPIC_RESPONSE)),
        field("cluster_authorized_operations", "int32", "8-10", default=-(2**31)),
    ),
)

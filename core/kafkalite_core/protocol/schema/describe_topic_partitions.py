"""DescribeTopicPartitions (key 75, KIP-966)."""

from kafkalite_core.protocol.schema.notation import api, array, field, struct

_TOPIC = struct("TopicRequest", field("name", "string"))
_CURSOR = struct("Cursor", field("topic_name", "string"), field("partition_index", "int32"))
_PARTITION = struct(
    "DescribeTopicPartitionsResponsePartition",
    field("error_code", "int16"),
    field("partition_index", "int32"),
    field("leader_id", "int32"),
    field("leader_epoch", "int32", default=-1),
    field("replica_nodes", array("int32")),
    field("isr_nodes", array("int32")),
    field("eligible_leader_replicas", array("int32"), nullable="0+", default_null=True),
    field("last_known_elr", array("int32"), nullable="0+", default_null=True),
    field("offline_replicas", array("int32")),
)
_TOPIC_RESPONSE = struct(
    "DescribeTopicPartitionsResponseTopic",
    field("error_code", "int16"),
    field("name", "string", nullable="0+"),
    field("topic_id", "uuid"),
    field("is_internal", "bool"),
    field("partitions", array(_PARTITION)),
    field("topic_authorized_operations", "int32", default=-(2**31)),
)

DESCRIBE_TOPIC_PARTITIONS = api(
    75,
    "DescribeTopicPartitions",
    "describe_topic_partitions",
    "0",
    flexible=0,
    request=struct(
        "DescribeTopicPartitionsRequest",
        field("topics", array(_TOPIC)),
        field("response_partition_limit", "int32", default=2000),
        field("cursor", _CURSOR, nullable="0+", default_null=True),
    ),
    response=struct(
        "DescribeTopicPartitionsResponse",
        field("throttle_time_ms", "int32"),
        field("topics", array(_TOPIC_RESPONSE)),
        field("next_cursor", _CURSOR, nullable="0+", default_null=True),
    ),
)

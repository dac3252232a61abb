"""AlterPartitionReassignments (key 45)."""

from kafkalite_core.protocol.schema.notation import api, array, field, struct

_PARTITION = struct(
    "ReassignablePartition",
    field("partition_index", "int32"),
    # Null cancels a reassignment that is under way.
    field("replicas", array("int32"), nullable="0+", default_null=True),
)
_TOPIC = struct("ReassignableTopic", field("name", "string"), field("partitions", array(_PARTITION)))
_PARTITION_RESPONSE = struct(
    "ReassignablePartitionResponse",
    field("partition_index", "int32"),
    field("error_code", "int16"),
    field("error_message", "sentence", nullable="0+"),
)
_TOPIC_RESPONSE = struct(
    "ReassignableTopicResponse", field("name", "string"), field("partitions", array(_PARTITION_RESPONSE))
)

ALTER_PARTITION_REASSIGNMENTS = api(
    45,
    "AlterPartitionReassignments",
    "alter_partition_reassignments",
    "0-1",
    flexible=0,
    request=struct(
        "AlterPartitionReassignmentsRequest",
        field("timeout_ms", "int32", default=60000),
        # KAFKA-14121: false refuses lists of another length.
        field("allow_replication_factor_change", "bool", "1+", default=True),
        field("topics", array(_TOPIC)),
    ),
    response=struct(
        "AlterPartitionReassignmentsResponse",
        field("throttle_time_ms", "int32"),
        field("allow_replication_factor_change", "bool", "1+", default=True),
        field("error_code", "int16"),
        field("error_message", "sentence", nullable="0+"),
        field("responses", array(_TOPIC_RESPONSE)),
    ),
)

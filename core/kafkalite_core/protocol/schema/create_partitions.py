"""CreatePartitions (key 37)."""

from kafkalite_core.protocol.schema.notation import api, array, field, struct

_ASSIGNMENT = struct("CreatePartitionsAssignment", field("broker_ids", array("int32")))
_TOPIC = struct(
    "CreatePartitionsTopic",
    field("name", "string"),
    # Of all partitions, not only of the new ones.
    field("count", "int32"),
    field("assignments", array(_ASSIGNMENT), nullable="0+"),
)
_RESULT = struct(
    "CreatePartitionsTopicResult",
    field("name", "string"),
    field("error_code", "int16"),
    field("error_message", "sentence", nullable="0+", default_null=True),
)

CREATE_PARTITIONS = api(
    37,
    "CreatePartitions",
    "create_partitions",
    "0-3",
    flexible=2,
    request=struct(
        "CreatePartitionsRequest",
        field("topics", array(_TOPIC)),
        field("timeout_ms", "int32"),
        field("validate_only", "bool"),
    ),
    response=struct(
        "CreatePartitionsResponse",
        field("throttle_time_ms", "int32"),
        field("results", array(_RESULT)),
    ),
)

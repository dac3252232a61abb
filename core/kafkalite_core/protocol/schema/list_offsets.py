"""ListOffsets (key 2)."""

from kafkalite_core.protocol.schema.notation import api, array, field, struct

_PARTITION = struct(
    "ListOffsetsPartition",
    field("partition_index", "int32"),
    field("current_leader_epoch", "int32", "4+", default=-1),
    field("timestamp", "int64"),
)
_TOPIC = struct("ListOffsetsTopic", field("name", "string"), field("partitions", array(_PARTITION)))
_PARTITION_RESPONSE = struct(
    "ListOffsetsPartitionResponse",
    field("partition_index", "int32"),
    field("error_code", "int16"),
    field("timestamp", "int64", "1+", default=-1),
    field("offset", "int64", "1+", default=-1),
    field("leader_epoch", "int32", "4+", default=-1),
)
_TOPIC_RESPONSE = struct(
    "ListOffsetsTopicResponse", field("name", "string"), field("partitions", array(_PARTITION_RESPONSE))
)

LIST_OFFSETS = api(
    2,
    "ListOffsets",
    "list_offsets",
    "1-8",
    flexible=6,
    request=struct(
        "ListOffsetsRequest",
        field("replica_id", "int32"),
        field("isolation_level", "int8", "2+"),
        field("topics", array(_TOPIC)),
    ),
    response=struct(
        "ListOffsetsResponse",
        field("throttle_time_ms", "int32", "2+"),
        field("topics", array(_TOPIC_RESPONSE)),
    ),
)

"""OffsetDelete (key 47)."""

from kafkalite_core.protocol.schema.notation import NEVER_FLEXIBLE, api, array, field, struct

_PARTITION = struct("OffsetDeleteRequestPartition", field("partition_index", "int32"))
_TOPIC = struct("OffsetDeleteRequestTopic", field("name", "string"), field("partitions", array(_PARTITION)))

_PARTITION_RESPONSE = struct(
    "OffsetDeleteResponsePartition", field("partition_index", "int32"), field("error_code", "int16")
)
_TOPIC_RESPONSE = struct(
    "OffsetDeleteResponseTopic", field("name", "string"), field("partitions", array(_PARTITION_RESPONSE))
)

OFFSET_DELETE = api(
    47,
    "OffsetDelete",
    "offset_delete",
    "0",
    flexible=NEVER_FLEXIBLE,
    request=struct("OffsetDeleteRequest", field("group_id", "string"), field("topics", array(_TOPIC))),
    response=struct(
        "OffsetDeleteResponse",
        field("error_code", "int16"),
        field("throttle_time_ms", "int32"),
        field("topics", array(_TOPIC_RESPONSE)),
    ),
)

"""OffsetFetch (key 9)."""

from kafkalite_core.protocol.schema.notation import api, array, field, struct

# One group up to version 7, any number from 8 on; each form has classes of its own, as in Apache Kafka.
_TOPIC = struct("OffsetFetchRequestTopic", field("name", "string"), field("partition_indexes", array("int32")))
_GROUP_TOPIC = struct("OffsetFetchRequestTopics", field("name", "string"), field("partition_indexes", array("int32")))
_GROUP = struct(
    "OffsetFetchRequestGroup",
    field("group_id", "string"),
    field("member_id", "string", "9+", nullable="9+", default_null=True),
    field("member_epoch", "int32", "9+", default=-1),
    field("topics", array(_GROUP_TOPIC), nullable="8+"),
)

_PARTITION_RESPONSE = struct(
    "OffsetFetchResponsePartition",
    field("partition_index", "int32"),
    field("committed_offset", "int64"),
    field("committed_leader_epoch", "int32", "5+", default=-1),
    field("metadata", "string", nullable="0+"),
    field("error_code", "int16"),
)
_TOPIC_RESPONSE = struct(
    "OffsetFetchResponseTopic", field("name", "string"), field("partitions", array(_PARTITION_RESPONSE))
)
_GROUP_PARTITION_RESPONSE = struct(
    "OffsetFetchResponsePartitions",
    field("partition_index", "int32"),
    field("committed_offset", "int64"),
    field("committed_leader_epoch", "int32", default=-1),
    field("metadata", "string", nullable="8+"),
    field("error_code", "int16"),
)
_GROUP_TOPIC_RESPONSE = struct(
    "OffsetFetchResponseTopics", field("name", "string"), field("partitions", array(_GROUP_PARTITION_RESPONSE))
)
_GROUP_RESPONSE = struct(
    "OffsetFetchResponseGroup",
    field("group_id", "string"),
    field("topics", array(_GROUP_TOPIC_RESPONSE)),
    field("error_code", "int16"),
)

OFFSET_FETCH = api(
    9,
    "OffsetFetch",
    "offset_fetch",
    "1-9",
    flexible=6,
    request=struct(
        "OffsetFetchRequest",
        field("group_id", "string", "0-7"),
        # Null, from version 2 on, asks for every partition that the group has an offset for.
        field("topics", array(_TOPIC), "0-7", nullable="2-7"),
        field("groups", array(_GROUP), "8+"),
        field("require_stable", "bool", "7+"),
    ),
    response=struct(
        "OffsetFetchResponse",
        field("throttle_time_ms", "int32", "3+"),
        field("topics", array(_TOPIC_RESPONSE), "0-7"),
        field("error_code", "int16", "2-7"),
        field("groups", array(_GROUP_RESPONSE), "8+"),
    ),
)

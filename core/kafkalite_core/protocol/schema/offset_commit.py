"""OffsetCommit (key 8)."""

from kafkalite_core.protocol.schema.notation import api, array, field, struct

_PARTITION = struct(
    "OffsetCommitRequestPartition",
    field("partition_index", "int32"),
    field("committed_offset", "int64"),
    field("committed_leader_epoch", "int32", "6+", default=-1),
    field("committed_metadata", "string", nullable="0+"),
)
_TOPIC = struct("OffsetCommitRequestTopic", field("name", "string"), field("partitions", array(_PARTITION)))

_PARTITION_RESPONSE = struct(
    "OffsetCommitResponsePartition", field("partition_index", "int32"), field("error_code", "int16")
)
_TOPIC_RESPONSE = struct(
    "OffsetCommitResponseTopic", field("name", "string"), field("partitions", array(_PARTITION_RESPONSE))
)

OFFSET_COMMIT = api(
    8,
    "OffsetCommit",
    "offset_commit",
    "2-9",
    flexible=8,
    request=struct(
        "OffsetCommitRequest",
        field("group_id", "string"),
        field("generation_id_or_member_epoch", "int32", default=-1),
        field("member_id", "string"),
        field("group_instance_id", "string", "7+", nullable="7+", default_null=True),
        field("retention_time_ms", "int64", "2-4", default=-1),
        field("topics", array(_TOPIC)),
    ),
    response=struct(
        "OffsetCommitResponse",
        field("throttle_time_ms", "int32", "3+"),
        field("topics", array(_TOPIC_RESPONSE)),
    ),
)

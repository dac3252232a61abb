"""OffsetForLeaderEpoch (key 23)."""

from kafkalite_core.protocol.schema.notation import api, array, field, struct

_PARTITION = struct(
    "OffsetForLeaderPartition",
    field("partition", "int32"),
    field("current_leader_epoch", "int32", "2+", default=-1),
    field("leader_epoch", "int32"),
)
_TOPIC = struct("OffsetForLeaderTopic", field("topic", "string"), field("partitions", array(_PARTITION)))
_RESULT = struct(
    "EpochEndOffset",
    field("error_code", "int16"),
    field("partition", "int32"),
    field("leader_epoch", "int32", "1+", default=-1),
    field("end_offset", "int64", default=-1),
)
_TOPIC_RESULT = struct("OffsetForLeaderTopicResult", field("topic", "string"), field("partitions", array(_RESULT)))

OFFSET_FOR_LEADER_EPOCH = api(
    23,
    "OffsetForLeaderEpoch",
    "offset_for_leader_epoch",
    "2-4",
    flexible=4,
    request=struct(
        "OffsetForLeaderEpochRequest",
        field("replica_id", "int32", "3+", default=-2),
        field("topics", array(_TOPIC)),
    ),
    response=struct(
        "OffsetForLeaderEpochResponse",
        field("throttle_time_ms", "int32", "2+"),
        field("topics", array(_TOPIC_RESULT)),
    ),
)

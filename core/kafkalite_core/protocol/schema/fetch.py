"""Fetch (key 1)."""

from kafkalite_core.protocol.schema.notation import api, array, field, struct

_REPLICA_STATE = struct(
    "ReplicaState", field("replica_id", "int32", default=-1), field("replica_epoch", "int64", default=-1)
)
_PARTITION = struct(
    "FetchPartition",
    field("partition", "int32"),
    field("current_leader_epoch", "int32", "9+", default=-1),
    field("fetch_offset", "int64"),
    field("last_fetched_epoch", "int32", "12+", default=-1),
    field("log_start_offset", "int64", "5+", default=-1),
    field("partition_max_bytes", "int32"),
)
_TOPIC = struct(
    "FetchTopic",
    field("topic", "string", "0-12"),
    field("topic_id", "uuid", "13+"),
    field("partitions", array(_PARTITION)),
)
_FORGOTTEN = struct(
    "ForgottenTopic",
    field("topic", "string", "7-12"),
    field("topic_id", "uuid", "13+"),
    field("partitions", array("int32")),
)

_DIVERGING = struct("EpochEndOffset", field("epoch", "int32", default=-1), field("end_offset", "int64", default=-1))
_LEADER = struct(
    "LeaderIdAndEpoch", field("leader_id", "int32", default=-1), field("leader_epoch", "int32", default=-1)
)
_SNAPSHOT = struct("SnapshotId", field("end_offset", "int64", default=-1), field("epoch", "int32", default=-1))
_ABORTED = struct("AbortedTransaction", field("producer_id", "int64"), field("first_offset", "int64"))
_PARTITION_DATA = struct(
    "PartitionData",
    field("partition_index", "int32"),
    field("error_code", "int16"),
    field("high_watermark", "int64"),
    field("last_stable_offset", "int64", "4+", default=-1),
    field("log_start_offset", "int64", "5+", default=-1),
    field("diverging_epoch", _DIVERGING, "12+", tag=0),
    field("current_leader", _LEADER, "12+", tag=1),
    field("snapshot_id", _SNAPSHOT, "12+", tag=2),
    field("aborted_transactions", array(_ABORTED), "4+", nullable="4+"),
    field("preferred_read_replica", "int32", "11+", default=-1),
    field("records", "record_buffers", nullable="0+", default_null=True),
)
_TOPIC_RESPONSE = struct(
    "FetchableTopicResponse",
    field("topic", "string", "0-12"),
    field("topic_id", "uuid", "13+"),
    field("partitions", array(_PARTITION_DATA)),
)
_NODE = struct(
    "NodeEndpoint",
    field("node_id", "int32"),
    field("host", "string"),
    field("port", "int32"),
    field("rack", "string", nullable="16+", default_null=True),
)

FETCH = api(
    1,
    "Fetch",
    "fetch",
    "4-16",
    flexible=12,
    request=struct(
        "FetchRequest",
        field("cluster_id", "string", "12+", nullable="12+", tag=0, default_null=True),
        field("replica_id", "int32", "0-14", default=-1),
        field("replica_state", _REPLICA_STATE, "15+", tag=1),
        field("max_wait_ms", "int32"),
        field("min_bytes", "int32"),
        field("max_bytes", "int32", "3+", default=0x7FFFFFFF),
        field("isolation_level", "int8", "4+"),
        field("session_id", "int32", "7+"),
        field("session_epoch", "int32", "7+", default=-1),
        field("topics", array(_TOPIC)),
        field("forgotten_topics_data", array(_FORGOTTEN), "7+"),
        field("rack_id", "string", "11+"),
    ),
    response=struct(
        "FetchResponse",
        field("throttle_time_ms", "int32", "1+"),
        field("error_code", "int16", "7+"),
        field("session_id", "int32", "7+"),
        field("responses", array(_TOPIC_RESPONSE)),
        field("node_endpoints", array(_NODE), "16+", tag=0),
    ),
)

"""Produce (key 0)."""

from kafkalite_core.protocol.schema.notation import api, array, field, struct

_PARTITION = struct(
    "PartitionProduceData",
    field("index", "int32"),
    field("records", "records", nullable="0+", default_null=True),
)
_TOPIC = struct("TopicProduceData", field("name", "string"), field("partition_data", array(_PARTITION)))

_RECORD_ERROR = struct(
    "BatchIndexAndErrorMessage",
    field("batch_index", "int32"),
    field("batch_index_error_message", "sentence", nullable="8+", default_null=True),
)
_LEADER = struct(
    "LeaderIdAndEpoch", field("leader_id", "int32", default=-1), field("leader_epoch", "int32", default=-1)
)
_PARTITION_RESPONSE = struct(
    "PartitionProduceResponse",
    field("index", "int32"),
    field("error_code", "int16"),
    field("base_offset", "int64"),
    field("log_append_time_ms", "int64", "2+", default=-1),
    field("log_start_offset", "int64", "5+", default=-1),
    field("record_errors", array(_RECORD_ERROR), "8+"),
    field("error_message", "sentence", "8+", nullable="8+", default_null=True),
    field("current_leader", _LEADER, "10+", tag=0),
)
_TOPIC_RESPONSE = struct(
    "TopicProduceResponse", field("name", "string"), field("partition_responses", array(_PARTITION_RESPONSE))
)
_NODE = struct(
    "NodeEndpoint",
    field("node_id", "int32"),
    field("host", "string"),
    field("port", "int32"),
    field("rack", "string", nullable="10+", default_null=True),
)

# librdkafka before 2.11.1 drops compression unless version 0 is claimed (KAFKA-18659); versions 0-2 are never served.
PRODUCE = api(
    0,
    "Produce",
    "produce",
    "3-10",
    flexible=9,
    advertised_min=0,
    request=struct(
        "ProduceRequest",
        field("transactional_id", "string", nullable="3+", default_null=True),
        field("acks", "int16"),
        field("timeout_ms", "int32"),
        field("topic_data", array(_TOPIC)),
    ),
    response=struct(
        "ProduceResponse",
        field("responses", array(_TOPIC_RESPONSE)),
        field("throttle_time_ms", "int32", "1+"),
        field("node_endpoints", array(_NODE), "10+", tag=0),
    ),
)

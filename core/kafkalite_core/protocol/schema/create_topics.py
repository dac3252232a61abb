"""CreateTopics (key 19)."""

from kafkalite_core.protocol.schema.notation import api, array, field, struct

_ASSIGNMENT = struct(
    "CreatableReplicaAssignment", field("partition_index", "int32"), field("broker_ids", array("int32"))
)
_CONFIG = struct("CreatableTopicConfig", field("name", "string"), field("value", "string", nullable="0+"))
_TOPIC = struct(
    "CreatableTopic",
    field("name", "string"),
    field("num_partitions", "int32"),
    field("replication_factor", "int16"),
    field("assignments", array(_ASSIGNMENT)),
    field("configs", array(_CONFIG)),
)
_RESULT_CONFIG = struct(
    "CreatableTopicConfigs",
    field("name", "string"),
    field("value", "string", nullable="5+"),
    field("read_only", "bool"),
    field("config_source", "int8", default=-1),
    field("is_sensitive", "bool"),
)
_RESULT = struct(
    "CreatableTopicResult",
    field("name", "string"),
    field("topic_id", "uuid", "7+"),
    field("error_code", "int16"),
    field("error_message", "sentence", "1+", nullable="0+"),
    field("topic_config_error_code", "int16", "5+", tag=0),
    field("num_partitions", "int32", "5+", default=-1),
    field("replication_factor", "int16", "5+", default=-1),
    field("configs", array(_RESULT_CONFIG), "5+", nullable="5+"),
)

CREATE_TOPICS = api(
    19,
    "CreateTopics",
    "create_topics",
    "2-7",
    flexible=5,
    request=struct(
        "CreateTopicsRequest",
        field("topics", array(_TOPIC)),
        field("timeout_ms", "int32", default=60000),
        field("validate_only", "bool", "1+"),
    ),
    response=struct(
        "CreateTopicsResponse",
        field("throttle_time_ms", "int32", "2+"),
        field("topics", array(_RESULT)),
    ),
)

"""DeleteTopics (key 20)."""

from kafkalite_core.protocol.schema.notation import api, array, field, struct

_TOPIC = struct(
    "DeleteTopicState", field("name", "string", nullable="6+", default_null=True), field("topic_id", "uuid")
)
_RESULT = struct(
    "DeletableTopicResult",
    field("name", "string", nullable="6+"),
    field("topic_id", "uuid", "6+"),
    field("error_code", "int16"),
    field("error_message", "sentence", "5+", nullable="5+", default_null=True),
)

DELETE_TOPICS = api(
    20,
    "DeleteTopics",
    "delete_topics",
    "1-6",
    flexible=4,
    request=struct(
        "DeleteTopicsRequest",
        field("topics", array(_TOPIC), "6+"),
        field("topic_names", array("string"), "0-5"),
        field("timeout_ms", "int32"),
    ),
    response=struct(
        "DeleteTopicsResponse",
        field("throttle_time_ms", "int32", "1+"),
        field("responses", array(_RESULT)),
    ),
)

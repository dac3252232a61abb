"""DescribeConfigs (key 32)."""

from kafkalite_core.protocol.schema.notation import api, array, field, struct

_RESOURCE = struct(
    "DescribeConfigsResource",
    field("resource_type", "int8"),
    field("resource_name", "string"),
    field("configuration_keys", array("string"), nullable="0+"),
)
_SYNONYM = struct(
    "DescribeConfigsSynonym", field("name", "string"), field("value", "string", nullable="0+"), field("source", "int8")
)
_CONFIG = struct(
    "DescribeConfigsResourceResult",
    field("name", "string"),
    field("value", "string", nullable="0+"),
    field("read_only", "bool"),
    field("config_source", "int8", "1+", default=-1),
    field("is_sensitive", "bool"),
    field("synonyms", array(_SYNONYM), "1+"),
    field("config_type", "int8", "3+"),
    field("documentation", "string", "3+", nullable="0+"),
)
_RESULT = struct(
    "DescribeConfigsResult",
    field("error_code", "int16"),
    field("error_message", "sentence", nullable="0+"),
    field("resource_type", "int8"),
    field("resource_name", "string"),
    field("configs", array(_CONFIG)),
)

DESCRIBE_CONFIGS = api(
    32,
    "DescribeConfigs",
    "describe_configs",
    "1-4",
    flexible=4,
    request=struct(
        "DescribeConfigsRequest",
        field("resources", array(_RESOURCE)),
        field("include_synonyms", "bool", "1+"),
        field("include_documentation", "bool", "3+"),
    ),
    response=struct(
        "DescribeConfigsResponse",
        field("throttle_time_ms", "int32"),
        field("results", array(_RESULT)),
    ),
)

"""AlterConfigs (key 33)."""

from kafkalite_core.protocol.schema.notation import api, array, field, struct

_CONFIG = struct("AlterableConfig", field("name", "string"), field("value", "string", nullable="0+"))
_RESOURCE = struct(
    "AlterConfigsResource",
    field("resource_type", "int8"),
    field("resource_name", "string"),
    field("configs", array(_CONFIG)),
)
_RESPONSE = struct(
    "AlterConfigsResourceResponse",
    field("error_code", "int16"),
    field("error_message", "sentence", nullable="0+"),
    field("resource_type", "int8"),
    field("resource_name", "string"),
)

ALTER_CONFIGS = api(
    33,
    "AlterConfigs",
    "alter_configs",
    "0-2",
    flexible=2,
    request=struct(
        "AlterConfigsRequest",
        field("resources", array(_RESOURCE)),
        field("validate_only", "bool"),
    ),
    response=struct(
        "AlterConfigsResponse",
        field("throttle_time_ms", "int32"),
        field("responses", array(_RESPONSE)),
    ),
)

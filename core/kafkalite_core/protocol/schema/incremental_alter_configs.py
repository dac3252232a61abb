"""IncrementalAlterConfigs (key 44)."""

from kafkalite_core.protocol.schema.notation import api, array, field, struct

_CONFIG = struct(
    "AlterableConfig",
    field("name", "string"),
    # 0 set, 1 delete, 2 append, 3 subtract.
    field("config_operation", "int8"),
    field("value", "string", nullable="0+"),
)
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

INCREMENTAL_ALTER_CONFIGS = api(
    44,
    "IncrementalAlterConfigs",
    "incremental_alter_configs",
    "0-1",
    flexible=1,
    request=struct(
        "IncrementalAlterConfigsRequest",
        field("resources", array(_RESOURCE)),
        field("validate_only", "bool"),
    ),
    response=struct(
        "IncrementalAlterConfigsResponse",
        field("throttle_time_ms", "int32"),
        field("responses", array(_RESPONSE)),
    ),
)

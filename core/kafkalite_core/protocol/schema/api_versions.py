"""ApiVersions (key 18)."""

from kafkalite_core.protocol.schema.notation import api, array, field, struct

_API = struct("ApiVersion", field("api_key", "int16"), field("min_version", "int16"), field("max_version", "int16"))
_SUPPORTED = struct(
    "SupportedFeatureKey", field("name", "string"), field("min_version", "int16"), field("max_version", "int16")
)
_FINALIZED = struct(
    "FinalizedFeatureKey",
    field("name", "string"),
    field("max_version_level", "int16"),
    field("min_version_level", "int16"),
)

API_VERSIONS = api(
    18,
    "ApiVersions",
    "api_versions",
    "0-4",
    flexible=3,
    request=struct(
        "ApiVersionsRequest",
        field("client_software_name", "string", "3+"),
        field("client_software_version", "string", "3+"),
    ),
    response=struct(
        "ApiVersionsResponse",
        field("error_code", "int16"),
        field("api_keys", array(_API)),
        field("throttle_time_ms", "int32", "1+"),
        field("supported_features", array(_SUPPORTED), "3+", tag=0),
        field("finalized_features_epoch", "int64", "3+", tag=1, default=-1),
        field("finalized_features", array(_FINALIZED), "3+", tag=2),
        field("zk_migration_ready", "bool", "3+", tag=3),
    ),
)

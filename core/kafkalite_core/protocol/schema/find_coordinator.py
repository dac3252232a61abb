"""FindCoordinator (key 10)."""

from kafkalite_core.protocol.schema.notation import api, array, field, struct

_COORDINATOR = struct(
    "Coordinator",
    field("key", "string"),
    field("node_id", "int32"),
    field("host", "string"),
    field("port", "int32"),
    field("error_code", "int16"),
    field("error_message", "sentence", nullable="4+", default=""),
)

FIND_COORDINATOR = api(
    10,
    "FindCoordinator",
    "find_coordinator",
    "0-4",
    flexible=3,
    request=struct(
        "FindCoordinatorRequest",
        field("key", "string", "0-3"),
        field("key_type", "int8", "1+"),
        field("coordinator_keys", array("string"), "4+"),
    ),
    response=struct(
        "FindCoordinatorResponse",
        field("throttle_time_ms", "int32", "1+"),
        field("error_code", "int16", "0-3"),
        field("error_message", "sentence", "1-3", nullable="1-3"),
        field("node_id", "int32", "0-3"),
        field("host", "string", "0-3"),
        field("port", "int32", "0-3"),
        field("coordinators", array(_COORDINATOR), "4+"),
    ),
)

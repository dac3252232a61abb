"""SyncGroup (key 14)."""

from kafkalite_core.protocol.schema.notation import api, array, field, struct

_ASSIGNMENT = struct("SyncGroupRequestAssignment", field("member_id", "string"), field("assignment", "bytes"))

SYNC_GROUP = api(
    14,
    "SyncGroup",
    "sync_group",
    "0-5",
    flexible=4,
    request=struct(
        "SyncGroupRequest",
        field("group_id", "string"),
        field("generation_id", "int32"),
        field("member_id", "string"),
        field("group_instance_id", "string", "3+", nullable="3+", default_null=True),
        field("protocol_type", "string", "5+", nullable="5+", default_null=True),
        field("protocol_name", "string", "5+", nullable="5+", default_null=True),
        field("assignments", array(_ASSIGNMENT)),
    ),
    response=struct(
        "SyncGroupResponse",
        field("throttle_time_ms", "int32", "1+"),
        field("error_code", "int16"),
        field("protocol_type", "string", "5+", nullable="5+", default_null=True),
        field("protocol_name", "string", "5+", nullable="5+", default_null=True),
        field("assignment", "bytes"),
    ),
)

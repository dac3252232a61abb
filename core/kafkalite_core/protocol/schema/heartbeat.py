"""Heartbeat (key 12)."""

from kafkalite_core.protocol.schema.notation import api, field, struct

HEARTBEAT = api(
    12,
    "Heartbeat",
    "heartbeat",
    "0-4",
    flexible=4,
    request=struct(
        "HeartbeatRequest",
        field("group_id", "string"),
        field("generation_id", "int32"),
        field("member_id", "string"),
        field("group_instance_id", "string", "3+", nullable="3+", default_null=True),
    ),
    response=struct(
        "HeartbeatResponse",
        field("throttle_time_ms", "int32", "1+"),
        field("error_code", "int16"),
    ),
)

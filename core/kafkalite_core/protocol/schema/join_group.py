"""JoinGroup (key 11)."""

from kafkalite_core.protocol.schema.notation import api, array, field, struct

_PROTOCOL = struct("JoinGroupRequestProtocol", field("name", "string"), field("metadata", "bytes"))

_MEMBER = struct(
    "JoinGroupResponseMember",
    field("member_id", "string"),
    field("group_instance_id", "string", "5+", nullable="5+", default_null=True),
    field("metadata", "bytes"),
)

JOIN_GROUP = api(
    11,
    "JoinGroup",
    "join_group",
    "0-9",
    flexible=6,
    request=struct(
        "JoinGroupRequest",
        field("group_id", "string"),
        field("session_timeout_ms", "int32"),
        # Version 0 has none: the session timeout stands for it.
        field("rebalance_timeout_ms", "int32", "1+", default=-1),
        field("member_id", "string"),
        field("group_instance_id", "string", "5+", nullable="5+", default_null=True),
        field("protocol_type", "string"),
        field("protocols", array(_PROTOCOL)),
        field("reason", "string", "8+", nullable="8+", default_null=True),
    ),
    response=struct(
        "JoinGroupResponse",
        field("throttle_time_ms", "int32", "2+"),
        field("error_code", "int16"),
        field("generation_id", "int32", default=-1),
        field("protocol_type", "string", "7+", nullable="7+", default_null=True),
        field("protocol_name", "string", nullable="7+"),
        field("leader", "string"),
        field("skip_assignment", "bool", "9+"),
        field("member_id", "string"),
        field("members", array(_MEMBER)),
    ),
)

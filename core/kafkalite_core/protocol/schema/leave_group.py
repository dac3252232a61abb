"""LeaveGroup (key 13)."""

from kafkalite_core.protocol.schema.notation import api, array, field, struct

_MEMBER = struct(
    "MemberIdentity",
    field("member_id", "string"),
    field("group_instance_id", "string", nullable="3+", default_null=True),
    field("reason", "string", "5+", nullable="5+", default_null=True),
)

_LEFT = struct(
    "MemberResponse",
    field("member_id", "string"),
    field("group_instance_id", "string", nullable="3+"),
    field("error_code", "int16"),
)

LEAVE_GROUP = api(
    13,
    "LeaveGroup",
    "leave_group",
    "0-5",
    flexible=4,
    request=struct(
        "LeaveGroupRequest",
        field("group_id", "string"),
        # One member up to version 2, any number from 3 on (KIP-345).
        field("member_id", "string", "0-2"),
        field("members", array(_MEMBER), "3+"),
    ),
    response=struct(
        "LeaveGroupResponse",
        field("throttle_time_ms", "int32", "1+"),
        field("error_code", "int16"),
        field("members", array(_LEFT), "3+"),
    ),
)

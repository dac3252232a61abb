"""DescribeGroups (key 15)."""

from kafkalite_core.protocol.schema.notation import api, array, field, struct

_MEMBER = struct(
    "DescribedGroupMember",
    field("member_id", "string"),
    field("group_instance_id", "string", "4+", nullable="4+", default_null=True),
    field("client_id", "string"),
    field("client_host", "string"),
    field("member_metadata", "bytes"),
    field("member_assignment", "bytes"),
)
_GROUP = struct(
    "DescribedGroup",
    field("error_code", "int16"),
    field("error_message", "sentence", "6+", nullable="6+", default_null=True),
    field("group_id", "string"),
    field("group_state", "string"),
    field("protocol_type", "string"),
    field("protocol_data", "string"),
    field("members", array(_MEMBER)),
    field("authorized_operations", "int32", "3+", default=-(2**31)),
)

DESCRIBE_GROUPS = api(
    15,
    "DescribeGroups",
    "describe_groups",
    "0-6",
    flexible=5,
    request=struct(
        "DescribeGroupsRequest",
        field("groups", array("string")),
        field("include_authorized_operations", "bool", "3+"),
    ),
    response=struct(
        "DescribeGroupsResponse",
        field("throttle_time_ms", "int32", "1+"),
        field("groups", array(_GROUP)),
    ),
)

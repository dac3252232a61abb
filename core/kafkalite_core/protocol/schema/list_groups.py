"""ListGroups (key 16)."""

from kafkalite_core.protocol.schema.notation import api, array, field, struct

_GROUP = struct(
    "ListedGroup",
    field("group_id", "string"),
    field("protocol_type", "string"),
    field("group_state", "string", "4+"),
    field("group_type", "string", "5+"),
)

LIST_GROUPS = api(
    16,
    "ListGroups",
    "list_groups",
    "0-5",
    flexible=3,
    request=struct(
        "ListGroupsRequest",
        field("states_filter", array("string"), "4+"),
        field("types_filter", array("string"), "5+"),
    ),
    response=struct(
        "ListGroupsResponse",
        field("throttle_time_ms", "int32", "1+"),
        field("error_code", "int16"),
        field("groups", array(_GROUP)),
    ),
)

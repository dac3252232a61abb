"""DeleteGroups (key 42)."""

from kafkalite_core.protocol.schema.notation import api, array, field, struct

_RESULT = struct("DeletableGroupResult", field("group_id", "string"), field("error_code", "int16"))

DELETE_GROUPS = api(
    42,
    "DeleteGroups",
    "delete_groups",
    "0-2",
    flexible=2,
    request=struct("DeleteGroupsRequest", field("groups_names", array("string"))),
    response=struct(
        "DeleteGroupsResponse",
        field("throttle_time_ms", "int32"),
        field("results", array(_RESULT)),
    ),
)

"""ListPartitionReassignments (key 46)."""

from kafkalite_core.protocol.schema.notation import api, array, field, struct

_ASKED = struct("ListPartitionReassignmentsTopics", field("name", "string"), field("partition_indexes", array("int32")))
_PARTITION = struct(
    "OngoingPartitionReassignment",
    field("partition_index", "int32"),
    field("replicas", array("int32")),
    field("adding_replicas", array("int32")),
    field("removing_replicas", array("int32")),
)
_TOPIC = struct("OngoingTopicReassignment", field("name", "string"), field("partitions", array(_PARTITION)))

LIST_PARTITION_REASSIGNMENTS = api(
    46,
    "ListPartitionReassignments",
    "list_partition_reassignments",
    "0",
    flexible=0,
    request=struct(
        "ListPartitionReassignmentsRequest",
        field("timeout_ms", "int32", default=60000),
        # Null means every partition.
        field("topics", array(_ASKED), nullable="0+", default_null=True),
    ),
    response=struct(
        "ListPartitionReassignmentsResponse",
        field("throttle_time_ms", "int32"),
        field("error_code", "int16"),
        field("error_message", "sentence", nullable="0+"),
        field("topics", array(_TOPIC)),
    ),
)

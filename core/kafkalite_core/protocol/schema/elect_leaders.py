"""ElectLeaders (key 43)."""

from kafkalite_core.protocol.schema.notation import api, array, field, struct

_PARTITIONS = struct("TopicPartitions", field("topic", "string"), field("partitions", array("int32")))
_PARTITION_RESULT = struct(
    "PartitionResult",
    field("partition_id", "int32"),
    field("error_code", "int16"),
    field("error_message", "sentence", nullable="0+"),
)
_RESULT = struct("ReplicaElectionResult", field("topic", "string"), field("partition_result", array(_PARTITION_RESULT)))

ELECT_LEADERS = api(
    43,
    "ElectLeaders",
    "elect_leaders",
    "0-2",
    flexible=2,
    request=struct(
        "ElectLeadersRequest",
        # 0 preferred, 1 unclean (KIP-460); version 0 knows the preferred election only.
        field("election_type", "int8", "1+"),
        # Null means every partition.
        field("topic_partitions", array(_PARTITIONS), nullable="0+"),
        field("timeout_ms", "int32", default=60000),
    ),
    response=struct(
        "ElectLeadersResponse",
        field("throttle_time_ms", "int32"),
        field("error_code", "int16", "1+"),
        field("replica_election_results", array(_RESULT)),
    ),
)

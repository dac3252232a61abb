"""DeleteRecords (key 21)."""

from kafkalite_core.protocol.schema.notation import api, array, field, struct

_PARTITION = struct("DeleteRecordsPartition", field("partition_index", "int32"), field("offset", "int64"))
_TOPIC = struct("DeleteRecordsTopic", field("name", "string"), field("partitions", array(_PARTITION)))
_PARTITION_RESULT = struct(
    "DeleteRecordsPartitionResult",
    field("partition_index", "int32"),
    field("low_watermark", "int64"),
    field("error_code", "int16"),
)
_RESULT = struct("DeleteRecordsTopicResult", field("name", "string"), field("partitions", array(_PARTITION_RESULT)))

DELETE_RECORDS = api(
    21,
    "DeleteRecords",
    "delete_records",
    "0-2",
    flexible=2,
    request=struct(
        "DeleteRecordsRequest",
        field("topics", array(_TOPIC)),
        field("timeout_ms", "int32"),
    ),
    response=struct(
        "DeleteRecordsResponse",
        field("throttle_time_ms", "int32"),
        field("topics", array(_RESULT)),
    ),
)

"""DeleteRecords (key 21): its messages and their codec."""

from kafkalite_core.protocol.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)

__all__ = [
    "DeleteRecordsPartition",
    "DeleteRecordsPartitionResult",
    "DeleteRecordsRequest",
    "DeleteRecordsResponse",
    "DeleteRecordsTopic",
    "DeleteRecordsTopicResult",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
]

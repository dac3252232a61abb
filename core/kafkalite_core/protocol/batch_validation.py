"""What the leader checks in a batch that a client sends, and the error code that each failure gets.

As in Kafka's `UnifiedLog` and `LogValidator`. The header and the CRC are always checked; the records only on request.
"""

from dataclasses import dataclass

from kafkalite_core.model.errors import BrokerError
from kafkalite_core.protocol.errors import ErrorCode, ProtocolError
from kafkalite_core.protocol.primitives import Buffer
from kafkalite_core.protocol.record_batch import (
    CODEC_NONE,
    CODEC_ZSTD,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
    Decompress,
    iter_records,
    parse_batch_header,
    validate_crc,
)

ZSTD_PRODUCE_VERSION = 7
UNLIMITED = 2**63 - 1

RECORDS_CHECKED_MAX = 1 << 19
"""Records of one batch that are checked one by one: less than a second. A megabyte has room for 150,000, and what is
compressed holds a few times as many; a few kilobytes may claim to unfold to millions."""

_MAGIC_POSITION = 16
_LENGTH_POSITION = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordChecks:
    """Checks that need each record. They cost about a microsecond per record, so most topics do without.

    Attributes:
        require_key: Null keys are refused (compacted topics).
        now_ms: The leader's time, milliseconds since the epoch.
        timestamp_before_max_ms: How far in the past a timestamp may lie (`message.timestamp.before.max.ms`).
        timestamp_after_max_ms: How far in the future (`message.timestamp.after.max.ms`).
    """

    require_key: bool = False
    now_ms: int = 0
    timestamp_before_max_ms: int = UNLIMITED
    timestamp_after_max_ms: int = UNLIMITED


def analyze_client_batch(
    view: Buffer,
    *,
    produce_version: int,
    max_message_bytes: int,
    segment_bytes: int = 2**31 - 1,
    checks: RecordChecks | None = None,
    decompress: Decompress | None = None,
) -> BatchHeader:
    """Check the records of one partition in a Produce request; return the header of their one batch.

    Without `checks` the records themselves are not read. With them, a compressed batch needs `decompress`, and is
    refused without it: what cannot be checked is not accepted.

    Raises:
        BrokerError: With the code that the partition's response carries.
    """
    records = view if isinstance(view, memoryview) else memoryview(view)
    header = parse_client_batch(records)
    check_client_batch(
        records,
        header,
        produce_version=produce_version,
        max_message_bytes=max_message_bytes,
        segment_bytes=segment_bytes,
    )
    if checks is not None:
        check_records(records, header, checks, decompress)
    return header


def check_client_batch(
    records: memoryview, header: BatchHeader, *, produce_version: int, max_message_bytes: int, segment_bytes: int
) -> None:
    """Check a batch whose header was parsed, but for its records: see `analyze_client_batch`. Raises `BrokerError`."""
    if header.base_offset != 0:
        raise BrokerError(ErrorCode.INVALID_RECORD, f"the base offset is {header.base_offset} instead of 0")
    if header.size > max_message_bytes:
        text = f"the batch has {header.size} bytes, the topic allows {max_message_bytes} (max.message.bytes)"
        raise BrokerError(ErrorCode.MESSAGE_TOO_LARGE, text)
    if header.size > segment_bytes:
        text = f"the batch has {header.size} bytes, a segment {segment_bytes} (segment.bytes)"
        raise BrokerError(ErrorCode.RECORD_LIST_TOO_LARGE, text)
    if not validate_crc(records, 0, header):
        raise BrokerError(ErrorCode.CORRUPT_MESSAGE, "the batch does not match its CRC")
    _check_header(header, produce_version)


def parse_client_batch(records: memoryview) -> BatchHeader:
    """The header of the one batch that there has to be; nothing in it is checked. Raises `BrokerError`."""
    if len(records) > _MAGIC_POSITION and records[_MAGIC_POSITION] < MAGIC:
        text = f"record format {records[_MAGIC_POSITION]} is not supported, only {MAGIC}"
        raise BrokerError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, text)
    if len(records) == 0:
        raise BrokerError(ErrorCode.INVALID_RECORD, "there is no batch")
    if len(records) < HEADER_SIZE:
        raise BrokerError(ErrorCode.CORRUPT_MESSAGE, f"{len(records)} bytes are no batch")
    if records[_MAGIC_POSITION] != MAGIC:
        raise BrokerError(ErrorCode.CORRUPT_MESSAGE, f"record format {records[_MAGIC_POSITION]} does not exist")
    length = int.from_bytes(records[_LENGTH_POSITION:LOG_OVERHEAD], "big", signed=True)
    if length < HEADER_SIZE - LOG_OVERHEAD or length + LOG_OVERHEAD > len(records):
        raise BrokerError(ErrorCode.CORRUPT_MESSAGE, f"the batch announces {length} bytes")
    if length + LOG_OVERHEAD < len(records):
        raise BrokerError(ErrorCode.INVALID_RECORD, "there is more than one batch")
    try:
        return parse_batch_header(records)
    except ProtocolError as error:
        raise BrokerError(ErrorCode.INVALID_RECORD, str(error)) from error


def _check_header(header: BatchHeader, produce_version: int) -> None:
    if header.is_log_append_time:
        raise BrokerError(ErrorCode.INVALID_TIMESTAMP, "only the broker may set LogAppendTime")
    if header.codec > CODEC_ZSTD:
        raise BrokerError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"codec {header.codec} does not exist")
    if header.codec == CODEC_ZSTD and produce_version < ZSTD_PRODUCE_VERSION:
        text = f"zstd needs Produce {ZSTD_PRODUCE_VERSION}, the request is version {produce_version} (KIP-110)"
        raise BrokerError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, text)
    reason = ""
    if header.is_control:
        reason = "a client may not write control batches"
    elif header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        reason = f"{header.record_count} records have the last offset delta {header.last_offset_delta}"
    elif header.has_producer_id and (header.producer_id < 0 or header.producer_epoch < 0 or header.base_sequence < 0):
        reason = (
            f"producer id {header.producer_id} comes with epoch {header.producer_epoch} "
            f"and sequence {header.base_sequence}"
        )
    elif header.is_transactional and not header.has_producer_id:
        reason = "a transactional batch needs a producer id"
    if reason:
        raise BrokerError(ErrorCode.INVALID_RECORD, reason)


def check_records(
    records: memoryview, header: BatchHeader, checks: RecordChecks, decompress: Decompress | None
) -> None:
    """Check each record of a batch whose header is sound; may be called on any thread. Raises `BrokerError`."""
    if header.record_count > RECORDS_CHECKED_MAX:
        text = (
            f"the batch has {header.record_count} records, a topic whose records are checked (cleanup.policy=compact) "
            f"takes {RECORDS_CHECKED_MAX}: lower batch.size of the producer"
        )
        raise BrokerError(ErrorCode.INVALID_RECORD, text)
    if header.codec != CODEC_NONE and decompress is None:
        text = f"records of codec {header.codec} cannot be checked"
        raise BrokerError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, text)
    oldest = checks.now_ms - checks.timestamp_before_max_ms
    newest = checks.now_ms + checks.timestamp_after_max_ms
    try:
        for index, record in enumerate(iter_records(records, 0, header, decompress)):
            if record.offset != index:
                text = f"record {index} has the offset delta {record.offset}"
                raise BrokerError(ErrorCode.INVALID_RECORD, text)
            if checks.require_key and record.key is None:
                raise BrokerError(ErrorCode.INVALID_RECORD, f"record {index} of a compacted topic has no key")
            if record.timestamp != NO_TIMESTAMP and not oldest <= record.timestamp <= newest:
                text = f"record {index} has timestamp {record.timestamp}, outside {oldest}..{newest}"
                raise BrokerError(ErrorCode.INVALID_TIMESTAMP, text)
    except ProtocolError as error:
        raise BrokerError(ErrorCode.INVALID_RECORD, str(error)) from error

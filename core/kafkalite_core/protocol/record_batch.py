"""Record batches, format 2: header, CRC-32C, walking and building of records, and the leader's checks.

A batch is kept as the bytes that the client sent. The leader patches base offset and leader epoch, which lie before the
bytes that the CRC covers, and reads the records themselves only where a topic's configuration asks for it.
"""

from collections.abc import Callable, Iterable, Iterator
from struct import Struct
from typing import NamedTuple, TypeAlias

from crc32c import crc32c

from kafkalite_core.protocol.errors import ProtocolError
from kafkalite_core.protocol.primitives import Buffer, read_varint, write_varint

MAGIC = 2
HEADER_SIZE = 61
# What `batch_length` does not count: base offset and the length itself.
LOG_OVERHEAD = 12
# The smallest record: length, attributes, two deltas, null key, null value, no headers.
RECORD_SIZE_MIN = 7

CODEC_NONE, CODEC_GZIP, CODEC_SNAPPY, CODEC_LZ4, CODEC_ZSTD = range(5)
NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1

_CODEC_MASK = 0x07
_LOG_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20

_HEADER = Struct(">qiibIhiqqqhii")
_OFFSET = Struct(">q")
_INT32 = Struct(">i")
_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")

_CRC_POSITION = 17
_CRC_START = 21
_MAX_TIMESTAMP_POSITION = 35

# (codec, compressed records) -> records. It bounds its output, and raises `BrokerError` or `ProtocolError`.
Decompress: TypeAlias = Callable[[int, memoryview], Buffer]
Compress: TypeAlias = Callable[[int, bytes], bytes]


class BatchHeader(NamedTuple):
    """The 61 bytes before the records, under Kafka's names. Timestamps are milliseconds since the epoch."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        """Offset of the last record (compaction may have removed it)."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record; it wraps to 0 after the largest int32. -1 without a producer id."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def codec(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & _CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        """Whether all records carry `max_timestamp`, the leader's time."""
        return bool(self.attributes & _LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether the batch is a transaction's marker."""
        return bool(self.attributes & _CONTROL)

    @property
    def has_producer_id(self) -> bool:
        """Whether an idempotent or transactional producer sent it."""
        return self.producer_id != NO_PRODUCER_ID


class RecordHeader(NamedTuple):
    """A header of a record."""

    key: str
    value: Buffer | None


class SimpleRecord(NamedTuple):
    """A record to be put into a batch."""

    timestamp: int
    key: Buffer | None
    value: Buffer | None
    headers: tuple[RecordHeader, ...] = ()


class Record(NamedTuple):
    """A record of a batch; key and value are views into it (or into its decompressed records)."""

    offset: int
    timestamp: int
    key: memoryview | None
    value: memoryview | None
    headers: tuple[RecordHeader, ...]


def parse_batch_header(view: Buffer, position: int = 0) -> BatchHeader:
    """Read the header at `position`; raise `ProtocolError` if it is cut off or is no header of format 2.

    The records need not be there; the CRC is not checked.
    """
    if position < 0 or len(view) - position < HEADER_SIZE:
        raise ProtocolError(f"a batch header needs {HEADER_SIZE} bytes where {len(view) - position} are left")
    header = BatchHeader._make(_HEADER.unpack_from(view, position))
    if header.magic != MAGIC:
        raise ProtocolError(f"a batch has magic {header.magic} instead of {MAGIC}")
    if header.batch_length < HEADER_SIZE - LOG_OVERHEAD:
        raise ProtocolError(f"a batch has length {header.batch_length}")
    if header.last_offset_delta < 0 or header.record_count < 0:
        raise ProtocolError(f"a batch has {header.record_count} records up to delta {header.last_offset_delta}")
    return header


def iter_batches(view: memoryview, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Each whole batch with its position. A batch that is cut off at the end, as in a fetch response, ends the walk.

    Raises `ProtocolError` at bytes that are no batch. The CRC is not checked.
    """
    while len(view) - position >= HEADER_SIZE:
        header = parse_batch_header(view, position)
        if header.size > len(view) - position:
            return
        yield position, header
        position += header.size


def compute_crc(view: memoryview, position: int, size: int) -> int:
    """CRC-32C over the batch from its attributes to its end."""
    return crc32c(view[position + _CRC_START : position + size])


def validate_crc(view: memoryview, position: int, header: BatchHeader) -> bool:
    """Whether the bytes of a batch are all there and match its CRC."""
    if position + header.size > len(view):
        return False
    return compute_crc(view, position, header.size) == header.crc


def patch_batch(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Give a batch its place in the log: base offset and leader epoch, 12 bytes that the CRC does not cover."""
    _OFFSET.pack_into(buffer, position, base_offset)
    _INT32.pack_into(buffer, position + 12, leader_epoch)


def rewrite_log_append_time(buffer: bytearray, position: int, header: BatchHeader, now_ms: int) -> BatchHeader:
    """Give all records of a batch the leader's time (`message.timestamp.type=LogAppendTime`); return the new header.

    Attributes and maximum timestamp are covered by the CRC, so it is computed again.
    """
    _ATTRIBUTES.pack_into(buffer, position + _CRC_START, header.attributes | _LOG_APPEND_TIME)
    _OFFSET.pack_into(buffer, position + _MAX_TIMESTAMP_POSITION, now_ms)
    with memoryview(buffer) as view:
        _CRC.pack_into(buffer, position + _CRC_POSITION, compute_crc(view, position, header.size))
    return parse_batch_header(buffer, position)


def batch_payload(
    view: memoryview, position: int, header: BatchHeader, decompress: Decompress | None = None
) -> memoryview:
    """The batch's records, decompressed. Raises `ProtocolError` if they are compressed and `decompress` is None."""
    payload = view[position + HEADER_SIZE : position + header.size]
    if header.codec == CODEC_NONE:
        return payload
    if decompress is None:
        raise ProtocolError(f"records are compressed with codec {header.codec}")
    return memoryview(decompress(header.codec, payload))


def iter_records(
    view: memoryview, position: int, header: BatchHeader, decompress: Decompress | None = None
) -> Iterator[Record]:
    """The records of the batch at `position`. Raises `ProtocolError` where they are malformed."""
    payload = batch_payload(view, position, header, decompress)
    at = 0
    try:
        for _ in range(header.record_count):
            record, at = _read_record(payload, at, header)
            yield record
    except (IndexError, UnicodeDecodeError) as error:
        raise ProtocolError(f"a record is malformed: {error}") from error
    if at != len(payload):
        raise ProtocolError(f"{len(payload) - at} bytes after the last record")


def _read_record(payload: memoryview, position: int, header: BatchHeader) -> tuple[Record, int]:
    size, position = read_varint(payload, position)
    end = position + size
    if size < RECORD_SIZE_MIN - 1 or end > len(payload):
        raise ProtocolError(f"a record of {size} bytes where {len(payload) - position} are left")
    timestamp_delta, position = read_varint(payload, position + 1)
    offset_delta, position = read_varint(payload, position)
    key, position = _read_nullable(payload, position, end)
    value, position = _read_nullable(payload, position, end)
    headers, position = _read_headers(payload, position, end)
    if position != end:
        raise ProtocolError(f"a record ends {end - position} bytes early")
    timestamp = header.max_timestamp if header.is_log_append_time else header.base_timestamp + timestamp_delta
    if not -(2**63) <= timestamp < 2**63:
        raise ProtocolError(f"a record's timestamp {timestamp} does not fit 64 bits")
    return Record(header.base_offset + offset_delta, timestamp, key, value, headers), end


def _read_nullable(payload: memoryview, position: int, end: int) -> tuple[memoryview | None, int]:
    size, position = read_varint(payload, position)
    if size < 0:
        return None, position
    if size > end - position:
        raise ProtocolError(f"{size} bytes announced where a record has {end - position} left")
    return payload[position : position + size], position + size


def _read_headers(payload: memoryview, position: int, end: int) -> tuple[tuple[RecordHeader, ...], int]:
    count, position = read_varint(payload, position)
    if count < 0 or count * 2 > end - position:
        raise ProtocolError(f"{count} headers where a record has {end - position} bytes left")
    headers = []
    for _ in range(count):
        key, position = _read_nullable(payload, position, end)
        if key is None:
            raise ProtocolError("a header has no key")
        value, position = _read_nullable(payload, position, end)
        headers.append(RecordHeader(str(key, "utf-8"), value))
    return tuple(headers), position


def _write_nullable(out: bytearray, value: Buffer | None) -> None:
    if value is None:
        write_varint(out, -1)
    else:
        write_varint(out, len(value))
        out += value


def _write_record(out: bytearray, record: SimpleRecord, offset_delta: int, base_timestamp: int) -> None:
    body = bytearray(1)
    write_varint(body, record.timestamp - base_timestamp)
    write_varint(body, offset_delta)
    _write_nullable(body, record.key)
    _write_nullable(body, record.value)
    write_varint(body, len(record.headers))
    for key, value in record.headers:
        _write_nullable(body, key.encode())
        _write_nullable(body, value)
    write_varint(out, len(body))
    out += body


def build_batch(
    records: Iterable[SimpleRecord],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    codec: int = CODEC_NONE,
    compress: Compress | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
) -> bytearray:
    """One batch of records with consecutive offsets, for the internal topics and for tests.

    At least one record is needed. `compress` is called unless `codec` is `CODEC_NONE`.
    """
    content = list(records)
    if not content:
        raise ValueError("a batch needs a record")
    payload = bytearray()
    for delta, record in enumerate(content):
        _write_record(payload, record, delta, content[0].timestamp)
    if codec != CODEC_NONE:
        if compress is None:
            raise ValueError("a codec needs its compress function")
        payload = bytearray(compress(codec, bytes(payload)))
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=len(payload) + HEADER_SIZE - LOG_OVERHEAD,
        partition_leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=codec | (_TRANSACTIONAL if transactional else 0) | (_CONTROL if control else 0),
        last_offset_delta=len(content) - 1,
        base_timestamp=content[0].timestamp,
        max_timestamp=max(record.timestamp for record in content),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(content),
    )
    batch = bytearray(_HEADER.pack(*header)) + payload
    with memoryview(batch) as view:
        _CRC.pack_into(batch, _CRC_POSITION, compute_crc(view, 0, len(batch)))
    return batch

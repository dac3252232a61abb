"""The primitive types of the Kafka protocol, read with bounds and written without copies of records.

Readers take `(view, position)` and return `(value, next position)`. A length is compared with the bytes that are left
before anything is allocated, so that no message makes the broker allocate more than a small multiple of its own size.
Reading past the end raises `IndexError` or `struct.error`, which `decode_message` turns into `ProtocolError`; slices,
which Python would cut short silently, are checked here. Compact forms (KIP-482) carry `length + 1`, with 0 for null.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from struct import Struct, pack, unpack_from
from struct import error as StructError  # noqa: N812 - a class with a lower-case name
from typing import TypeAlias, TypeVar
from uuid import UUID

from kafkalite_core.protocol.errors import ProtocolError

Buffer: TypeAlias = bytes | bytearray | memoryview
# What a response may carry as records: one buffer, or the buffers that a log read returned, in order.
Records: TypeAlias = bytes | bytearray | memoryview | Sequence[bytes | bytearray | memoryview]

T = TypeVar("T")

ZERO_UUID = UUID(int=0)

# All arrays of one message together: more than the metadata of 10,000 partitions with three replicas (80,000). An
# element takes up to 500 bytes as an object and as little as one byte on the wire; so many of them take 64 MB, and a
# request of that size some 0.2 seconds, during which a broker does nothing else.
MAX_MESSAGE_ELEMENTS = 1 << 17
REQUEST_PADDING_MAX = 16
# Tagged fields of one section. Apache Kafka has four at most where it has any; every element of an array has a section.
TAGS_MAX = 32
# An int16 length; longer strings do not exist in the protocol's classic encoding, and no compact string needs more.
MAX_STRING_LENGTH = 32767
# Of a sentence for people; in UTF-8 it is at most four times as long, which a string can hold.
SENTENCE_LENGTH_MAX = 4096
# Records up to this size are copied next to their neighbours: a buffer of its own costs more than the copy.
COPIED_RECORDS_SIZE = 512

_INT16 = Struct(">h")
_INT32 = Struct(">i")


def decode_message(
    decoders: Mapping[int, Callable[[memoryview], tuple[T, int]]], name: str, view: memoryview, version: int
) -> T:
    """Decode a whole message; raise `ProtocolError` for an unknown version or malformed bytes.

    A few bytes may be left over behind a request, as they may at Apache Kafka: librdkafka pads its question for the
    metadata of all topics. More of them, or any behind a response, are an error.
    """
    decoder = decoders.get(version)
    if decoder is None:
        raise ProtocolError(f"{name} has no version {version}")
    try:
        message, position = decoder(view)
    except (StructError, IndexError, UnicodeDecodeError) as error:
        raise ProtocolError(f"{name} version {version} is malformed: {error}") from error
    left_over = len(view) - position
    if left_over > (REQUEST_PADDING_MAX if name.endswith("Request") else 0):
        raise ProtocolError(f"{name} version {version} has {left_over} bytes too many")
    return message


def encode_message(
    encoders: Mapping[int, Callable[[T, list[Buffer]], None]], name: str, message: T, version: int
) -> list[Buffer]:
    """Encode a message; raise `ProtocolError` for an unknown version or a value that the version cannot carry."""
    encoder = encoders.get(version)
    if encoder is None:
        raise ProtocolError(f"{name} has no version {version}")
    buffers: list[Buffer] = []
    try:
        encoder(message, buffers)
    except StructError as error:
        raise ProtocolError(f"{name} version {version} cannot carry a value: {error}") from error
    return buffers


def read_uvarint(view: memoryview, position: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 32 bits."""
    byte = view[position]
    if byte < 128:
        return byte, position + 1
    return read_long_uvarint(view, position + 1, byte)


def read_long_uvarint(view: memoryview, position: int, first: int) -> tuple[int, int]:
    """Read the rest of an unsigned varint whose `first` byte, with the continuation bit, is read already."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            if value > 0xFFFFFFFF:
                break
            return value, position
    raise ProtocolError("a varint has more than 32 bits")


def read_varint(view: memoryview, position: int) -> tuple[int, int]:
    """Read a zigzag varint of at most 64 bits, as records use it for lengths, offsets and timestamps."""
    byte = view[position]
    position += 1
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), position
    value = byte & 0x7F
    for shift in (7, 14, 21, 28, 35, 42, 49, 56, 63):
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            if value >> 64:
                break
            return (value >> 1) ^ -(value & 1), position
    raise ProtocolError("a varint has more than 64 bits")


def write_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned varint."""
    while value > 127:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def write_varint(out: bytearray, value: int) -> None:
    """Append a zigzag varint of at most 64 bits."""
    write_uvarint(out, (value << 1) ^ (value >> 63))


def _text(view: memoryview, position: int, length: int) -> tuple[str, int]:
    end = position + length
    if end > len(view) or length > MAX_STRING_LENGTH:
        raise ProtocolError(f"a string of {length} bytes where {len(view) - position} are left")
    return str(view[position:end], "utf-8"), end


def read_string(view: memoryview, position: int) -> tuple[str, int]:
    """Read a string with an int16 length."""
    (length,) = _INT16.unpack_from(view, position)
    if length < 0:
        raise ProtocolError("a string is null that must not be")
    return _text(view, position + 2, length)


def read_nullable_string(view: memoryview, position: int) -> tuple[str | None, int]:
    """Read a string with an int16 length, or null (length -1)."""
    (length,) = _INT16.unpack_from(view, position)
    if length < 0:
        return None, position + 2
    return _text(view, position + 2, length)


def read_compact_string(view: memoryview, position: int) -> tuple[str, int]:
    """Read a string with a varint length."""
    length = view[position]
    position += 1
    if length > 127:
        length, position = read_long_uvarint(view, position, length)
    if length == 0:
        raise ProtocolError("a string is null that must not be")
    return _text(view, position, length - 1)


def read_compact_nullable_string(view: memoryview, position: int) -> tuple[str | None, int]:
    """Read a string with a varint length, or null."""
    length = view[position]
    position += 1
    if length > 127:
        length, position = read_long_uvarint(view, position, length)
    if length == 0:
        return None, position
    return _text(view, position, length - 1)


def _slice(view: memoryview, position: int, length: int) -> tuple[memoryview, int]:
    end = position + length
    if end > len(view):
        raise ProtocolError(f"{length} bytes announced where {len(view) - position} are left")
    return view[position:end], end


def read_nullable_records(view: memoryview, position: int) -> tuple[memoryview | None, int]:
    """Read bytes with an int32 length, or null, without copying them."""
    (length,) = _INT32.unpack_from(view, position)
    if length < 0:
        return None, position + 4
    return _slice(view, position + 4, length)


def read_compact_nullable_records(view: memoryview, position: int) -> tuple[memoryview | None, int]:
    """Read bytes with a varint length, or null, without copying them."""
    length, position = read_uvarint(view, position)
    if length == 0:
        return None, position
    return _slice(view, position, length - 1)


def read_nullable_bytes(view: memoryview, position: int) -> tuple[bytes | None, int]:
    """Read a copy of bytes with an int32 length, or null."""
    records, position = read_nullable_records(view, position)
    return None if records is None else bytes(records), position


def read_compact_nullable_bytes(view: memoryview, position: int) -> tuple[bytes | None, int]:
    """Read a copy of bytes with a varint length, or null."""
    records, position = read_compact_nullable_records(view, position)
    return None if records is None else bytes(records), position


def read_bytes(view: memoryview, position: int) -> tuple[bytes, int]:
    """Read a copy of bytes with an int32 length."""
    value, position = read_nullable_bytes(view, position)
    return not_null(value), position


def read_compact_bytes(view: memoryview, position: int) -> tuple[bytes, int]:
    """Read a copy of bytes with a varint length."""
    value, position = read_compact_nullable_bytes(view, position)
    return not_null(value), position


@lru_cache(maxsize=4096)
def to_uuid(value: bytes) -> UUID:
    """The UUID of 16 bytes; cached, because the same few topic ids come with every fetch and building one is slow."""
    return UUID(bytes=value)


def read_compact_count(view: memoryview, position: int) -> tuple[int, int]:
    """Read the length of a compact array; -1 is null."""
    count, position = read_uvarint(view, position)
    return count - 1, position


def read_count(view: memoryview, position: int) -> tuple[int, int]:
    """Read the length of an array with an int32 length; -1 is null."""
    (count,) = _INT32.unpack_from(view, position)
    return max(count, -1), position + 4


def check_count(count: int, size_min: int, elements: int, bytes_left: int) -> int:
    """Return the message's number of array elements so far, after `count` more of at least `size_min` bytes each."""
    if count < 0:
        raise ProtocolError("an array is null that must not be")
    if count * size_min > bytes_left:
        raise ProtocolError(f"an array of {count} elements where {bytes_left} bytes are left")
    elements += count
    if elements > MAX_MESSAGE_ELEMENTS:
        raise ProtocolError(f"more than {MAX_MESSAGE_ELEMENTS} array elements in one message")
    return elements


def read_numbers(view: memoryview, position: int, count: int, code: str, size: int) -> tuple[list[int], int]:
    """Read `count` integers of `struct` format `code` and `size` bytes each."""
    return list(unpack_from(f">{count}{code}", view, position)), position + count * size


def write_numbers(out: bytearray, values: list[int], code: str) -> None:
    """Append integers of `struct` format `code`."""
    out += pack(f">{len(values)}{code}", *values)


def read_tag(view: memoryview, position: int) -> tuple[int, int, int]:
    """Read the head of a tagged field: `(tag, position of its value, position after its value)`."""
    tag, position = read_uvarint(view, position)
    size, position = read_uvarint(view, position)
    end = position + size
    if end > len(view):
        raise ProtocolError(f"tag {tag} has {size} bytes where {len(view) - position} are left")
    return tag, position, end


def read_tag_count(view: memoryview, position: int, first: int) -> tuple[int, int]:
    """Read the rest of a number of tagged fields whose `first` byte is more than `TAGS_MAX`; refuse too many."""
    count = first
    if first > 127:
        count, position = read_long_uvarint(view, position, first)
    if count > TAGS_MAX:
        raise ProtocolError(f"{count} tagged fields in one section, at most {TAGS_MAX} are read")
    return count, position


def skip_tags(view: memoryview, position: int, first: int) -> int:
    """Skip a section of tagged fields (KIP-482), none of which is known; `first` is its first byte, read already."""
    count = first
    if first > TAGS_MAX:
        count, position = read_tag_count(view, position, first)
    for _ in range(count):
        _, _, position = read_tag(view, position)
    return position


def check_tag_end(position: int, end: int) -> None:
    """Refuse a tagged field whose value is shorter or longer than its announced size."""
    if position != end:
        raise ProtocolError(f"a tagged field ends at {position} instead of {end}")


def not_null(value: T | None) -> T:
    """Refuse null where the version has none."""
    if value is None:
        raise ProtocolError("a field is null that must not be")
    return value


def write_string(out: bytearray, value: str | None) -> None:
    """Append a string with an int16 length."""
    data = not_null(value).encode()
    out += _INT16.pack(len(data))
    out += data


def write_nullable_string(out: bytearray, value: str | None) -> None:
    """Append a string with an int16 length, or null."""
    if value is None:
        out += b"\xff\xff"
    else:
        write_string(out, value)


def write_compact_string(out: bytearray, value: str | None) -> None:
    """Append a string with a varint length."""
    data = not_null(value).encode()
    length = len(data) + 1
    if length < 128:
        out.append(length)
    elif length <= MAX_STRING_LENGTH + 1:
        write_uvarint(out, length)
    else:
        raise ProtocolError(f"a string of {length - 1} bytes")
    out += data


def write_compact_nullable_string(out: bytearray, value: str | None) -> None:
    """Append a string with a varint length, or null."""
    if value is None:
        out.append(0)
    else:
        write_compact_string(out, value)


def _cut(value: str) -> str:
    return value if len(value) <= SENTENCE_LENGTH_MAX else value[: SENTENCE_LENGTH_MAX - 1] + "…"


def write_nullable_sentence(out: bytearray, value: str | None) -> None:
    """Append a string for people with an int16 length, or null; one that is too long is cut."""
    if value is None:
        out += b"\xff\xff"
    else:
        write_string(out, _cut(value))


def write_compact_nullable_sentence(out: bytearray, value: str | None) -> None:
    """Append a string for people with a varint length, or null; one that is too long is cut."""
    if value is None:
        out.append(0)
    else:
        write_compact_string(out, _cut(value))


def write_bytes(out: bytearray, value: bytes | None) -> None:
    """Append bytes with an int32 length."""
    data = not_null(value)
    out += _INT32.pack(len(data))
    out += data


def write_nullable_bytes(out: bytearray, value: bytes | None) -> None:
    """Append bytes with an int32 length, or null."""
    if value is None:
        out += b"\xff\xff\xff\xff"
    else:
        write_bytes(out, value)


def write_compact_bytes(out: bytearray, value: bytes | None) -> None:
    """Append bytes with a varint length."""
    data = not_null(value)
    write_uvarint(out, len(data) + 1)
    out += data


def write_compact_nullable_bytes(out: bytearray, value: bytes | None) -> None:
    """Append bytes with a varint length, or null."""
    if value is None:
        out.append(0)
    else:
        write_compact_bytes(out, value)


def records_size(records: Records) -> int:
    """The size of records in bytes, whether they are one buffer or several."""
    return len(records) if isinstance(records, bytes | bytearray | memoryview) else sum(map(len, records))


def records_view(records: Records | None) -> memoryview:
    """Records as one view; what was decoded is one already, several buffers are joined (a copy)."""
    if isinstance(records, memoryview):
        return records
    if records is None or isinstance(records, bytes | bytearray):
        return memoryview(records or b"")
    return memoryview(b"".join(records))


def _append_records(buffers: list[Buffer], out: bytearray, records: Records, size: int) -> bytearray:
    parts = (records,) if isinstance(records, bytes | bytearray | memoryview) else records
    if size <= COPIED_RECORDS_SIZE:
        for part in parts:
            out += part
        return out
    buffers.append(out)
    buffers.extend(parts)
    return bytearray()


def write_nullable_records(buffers: list[Buffer], out: bytearray, records: Records | None) -> bytearray:
    """Append records with an int32 length, or null; return the buffer in which the message goes on.

    Large records become buffers of their own in `buffers`, after what `out` holds so far; nothing is copied.
    """
    if records is None:
        out += b"\xff\xff\xff\xff"
        return out
    size = records_size(records)
    out += _INT32.pack(size)
    return _append_records(buffers, out, records, size) if size else out


def write_compact_nullable_records(buffers: list[Buffer], out: bytearray, records: Records | None) -> bytearray:
    """Append records with a varint length, or null; return the buffer in which the message goes on."""
    if records is None:
        out.append(0)
        return out
    size = records_size(records)
    write_uvarint(out, size + 1)
    return _append_records(buffers, out, records, size) if size else out


def write_tag(out: bytearray, tag: int, value: bytearray) -> None:
    """Append one tagged field."""
    write_uvarint(out, tag)
    write_uvarint(out, len(value))
    out += value

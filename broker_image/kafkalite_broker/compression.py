"""Decompression of record batches, bounded, and compression: only where a topic or a question needs the records."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import cramjam

from kafkalite_core.protocol.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

DECOMPRESSED_BYTES_MAX = 64 << 20
"""A batch that unfolds to more than this is refused: it is a bomb, or nothing that a broker should look into."""

FIRST_GUESS = 8
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
GZIP_WINDOW_BITS = 31
XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER_BYTES = 16
XERIAL_VERSIONS = (1).to_bytes(4, "big") * 2
XERIAL_BLOCK_BYTES = 32 << 10

LZ4_HEADER = b"\x04\x22\x4d\x18\x60\x40\x82"
"""Version 1, independent blocks (Kafka's Java client reads no others) of 64 KiB at most, no checksums of content."""

LZ4_BLOCK_BYTES = 64 << 10
LZ4_UNCOMPRESSED = 0x80000000
LZ4_END_MARK = bytes(4)


def decompress(
    codec: int, payload: memoryview, bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> bytes | bytearray | memoryview:
    """The records of a compressed batch. Raises `ProtocolError` when they cannot be read or are more than that."""
    try:
        if codec == GZIP:
            return _gunzip(payload, bytes_max)
        if codec == SNAPPY:
            return _unsnap(payload, bytes_max)
        if codec == LZ4:
            return _into(cramjam.lz4.decompress_into, payload, bytes_max)
        if codec == ZSTD:
            return _into(cramjam.zstd.decompress_into, payload, bytes_max)
    except (cramjam.DecompressionError, zlib.error) as error:
        raise ProtocolError(f"compressed records cannot be read: {error}") from error
    raise ProtocolError(f"unknown compression codec {codec}")


def compress(codec: int, records: bytes) -> bytes:
    """The payload of a compressed batch, framed as Kafka's Java client frames and reads it. Raises `ProtocolError`."""
    if codec == GZIP:
        stream = zlib.compressobj(wbits=GZIP_WINDOW_BITS)
        return stream.compress(records) + stream.flush()
    if codec == SNAPPY:
        return _snap(memoryview(records))
    if codec == LZ4:
        return _lz4_frame(memoryview(records))
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(records))
    raise ProtocolError(f"unknown compression codec {codec}")


def _snap(records: memoryview) -> bytes:
    parts = [XERIAL_MAGIC, XERIAL_VERSIONS]
    for start in range(0, len(records), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(records[start : start + XERIAL_BLOCK_BYTES]))
        parts += [len(block).to_bytes(4, "big"), block]
    return b"".join(parts)


def _lz4_frame(records: memoryview) -> bytes:
    parts = [LZ4_HEADER]
    for start in range(0, len(records), LZ4_BLOCK_BYTES):
        block = bytes(records[start : start + LZ4_BLOCK_BYTES])
        packed = bytes(cramjam.lz4.compress_block(block, store_size=False))
        if len(packed) < len(block):
            parts += [len(packed).to_bytes(4, "little"), packed]
        else:
            parts += [(len(block) | LZ4_UNCOMPRESSED).to_bytes(4, "little"), block]
    return b"".join([*parts, LZ4_END_MARK])


def _gunzip(payload: memoryview, bytes_max: int) -> bytes:
    stream = zlib.decompressobj(GZIP_WINDOW_BITS)
    data = stream.decompress(payload, max(bytes_max, 1))
    if stream.unconsumed_tail or not stream.eof:
        raise ProtocolError(f"gzip: truncated, or more than {bytes_max} bytes")
    return data


def _unsnap(payload: memoryview, bytes_max: int) -> bytes | bytearray:
    """Raw snappy, or the framing of snappy-java that Java clients use."""
    if payload[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        return _unsnap_block(payload, bytes_max)
    out = bytearray()
    position = XERIAL_HEADER_BYTES
    while position < len(payload):
        size = int.from_bytes(payload[position : position + 4], "big")
        position += 4
        if not 0 < size <= len(payload) - position:
            raise ProtocolError(f"snappy: block of {size} bytes")
        out += _unsnap_block(payload[position : position + size], bytes_max - len(out))
        position += size
    return out


def _unsnap_block(block: memoryview, room_bytes: int) -> bytes:
    size = int(cramjam.snappy.decompress_raw_len(block))
    if size > room_bytes:
        raise ProtocolError(f"snappy: more than {room_bytes} bytes")
    return bytes(cramjam.snappy.decompress_raw(block))


def _into(decompress_into: Callable[[Any, Any], int], payload: memoryview, bytes_max: int) -> memoryview:
    """Into a buffer that grows up to the bound, since these formats need not say their size."""
    size = min(max(FIRST_GUESS * len(payload), 1 << 16), bytes_max)
    while True:
        buffer = bytearray(size)
        try:
            return memoryview(buffer)[: decompress_into(payload, buffer)]
        except cramjam.DecompressionError:
            if size >= bytes_max:
                raise
            size = min(size * 4, bytes_max)

"""Which records of a batch compaction keeps, and the batch that is left (KIP-534 for tombstones).

A record stays when it is the last one of its key in the part that the key map covers, or lies beyond that part. A
tombstone that stays for the first time gives its batch a delete horizon, now + `delete.retention.ms`, in the field
baseTimestamp with attribute bit 6; after the horizon it goes. A horizon that was copied from the leader does not count:
who reads the value here, which the first pass over this log takes, must have time to come to the tombstone.
Offsets, timestamps, keys, values and headers of what stays never change, nor do base offset, last offset, leader epoch
and producer of a batch.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import error as struct_error
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from crc32c import crc32c

from kafkalite_core.protocol.errors import ProtocolError
from kafkalite_core.protocol.primitives import read_varint, write_varint
from kafkalite_core.protocol.record_batch import (
    CODEC_NONE,
    HEADER_SIZE,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    RECORD_SIZE_MIN,
    BatchHeader,
    batch_payload,
)
from kafkalite_core.storage.segment import HEADER

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite_core.protocol.record_batch import Compress, Decompress

Row: TypeAlias = tuple[int, int, int, bytes | None, bool]
"""A record: where it begins and ends, offset delta, key, whether it has a value."""

DELETE_HORIZON: Final = 0x40
"""Attribute bit: baseTimestamp is the delete horizon, from which the records' timestamp deltas count."""

HORIZON_MAX_MS: Final = 2**63 - 1
"""The latest horizon that a header holds: of a `delete.retention.ms` that means "for ever"."""

_CODEC_MASK: Final = 0x07
_CRC_START: Final = 21

KEY_BYTES_MAX: Final = 31
"""Longer keys are known by their BLAKE2b digest of 32 bytes: never as long as a key that is kept exactly, and nobody
can make two keys that share one, as they can with the MD5 of Kafka's cleaner."""

ENTRY_OVERHEAD_BYTES: Final = 140
"""Roughly what Python spends on a key, an offset and their place in the map."""


_read_varint = cast("Callable[[bytes, int], tuple[int, int]]", read_varint)


class KeyMap:
    """The last offset of every key in the dirty part of a log, or in as much of it as fits.

    Args:
        max_bytes: Memory that it may take; one key always fits.

    Attributes:
        offsets: Key (or its digest) → last offset.
        used_bytes: Memory in use, roughly.
        covered_end: Records below it were looked at; those from it on stay whatever their keys.
        full: No further key fits; the part covered ends early.
    """

    __slots__ = ("covered_end", "full", "max_bytes", "offsets", "used_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.offsets: dict[bytes, int] = {}
        self.used_bytes = 0
        self.covered_end = 0
        self.full = False

    def take(self, batch: bytes, header: BatchHeader, first_offset: int, decompress: Decompress | None) -> bool:
        """Takes the keys of the next batch; False when the map is full.

        Records below `first_offset` and records without key are passed over. Raises `ProtocolError`.
        """
        if not header.is_control and header.record_count:
            offsets = self.offsets
            base = header.base_offset
            for _, _, delta, key, _ in walk_records(records_of(batch, header, decompress), header.record_count):
                offset = base + delta
                if key is None or offset < first_offset:
                    continue
                if len(key) > KEY_BYTES_MAX:
                    key = digest(key)  # noqa: PLW2901
                if key not in offsets:
                    size = ENTRY_OVERHEAD_BYTES + len(key)
                    if self.used_bytes + size > self.max_bytes and offsets:
                        self.full = True
                        self.covered_end = max(self.covered_end, offset)
                        return False
                    self.used_bytes += size
                offsets[key] = offset
        self.covered_end = max(self.covered_end, header.next_offset)
        return True


def digest(key: bytes) -> bytes:
    """What a long key is known by."""
    return blake2b(key, digest_size=KEY_BYTES_MAX + 1).digest()


def records_of(batch: bytes, header: BatchHeader, decompress: Decompress | None) -> bytes:
    """The records of a batch, decompressed. Raises `ProtocolError`."""
    if header.codec == CODEC_NONE:
        return batch[HEADER_SIZE:]
    return bytes(batch_payload(memoryview(batch), 0, header, decompress))


def walk_records(payload: bytes, count: int) -> list[Row]:
    """The records of a batch; their headers and timestamps are not read.

    Varints of one and two bytes, which most are, are read in place. Raises `ProtocolError` where they are malformed.
    """
    rows: list[Row] = []
    take = rows.append
    at, total = 0, len(payload)
    try:
        for _ in range(count):
            start = at
            size = payload[at]
            at += 1
            if size > 127:
                more = payload[at]
                if more < 128:
                    size, at = (size & 127) | more << 7, at + 1
                    size = (size >> 1) ^ -(size & 1)
                else:
                    size, at = _read_varint(payload, start)
            else:
                size = (size >> 1) ^ -(size & 1)
            end = at + size
            if size < RECORD_SIZE_MIN - 1 or end > total:
                raise ProtocolError(f"a record of {size} bytes where {total - at} are left")
            at += 1
            while payload[at] > 127:  # the timestamp, for those who need it
                at += 1
            at += 1
            delta = payload[at]
            at += 1
            if delta > 127:
                more = payload[at]
                if more < 128:
                    delta, at = (delta & 127) | more << 7, at + 1
                    delta = (delta >> 1) ^ -(delta & 1)
                else:
                    delta, at = _read_varint(payload, at - 1)
            else:
                delta = (delta >> 1) ^ -(delta & 1)
            length = payload[at]
            if length < 128:
                length, at = (length >> 1) ^ -(length & 1), at + 1
            else:
                length, at = _read_varint(payload, at)
            key = None
            if length >= 0:
                key = payload[at : at + length]
                at += length
            if at >= end:
                raise ProtocolError("a record ends inside its key")
            # The lowest bit of a zigzag varint is its sign: only null has a negative length.
            take((start, end, delta, key, not payload[at] & 1))
            at = end
    except IndexError as error:
        raise ProtocolError("the records are cut off") from error
    if at != total:
        raise ProtocolError(f"{total - at} bytes after the last record")
    return rows


def filter_batch(
    batch: bytes,
    header: BatchHeader,
    keys: KeyMap,
    *,
    first_dirty: int,
    now_ms: int,
    delete_retention_ms: int,
    keep_header: bool,
    decompress: Decompress | None,
    compress: Compress | None,
) -> bytes | None:
    """What compaction leaves of a batch: itself when everything stays, None when nothing does.

    Below `first_dirty` an earlier pass over this log has been. With `keep_header` a batch without records is left
    instead of nothing. Raises `ProtocolError`.
    """
    if header.is_control:
        return batch
    if not header.record_count:
        return batch if keep_header else None
    payload = records_of(batch, header, decompress)
    rows = walk_records(payload, header.record_count)
    horizon_counts = header.attributes & DELETE_HORIZON and header.next_offset <= first_dirty
    expired = horizon_counts and now_ms >= header.base_timestamp
    kept = []
    tombstones = False
    base, covered_end, latest = header.base_offset, keys.covered_end, keys.offsets
    for row in rows:
        _, _, delta, key, has_value = row
        offset = base + delta
        if offset < covered_end:
            if key is None:
                continue
            if latest.get(key if len(key) <= KEY_BYTES_MAX else digest(key), -1) > offset:
                continue
            if not has_value:
                if expired:
                    continue
                tombstones = True
        kept.append(row)
    if not kept:
        return empty_batch(header) if keep_header else None
    # Not before all of the batch is covered: who reads an older value now must have time to come to the tombstone.
    marks = tombstones and not horizon_counts and header.next_offset <= covered_end
    if len(kept) == len(rows) and not marks:
        return batch
    if marks:
        return _rebuild(header, payload, kept, min(now_ms + delete_retention_ms, HORIZON_MAX_MS), compress)
    return _rebuild(header, payload, kept, None, compress)


def empty_batch(header: BatchHeader) -> bytes:
    """The batch without its records: what is known of offsets, epoch and producer stays (Kafka's writeEmptyHeader)."""
    return _assemble(
        header._replace(
            attributes=header.attributes & ~(_CODEC_MASK | DELETE_HORIZON), base_timestamp=NO_TIMESTAMP, record_count=0
        ),
        b"",
    )


def _rebuild(
    header: BatchHeader,
    payload: bytes,
    kept: list[Row],
    horizon_ms: int | None,
    compress: Compress | None,
) -> bytes:
    """The batch with the kept records only, in its own codec, and with a delete horizon if one is given."""
    stamps = [_timestamp_at(payload, row[0]) for row in kept]
    max_timestamp = header.max_timestamp
    if not header.is_log_append_time:
        max_timestamp = max(_as_int64(header.base_timestamp + delta) for delta, _, _ in stamps)
    attributes, base_timestamp = header.attributes, header.base_timestamp
    if horizon_ms is None:
        records = _join_runs(payload, kept)
    else:
        records = _shift_timestamps(payload, kept, stamps, base_timestamp - horizon_ms)
        attributes, base_timestamp = attributes | DELETE_HORIZON, horizon_ms
    if header.codec != CODEC_NONE:
        if compress is None:
            raise ProtocolError(f"records cannot be compressed with codec {header.codec}")
        records = compress(header.codec, records)
    return _assemble(
        header._replace(
            attributes=attributes, base_timestamp=base_timestamp, max_timestamp=max_timestamp, record_count=len(kept)
        ),
        records,
    )


def _join_runs(payload: bytes, kept: list[Row]) -> bytes:
    """The bytes of the kept records; neighbours are copied together."""
    parts = []
    start, stop = kept[0][0], kept[0][1]
    for row in kept:
        if row[0] > stop:
            parts.append(payload[start:stop])
            start = row[0]
        stop = row[1]
    parts.append(payload[start:stop])
    return b"".join(parts)


def _timestamp_at(payload: bytes, start: int) -> tuple[int, int, int]:
    """(timestamp delta, where the record's attributes are, where it goes on behind the delta)."""
    while payload[start] > 127:
        start += 1
    attributes = start + 1
    raw = payload[attributes + 1]
    if raw < 128:
        return (raw >> 1) ^ -(raw & 1), attributes, attributes + 2
    delta, rest = _read_varint(payload, attributes + 1)
    return delta, attributes, rest


def _shift_timestamps(payload: bytes, kept: list[Row], stamps: list[tuple[int, int, int]], shift_ms: int) -> bytes:
    """The kept records with timestamp deltas that count from a base `shift_ms` earlier."""
    out = bytearray()
    for (_, end, *_), (delta, attributes, rest) in zip(kept, stamps, strict=True):
        head = bytearray(payload[attributes : attributes + 1])
        write_varint(head, _as_int64(delta + shift_ms))
        write_varint(out, len(head) + end - rest)
        out += head
        out += payload[rest:end]
    return bytes(out)


def _as_int64(value: int) -> int:
    """What 64 bits keep of a sum of timestamps, as Kafka's clients add. Only those of a hostile client need it: they
    mean to everyone what they meant before, and do not keep a log from being compacted.
    """
    return (value + 2**63) % 2**64 - 2**63


def _assemble(header: BatchHeader, records: bytes) -> bytes:
    """Header and records, with length and CRC. Raises `ProtocolError`."""
    header = header._replace(batch_length=HEADER_SIZE - LOG_OVERHEAD + len(records), crc=0)
    try:
        batch = bytearray(HEADER.pack(*header)) + records
    except struct_error as error:
        raise ProtocolError(f"the batch at {header.base_offset} does not fit its header any more: {error}") from error
    with memoryview(batch) as view:
        header = header._replace(crc=crc32c(view[_CRC_START:]))
    HEADER.pack_into(batch, 0, *header)
    return bytes(batch)

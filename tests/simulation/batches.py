"""Batches of clients, made fast: records without key whose value is one unique number of eight bytes."""

from __future__ import annotations

from functools import cache
from struct import Struct
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from kafkalite_core.protocol.primitives import write_varint
from kafkalite_core.protocol.record_batch import BatchHeader
from tests.simulation.platter import HEADER, LENGTH_OVERHEAD, Mark

if TYPE_CHECKING:
    from collections.abc import Iterator

_VALUE: Final = Struct(">q")
_CRC: Final = Struct(">I")
RECORDS_MAX: Final = 32


@cache
def _frame(padding: int) -> tuple[bytes, bytes, bytes]:
    """What comes before the offset of a record, between it and the value, and behind the value."""
    between = bytearray(b"\x01")  # no key
    write_varint(between, _VALUE.size + padding)
    after = bytes(padding) + b"\x00"  # no headers
    length = bytearray()
    write_varint(length, 3 + len(between) + _VALUE.size + len(after))
    return bytes(length) + b"\x00\x00", bytes(between), after


def batch_of(
    first_value: int,
    count: int,
    timestamp: int,
    *,
    producer: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
    padding: int = 0,
) -> tuple[bytearray, BatchHeader]:
    """A batch with the values from `first_value` on, and its header; `padding` bytes follow each value."""
    assert 0 < count <= RECORDS_MAX
    before, between, after = _frame(padding)
    records = b"".join(
        before + bytes((2 * place,)) + between + _VALUE.pack(first_value + place) + after for place in range(count)
    )
    length = HEADER.size - LENGTH_OVERHEAD + len(records)
    fields = (0, length, -1, 2, 0, 0, count - 1, timestamp, timestamp, producer, producer_epoch, sequence, count)
    batch = bytearray(HEADER.pack(*fields)) + records
    crc = crc32c(memoryview(batch)[21:])
    _CRC.pack_into(batch, 17, crc)
    return batch, BatchHeader(*fields[:4], crc, *fields[5:])


def marks_of(records: bytes) -> Iterator[tuple[Mark, bool]]:
    """The whole batches of a fetch answer as the ledger knows them, each with whether its CRC is right."""
    position = 0
    while position + HEADER.size <= len(records):
        fields = HEADER.unpack_from(records, position)
        stop = position + fields[1] + LENGTH_OVERHEAD
        if stop > len(records):
            return
        sound = crc32c(records[position + 21 : stop]) == fields[4]
        yield (
            Mark(stop, fields[0], fields[0] + fields[6] + 1, fields[2], fields[4], fields[9], fields[10], fields[11]),
            sound,
        )
        position = stop

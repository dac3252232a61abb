import pytest

from kafkalite_core.protocol.errors import ProtocolError
from kafkalite_core.protocol.record_batch import (
    RecordHeader,
    SimpleRecord,
    build_batch,
    iter_batches,
    iter_records,
    parse_batch_header,
    patch_batch,
    rewrite_log_append_time,
    validate_crc,
)
from tests.unit.protocol.batches import compress


def test_a_batch_is_these_bytes():
    batch = build_batch(
        [SimpleRecord(1000, b"k", b"v", (RecordHeader("h", b"1"),)), SimpleRecord(1001, None, None)],
        base_offset=5,
        leader_epoch=3,
        producer_id=9,
        producer_epoch=1,
        base_sequence=4,
    )
    before_crc = "0000000000000005 00000045 00000003 02"
    after_crc = (
        "0000 00000001 00000000000003e8 00000000000003e9 0000000000000009 0001 00000004 00000002"
        "18 00 00 00 02 6b 02 76 02 02 68 02 31"  # 12 bytes: deltas 0 and 0, key, value, one header
        "0c 00 02 02 01 01 00"  # 6 bytes: deltas 1 and 1, null key, null value, no header
    )
    assert batch[:17] == bytes.fromhex(before_crc)
    assert batch[21:] == bytes.fromhex(after_crc)
    # CRC-32C by the definition: reflected polynomial 0x1EDC6F41, bit by bit.
    crc = 0xFFFFFFFF
    for byte in batch[21:]:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    assert batch[17:21] == (crc ^ 0xFFFFFFFF).to_bytes(4, "big")


def test_the_header_answers_for_its_flags():
    header = parse_batch_header(build_batch([SimpleRecord(0, None, b"x")] * 3, base_offset=10))
    assert (header.last_offset, header.next_offset, header.codec) == (12, 13, 0)
    assert not any((header.is_transactional, header.is_control, header.is_log_append_time, header.has_producer_id))
    assert header.last_sequence == -1
    marked = parse_batch_header(
        build_batch(
            [SimpleRecord(0, b"", b"")],
            codec=4,
            compress=compress,
            producer_id=0,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
            control=True,
        )
    )
    assert marked.is_transactional
    assert marked.is_control
    assert marked.has_producer_id
    assert marked.codec == 4


def test_sequence_numbers_wrap():
    batch = build_batch([SimpleRecord(0, None, None)] * 3, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    assert parse_batch_header(batch).last_sequence == 0


def test_a_place_in_the_log_leaves_the_crc_alone():
    batch = bytearray(b"before") + build_batch([SimpleRecord(1, b"k", b"v")])
    patch_batch(batch, 6, 2**40, 17)
    header = parse_batch_header(batch, 6)
    assert (header.base_offset, header.partition_leader_epoch) == (2**40, 17)
    assert batch[:6] == b"before"
    assert validate_crc(memoryview(batch), 6, header)


def test_log_append_time_replaces_the_time_of_every_record():
    batch = bytearray(b"xx") + build_batch([SimpleRecord(1, b"a", None), SimpleRecord(2, b"b", None)], base_offset=7)
    header = rewrite_log_append_time(batch, 2, parse_batch_header(batch, 2), 5000)
    assert header.is_log_append_time
    assert header.max_timestamp == 5000
    assert validate_crc(memoryview(batch), 2, header)
    records = list(iter_records(memoryview(batch), 2, header))
    assert [(record.offset, record.timestamp) for record in records] == [(7, 5000), (8, 5000)]


def test_a_cut_off_batch_has_no_valid_crc():
    batch = memoryview(build_batch([SimpleRecord(1, b"a", None)]))
    header = parse_batch_header(batch)
    assert validate_crc(batch, 0, header)
    assert not validate_crc(batch[:-1], 0, header)


def damaged(position, value):
    batch = build_batch([SimpleRecord(1, b"a", b"b")])
    batch[position : position + len(value)] = value
    return batch


@pytest.mark.parametrize(
    ("position", "value"),
    [
        (16, b"\x01"),  # magic
        (8, b"\x00\x00\x00\x30"),  # shorter than a header
        (8, b"\xff\xff\xff\xff"),
        (23, b"\xff\xff\xff\xff"),  # last offset delta
        (57, b"\xff\xff\xff\xff"),  # record count
    ],
)
def test_what_is_no_header_is_refused(position, value):
    with pytest.raises(ProtocolError):
        parse_batch_header(damaged(position, value))
    with pytest.raises(ProtocolError):
        list(iter_batches(memoryview(damaged(position, value))))


def test_a_header_needs_61_bytes():
    batch = build_batch([SimpleRecord(1, b"a", b"b")])
    for position in (-1, len(batch) - 60, len(batch) + 5):
        with pytest.raises(ProtocolError):
            parse_batch_header(batch, position)


@pytest.mark.parametrize(
    ("position", "value", "reason"),
    [
        (57, b"\x00\x00\x00\x02", "malformed"),  # a record too many
        (57, b"\x00\x00\x00\x00", "after the last record"),
        (57, b"\x7f\xff\xff\xff", "malformed"),
        (61, b"\x7e", "a record of 63 bytes"),
        (61, b"\x0a", "a record of 5 bytes"),
        (65, b"\x7e", "63 bytes announced"),  # key length
        (67, b"\x06", "3 bytes announced"),  # value length
        (67, b"\x01", "49 headers"),  # no value
        (69, b"\x7e", "63 headers"),
        (69, b"\x01", "-1 headers"),
    ],
)
def test_malformed_records_are_refused(position, value, reason):
    batch = damaged(position, value)
    with pytest.raises(ProtocolError, match=reason):
        list(iter_records(memoryview(batch), 0, parse_batch_header(batch)))


def test_a_record_header_needs_a_key():
    batch = build_batch([SimpleRecord(1, b"a", b"b", (RecordHeader("", None),))])
    assert batch[-2:] == b"\x00\x01"
    batch[-2] = 1
    with pytest.raises(ProtocolError, match="no key"):
        list(iter_records(memoryview(batch), 0, parse_batch_header(batch)))


def test_compressed_records_need_a_function():
    batch = build_batch([SimpleRecord(1, b"a", b"b")], codec=1, compress=compress)
    with pytest.raises(ProtocolError):
        list(iter_records(memoryview(batch), 0, parse_batch_header(batch)))
    with pytest.raises(ValueError, match="compress"):
        build_batch([SimpleRecord(1, b"a", b"b")], codec=1)
    with pytest.raises(ValueError, match="record"):
        build_batch([])

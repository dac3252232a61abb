import pytest

from kafkalite_core.model.errors import BrokerError
from kafkalite_core.protocol import batch_validation
from kafkalite_core.protocol.batch_validation import RecordChecks, analyze_client_batch
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.record_batch import SimpleRecord, build_batch, compute_crc, parse_batch_header
from tests.unit.protocol.batches import compress, decompress

ONE = [SimpleRecord(1000, b"k", b"v")]


def edited(*edits, records=ONE, **options):
    """A batch with some bytes replaced and the right CRC."""
    batch = build_batch(records, **options)
    for position, value in edits:
        batch[position : position + len(value)] = value
    batch[17:21] = compute_crc(memoryview(batch), 0, len(batch)).to_bytes(4, "big")
    return batch


def code_of(batch, **options):
    options = {"produce_version": 9, "max_message_bytes": 10_000} | options
    try:
        header = analyze_client_batch(batch, **options)
    except BrokerError as error:
        return ErrorCode(error.error_code)
    assert header == parse_batch_header(batch)
    return ErrorCode.NONE


def test_a_sound_batch_is_accepted():
    assert code_of(edited()) == ErrorCode.NONE
    assert code_of(edited(producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)) == ErrorCode.NONE


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (bytes(10), ErrorCode.CORRUPT_MESSAGE),
        (bytes(16) + b"\x00" + bytes(20), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (edited((16, b"\x01")), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (edited((16, b"\x03")), ErrorCode.CORRUPT_MESSAGE),
        (edited() + edited(), ErrorCode.INVALID_RECORD),
        (edited()[:-1], ErrorCode.CORRUPT_MESSAGE),
        (edited((8, b"\x00\x00\x00\x10")), ErrorCode.CORRUPT_MESSAGE),
        (edited((8, b"\xff\xff\xff\xff")), ErrorCode.CORRUPT_MESSAGE),
        (build_batch(ONE)[:-1] + b"!", ErrorCode.CORRUPT_MESSAGE),
        (edited((7, b"\x01")), ErrorCode.INVALID_RECORD),  # base offset
        (edited((22, b"\x08")), ErrorCode.INVALID_TIMESTAMP),  # LogAppendTime
        (edited((22, b"\x05")), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (edited((22, b"\x20")), ErrorCode.INVALID_RECORD),  # control
        (edited((22, b"\x10")), ErrorCode.INVALID_RECORD),  # transactional without a producer id
        (edited((26, b"\x01")), ErrorCode.INVALID_RECORD),  # last offset delta
        (edited((23, b"\xff\xff\xff\xff"), (57, b"\x00\x00\x00\x00")), ErrorCode.INVALID_RECORD),  # no records
        (edited((23, b"\xff\xff\xff\xff")), ErrorCode.INVALID_RECORD),
        (edited(producer_id=5, producer_epoch=-1, base_sequence=0), ErrorCode.INVALID_RECORD),
        (edited(producer_id=5, producer_epoch=0, base_sequence=-1), ErrorCode.INVALID_RECORD),
        (edited(producer_id=-2, producer_epoch=0, base_sequence=0), ErrorCode.INVALID_RECORD),
    ],
)
def test_each_fault_has_its_code(batch, code):
    assert code_of(batch) == code


def test_sizes_have_limits():
    batch = edited()
    size = len(batch)
    assert code_of(batch, max_message_bytes=size) == ErrorCode.NONE
    assert code_of(batch, max_message_bytes=size - 1) == ErrorCode.RECORD_TOO_LARGE
    assert code_of(batch, segment_bytes=size) == ErrorCode.NONE
    assert code_of(batch, segment_bytes=size - 1) == ErrorCode.RECORD_LIST_TOO_LARGE


@pytest.mark.parametrize(("version", "code"), [(6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), (7, ErrorCode.NONE)])
def test_zstd_needs_produce_seven(version, code):
    assert code_of(edited(codec=4, compress=compress), produce_version=version) == code


@pytest.mark.parametrize("codec", range(5))
def test_compacted_topics_need_keys(codec):
    checks = RecordChecks(require_key=True)
    keyless = edited(records=[*ONE, SimpleRecord(1, None, b"v")], codec=codec, compress=compress)
    keyed = edited(records=[*ONE, SimpleRecord(1, b"", None)], codec=codec, compress=compress)
    assert code_of(keyless) == ErrorCode.NONE
    assert code_of(keyless, checks=checks, decompress=decompress) == ErrorCode.INVALID_RECORD
    assert code_of(keyed, checks=checks, decompress=decompress) == ErrorCode.NONE


def test_compressed_records_that_cannot_be_checked_are_refused():
    batch = edited(codec=1, compress=compress)
    assert code_of(batch, checks=RecordChecks()) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize(
    ("timestamp", "code"),
    [
        (890, ErrorCode.NONE),
        (889, ErrorCode.INVALID_TIMESTAMP),
        (1020, ErrorCode.NONE),
        (1021, ErrorCode.INVALID_TIMESTAMP),
        (-1, ErrorCode.NONE),
    ],
)
def test_timestamps_have_bounds(timestamp, code):
    checks = RecordChecks(now_ms=1000, timestamp_before_max_ms=110, timestamp_after_max_ms=20)
    batch = edited(records=[*ONE, SimpleRecord(timestamp, b"k", b"v")])
    assert code_of(batch, checks=checks) == code


def test_a_timestamp_fits_64_bits():
    batch = edited((27, (2**63 - 1).to_bytes(8)), records=[SimpleRecord(1, b"k", b"v"), SimpleRecord(2, b"k", b"v")])
    assert code_of(batch) == ErrorCode.NONE
    assert code_of(batch, checks=RecordChecks()) == ErrorCode.INVALID_RECORD


def test_records_are_numbered_without_gaps():
    batch = edited((64, b"\x02"))  # the only record's offset delta
    assert code_of(batch) == ErrorCode.NONE
    assert code_of(batch, checks=RecordChecks()) == ErrorCode.INVALID_RECORD


def test_malformed_records_are_found_by_the_walk():
    batch = edited((65, b"\x7e"))  # key length
    assert code_of(batch, checks=RecordChecks()) == ErrorCode.INVALID_RECORD


def test_more_records_than_can_be_looked_at_are_not_even_decompressed(monkeypatch):
    monkeypatch.setattr(batch_validation, "RECORDS_CHECKED_MAX", 3)

    def refused(count, decompress):
        records = [SimpleRecord(1, b"k", b"v")] * count
        batch = build_batch(records, codec=4, compress=compress)
        try:
            analyze_client_batch(
                batch, produce_version=9, max_message_bytes=9999, checks=RecordChecks(), decompress=decompress
            )
        except BrokerError as error:
            return error.message
        return ""

    assert refused(3, decompress) == ""
    assert "lower batch.size" in refused(4, None)

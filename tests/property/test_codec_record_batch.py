"""Record batches against the builders and readers of aiokafka, kafka-python and kio; and against garbage."""

import warnings

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.records.readers import read_batch

from kafkalite_core.model.errors import BrokerError
from kafkalite_core.protocol.batch_validation import RecordChecks, analyze_client_batch
from kafkalite_core.protocol.errors import ProtocolError
from kafkalite_core.protocol.record_batch import (
    RecordHeader,
    SimpleRecord,
    build_batch,
    iter_batches,
    iter_records,
    parse_batch_header,
    patch_batch,
    validate_crc,
)
from tests.unit.protocol.batches import compress, decompress

with warnings.catch_warnings():
    # kafka-python reads its resources through a function that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

usual = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
data_bytes = st.binary(max_size=150)
headers = st.lists(st.builds(RecordHeader, st.text(max_size=8), st.none() | data_bytes), max_size=3).map(tuple)
records_of_any_kind = st.lists(
    st.builds(SimpleRecord, st.integers(0, 2**41), st.none() | data_bytes, st.none() | data_bytes, headers),
    min_size=1,
    max_size=8,
)
producers = st.just((-1, -1, -1)) | st.tuples(
    st.integers(0, 2**63 - 1), st.integers(0, 32767), st.integers(0, 2**31 - 1)
)
CODECS = range(5)


def plain(records):
    """Records of this codec as (timestamp, key, value, headers) of bytes."""
    copy = lambda part: None if part is None else bytes(part)  # noqa: E731
    return [
        SimpleRecord(
            record.timestamp,
            copy(record.key),
            copy(record.value),
            tuple(RecordHeader(key, copy(value)) for key, value in record.headers),
        )
        for record in records
    ]


def built_by(builder_class, records, codec, producer):
    builder = builder_class(2, codec, 0, *producer, 1 << 20)
    for offset, record in enumerate(records):
        builder.append(offset, record.timestamp, record.key, record.value, list(map(tuple, record.headers)))
    return memoryview(bytes(builder.build()))


@pytest.mark.parametrize("codec", CODECS)
@usual
@given(records=records_of_any_kind, producer=producers)
def test_batches_of_aiokafka_are_read_and_accepted(codec, records, producer):
    # Its builder drops the compression of a batch that would grow.
    check_batch(built_by(AiokafkaBuilder, records, codec, producer), records, producer)


@pytest.mark.parametrize("codec", [0, 1])
@usual
@given(records=records_of_any_kind, producer=producers)
def test_batches_of_kafka_python_are_read_and_accepted(codec, records, producer):
    check_batch(built_by(KafkaPythonBuilder, records, codec, producer), records, producer)


def check_batch(view, records, producer):
    ((position, header),) = iter_batches(view)
    assert (position, header.size, header.record_count) == (0, len(view), len(records))
    assert validate_crc(view, 0, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == producer
    assert header.base_timestamp == records[0].timestamp
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert plain(iter_records(view, 0, header, decompress)) == records
    checks = RecordChecks(now_ms=0)
    accepted = analyze_client_batch(
        view, produce_version=9, max_message_bytes=1 << 20, checks=checks, decompress=decompress
    )
    assert accepted == header


@pytest.mark.parametrize("codec", CODECS)
@usual
@given(records=records_of_any_kind, producer=producers, base_offset=st.integers(0, 2**62))
def test_batches_built_here_are_read_by_clients(codec, records, producer, base_offset):
    producer_id, producer_epoch, base_sequence = producer
    batch = build_batch(
        records,
        codec=codec,
        compress=compress,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    patch_batch(batch, 0, base_offset, 7)
    header = parse_batch_header(batch)
    assert (header.base_offset, header.partition_leader_epoch) == (base_offset, 7)
    assert header.next_offset == base_offset + len(records)

    aiokafka = AiokafkaBatch(bytes(batch))
    assert aiokafka.validate_crc()
    assert [(one.timestamp, one.key, one.value, tuple(one.headers)) for one in aiokafka] == records

    if codec < 2:
        kafka_python = KafkaPythonBatch(bytes(batch))
        assert kafka_python.validate_crc()
        assert [one.offset for one in kafka_python] == list(range(base_offset, base_offset + len(records)))
    if codec == 0:
        kio, size = read_batch(bytes(batch), 0)
        assert size == len(batch)
        assert [(one.offset - base_offset, one.key, one.value) for one in kio.records] == [
            (index, record.key, record.value) for index, record in enumerate(records)
        ]


@usual
@given(batches=st.lists(records_of_any_kind, max_size=4), cut=st.integers(0, 200))
def test_whole_batches_are_walked_and_a_cut_one_ends_the_walk(batches, cut):
    encoded = [bytes(build_batch(records)) for records in batches]
    whole = b"".join(encoded)
    positions = [sum(map(len, encoded[:index])) for index in range(len(encoded))]
    kept = len(whole) - min(cut, len(whole))
    expected = [start for start, part in zip(positions, encoded, strict=True) if start + len(part) <= kept]
    assert [position for position, _ in iter_batches(memoryview(whole[:kept]))] == expected


@settings(usual, max_examples=300)
@given(data=st.binary(max_size=150))
def test_garbage_is_no_batch(data):
    try:
        for position, header in iter_batches(memoryview(data)):
            list(iter_records(memoryview(data), position, header))
    except ProtocolError:
        pass
    with pytest.raises(BrokerError):
        analyze_client_batch(data, produce_version=9, max_message_bytes=1 << 20)


@settings(usual, max_examples=300)
@given(records=records_of_any_kind, edits=st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=3))
def test_damaged_records_are_refused_or_still_records(records, edits):
    batch = build_batch(records)
    for place, byte in edits:
        batch[61 + place % (len(batch) - 61)] = byte
    header = parse_batch_header(batch)
    try:
        found = list(iter_records(memoryview(batch), 0, header))
    except ProtocolError:
        return
    assert len(found) == len(records)


@usual
@given(records=records_of_any_kind, place=st.integers(17), change=st.integers(1, 255))
def test_a_changed_byte_after_the_crc_fails_the_crc(records, place, change):
    batch = build_batch(records)
    header = parse_batch_header(batch)
    batch[21 + place % (len(batch) - 21)] ^= change
    assert not validate_crc(memoryview(batch), 0, header)

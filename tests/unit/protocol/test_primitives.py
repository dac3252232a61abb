import tracemalloc

import pytest

from kafkalite_core.protocol import describe_configs, fetch, metadata, primitives, produce
from kafkalite_core.protocol.errors import ProtocolError


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 16383, 16384, 2**31, 2**32 - 1])
def test_unsigned_varints(number):
    out = bytearray()
    primitives.write_uvarint(out, number)
    assert primitives.read_uvarint(memoryview(out), 0) == (number, len(out))


@pytest.mark.parametrize("number", [0, -1, 1, 63, -64, 64, -65, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)])
def test_signed_varints(number):
    out = bytearray()
    primitives.write_varint(out, number)
    assert primitives.read_varint(memoryview(out), 0) == (number, len(out))


def test_known_varints():
    out = bytearray()
    primitives.write_uvarint(out, 300)
    primitives.write_varint(out, -65)
    assert out == bytes.fromhex("ac02 8101")


@pytest.mark.parametrize("data", ["ffffffff10", "ffffffffff", "808080808001"])
def test_varints_of_more_than_32_bits_are_refused(data):
    with pytest.raises(ProtocolError):
        primitives.read_uvarint(memoryview(bytes.fromhex(data)), 0)


def test_varints_of_more_than_64_bits_are_refused():
    for data in (b"\xff" * 9 + b"\x02", b"\x80" * 10 + b"\x01"):
        with pytest.raises(ProtocolError):
            primitives.read_varint(memoryview(data), 0)


def test_unknown_tagged_fields_are_skipped_wherever_they_stand():
    request = produce.ProduceRequest(acks=1, topic_data=[produce.TopicProduceData(name="a")])
    plain = b"".join(produce.encode_request(request, 9))
    assert plain[-2:] == b"\x00\x00"
    tagged = plain[:-2] + b"\x01\x05\x02xy" + b"\x02\x00\x00\xff\x01\x81\x01" + bytes(128)
    # The last tag announces 129 bytes.
    with pytest.raises(ProtocolError, match="tag 255 has 129 bytes where 128 are left"):
        produce.decode_request(memoryview(tagged), 9)
    assert produce.decode_request(memoryview(tagged + b"\x00"), 9) == request


MANY_TAGS = bytes([primitives.TAGS_MAX + 1]) + b"\x0c\x00" * (primitives.TAGS_MAX + 1)
TOO_MANY = f"{primitives.TAGS_MAX + 1} tagged fields in one section"


def test_more_tagged_fields_than_any_message_has_are_refused_wherever_they_stand():
    request = produce.ProduceRequest(acks=1, topic_data=[produce.TopicProduceData(name="a")])
    plain = b"".join(produce.encode_request(request, 9))
    known = b"".join(fetch.encode_request(fetch.FetchRequest(), 15))
    fit = bytes([primitives.TAGS_MAX]) + b"\x0c\x00" * primitives.TAGS_MAX
    assert produce.decode_request(memoryview(plain[:-1] + fit), 9) == request
    assert fetch.decode_request(memoryview(known[:-1] + fit), 15) == fetch.FetchRequest()
    for decode, data, version in (
        (produce.decode_request, plain[:-2] + MANY_TAGS + b"\x00", 9),  # of an element
        (produce.decode_request, plain[:-1] + MANY_TAGS, 9),
        (fetch.decode_request, known[:-1] + MANY_TAGS, 15),  # where some are known
        (fetch.decode_request, known[:-1] + b"\xa1\x80\x00" + MANY_TAGS[1:], 15),
    ):
        with pytest.raises(ProtocolError, match=TOO_MANY):
            decode(memoryview(data), version)


def test_a_tagged_field_of_another_size_than_announced_is_refused():
    request = fetch.FetchRequest(replica_state=fetch.ReplicaState(replica_id=1, replica_epoch=2))
    data = bytearray(b"".join(fetch.encode_request(request, 15)))
    assert fetch.decode_request(memoryview(data), 15) == request
    data[-14] += 1
    with pytest.raises(ProtocolError, match="a tagged field ends"):
        fetch.decode_request(memoryview(bytes(data) + b"\x00"), 15)


@pytest.mark.parametrize(
    ("decode", "version", "data", "reason"),
    [
        (metadata.decode_request, 1, "00000004 0000 0000 0000", "an array of 4 elements where 6 bytes are left"),
        (metadata.decode_request, 9, "04 0100 01", "an array of 3 elements where 3 bytes are left"),
        (metadata.decode_request, 1, "00000001 0005 61626364", "a string of 5 bytes where 4 are left"),
        (metadata.decode_request, 9, "02 06 61626364", "a string of 5 bytes where 4 are left"),
        (metadata.decode_request, 1, "00000001 0001 ff", "malformed"),  # no UTF-8
        (metadata.decode_request, 1, "00000000" + "00" * 17, "17 bytes too many"),
        (metadata.decode_response, 1, "00000000 ffffffff 00000000 00", "1 bytes too many"),
        (
            produce.decode_request,
            7,
            "ffff 0001 00000000 00000001 0000 00000001 00000000 00000009 61",
            "9 bytes announced",
        ),
        (produce.decode_request, 9, "00 0001 00000000 02 01 02 00000000 0a 61", "9 bytes announced"),
    ],
)
def test_a_length_beyond_the_end_is_refused_before_it_is_used(decode, version, data, reason):
    with pytest.raises(ProtocolError, match=reason):
        decode(memoryview(bytes.fromhex(data)), version)


def test_the_padding_of_librdkafka_behind_a_request_is_passed_over():
    """What librdkafka 2.16 sends for the metadata of all topics: version 12, three bytes too many."""
    request = metadata.decode_request(memoryview(bytes(7)), 12)
    assert request.topics is None


def test_a_claimed_length_allocates_nothing():
    huge_counts = [
        (metadata.decode_request, 1, b"\x7f\xff\xff\xff"),
        (metadata.decode_request, 12, b"\xff\xff\xff\xff\x0f"),
        (produce.decode_request, 7, b"\xff\xff" + bytes(6) + b"\x7f\xff\xff\xff" + bytes(100)),
        (produce.decode_request, 9, b"\xff\xff\xff\xff\x0f" + bytes(100)),
        (fetch.decode_request, 12, bytes(21) + b"\xff\xff\xff\xff\x0f" + bytes(100)),
        (fetch.decode_request, 12, bytes(21) + b"\x01\x01\x01\xff\xff\xff\xff\x0f" + bytes(100)),
    ]
    tracemalloc.start()
    for decode, version, data in huge_counts:
        with pytest.raises(ProtocolError):
            decode(memoryview(data), version)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


def test_the_elements_of_one_message_are_limited():
    count = primitives.MAX_MESSAGE_ELEMENTS + 1
    data = count.to_bytes(4, "big") + bytes(2 * count)  # so many empty topic names
    with pytest.raises(ProtocolError, match="array elements"):
        metadata.decode_request(memoryview(data), 1)


def test_the_metadata_of_ten_thousand_partitions_are_within_the_limit():
    topic = metadata.MetadataResponseTopic(
        name="t",
        partitions=[
            metadata.MetadataResponsePartition(partition_index=n, replica_nodes=[0, 1, 2], isr_nodes=[0, 1, 2])
            for n in range(100)
        ],
    )
    response = metadata.MetadataResponse(topics=[topic] * 100)
    encoded = b"".join(metadata.encode_response(response, 12))
    assert metadata.decode_response(memoryview(encoded), 12) == response


@pytest.mark.parametrize("version", [1, 4])
@pytest.mark.parametrize("letter", ["x", "é", "\U0001f40c"])
def test_an_error_that_quotes_a_long_name_is_cut_so_that_it_can_be_answered(version, letter):
    result = describe_configs.DescribeConfigsResult(error_message=letter * 40_000)
    encoded = b"".join(
        describe_configs.encode_response(describe_configs.DescribeConfigsResponse(results=[result]), version)
    )
    decoded = describe_configs.decode_response(memoryview(encoded), version)
    assert decoded.results[0].error_message == letter * (primitives.SENTENCE_LENGTH_MAX - 1) + "…"
    result.error_message = letter * primitives.SENTENCE_LENGTH_MAX
    encoded = b"".join(
        describe_configs.encode_response(describe_configs.DescribeConfigsResponse(results=[result]), version)
    )
    assert describe_configs.decode_response(memoryview(encoded), version).results == [result]


def test_null_where_a_version_has_none_is_refused():
    with pytest.raises(ProtocolError):
        metadata.decode_request(memoryview(b"\xff\xff\xff\xff"), 0)
    for version in (1, 9):
        with pytest.raises(ProtocolError):
            metadata.encode_request(
                metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=None)]), version
            )
    with pytest.raises(ProtocolError):
        metadata.encode_request(metadata.MetadataRequest(topics=None), 0)


def test_numbers_that_do_not_fit_are_refused():
    with pytest.raises(ProtocolError):
        produce.encode_request(produce.ProduceRequest(acks=70000), 9)


@pytest.mark.parametrize("version", [3, 9])
def test_strings_have_a_limit(version):
    with pytest.raises(ProtocolError):
        produce.encode_request(produce.ProduceRequest(topic_data=[produce.TopicProduceData(name="x" * 40000)]), version)


@pytest.mark.parametrize("version", [7, 9])
def test_decoded_records_are_a_view_of_the_request(version):
    records = bytes(2000)
    request = produce.ProduceRequest(
        topic_data=[produce.TopicProduceData(name="a", partition_data=[produce.PartitionProduceData(0, records)])]
    )
    buffers = produce.encode_request(request, version)
    assert any(buffer is records for buffer in buffers)
    data = b"".join(buffers)
    decoded = produce.decode_request(memoryview(data), version).topic_data[0].partition_data[0].records
    assert isinstance(decoded, memoryview)
    assert decoded.obj is data


@pytest.mark.parametrize("version", [11, 12])
@pytest.mark.parametrize("sizes", [(), (0,), (3, 4), (400, 200), (70000, 1, 5)])
def test_records_of_several_buffers_are_sent_in_order(version, sizes):
    parts = [bytes([index]) * size for index, size in enumerate(sizes)]
    response = fetch.FetchResponse(
        responses=[
            fetch.FetchableTopicResponse("t", partitions=[fetch.PartitionData(partition_index=1, records=parts)] * 2)
        ]
    )
    data = b"".join(fetch.encode_response(response, version))
    for partition in fetch.decode_response(memoryview(data), version).responses[0].partitions:
        assert primitives.records_view(partition.records) == b"".join(parts)
    assert primitives.records_view(parts) == b"".join(parts)
    assert primitives.records_view(None) == b""


def test_topic_ids_decode_to_the_same_object():
    assert primitives.to_uuid(bytes(range(16))) is primitives.to_uuid(bytes(range(16)))

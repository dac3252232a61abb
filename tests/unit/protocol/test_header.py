import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite_core.protocol.apis import API
from kafkalite_core.protocol.errors import ProtocolError
from kafkalite_core.protocol.header import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_frame,
)
from kafkalite_core.protocol.metadata import MetadataResponse


def header_of(data):
    return decode_request_header(memoryview(bytes(data)))


@pytest.mark.parametrize("client_id", [None, "", "sarama"])
@pytest.mark.parametrize("version", [0, 8, 9, 12])
def test_a_header_comes_back(version, client_id):
    data = encode_request_header(API[3], version, -5, client_id)
    assert header_of(data) == (RequestHeader(3, version, -5, client_id), len(data))


def test_tagged_fields_of_the_header_are_skipped():
    data = encode_request_header(API[3], 9, 1, None)[:-1] + b"\x02\x00\x03abc\x8f\x01\x00" + b"body"
    assert data[header_of(data)[1] :] == b"body"


def test_too_many_tagged_fields_of_the_header_are_refused():
    data = encode_request_header(API[3], 9, 1, None)[:-1] + b"\xff\x7f" + b"\x00\x00" * 0x3FFF
    with pytest.raises(ProtocolError, match="16383 tagged fields"):
        header_of(data)


def test_the_header_of_an_unknown_api_or_version_ends_at_the_client_id():
    newer = encode_request_header(API[18], 9, 1, "java")
    header, position = header_of(newer)
    assert (header.api_version, header.client_id, position) == (9, "java", len(newer) - 1)
    unknown = b"\x03\xe8\x00\x00\x00\x00\x00\x07\xff\xff"
    assert header_of(unknown) == (RequestHeader(1000, 0, 7, None), 10)


def test_a_header_that_is_cut_off_is_refused():
    data = encode_request_header(API[3], 9, 1, "client")
    for size in range(len(data)):
        with pytest.raises(ProtocolError):
            header_of(data[:size])


@given(st.binary(max_size=40))
def test_any_bytes_are_a_header_or_refused(data):
    try:
        _, position = header_of(data)
    except ProtocolError:
        return
    assert 10 <= position <= len(data)


@pytest.mark.parametrize("version", [8, 9])
def test_a_response_header_leads_to_the_body(version):
    frame = memoryview(b"".join(encode_response_frame(API[3], version, 99, MetadataResponse())))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    correlation_id, position = decode_response_header(frame[4:], API[3], version)
    assert correlation_id == 99
    assert API[3].decode_response(frame[4 + position :], version) == MetadataResponse()
    with pytest.raises(ProtocolError):
        decode_response_header(frame[4:7], API[3], version)

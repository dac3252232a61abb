"""Bytes composed by hand from the protocol's description: the codec must neither drift nor agree only with itself."""

from uuid import UUID

import pytest

from kafkalite_core.protocol import api_versions, fetch, init_producer_id, metadata, produce
from kafkalite_core.protocol.apis import API
from kafkalite_core.protocol.header import encode_request_frame, encode_response_frame

TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")


def hexadecimal(*parts):
    return bytes.fromhex(" ".join(parts))


VECTORS = [
    (
        "produce request 7",
        produce.encode_request,
        produce.decode_request,
        7,
        produce.ProduceRequest(
            acks=-1,
            timeout_ms=1500,
            topic_data=[
                produce.TopicProduceData(
                    name="ab", partition_data=[produce.PartitionProduceData(index=3, records=b"\x01\x02\x03")]
                )
            ],
        ),
        hexadecimal(
            "ffff",  # transactional id: null
            "ffff 000005dc",
            "00000001 0002 6162",
            "00000001 00000003 00000003 010203",
        ),
    ),
    (
        "produce request 9",
        produce.encode_request,
        produce.decode_request,
        9,
        produce.ProduceRequest(
            transactional_id="t",
            acks=1,
            timeout_ms=1,
            topic_data=[
                produce.TopicProduceData(name="ab", partition_data=[produce.PartitionProduceData(index=0, records=b"")])
            ],
        ),
        hexadecimal("02 74", "0001 00000001", "02 03 6162", "02 00000000 01 00", "00", "00"),
    ),
    (
        "produce response 10 with the new leader",
        produce.encode_response,
        produce.decode_response,
        10,
        produce.ProduceResponse(
            responses=[
                produce.TopicProduceResponse(
                    name="ab",
                    partition_responses=[
                        produce.PartitionProduceResponse(
                            index=1,
                            error_code=6,
                            base_offset=-1,
                            current_leader=produce.LeaderIdAndEpoch(leader_id=2, leader_epoch=7),
                        )
                    ],
                )
            ],
            node_endpoints=[produce.NodeEndpoint(node_id=2, host="h", port=9094)],
        ),
        hexadecimal(
            "02 03 6162 02",
            "00000001 0006 ffffffffffffffff ffffffffffffffff ffffffffffffffff 01 00",
            "01 00 09 00000002 00000007 00",  # tag 0: leader 2, epoch 7, no tags of its own
            "00",
            "00000000",
            "01 00 0d 02 00000002 02 68 00002386 00 00",  # tag 0: one endpoint without a rack
        ),
    ),
    (
        "fetch request 15 of a follower",
        fetch.encode_request,
        fetch.decode_request,
        15,
        fetch.FetchRequest(
            replica_state=fetch.ReplicaState(replica_id=2, replica_epoch=5),
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1024,
            topics=[
                fetch.FetchTopic(
                    topic_id=TOPIC_ID,
                    partitions=[
                        fetch.FetchPartition(
                            partition=0,
                            current_leader_epoch=4,
                            fetch_offset=100,
                            last_fetched_epoch=3,
                            log_start_offset=0,
                            partition_max_bytes=512,
                        )
                    ],
                )
            ],
        ),
        hexadecimal(
            "000001f4 00000001 00000400 00 00000000 ffffffff",
            "02 00112233445566778899aabbccddeeff",
            "02 00000000 00000004 0000000000000064 00000003 0000000000000000 00000200 00 00",
            "01 01",  # nothing forgotten, empty rack
            "01 01 0d 00000002 0000000000000005 00",  # tag 1: replica 2, broker epoch 5
        ),
    ),
    (
        "fetch response 12 that diverges",
        fetch.encode_response,
        fetch.decode_response,
        12,
        fetch.FetchResponse(
            responses=[
                fetch.FetchableTopicResponse(
                    topic="a",
                    partitions=[
                        fetch.PartitionData(
                            partition_index=0,
                            high_watermark=9,
                            last_stable_offset=9,
                            log_start_offset=0,
                            diverging_epoch=fetch.EpochEndOffset(epoch=3, end_offset=8),
                            aborted_transactions=None,
                            records=b"\x07",
                        )
                    ],
                )
            ]
        ),
        hexadecimal(
            "00000000 0000 00000000",
            "02 02 61 02",
            "00000000 0000 0000000000000009 0000000000000009 0000000000000000 00 ffffffff 02 07",
            "01 00 0d 00000003 0000000000000008 00",  # tag 0: epoch 3 ended at 8
            "00 00",
        ),
    ),
    (
        "metadata request 1 for all topics",
        metadata.encode_request,
        metadata.decode_request,
        1,
        metadata.MetadataRequest(topics=None),
        hexadecimal("ffffffff"),
    ),
    (
        "metadata request 12 by id",
        metadata.encode_request,
        metadata.decode_request,
        12,
        metadata.MetadataRequest(
            topics=[metadata.MetadataRequestTopic(topic_id=TOPIC_ID, name=None)], allow_auto_topic_creation=False
        ),
        hexadecimal("02 00112233445566778899aabbccddeeff 00 00", "00 00 00"),
    ),
    (
        "init producer id response 0",
        init_producer_id.encode_response,
        init_producer_id.decode_response,
        0,
        init_producer_id.InitProducerIdResponse(producer_id=1000, producer_epoch=0),
        hexadecimal("00000000 0000 00000000000003e8 0000"),
    ),
]


@pytest.mark.parametrize(("encode", "decode", "version", "message", "expected"), [row[1:] for row in VECTORS])
def test_a_message_is_these_bytes_and_these_bytes_are_the_message(encode, decode, version, message, expected):
    assert b"".join(encode(message, version)) == expected
    assert decode(memoryview(expected), version) == message


def test_a_request_frame_has_size_header_two_and_a_classic_client_id():
    request = api_versions.ApiVersionsRequest(client_software_name="x", client_software_version="1")
    frame = b"".join(encode_request_frame(API[18], 3, 77, "me", request))
    assert frame == hexadecimal("00000012", "0012 0003 0000004d 0002 6d65 00", "02 78 02 31 00")


def test_a_response_frame_has_header_one_from_the_first_flexible_version_on():
    response = init_producer_id.InitProducerIdResponse(producer_id=1, producer_epoch=0)
    body = "00000000 0000 0000000000000001 0000"
    assert b"".join(encode_response_frame(API[22], 1, 7, response)) == hexadecimal("00000014 00000007", body)
    assert b"".join(encode_response_frame(API[22], 2, 7, response)) == hexadecimal("00000016 00000007 00", body, "00")


def test_api_versions_responses_keep_header_zero():
    frame = b"".join(encode_response_frame(API[18], 3, 7, api_versions.ApiVersionsResponse()))
    assert frame == hexadecimal("0000000c 00000007", "0000 01 00000000 00")

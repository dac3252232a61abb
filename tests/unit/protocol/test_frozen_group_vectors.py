"""Bytes of the group and administration APIs, composed by hand from the protocol's description."""

import pytest

from kafkalite_core.protocol import (
    create_partitions,
    describe_groups,
    elect_leaders,
    join_group,
    leave_group,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)


def hexadecimal(*parts):
    return bytes.fromhex(" ".join(parts))


VECTORS = [
    (
        "join group request 0 has no rebalance timeout",
        join_group.encode_request,
        join_group.decode_request,
        0,
        join_group.JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10000,
            rebalance_timeout_ms=-1,
            protocol_type="consumer",
            protocols=[join_group.JoinGroupRequestProtocol(name="range", metadata=b"\x00\x01")],
        ),
        hexadecimal("0001 67", "00002710", "0000", "0008 636f6e73756d6572", "00000001 0005 72616e6765 00000002 0001"),
    ),
    (
        "join group request 9 of a static member",
        join_group.encode_request,
        join_group.decode_request,
        9,
        join_group.JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10000,
            rebalance_timeout_ms=60000,
            member_id="m",
            group_instance_id="i",
            protocol_type="c",
            protocols=[join_group.JoinGroupRequestProtocol(name="r", metadata=b"\x07")],
            reason="new",
        ),
        hexadecimal("02 67", "00002710 0000ea60", "02 6d", "02 69", "02 63", "02 02 72 02 07 00", "04 6e6577", "00"),
    ),
    (
        "join group response 9 for the leader",
        join_group.encode_response,
        join_group.decode_response,
        9,
        join_group.JoinGroupResponse(
            generation_id=3,
            protocol_type="c",
            protocol_name="r",
            leader="m",
            skip_assignment=True,
            member_id="m",
            members=[join_group.JoinGroupResponseMember(member_id="m", group_instance_id="i", metadata=b"\x07")],
        ),
        hexadecimal(
            "00000000 0000 00000003", "02 63", "02 72", "02 6d", "01", "02 6d", "02 02 6d 02 69 02 07 00", "00"
        ),
    ),
    (
        "sync group request 3 of a leader",
        sync_group.encode_request,
        sync_group.decode_request,
        3,
        sync_group.SyncGroupRequest(
            group_id="g",
            generation_id=3,
            member_id="m",
            assignments=[sync_group.SyncGroupRequestAssignment(member_id="m", assignment=b"\x01")],
        ),
        hexadecimal("0001 67", "00000003", "0001 6d", "ffff", "00000001 0001 6d 00000001 01"),
    ),
    (
        "leave group request 2 of one member",
        leave_group.encode_request,
        leave_group.decode_request,
        2,
        leave_group.LeaveGroupRequest(group_id="g", member_id="m"),
        hexadecimal("0001 67", "0001 6d"),
    ),
    (
        "leave group request 5 of several members",
        leave_group.encode_request,
        leave_group.decode_request,
        5,
        leave_group.LeaveGroupRequest(
            group_id="g",
            members=[
                leave_group.MemberIdentity(member_id="m", reason="bye"),
                leave_group.MemberIdentity(member_id="", group_instance_id="i"),
            ],
        ),
        hexadecimal("02 67", "03", "02 6d 00 04 627965 00", "01 02 69 00 00", "00"),
    ),
    (
        "offset commit request 2 with a retention of its own",
        offset_commit.encode_request,
        offset_commit.decode_request,
        2,
        offset_commit.OffsetCommitRequest(
            group_id="g",
            retention_time_ms=256,
            topics=[
                offset_commit.OffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        offset_commit.OffsetCommitRequestPartition(
                            partition_index=1, committed_offset=9, committed_metadata=None
                        )
                    ],
                )
            ],
        ),
        hexadecimal(
            "0001 67",
            "ffffffff",
            "0000",
            "0000000000000100",
            "00000001 0001 74",
            "00000001 00000001 0000000000000009 ffff",
        ),
    ),
    (
        "offset commit request 9",
        offset_commit.encode_request,
        offset_commit.decode_request,
        9,
        offset_commit.OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=3,
            member_id="m",
            topics=[
                offset_commit.OffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        offset_commit.OffsetCommitRequestPartition(
                            partition_index=1, committed_offset=9, committed_leader_epoch=4
                        )
                    ],
                )
            ],
        ),
        hexadecimal(
            "02 67", "00000003", "02 6d", "00", "02 02 74", "02 00000001 0000000000000009 00000004 01 00", "00", "00"
        ),
    ),
    (
        "offset fetch request 2 for every partition",
        offset_fetch.encode_request,
        offset_fetch.decode_request,
        2,
        offset_fetch.OffsetFetchRequest(group_id="g", topics=None),
        hexadecimal("0001 67", "ffffffff"),
    ),
    (
        "offset fetch request 9 for two groups",
        offset_fetch.encode_request,
        offset_fetch.decode_request,
        9,
        offset_fetch.OffsetFetchRequest(
            groups=[
                offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=None),
                offset_fetch.OffsetFetchRequestGroup(
                    group_id="h",
                    member_id="m",
                    member_epoch=2,
                    topics=[offset_fetch.OffsetFetchRequestTopics(name="t", partition_indexes=[0, 7])],
                ),
            ],
            require_stable=True,
        ),
        hexadecimal(
            "03",
            "02 67 00 ffffffff 00 00",
            "02 68 02 6d 00000002 02 02 74 03 00000000 00000007 00 00",
            "01 00",
        ),
    ),
    (
        "offset fetch response 5",
        offset_fetch.encode_response,
        offset_fetch.decode_response,
        5,
        offset_fetch.OffsetFetchResponse(
            topics=[
                offset_fetch.OffsetFetchResponseTopic(
                    name="t",
                    partitions=[
                        offset_fetch.OffsetFetchResponsePartition(
                            partition_index=0, committed_offset=-1, committed_leader_epoch=-1
                        )
                    ],
                )
            ],
            error_code=16,
        ),
        hexadecimal("00000000", "00000001 0001 74", "00000001 00000000 ffffffffffffffff ffffffff 0000 0000", "0010"),
    ),
    (
        "describe groups response 6 of an unknown group",
        describe_groups.encode_response,
        describe_groups.decode_response,
        6,
        describe_groups.DescribeGroupsResponse(
            groups=[describe_groups.DescribedGroup(error_code=69, error_message="no", group_id="g", group_state="Dead")]
        ),
        hexadecimal("00000000", "02 0045 03 6e6f 02 67 05 44656164 01 01 01 80000000 00", "00"),
    ),
    (
        "offset delete response 0 has its error before the throttle time",
        offset_delete.encode_response,
        offset_delete.decode_response,
        0,
        offset_delete.OffsetDeleteResponse(
            throttle_time_ms=1,
            topics=[
                offset_delete.OffsetDeleteResponseTopic(
                    name="t",
                    partitions=[offset_delete.OffsetDeleteResponsePartition(partition_index=2, error_code=86)],
                )
            ],
        ),
        hexadecimal("0000 00000001", "00000001 0001 74 00000001 00000002 0056"),
    ),
    (
        "create partitions request 2 with and without an assignment",
        create_partitions.encode_request,
        create_partitions.decode_request,
        2,
        create_partitions.CreatePartitionsRequest(
            topics=[
                create_partitions.CreatePartitionsTopic(name="a", count=3, assignments=None),
                create_partitions.CreatePartitionsTopic(
                    name="b",
                    count=2,
                    assignments=[create_partitions.CreatePartitionsAssignment(broker_ids=[1, 2])],
                ),
            ],
            timeout_ms=100,
            validate_only=True,
        ),
        hexadecimal("03", "02 61 00000003 00 00", "02 62 00000002 02 03 00000001 00000002 00 00", "00000064 01 00"),
    ),
    (
        "elect leaders request 0 knows the preferred election only",
        elect_leaders.encode_request,
        elect_leaders.decode_request,
        0,
        elect_leaders.ElectLeadersRequest(topic_partitions=None, timeout_ms=1),
        hexadecimal("ffffffff 00000001"),
    ),
]


@pytest.mark.parametrize(("encode", "decode", "version", "message", "expected"), [row[1:] for row in VECTORS])
def test_a_message_is_these_bytes_and_these_bytes_are_the_message(encode, decode, version, message, expected):
    assert b"".join(encode(message, version)) == expected
    assert decode(memoryview(expected), version) == message

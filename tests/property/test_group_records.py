"""Records of `__consumer_offsets` against bytes composed by hand, against kafka-python's codec, and against garbage."""

import contextlib
import tracemalloc
import warnings

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafkalite_core.groups.records import (
    GroupKey,
    GroupValue,
    MemberValue,
    OffsetKey,
    OffsetValue,
    decode_group,
    decode_key,
    decode_offset,
    encode_group,
    encode_key,
    encode_offset,
)
from kafkalite_core.protocol.errors import ProtocolError

with warnings.catch_warnings():
    # kafka-python reads its resources through a function that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.protocol.data_container import DataContainer
    from kafka.protocol.schemas import StructField

usual = settings(max_examples=60, deadline=None)

# --- bytes composed by hand from the description of the format --------------------------------------------------------


def hexadecimal(*parts):
    return bytes.fromhex(" ".join(parts))


OFFSET_KEY = hexadecimal("0001", "0001 67", "0002 7430", "00000003")
GROUP_KEY = hexadecimal("0002", "0001 67")
OFFSET = OffsetValue(offset=258, leader_epoch=5, metadata="m", commit_timestamp_ms=4660)
OFFSET_3 = hexadecimal("0003", "0000000000000102", "00000005", "0001 6d", "0000000000001234")
EXPIRING = OffsetValue(offset=258, leader_epoch=-1, metadata="m", commit_timestamp_ms=4660, expire_timestamp_ms=22136)
OFFSET_1 = hexadecimal("0001", "0000000000000102", "0001 6d", "0000000000001234", "0000000000005678")
MEMBER = MemberValue("c-1", "i", "c", "/h", 60000, 30000, b"sub", b"as")
GROUP = GroupValue("consumer", 7, "range", "c-1", 4660, (MEMBER,))
GROUP_3 = hexadecimal(
    "0003",
    "0008 636f6e73756d6572",
    "00000007",
    "0005 72616e6765",
    "0003 632d31",
    "0000000000001234",
    "00000001",
    "0003 632d31  0001 69  0001 63  0002 2f68  0000ea60 00007530  00000003 737562  00000002 6173",
)
EMPTY_GROUP = GroupValue("consumer", 8, None, None, 4660, ())
EMPTY_GROUP_3 = hexadecimal("0003", "0008 636f6e73756d6572", "00000008", "ffff", "ffff", "0000000000001234", "00000000")


@pytest.mark.parametrize(
    ("encode", "decode", "value", "expected"),
    [
        (encode_key, decode_key, OffsetKey("g", "t0", 3), OFFSET_KEY),
        (encode_key, decode_key, GroupKey("g"), GROUP_KEY),
        (encode_offset, decode_offset, OFFSET, OFFSET_3),
        (encode_offset, decode_offset, EXPIRING, OFFSET_1),
        (encode_group, decode_group, GROUP, GROUP_3),
        (encode_group, decode_group, EMPTY_GROUP, EMPTY_GROUP_3),
    ],
    ids=["offset key", "group key", "offset", "offset with an expiry", "group", "group without members"],
)
def test_a_record_is_these_bytes_and_these_bytes_are_the_record(encode, decode, value, expected):
    assert encode(value) == expected
    assert decode(expected) == value
    assert decode(memoryview(bytearray(expected))) == value


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            hexadecimal("0000", "0000000000000102", "0001 6d", "0000000000001234"),
            OffsetValue(258, -1, "m", 4660),
        ),
        (
            hexadecimal("0002", "0000000000000102", "0000", "0000000000001234"),
            OffsetValue(258, -1, "", 4660),
        ),
        (hexadecimal("0004", "0000000000000102", "00000005", "02 6d", "0000000000001234", "00"), OFFSET),
        # A later release may add tagged fields, such as the topic's id as tag 0.
        (
            hexadecimal("0004", "0000000000000102", "00000005", "02 6d", "0000000000001234", "01 00 10", "ab" * 16),
            OFFSET,
        ),
    ],
    ids=["version 0", "version 2", "version 4", "version 4 with a tagged field"],
)
def test_older_and_newer_versions_of_a_committed_offset_are_read(data, expected):
    assert decode_offset(data) == expected


def test_a_group_of_version_0_has_the_session_timeout_for_rebalances_and_no_timestamp():
    member = "0001 6d  0001 63  0002 2f68  00007530  00000001 73  00000000"
    data = hexadecimal("0000", "0000", "00000007", "0001 70", "0001 6d", "00000001", member)
    assert decode_group(data) == GroupValue(
        "", 7, "p", "m", -1, (MemberValue("m", None, "c", "/h", 30000, 30000, b"s", b""),)
    )


def test_a_group_of_version_4_is_flexible_in_every_part():
    member = "02 6d  00  02 63  03 2f68  0000ea60 00007530  02 73  01  01 07 01 ff"
    data = hexadecimal("0004", "01", "00000007", "00", "02 6d", "0000000000001234", "02", member, "00")
    assert decode_group(data) == GroupValue(
        "", 7, None, "m", 4660, (MemberValue("m", None, "c", "/h", 60000, 30000, b"s", b""),)
    )


def test_a_key_of_version_0_is_an_offset_key_too():
    assert decode_key(b"\x00\x00" + OFFSET_KEY[2:]) == OffsetKey("g", "t0", 3)


@pytest.mark.parametrize("version", ["0003", "0005", "7fff", "ffff"])
def test_keys_of_unknown_kinds_are_passed_over(version):
    assert decode_key(hexadecimal(version, "01 02")) is None
    assert decode_key(hexadecimal(version)) is None


@pytest.mark.parametrize("decode", [decode_offset, decode_group])
@pytest.mark.parametrize("version", ["0005", "7fff", "ffff"])
def test_values_of_unknown_versions_are_refused(decode, version):
    with pytest.raises(ProtocolError, match="is not known"):
        decode(hexadecimal(version) + bytes(100))


def test_what_the_format_cannot_carry_is_refused():
    for encode, value in [
        (encode_key, GroupKey("x" * 40000)),
        (encode_key, OffsetKey("g", "t", 2**31)),
        (encode_offset, OffsetValue(2**63, 0, "", 0)),
        (encode_group, GroupValue("consumer", 2**31, None, None, 0, ())),
    ]:
        with pytest.raises(ProtocolError, match="cannot carry"):
            encode(value)


# --- kafka-python's codec, given the layouts as Apache Kafka writes them down -----------------------------------------


def layout(name, flexible, *fields, structs=None):
    def one(field):
        name, type_, versions, *rest = field
        options = rest[0] if rest else {}
        inner = {"fields": [one(child) for child in structs]} if type_.startswith("[]") else {}
        return {"name": name, "type": type_, "versions": versions, "about": ""} | options | inner

    return {
        "name": name,
        "type": "data",
        "validVersions": "0-4",
        "flexibleVersions": flexible,
        "fields": [one(field) for field in fields],
    }


class TheirOffsetKey(DataContainer):
    _struct = StructField(
        layout(
            "OffsetCommitKey",
            "none",
            ("group", "string", "0+"),
            ("topic", "string", "0+"),
            ("partition", "int32", "0+"),
        )
    )


class TheirOffset(DataContainer):
    _struct = StructField(
        layout(
            "OffsetCommitValue",
            "4+",
            ("offset", "int64", "0+"),
            ("leaderEpoch", "int32", "3+", {"default": "-1"}),
            ("metadata", "string", "0+"),
            ("commitTimestamp", "int64", "0+"),
            ("expireTimestamp", "int64", "1", {"default": "-1"}),
        )
    )


class TheirGroup(DataContainer):
    _struct = StructField(
        layout(
            "GroupMetadataValue",
            "4+",
            ("protocolType", "string", "0+"),
            ("generation", "int32", "0+"),
            ("protocol", "string", "0+", {"nullableVersions": "0+"}),
            ("leader", "string", "0+", {"nullableVersions": "0+"}),
            ("currentStateTimestamp", "int64", "2+", {"default": "-1"}),
            ("members", "[]MemberMetadata", "0+"),
            structs=[
                ("memberId", "string", "0+"),
                ("groupInstanceId", "string", "3+", {"default": "null", "nullableVersions": "3+"}),
                ("clientId", "string", "0+"),
                ("clientHost", "string", "0+"),
                ("rebalanceTimeout", "int32", "1+", {"default": "-1"}),
                ("sessionTimeout", "int32", "0+"),
                ("subscription", "bytes", "0+"),
                ("assignment", "bytes", "0+"),
            ],
        )
    )


def theirs(kind, version, fields):
    flexible = version == 4
    encoded = kind._struct.encode(fields, version=version, compact=flexible, tagged=flexible)
    return version.to_bytes(2) + encoded


text = st.text(max_size=12) | st.integers(126, 129).map("x".__mul__)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
data = st.binary(max_size=20) | st.integers(126, 129).map(bytes)
timestamps = st.integers(0, 2**63 - 1)
offsets = st.builds(OffsetValue, int64, int32, text, int64)
members = st.builds(MemberValue, text, st.none() | text, text, text, int32, int32, data, data)
group_values = st.builds(
    GroupValue, text, int32, st.none() | text, st.none() | text, int64, st.lists(members, max_size=3).map(tuple)
)


@usual
@given(text, text, int32)
def test_keys_agree_with_another_codec(group, topic, partition):
    fields = {"group": group, "topic": topic, "partition": partition}
    assert encode_key(OffsetKey(group, topic, partition)) == theirs(TheirOffsetKey, 1, fields)
    assert decode_key(theirs(TheirOffsetKey, 0, fields)) == OffsetKey(group, topic, partition)
    assert decode_key(encode_key(GroupKey(group))) == GroupKey(group)


@usual
@given(offsets, st.integers(0, 4), timestamps)
def test_committed_offsets_agree_with_another_codec(value, version, expiry):
    fields = {
        "offset": value.offset,
        "leader_epoch": value.leader_epoch,
        "metadata": value.metadata,
        "commit_timestamp": value.commit_timestamp_ms,
        "expire_timestamp": expiry,
    }
    epoch = value.leader_epoch if version >= 3 else -1
    found = decode_offset(theirs(TheirOffset, version, fields))
    assert found == OffsetValue(
        value.offset, epoch, value.metadata, value.commit_timestamp_ms, expiry if version == 1 else -1
    )
    assert encode_offset(value) == theirs(TheirOffset, 3, fields)
    assert decode_offset(encode_offset(value)) == value
    expiring = OffsetValue(value.offset, value.leader_epoch, value.metadata, value.commit_timestamp_ms, expiry)
    assert encode_offset(expiring) == theirs(TheirOffset, 1, fields)


@usual
@given(group_values, st.integers(0, 4))
@example(GROUP, 0)
@example(GROUP, 4)
def test_groups_agree_with_another_codec(value, version):
    fields = {
        "protocol_type": value.protocol_type,
        "generation": value.generation,
        "protocol": value.protocol,
        "leader": value.leader,
        "current_state_timestamp": value.current_state_timestamp_ms,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "rebalance_timeout": member.rebalance_timeout_ms,
                "session_timeout": member.session_timeout_ms,
                "subscription": member.subscription,
                "assignment": member.assignment,
            }
            for member in value.members
        ],
    }
    found = decode_group(theirs(TheirGroup, version, fields))
    assert found.current_state_timestamp_ms == (value.current_state_timestamp_ms if version >= 2 else -1)
    assert (found.protocol_type, found.generation, found.protocol, found.leader) == (
        value.protocol_type,
        value.generation,
        value.protocol,
        value.leader,
    )
    assert found.members == tuple(
        MemberValue(
            member.member_id,
            member.group_instance_id if version >= 3 else None,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms if version >= 1 else member.session_timeout_ms,
            member.session_timeout_ms,
            member.subscription,
            member.assignment,
        )
        for member in value.members
    )
    assert encode_group(value) == theirs(TheirGroup, 3, fields)
    assert decode_group(encode_group(value)) == value


# --- garbage ----------------------------------------------------------------------------------------------------------


@usual
@given(st.sampled_from([(decode_key, OFFSET_KEY), (decode_offset, OFFSET_3), (decode_group, GROUP_3)]))
def test_no_prefix_and_no_extension_of_a_record_is_a_record(case):
    decode, encoded = case
    for size in range(len(encoded)):
        with pytest.raises(ProtocolError):
            decode(encoded[:size])
    with pytest.raises(ProtocolError, match="1 bytes too many"):
        decode(encoded + b"\x00")


@settings(usual, max_examples=300)
@given(st.sampled_from([decode_key, decode_offset, decode_group]), st.integers(0, 5), st.binary(max_size=120))
def test_garbage_decodes_or_is_refused(decode, version, garbage):
    with contextlib.suppress(ProtocolError):
        decode(version.to_bytes(2) + garbage)


@settings(usual, max_examples=200)
@given(group_values, st.data())
def test_a_damaged_group_decodes_or_is_refused(value, draw):
    encoded = bytearray(encode_group(value))
    for _ in range(draw.draw(st.integers(1, 4))):
        encoded[draw.draw(st.integers(1, len(encoded) - 1))] = draw.draw(st.sampled_from([0, 1, 127, 128, 255]))
    with contextlib.suppress(ProtocolError):
        decode_group(bytes(encoded))


@pytest.mark.parametrize(
    "data",
    [
        hexadecimal("0003", "0000", "00000000", "ffff", "ffff", "0000000000000000", "7fffffff"),
        hexadecimal("0004", "01", "00000000", "00", "00", "0000000000000000", "ffffffff0f"),
    ],
    ids=["version 3", "version 4"],
)
def test_a_count_of_members_that_cannot_be_allocates_nothing(data):
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="elements where 0 bytes are left"):
            decode_group(data)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()

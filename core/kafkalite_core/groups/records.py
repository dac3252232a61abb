"""What stands in `__consumer_offsets`: keys and values in Apache Kafka's own format.

A record is a committed offset of a group for one partition, or the metadata of a group; a null value (a tombstone)
removes it. Tools that read the topic (the console consumer's formatter, monitors of lag, MirrorMaker) know this format.
Keys and values begin with an int16: the kind of key, and the version of the value's layout. Values of version 3 are
written; versions 0 to 4 are read, 4 being flexible (KIP-915: later releases add tagged fields only). Every decoder
raises `ProtocolError` for bytes that it cannot read, and for bytes left over.
"""

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError  # noqa: N812 - a class with a lower-case name
from typing import TypeAlias, TypeVar

import msgspec

from kafkalite_core.protocol.errors import ProtocolError
from kafkalite_core.protocol.primitives import (
    Buffer,
    check_count,
    read_bytes,
    read_compact_bytes,
    read_compact_count,
    read_compact_nullable_string,
    read_compact_string,
    read_count,
    read_nullable_string,
    read_string,
    skip_tags,
    write_bytes,
    write_nullable_string,
    write_string,
)

_OFFSET_KEYS = (0, 1)
_GROUP_KEY = 2
_OFFSET_KEY_WRITTEN = 1

# The first version with each field, and the last version of the one field that was taken away.
_VALUE_VERSION_MAX = 4
_FLEXIBLE = 4
_WITH_EPOCH = 3
_WITH_EXPIRY = 1
_WITH_REBALANCE_TIMEOUT = 1
_WITH_STATE_TIMESTAMP = 2
_WITH_INSTANCE_ID = 3
_VALUE_VERSION_WRITTEN = 3

# A member of version 4 in which everything is empty; every other version needs more.
_MEMBER_SIZE_MIN = 15

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OffsetKey:
    """The key of a committed offset."""

    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class GroupKey:
    """The key of a group's metadata."""

    group: str


Key: TypeAlias = OffsetKey | GroupKey


class OffsetValue(msgspec.Struct, frozen=True, gc=False):
    """A committed offset. A coordinator keeps up to millions of them: the garbage collector need not look at them.

    Attributes:
        offset: The next offset that the group is going to read.
        leader_epoch: Of the last record that it read; -1 when the client did not say.
        metadata: The client's own text.
        commit_timestamp_ms: Wall clock of the commit.
        expire_timestamp_ms: Wall clock at which the offset expires, where the client asked for a retention of its own
            (OffsetCommit 2 to 4); -1 where the group's retention counts.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1


@dataclass(frozen=True, slots=True)
class MemberValue:
    """A member of a group, as of its last rebalance.

    Attributes:
        member_id: From the coordinator.
        group_instance_id: The member's name if it is a static one (KIP-345).
        client_id: From the header of its JoinGroup.
        client_host: Its address, as tools show it.
        rebalance_timeout_ms: How long it may take to rejoin.
        session_timeout_ms: How long it may be silent.
        subscription: Its metadata for the chosen protocol.
        assignment: What the leader gave it.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupValue:
    """The metadata of a group.

    Attributes:
        protocol_type: As in "consumer"; empty for a group that only commits offsets.
        generation: Of the last finished rebalance.
        protocol: The chosen assignor, or None without members.
        leader: The leader's member id, or None without members.
        current_state_timestamp_ms: When the group came into its state; -1 when that is not known.
        members: None of them when the group is empty.
    """

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp_ms: int
    members: tuple[MemberValue, ...]


def encode_key(key: Key) -> bytes:
    """The bytes of a key: an offset's in version 1, a group's in version 2."""
    out = bytearray()
    try:
        if isinstance(key, OffsetKey):
            out += _INT16.pack(_OFFSET_KEY_WRITTEN)
            write_string(out, key.group)
            write_string(out, key.topic)
            out += _INT32.pack(key.partition)
        else:
            out += _INT16.pack(_GROUP_KEY)
            write_string(out, key.group)
    except StructError as error:
        raise ProtocolError(f"a key of the group coordinator cannot carry a value: {error}") from error
    return bytes(out)


def decode_key(data: Buffer) -> Key | None:
    """The key, or None for a kind that this release does not know: such a record is passed over, as Kafka does."""
    return _decode("a key of the group coordinator", data, _read_key)


def encode_offset(value: OffsetValue) -> bytes:
    """The bytes of a committed offset: version 3, or version 1 with an expiry, which alone carries one.

    Version 1 has no leader epoch, in KafkaLite as in Apache Kafka.
    """
    out = bytearray()
    expires = value.expire_timestamp_ms >= 0
    try:
        out += _INT16.pack(_WITH_EXPIRY if expires else _VALUE_VERSION_WRITTEN)
        out += _INT64.pack(value.offset)
        if not expires:
            out += _INT32.pack(value.leader_epoch)
        write_string(out, value.metadata)
        out += _INT64.pack(value.commit_timestamp_ms)
        if expires:
            out += _INT64.pack(value.expire_timestamp_ms)
    except StructError as error:
        raise ProtocolError(f"a committed offset cannot carry a value: {error}") from error
    return bytes(out)


def decode_offset(data: Buffer) -> OffsetValue:
    """A committed offset of any known version."""
    return _decode("a committed offset", data, _read_offset)


def encode_group(value: GroupValue) -> bytes:
    """The bytes of a group's metadata, version 3."""
    out = bytearray(_INT16.pack(_VALUE_VERSION_WRITTEN))
    try:
        write_string(out, value.protocol_type)
        out += _INT32.pack(value.generation)
        write_nullable_string(out, value.protocol)
        write_nullable_string(out, value.leader)
        out += _INT64.pack(value.current_state_timestamp_ms)
        out += _INT32.pack(len(value.members))
        for member in value.members:
            write_string(out, member.member_id)
            write_nullable_string(out, member.group_instance_id)
            write_string(out, member.client_id)
            write_string(out, member.client_host)
            out += _INT32.pack(member.rebalance_timeout_ms)
            out += _INT32.pack(member.session_timeout_ms)
            write_bytes(out, member.subscription)
            write_bytes(out, member.assignment)
    except StructError as error:
        raise ProtocolError(f"a group's metadata cannot carry a value: {error}") from error
    return bytes(out)


def decode_group(data: Buffer) -> GroupValue:
    """A group's metadata of any known version. Version 0 has no rebalance timeout: there it is the session timeout."""
    return _decode("a group's metadata", data, _read_group)


def _decode(name: str, data: Buffer, read: Callable[[memoryview, int], tuple[T, int]]) -> T:
    view = memoryview(data)
    try:
        (version,) = _INT16.unpack_from(view)
        found, position = read(view, version)
    except (StructError, IndexError, UnicodeDecodeError) as error:
        raise ProtocolError(f"{name} is malformed: {error}") from error
    if position != len(view):
        raise ProtocolError(f"{name} of version {version} has {len(view) - position} bytes too many")
    return found


def _check_version(version: int) -> bool:
    """Whether a value of this version is flexible; raise `ProtocolError` if the version is not known."""
    if not 0 <= version <= _VALUE_VERSION_MAX:
        raise ProtocolError(f"version {version} of a value of the group coordinator is not known")
    return version >= _FLEXIBLE


def _read_key(view: memoryview, version: int) -> tuple[Key | None, int]:
    if version in _OFFSET_KEYS:
        group, position = read_string(view, 2)
        topic, position = read_string(view, position)
        (partition,) = _INT32.unpack_from(view, position)
        return OffsetKey(group, topic, partition), position + 4
    if version == _GROUP_KEY:
        group, position = read_string(view, 2)
        return GroupKey(group), position
    return None, len(view)


def _read_offset(view: memoryview, version: int) -> tuple[OffsetValue, int]:
    flexible = _check_version(version)
    (offset,) = _INT64.unpack_from(view, 2)
    position = 10
    leader_epoch = expire_timestamp_ms = -1
    if version >= _WITH_EPOCH:
        (leader_epoch,) = _INT32.unpack_from(view, position)
        position += 4
    metadata, position = read_compact_string(view, position) if flexible else read_string(view, position)
    (commit_timestamp_ms,) = _INT64.unpack_from(view, position)
    position += 8
    if version == _WITH_EXPIRY:
        (expire_timestamp_ms,) = _INT64.unpack_from(view, position)
        position += 8
    if flexible:
        position = skip_tags(view, position + 1, view[position])
    return OffsetValue(offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms), position


def _read_group(view: memoryview, version: int) -> tuple[GroupValue, int]:
    flexible = _check_version(version)
    text = read_compact_string if flexible else read_string
    nullable_text = read_compact_nullable_string if flexible else read_nullable_string
    protocol_type, position = text(view, 2)
    (generation,) = _INT32.unpack_from(view, position)
    protocol, position = nullable_text(view, position + 4)
    leader, position = nullable_text(view, position)
    current_state_timestamp_ms = -1
    if version >= _WITH_STATE_TIMESTAMP:
        (current_state_timestamp_ms,) = _INT64.unpack_from(view, position)
        position += 8
    count, position = (read_compact_count if flexible else read_count)(view, position)
    check_count(count, _MEMBER_SIZE_MIN, 0, len(view) - position)
    members = []
    for _ in range(count):
        member, position = _read_member(view, position, version, flexible=flexible)
        members.append(member)
    if flexible:
        position = skip_tags(view, position + 1, view[position])
    value = GroupValue(protocol_type, generation, protocol, leader, current_state_timestamp_ms, tuple(members))
    return value, position


def _read_member(view: memoryview, position: int, version: int, *, flexible: bool) -> tuple[MemberValue, int]:
    text = read_compact_string if flexible else read_string
    data = read_compact_bytes if flexible else read_bytes
    member_id, position = text(view, position)
    group_instance_id = None
    if version >= _WITH_INSTANCE_ID:
        nullable_text = read_compact_nullable_string if flexible else read_nullable_string
        group_instance_id, position = nullable_text(view, position)
    client_id, position = text(view, position)
    client_host, position = text(view, position)
    rebalance_timeout_ms = None
    if version >= _WITH_REBALANCE_TIMEOUT:
        (rebalance_timeout_ms,) = _INT32.unpack_from(view, position)
        position += 4
    (session_timeout_ms,) = _INT32.unpack_from(view, position)
    subscription, position = data(view, position + 4)
    assignment, position = data(view, position)
    if flexible:
        position = skip_tags(view, position + 1, view[position])
    if rebalance_timeout_ms is None:
        rebalance_timeout_ms = session_timeout_ms
    member = MemberValue(
        member_id,
        group_instance_id,
        client_id,
        client_host,
        rebalance_timeout_ms,
        session_timeout_ms,
        subscription,
        assignment,
    )
    return member, position

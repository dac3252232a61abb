"""What goes into a coordinator and what comes out of it.

A driver (broker, simulator, test) holds one `Coordinator` for each partition of `__consumer_offsets` that it leads. It
calls `Coordinator.step(now_ms, event)` and carries out the effects in order. `now_ms` is monotonic and drives every
timer; the wall clock comes with the events and is used only for the time stamps of records and for the expiry of
offsets. The driver sends `Tick` when `Coordinator.next_deadline_ms()` is reached; no other event lets a timer fire, so
that a heartbeat which already waits in a queue counts.

The life of a coordinator: `RecordsLoaded`* `Restoring`* `Loaded` (`Requested` | `Appended` | `AppendFailed` |
`TopicsDeleted` | `Tick`)* `Resigned`. Requests are answered COORDINATOR_LOAD_IN_PROGRESS before `Loaded` and
NOT_COORDINATOR after `Resigned`.

They are msgspec structs, because one is made for each heartbeat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalite_core.protocol.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
    from kafkalite_core.protocol.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
    from kafkalite_core.protocol.heartbeat import HeartbeatRequest, HeartbeatResponse
    from kafkalite_core.protocol.join_group import JoinGroupRequest, JoinGroupResponse
    from kafkalite_core.protocol.leave_group import LeaveGroupRequest, LeaveGroupResponse
    from kafkalite_core.protocol.list_groups import ListGroupsRequest, ListGroupsResponse
    from kafkalite_core.protocol.offset_commit import OffsetCommitRequest, OffsetCommitResponse
    from kafkalite_core.protocol.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
    from kafkalite_core.protocol.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
    from kafkalite_core.protocol.sync_group import SyncGroupRequest, SyncGroupResponse

    Record: TypeAlias = tuple[bytes, bytes | None]
    """Key and value of one record of `__consumer_offsets`; a None value is a tombstone."""

    GroupRequest: TypeAlias = (
        JoinGroupRequest
        | SyncGroupRequest
        | HeartbeatRequest
        | LeaveGroupRequest
        | OffsetCommitRequest
        | OffsetFetchRequest
        | OffsetDeleteRequest
        | DescribeGroupsRequest
        | ListGroupsRequest
        | DeleteGroupsRequest
    )
    """What a client asks a coordinator. A request for several groups is split by partition first (`routing.split`)."""

    GroupResponse: TypeAlias = (
        JoinGroupResponse
        | SyncGroupResponse
        | HeartbeatResponse
        | LeaveGroupResponse
        | OffsetCommitResponse
        | OffsetFetchResponse
        | OffsetDeleteResponse
        | DescribeGroupsResponse
        | ListGroupsResponse
        | DeleteGroupsResponse
    )
    """The answer of the same name."""


# ---------------------------------------------------------------------------------------------------- events


class Requested(Struct, frozen=True, kw_only=True):
    """A request of a client.

    Attributes:
        token: The driver's name for the request (hashable); comes back in exactly one `Answered`, in this step or a
            later one.
        api_version: The version of the request; some rules depend on it (MEMBER_ID_REQUIRED from JoinGroup 4 on).
        request: The decoded message.
        client_id: From the request's header; "" for null.
        client_host: As Kafka's tools show it: "/127.0.0.1".
        wall_ms: Wall clock.
        fresh_member_id: A random text of the driver's (a UUID); only JoinGroup needs it. The coordinator puts the
            client id, or the group instance id, and a hyphen in front of it.
    """

    token: object
    api_version: int
    request: GroupRequest
    client_id: str = ""
    client_host: str = ""
    wall_ms: int = 0
    fresh_member_id: str = ""


class RecordsLoaded(Struct, frozen=True, kw_only=True):
    """Records of the partition in the order of the log, from its start to its end (not only to the high watermark)."""

    records: Sequence[Record]


class Restoring(Struct, frozen=True, kw_only=True):
    """No more records come: make that many of the groups that they tell of.

    `Loaded` makes those that are left, all in one step; a driver that must not stand still for so long sends this one
    until `Coordinator.unrestored` is False.
    """

    groups: int


class Loaded(Struct, frozen=True, kw_only=True):
    """The end of the log is reached: every session starts anew, and requests are served from here on."""

    wall_ms: int


class Appended(Struct, frozen=True, kw_only=True):
    """The high watermark passed the records of an `Append`."""

    append_id: int


class AppendFailed(Struct, frozen=True, kw_only=True):
    """An `Append` was not committed in time.

    Attributes:
        append_id: The `Append`.
        error_code: What the partition answered. After REQUEST_TIMED_OUT and NOT_ENOUGH_REPLICAS_AFTER_APPEND the
            records are in the log and may still be committed; the coordinator takes their offsets as committed once a
            later `Append` is. After every other code the records must not be in the log.
    """

    append_id: int
    error_code: int


class TopicsDeleted(Struct, frozen=True, kw_only=True):
    """Topics that do not exist any longer: the offsets that groups committed for them go as well."""

    topics: frozenset[str]
    wall_ms: int


class Tick(Struct, frozen=True, kw_only=True):
    """Time passed: timers that are due fire."""

    wall_ms: int


class Resigned(Struct, frozen=True):
    """This broker does not lead the partition any longer: all that wait are answered NOT_COORDINATOR."""


# ---------------------------------------------------------------------------------------------------- effects


class Answered(Struct, frozen=True, kw_only=True):
    """The response to a request.

    Attributes:
        token: The request's.
        response: Of the request's API; the driver encodes it in the request's version. `throttle_time_ms` is 0.
    """

    token: object
    response: GroupResponse


class Append(Struct, frozen=True, kw_only=True):
    """Records to append to the partition in one batch with acks=all, in the order in which the effects come out.

    Attributes:
        append_id: Comes back in exactly one `Appended` or `AppendFailed`; none is due after `Resigned`.
        records: At least one. The driver stamps them with the wall clock.
    """

    append_id: int
    records: list[Record]


Event: TypeAlias = (
    Requested | RecordsLoaded | Restoring | Loaded | Appended | AppendFailed | TopicsDeleted | Tick | Resigned
)
Effect: TypeAlias = Answered | Append

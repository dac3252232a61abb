"""The answers to requests that cannot be served: one error for all of it, in the place that each API has for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite_core.protocol.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from kafkalite_core.protocol.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafkalite_core.protocol.join_group import JoinGroupRequest, JoinGroupResponse
from kafkalite_core.protocol.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kafkalite_core.protocol.list_groups import ListGroupsRequest, ListGroupsResponse
from kafkalite_core.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kafkalite_core.protocol.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from kafkalite_core.protocol.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from kafkalite_core.protocol.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite_core.groups.events import GroupRequest, GroupResponse

PROTOCOL_NAME_NULLABLE = 7
"""The first version of JoinGroup whose answer may have no protocol name."""
OFFSET_FETCH_TOP_ERROR = 2
"""The first version of OffsetFetch with an error code for the group."""
OFFSET_FETCH_GROUPS = 8
"""The first version of OffsetFetch for several groups."""
NO_OFFSET = -1

_UNAVAILABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
_MOVED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR})
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE})


def append_error(error_code: int) -> int:
    """What a client is told when the records of its request could not be committed."""
    if error_code in _UNAVAILABLE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error_code in _MOVED:
        return ErrorCode.NOT_COORDINATOR
    return ErrorCode.UNKNOWN_SERVER_ERROR if error_code in _TOO_LARGE else error_code


def commit_error(error_code: int) -> int:
    """The same for OffsetCommit, which has a code for records that are too large."""
    return ErrorCode.INVALID_COMMIT_OFFSET_SIZE if error_code in _TOO_LARGE else append_error(error_code)


def loading_error(request: GroupRequest) -> int:
    """What a request is told while its group is being loaded.

    Clients do not know COORDINATOR_LOAD_IN_PROGRESS as an answer to Heartbeat (a member that asks is simply taken as
    alive) and SyncGroup (the rebalance is lost; the member joins again), as in Apache Kafka.
    """
    if isinstance(request, HeartbeatRequest):
        return ErrorCode.NONE
    if isinstance(request, SyncGroupRequest):
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def refusal(request: GroupRequest, api_version: int, error_code: int) -> GroupResponse:
    """The response to any request of a group with the same error for all that it asked."""
    response: GroupResponse = _REFUSALS[type(request)](request, api_version, int(error_code))
    return response


def join_refusal(member_id: str, api_version: int, error_code: int) -> JoinGroupResponse:
    """JoinGroup: the error with a member id."""
    return JoinGroupResponse(
        error_code=int(error_code),
        generation_id=-1,
        protocol_name=None if api_version >= PROTOCOL_NAME_NULLABLE else "",
        member_id=member_id,
    )


def commit_refusal(request: OffsetCommitRequest, error_code: int) -> OffsetCommitResponse:
    """OffsetCommit: the error for each partition."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=int(error_code))
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _refuse_fetch(request: OffsetFetchRequest, api_version: int, error_code: int) -> OffsetFetchResponse:
    if api_version >= OFFSET_FETCH_GROUPS:
        groups = [OffsetFetchResponseGroup(group_id=each.group_id, error_code=error_code) for each in request.groups]
        return OffsetFetchResponse(groups=groups)
    if api_version >= OFFSET_FETCH_TOP_ERROR:
        return OffsetFetchResponse(error_code=error_code)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=error_code
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or []
        ]
    )


def _refuse_describe(request: DescribeGroupsRequest, _version: int, error_code: int) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=[DescribedGroup(group_id=group_id, error_code=error_code) for group_id in request.groups]
    )


def _refuse_delete(request: DeleteGroupsRequest, _version: int, error_code: int) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id=name, error_code=error_code) for name in request.groups_names]
    )


_REFUSALS: dict[type, Callable[[Any, int, int], Any]] = {
    JoinGroupRequest: lambda request, version, code: join_refusal(request.member_id, version, code),
    SyncGroupRequest: lambda _request, _version, code: SyncGroupResponse(error_code=code),
    HeartbeatRequest: lambda _request, _version, code: HeartbeatResponse(error_code=code),
    LeaveGroupRequest: lambda _request, _version, code: LeaveGroupResponse(error_code=code),
    OffsetCommitRequest: lambda request, _version, code: commit_refusal(request, code),
    OffsetFetchRequest: _refuse_fetch,
    OffsetDeleteRequest: lambda _request, _version, code: OffsetDeleteResponse(error_code=code),
    DescribeGroupsRequest: _refuse_describe,
    ListGroupsRequest: lambda _request, _version, code: ListGroupsResponse(error_code=code),
    DeleteGroupsRequest: _refuse_delete,
}

"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.groups.group import GroupState
from kafkalite_core.groups.joining import Joining
from kafkalite_core.groups.member import Waiting
from kafkalite_core.groups.rebalancing import synced
from kafkalite_core.groups.refusals import append_error
from kafkalite_core.groups.table import write_group
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.heartbeat import HeartbeatResponse
from kafkalite_core.protocol.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse
from kafkalite_core.protocol.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from kafkalite_core.groups.context import Context
    from kafkalite_core.groups.events import Requested
    from kafkalite_core.groups.group import Group
    from kafkalite_core.groups.journal import Journal
    from kafkalite_core.groups.rebalancing import Rebalancing
    from kafkalite_core.groups.table import GroupTable
    from kafkalite_core.protocol.heartbeat import HeartbeatRequest
    from kafkalite_core.protocol.join_group import JoinGroupRequest, JoinGroupResponse
    from kafkalite_core.protocol.leave_group import LeaveGroupRequest

LEAVE_BATCH = 3
"""The first version of LeaveGroup for several members."""
LEAVING_MEMBERS_MAX = 10_000


class Membership:
    """What members ask. A method returns the response, or None when it comes later."""

    __slots__ = ("_context", "_groups", "_joining", "_journal", "_rebalancing")

    def __init__(self, context: Context, groups: GroupTable, journal: Journal, rebalancing: Rebalancing) -> None:
        self._context = context
        self._groups = groups
        self._journal = journal
        self._rebalancing = rebalancing
        self._joining = Joining(context, groups, journal, rebalancing)

    def join(self, event: Requested, request: JoinGroupRequest) -> JoinGroupResponse | None:
        """JoinGroup."""
        return self._joining.join(event, request)

    # ---------------------------------------------------------------- SyncGroup

    def sync(self, event: Requested, request: SyncGroupRequest) -> SyncGroupResponse | None:
        """SyncGroup: the leader's assignment is written; everyone's answer waits until it is committed."""
        group = self._groups.get(request.group_id)
        error = ErrorCode.UNKNOWN_MEMBER_ID if group is None else _judge_sync(group, request)
        if error or group is None:
            return SyncGroupResponse(error_code=int(error))
        member = group.members[request.member_id]
        if group.state is GroupState.STABLE:
            self._rebalancing.sync_received(group, member)
            self._rebalancing.start_session(group, member)
            return synced(group, member)
        # A second SyncGroup of the same member takes the place of the first one, whose client gave up on it.
        self._rebalancing.answer_sync(group, member, ErrorCode.REBALANCE_IN_PROGRESS)
        self._context.wait(event.token, request, event.api_version)
        member.awaiting_sync = Waiting(event.token, event.api_version)
        self._rebalancing.sync_received(group, member)
        if group.is_leader(member.member_id) and not group.is_storing:
            self._store_assignment(group, request)
        return None

    def _store_assignment(self, group: Group, request: SyncGroupRequest) -> None:
        given = {each.member_id: bytes(each.assignment) for each in request.assignments}
        assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
        generation = group.generation
        group.is_storing = True

        def done(error_code: int) -> None:
            # A member that came or went meanwhile has begun another rebalance: then this assignment is void.
            if group.state is not GroupState.COMPLETING_REBALANCE or group.generation != generation:
                return
            if error_code:
                self._rebalancing.answer_all_syncs(group, append_error(error_code))
                self._rebalancing.begin(group)
                return
            group.is_storing = False
            group.set_state(GroupState.STABLE, self._context.wall_ms)
            for member in group.members.values():
                member.assignment = assignments[member.member_id]
            self._rebalancing.answer_all_syncs(group, ErrorCode.NONE)
            self._context.statistics.rebalances_completed += 1

        write_group(self._journal, group, assignments, done)

    # ---------------------------------------------------------------- Heartbeat

    def heartbeat(self, _event: Requested, request: HeartbeatRequest) -> HeartbeatResponse:
        """Heartbeat: the member is alive, and learns of a rebalance."""
        group = self._groups.get(request.group_id)
        if group is None:
            return HeartbeatResponse(error_code=int(ErrorCode.UNKNOWN_MEMBER_ID))
        if group.state is GroupState.DEAD:
            return HeartbeatResponse(error_code=int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        error = group.validate_member(request.member_id, request.group_instance_id)
        if not error and request.generation_id != group.generation:
            error = ErrorCode.ILLEGAL_GENERATION
        if not error:
            self._rebalancing.start_session(group, group.members[request.member_id])
            if group.state is GroupState.PREPARING_REBALANCE:
                error = ErrorCode.REBALANCE_IN_PROGRESS
        return HeartbeatResponse(error_code=int(error))

    # ---------------------------------------------------------------- LeaveGroup

    def leave(self, event: Requested, request: LeaveGroupRequest) -> LeaveGroupResponse:
        """LeaveGroup: one member, or several of them, by member id or by group instance id."""
        batch = event.api_version >= LEAVE_BATCH
        leaving = request.members if batch else [MemberIdentity(member_id=request.member_id)]
        if len(leaving) > LEAVING_MEMBERS_MAX:
            return LeaveGroupResponse(error_code=int(ErrorCode.INVALID_REQUEST))
        group = self._groups.get(request.group_id)
        if group is not None and group.state is GroupState.DEAD:
            return LeaveGroupResponse(error_code=int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        if group is None:
            codes = [ErrorCode.UNKNOWN_MEMBER_ID] * len(leaving)
        else:
            before = len(group.members)
            codes = [self._leave(group, each) for each in leaving]
            if len(group.members) < before:
                self._rebalancing.begin_or_complete(group)
            else:
                self._rebalancing.complete_if_joined(group)
                self._groups.drop_if_unused(group)
        if not batch:
            return LeaveGroupResponse(error_code=int(codes[0]))
        return LeaveGroupResponse(
            members=[
                MemberResponse(member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=int(code))
                for each, code in zip(leaving, codes, strict=True)
            ]
        )

    def _leave(self, group: Group, identity: MemberIdentity) -> ErrorCode:
        member_id, instance_id = identity.member_id, identity.group_instance_id
        if not member_id:
            # Administrative removal of a static member.
            member_id = group.static_members.get(instance_id, "") if instance_id is not None else ""
            if not member_id:
                return ErrorCode.UNKNOWN_MEMBER_ID
        elif member_id in group.pending_members:
            self._rebalancing.forget_pending(group, member_id)
            return ErrorCode.NONE
        error = group.validate_member(member_id, instance_id)
        if not error:
            self._rebalancing.drop_member(group, group.members[member_id])
        return error


def _judge_sync(group: Group, request: SyncGroupRequest) -> ErrorCode:
    """The error of a SyncGroup that cannot be served now."""
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = group.validate_member(request.member_id, request.group_instance_id)
    if error:
        return error
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    for asked, actual in ((request.protocol_type, group.protocol_type), (request.protocol_name, group.protocol)):
        if asked is not None and asked != actual:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE

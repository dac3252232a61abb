"""JoinGroup: who may come in, under which id, and whether that means a rebalance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.groups.group import GroupState
from kafkalite_core.groups.member import Member, Waiting, protocols_of, rebalance_timeout_of
from kafkalite_core.groups.metadata_budget import said_bytes
from kafkalite_core.groups.rebalancing import NEW_MEMBER_JOIN_TIMEOUT_MS, joined
from kafkalite_core.groups.refusals import append_error, join_refusal
from kafkalite_core.groups.table import write_group
from kafkalite_core.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from kafkalite_core.groups.context import Context
    from kafkalite_core.groups.events import Requested
    from kafkalite_core.groups.group import Group
    from kafkalite_core.groups.journal import Journal
    from kafkalite_core.groups.member import Protocols
    from kafkalite_core.groups.rebalancing import Rebalancing
    from kafkalite_core.groups.table import GroupTable
    from kafkalite_core.protocol.join_group import JoinGroupRequest, JoinGroupResponse

MEMBER_ID_REQUIRED = 4
"""The first version of JoinGroup in which a member first asks for its id (KIP-394)."""
SKIP_ASSIGNMENT = 9
"""The first version in which a static leader that came back is told to leave the assignment as it is (KIP-814)."""
NAME_BYTES_MAX = 8_192
"""Of a group instance id, protocol name and the like: the log has 32767 bytes for a member id made of two of them."""


class Joining:
    """See the module. A method returns the response, or None when it comes later."""

    __slots__ = ("_context", "_groups", "_journal", "_rebalancing")

    def __init__(self, context: Context, groups: GroupTable, journal: Journal, rebalancing: Rebalancing) -> None:
        self._context = context
        self._groups = groups
        self._journal = journal
        self._rebalancing = rebalancing

    def join(self, event: Requested, request: JoinGroupRequest) -> JoinGroupResponse | None:
        """JoinGroup."""
        error = self._judge(event, request)
        group = self._groups.get(request.group_id)
        member_id = request.member_id
        if not error and group is None:
            if member_id:
                error = ErrorCode.UNKNOWN_MEMBER_ID
            elif self._groups.is_full:
                error = ErrorCode.GROUP_MAX_SIZE_REACHED
        if not error and group is not None and group.state is GroupState.DEAD:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if error:
            return join_refusal(member_id, event.api_version, error)
        if group is not None and not self._has_room(group, member_id):
            self._turn_out(group, member_id)
            return join_refusal("", event.api_version, ErrorCode.GROUP_MAX_SIZE_REACHED)
        protocols = protocols_of(request)
        error = self._room_for(protocols, group, request)
        if error:
            return join_refusal(member_id, event.api_version, error)
        suits = bool(request.protocol_type and protocols)
        if group is not None:
            suits = group.supports(request.protocol_type, protocols)
        if not suits:
            return join_refusal(member_id, event.api_version, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        group = self._groups.obtain(request.group_id)
        if member_id:
            return self._join_known(event, request, group)
        return self._join_unknown(event, request, group)

    def _judge(self, event: Requested, request: JoinGroupRequest) -> ErrorCode:
        config = self._context.config
        if not config.min_session_timeout_ms <= request.session_timeout_ms <= config.max_session_timeout_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        names = [event.client_id, event.client_host, request.group_instance_id or "", request.protocol_type]
        names += [protocol.name for protocol in request.protocols]
        if any(len(name.encode()) > NAME_BYTES_MAX for name in names):
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE

    # ---------------------------------------------------------------- room

    def _has_room(self, group: Group, member_id: str) -> bool:
        """`group.max.size`: in a rebalance the members that have rejoined count, otherwise all."""
        limit = min(self._context.config.max_size, self._context.config.members_max)
        if len(group.members) + len(group.pending_members) >= self._context.config.members_max and not member_id:
            return False
        member = group.members.get(member_id)
        if group.state is GroupState.EMPTY:
            return True
        if group.state is GroupState.PREPARING_REBALANCE:
            return (member is not None and member.awaiting_join is not None) or group.awaiting_join_count < limit
        return member is not None or len(group.members) < limit

    def _room_for(self, protocols: Protocols, group: Group | None, request: JoinGroupRequest) -> ErrorCode:
        """What the members say about themselves is bounded, in a group and over all groups of the broker.

        A group that is too large stays so, and its members are told. That others use up the memory passes: clients
        come again after COORDINATOR_NOT_AVAILABLE.
        """
        config = self._context.config
        more, has = said_bytes(protocols), 0
        if group is not None:
            more -= group.said_before(request.member_id, request.group_instance_id)
            has = group.metadata_bytes
        if more > 0 and has + more > min(config.metadata_bytes_max, config.metadata_bytes_all_max):
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if not self._context.metadata.has_room(more, config.metadata_bytes_all_max):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE

    def _turn_out(self, group: Group, member_id: str) -> None:
        """A member of a group that is too large, which came too late in the rebalance."""
        member = group.members.get(member_id)
        if member is not None:
            self._rebalancing.drop_member(group, member)
        elif member_id in group.pending_members:
            self._rebalancing.forget_pending(group, member_id)
        self._rebalancing.complete_if_joined(group)

    # ---------------------------------------------------------------- without a member id

    def _join_unknown(self, event: Requested, request: JoinGroupRequest, group: Group) -> JoinGroupResponse | None:
        instance_id = request.group_instance_id
        if instance_id is not None:
            member_id = f"{instance_id}-{event.fresh_member_id}"
            known = group.static_members.get(instance_id)
            if known is None:
                self._add(event, request, group, member_id)
            else:
                self._replace_static(event, request, group, group.members[known], member_id)
            return None
        member_id = f"{event.client_id}-{event.fresh_member_id}"
        if event.api_version < MEMBER_ID_REQUIRED:
            self._add(event, request, group, member_id)
            return None
        self._rebalancing.keep_pending(group, member_id, request.session_timeout_ms)
        return join_refusal(member_id, event.api_version, ErrorCode.MEMBER_ID_REQUIRED)

    def _add(self, event: Requested, request: JoinGroupRequest, group: Group, member_id: str) -> None:
        member = Member(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            client_id=event.client_id,
            client_host=event.client_host,
            rebalance_timeout_ms=rebalance_timeout_of(request),
            session_timeout_ms=request.session_timeout_ms,
            protocols=protocols_of(request),
            is_new=True,
        )
        group.new_member_added = True
        group.add(member, request.protocol_type)
        self._wait(event, request, group, member)
        self._rebalancing.start_session(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalancing.begin_or_complete(group)

    def _wait(self, event: Requested, request: JoinGroupRequest, group: Group, member: Member) -> None:
        # A second JoinGroup of the same member takes the place of the first one, whose client gave up on it.
        self._rebalancing.answer_join_error(group, member, ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id)
        self._context.wait(event.token, request, event.api_version)
        group.await_join(member, Waiting(event.token, event.api_version))

    # ---------------------------------------------------------------- with a member id

    def _join_known(self, event: Requested, request: JoinGroupRequest, group: Group) -> JoinGroupResponse | None:
        member_id = request.member_id
        if member_id in group.pending_members:
            if request.group_instance_id is not None:
                return join_refusal(member_id, event.api_version, ErrorCode.UNKNOWN_MEMBER_ID)
            self._rebalancing.forget_pending(group, member_id)
            self._add(event, request, group, member_id)
            return None
        error = group.validate_member(member_id, request.group_instance_id)
        if error:
            return join_refusal(member_id, event.api_version, error)
        member = group.members[member_id]
        unchanged = member.protocols == protocols_of(request)
        is_leader = group.is_leader(member_id)
        if unchanged and group.state is GroupState.COMPLETING_REBALANCE:
            return joined(group, member)  # the answer was lost on its way
        if unchanged and group.state is GroupState.STABLE and not is_leader:
            return joined(group, member)
        # The leader rejoins a stable group when it wants to assign anew.
        group.update(member, protocols_of(request), rebalance_timeout_of(request), request.session_timeout_ms)
        self._wait(event, request, group, member)
        self._rebalancing.begin_or_complete(group)
        return None

    # ---------------------------------------------------------------- static members

    def _replace_static(
        self, event: Requested, request: JoinGroupRequest, group: Group, member: Member, member_id: str
    ) -> None:
        """A static member came back after a restart: it takes its place under a new id (KIP-345)."""
        rebalancing = self._rebalancing
        old = (member.member_id, member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        leader_id = group.leader_id
        # Whoever still waits under the old id is a second instance with the same name.
        rebalancing.answer_join_error(group, member, ErrorCode.FENCED_INSTANCE_ID, member_id=member.member_id)
        rebalancing.answer_sync(group, member, ErrorCode.FENCED_INSTANCE_ID)
        group.rename(member, member_id)
        group.update(member, protocols_of(request), rebalance_timeout_of(request), request.session_timeout_ms)
        member.client_id, member.client_host = event.client_id, event.client_host
        # It is not new, even if it never had an answer: while it waits its silence is no sign of death.
        member.is_new = False
        self._wait(event, request, group, member)
        rebalancing.start_session(group, member)
        if group.state is GroupState.PREPARING_REBALANCE:
            rebalancing.complete_if_joined(group)
            return
        if group.state is GroupState.COMPLETING_REBALANCE or group.select_protocol() != group.protocol:
            # The leader may be about to assign to the old id; or the group needs another protocol now.
            rebalancing.begin(group)
            return
        group.read_subscriptions()
        generation, waiting = group.generation, member.awaiting_join

        def done(error_code: int) -> None:
            if member.awaiting_join is not waiting or group.generation != generation:
                return  # a rebalance answered it
            if group.state is not GroupState.STABLE:
                return  # a rebalance will
            if not error_code:
                self._answer_static(event, group, member, leader_id)
                return
            rebalancing.answer_join_error(group, member, append_error(error_code), member_id="")
            group.rename(member, old[0])
            group.update(member, *old[1:])
            group.read_subscriptions()
            # It may have run out, without effect, while the member waited: then nothing else would notice its death.
            rebalancing.start_session(group, member)

        write_group(self._journal, group, {each.member_id: each.assignment for each in group.members.values()}, done)

    def _answer_static(self, event: Requested, group: Group, member: Member, leader_id: str | None) -> None:
        """No rebalance: the member gets the present generation.

        A leader that came back must not assign: nobody would ask for the result. From version 9 on it is told so;
        before, it is told of its old id as the leader.
        """
        if event.api_version >= SKIP_ASSIGNMENT:
            response = joined(group, member, skip_assignment=group.is_leader(member.member_id))
        else:
            response = joined(group, member, leader_id=leader_id)
        self._rebalancing.answer_join(group, member, response)
        self._rebalancing.start_session(group, member)

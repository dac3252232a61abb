"""Rebalances: who is waited for, for how long, and when a generation begins."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kafkalite_core.groups.group import GroupState
from kafkalite_core.groups.refusals import join_refusal
from kafkalite_core.groups.table import write_group
from kafkalite_core.groups.timers import Timer
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.join_group import JoinGroupResponse, JoinGroupResponseMember
from kafkalite_core.protocol.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from kafkalite_core.groups.context import Context
    from kafkalite_core.groups.group import Group
    from kafkalite_core.groups.journal import Journal
    from kafkalite_core.groups.member import Member
    from kafkalite_core.groups.table import GroupTable

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""How long a new member's JoinGroup may wait: it sends no heartbeats, so nothing else tells that it went away."""

STATIC_WAIT_MIN_MS = 1_000
"""How often at most a group looks whether one of its static members is back, when all of them are away."""


class Rebalancing:
    """The moves of a group between its states."""

    __slots__ = ("_context", "_groups", "_journal")

    def __init__(self, context: Context, groups: GroupTable, journal: Journal) -> None:
        self._context = context
        self._groups = groups
        self._journal = journal
        groups.on_join_timer = self._join_timer_fired
        groups.on_sync_timer = self._sync_timer_fired

    # ---------------------------------------------------------------- sessions

    def start_session(self, group: Group, member: Member, timeout_ms: float | None = None) -> None:
        """The member is alive: its session begins anew."""
        timer = member.session
        if timer.deadline_ms is None:
            timer.action = partial(self._session_expired, group, member)
        self._context.after(timer, member.session_timeout_ms if timeout_ms is None else timeout_ms)

    def keep_pending(self, group: Group, member_id: str, timeout_ms: int) -> None:
        """Remember an id that was given out, for as long as a session."""
        timer = Timer(partial(self._pending_expired, group, member_id))
        group.pending_members[member_id] = timer
        self._context.after(timer, timeout_ms)

    def forget_pending(self, group: Group, member_id: str) -> None:
        """The id is used now, or given back."""
        self._context.timers.discard(group.pending_members.pop(member_id))

    def _session_expired(self, group: Group, member: Member) -> None:
        if group.members.get(member.member_id) is not member:
            return
        if member.is_waiting and not member.is_new:
            return  # it cannot do anything but wait; its session begins anew with the answer
        self.drop_member(group, member)
        self.begin_or_complete(group)

    def _pending_expired(self, group: Group, member_id: str) -> None:
        group.pending_members.pop(member_id, None)
        self.complete_if_joined(group)
        self._groups.drop_if_unused(group)

    def drop_member(self, group: Group, member: Member) -> None:
        """Take a member out of its group; a request of its that waits is answered UNKNOWN_MEMBER_ID."""
        self._context.timers.discard(member.session)
        self.answer_join_error(group, member, ErrorCode.UNKNOWN_MEMBER_ID, member_id="")
        self.answer_sync(group, member, ErrorCode.UNKNOWN_MEMBER_ID)
        group.remove(member)

    # ---------------------------------------------------------------- joining

    def begin_or_complete(self, group: Group) -> None:
        """A member came or went: begin a rebalance, or see whether the one going on has nobody left to wait for."""
        if group.can_rebalance:
            self.begin(group)
        else:
            self.complete_if_joined(group)

    def begin(self, group: Group) -> None:
        """Begin a rebalance: wait for every member's JoinGroup."""
        if group.state is GroupState.COMPLETING_REBALANCE:
            self.answer_all_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS)
        group.is_storing = False
        self._context.timers.cancel(group.sync_timer)
        group.is_initial = group.state is GroupState.EMPTY
        group.set_state(GroupState.PREPARING_REBALANCE, self._context.wall_ms)
        delay_ms = self._context.config.initial_rebalance_delay_ms
        if group.is_initial and delay_ms > 0:
            group.new_member_added = False
            group.initial_delay_ms = delay_ms
            group.initial_remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._context.after(group.join_timer, delay_ms)
        elif group.is_initial or group.all_joined:
            self._complete_join(group)
        else:
            self._context.after(group.join_timer, group.rebalance_timeout_ms)

    def complete_if_joined(self, group: Group) -> None:
        """End the wait of PreparingRebalance if all have joined; the first rebalance's wait lasts to its end."""
        if group.state is GroupState.PREPARING_REBALANCE and group.all_joined and not group.is_initial:
            self._complete_join(group)

    def _join_timer_fired(self, group: Group) -> None:
        if group.state is not GroupState.PREPARING_REBALANCE:
            return
        if group.is_initial and group.new_member_added and group.initial_remaining_ms > 0:
            group.new_member_added = False
            delay_ms = min(self._context.config.initial_rebalance_delay_ms, group.initial_remaining_ms)
            group.initial_remaining_ms = max(group.initial_remaining_ms - group.initial_delay_ms, 0)
            group.initial_delay_ms = delay_ms
            self._context.after(group.join_timer, delay_ms)
        else:
            self._complete_join(group)

    def _complete_join(self, group: Group) -> None:
        """Begin the generation with the members that have joined, and with the static ones."""
        context = self._context
        context.timers.cancel(group.join_timer)
        for member in list(group.members.values()):
            if member.awaiting_join is None and not member.is_static:
                self.drop_member(group, member)
        if group.members and not group.elect_joined_leader():
            # Only static members are left, and none of them is back: their sessions decide. Members may have a
            # rebalance time-out of 0, with which this would go on without a pause.
            context.after(group.join_timer, max(group.rebalance_timeout_ms, STATIC_WAIT_MIN_MS))
            return
        group.begin_generation(context.wall_ms)
        if not group.members:
            # Should this record be lost, the generation before comes back at a failover, and its sessions run out.
            write_group(self._journal, group, {})
            return
        for member in group.members.values():
            member.is_new = False
            member.assignment = b""
            self.answer_join(group, member)
            self.start_session(group, member)
        context.after(group.sync_timer, group.rebalance_timeout_ms)

    # ---------------------------------------------------------------- syncing

    def sync_received(self, group: Group, member: Member) -> None:
        """The member has sent its SyncGroup."""
        group.pending_sync.discard(member.member_id)
        if not group.pending_sync:
            self._context.timers.cancel(group.sync_timer)

    def _sync_timer_fired(self, group: Group) -> None:
        if group.state not in {GroupState.COMPLETING_REBALANCE, GroupState.STABLE} or not group.pending_sync:
            return
        for member_id in list(group.pending_sync):
            self.drop_member(group, group.members[member_id])
        self.begin(group)

    # ---------------------------------------------------------------- answers

    def answer_join(self, group: Group, member: Member, response: JoinGroupResponse | None = None) -> None:
        """Answer a JoinGroup that waits, with the present generation if nothing else is given."""
        waiting = group.await_join(member, None)
        if waiting is not None:
            self._context.answer(waiting.token, joined(group, member) if response is None else response)

    def answer_join_error(self, group: Group, member: Member, error_code: int, *, member_id: str) -> None:
        """Answer a JoinGroup that waits with an error."""
        waiting = member.awaiting_join
        if waiting is not None:
            self.answer_join(group, member, join_refusal(member_id, waiting.api_version, error_code))

    def answer_sync(self, group: Group, member: Member, error_code: int = ErrorCode.NONE) -> None:
        """Answer a SyncGroup that waits."""
        waiting = member.awaiting_sync
        if waiting is None:
            return
        member.awaiting_sync = None
        response = SyncGroupResponse(error_code=int(error_code)) if error_code else synced(group, member)
        self._context.answer(waiting.token, response)

    def answer_all_syncs(self, group: Group, error_code: int) -> None:
        """Answer everyone that waits for an assignment; with an error nobody has one."""
        for member in group.members.values():
            if error_code:
                member.assignment = b""
            if member.awaiting_sync is not None:
                self.answer_sync(group, member, error_code)
                self.start_session(group, member)


def joined(
    group: Group, member: Member, *, skip_assignment: bool = False, leader_id: str | None = None
) -> JoinGroupResponse:
    """The present generation for a member; the leader learns everyone's subscription.

    Args:
        group: In CompletingRebalance or Stable.
        member: One of its members.
        skip_assignment: The leader is not to assign again (KIP-814).
        leader_id: Who leads, if the member is to be told so; the group's leader otherwise.
    """
    leader = group.leader_id if leader_id is None else leader_id
    members: list[JoinGroupResponseMember] = []
    if leader == member.member_id:
        members = [
            JoinGroupResponseMember(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                metadata=each.metadata(group.protocol),
            )
            for each in group.members.values()
        ]
    return JoinGroupResponse(
        error_code=int(ErrorCode.NONE),
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol or "",
        leader=leader or "",
        skip_assignment=skip_assignment,
        member_id=member.member_id,
        members=members,
    )


def synced(group: Group, member: Member) -> SyncGroupResponse:
    """A member's assignment."""
    return SyncGroupResponse(
        error_code=int(ErrorCode.NONE),
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=member.assignment,
    )

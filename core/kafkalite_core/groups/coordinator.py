"""The coordinator of the groups of one partition of `__consumer_offsets`.

It holds no clock, no randomness and no I/O: `events.py` says what goes in and what comes out. A group's state changes
at once when a request comes; whatever a client may rely on is answered only when its record is committed.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Any

from kafkalite_core.groups import events
from kafkalite_core.groups.committing import Committing
from kafkalite_core.groups.context import Context, Statistics
from kafkalite_core.groups.describing import Describing
from kafkalite_core.groups.fetching import Fetching
from kafkalite_core.groups.group import GroupState
from kafkalite_core.groups.journal import Journal
from kafkalite_core.groups.loading import Loading
from kafkalite_core.groups.membership import Membership
from kafkalite_core.groups.metadata_budget import MetadataBudget, MetadataShare
from kafkalite_core.groups.offsets import OffsetStore
from kafkalite_core.groups.rebalancing import Rebalancing
from kafkalite_core.groups.refusals import loading_error, refusal
from kafkalite_core.groups.removing import Removing
from kafkalite_core.groups.table import GroupTable
from kafkalite_core.groups.timers import Timer
from kafkalite_core.protocol.delete_groups import DeleteGroupsRequest
from kafkalite_core.protocol.describe_groups import DescribeGroupsRequest
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.heartbeat import HeartbeatRequest
from kafkalite_core.protocol.join_group import JoinGroupRequest
from kafkalite_core.protocol.leave_group import LeaveGroupRequest
from kafkalite_core.protocol.list_groups import ListGroupsRequest
from kafkalite_core.protocol.offset_commit import OffsetCommitRequest
from kafkalite_core.protocol.offset_delete import OffsetDeleteRequest
from kafkalite_core.protocol.offset_fetch import OffsetFetchRequest
from kafkalite_core.protocol.sync_group import SyncGroupRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite_core.groups.config import GroupConfig
    from kafkalite_core.groups.events import Effect, Event, GroupRequest, Requested
    from kafkalite_core.groups.group import Group
    from kafkalite_core.groups.offsets import Operation

GROUP_ID_BYTES_MAX = 8_192
"""The log has 32767 bytes for it; this leaves room for the answers, too."""

WATCHED_AT_ONCE = 500
"""Groups whose members' sessions begin in one step after loading: a few milliseconds of work."""


class _Phase(Enum):
    LOADING = "loading"
    SERVING = "serving"
    RESIGNED = "resigned"


class Coordinator:
    """See the module.

    Args:
        config: The bounds and times.
        metadata: The budget that it shares with the other coordinators of its broker; by default it has its own.
    """

    __slots__ = (
        "_context",
        "_groups",
        "_handlers",
        "_journal",
        "_loading",
        "_phase",
        "_rebalancing",
        "_removing",
        "_store",
        "_unwatched",
        "_watching",
    )

    def __init__(self, config: GroupConfig, metadata: MetadataBudget | None = None) -> None:
        context = self._context = Context(config, MetadataShare(MetadataBudget() if metadata is None else metadata))
        store = self._store = OffsetStore()
        groups = self._groups = GroupTable(context, store)
        journal = self._journal = Journal(context, store, self._apply)
        rebalancing = self._rebalancing = Rebalancing(context, groups, journal)
        removing = self._removing = Removing(context, groups, journal, store)
        self._loading = Loading(context, store)
        self._phase = _Phase.LOADING
        self._unwatched: deque[Group] = deque()
        self._watching = Timer(self._watch)
        membership = Membership(context, groups, journal, rebalancing)
        describing = Describing(groups)
        self._handlers: dict[type, Callable[[Requested, Any], Any]] = {
            HeartbeatRequest: membership.heartbeat,
            JoinGroupRequest: membership.join,
            SyncGroupRequest: membership.sync,
            LeaveGroupRequest: membership.leave,
            OffsetCommitRequest: Committing(context, groups, journal, rebalancing, store).commit,
            OffsetFetchRequest: Fetching(store).fetch,
            OffsetDeleteRequest: removing.delete_offsets,
            DescribeGroupsRequest: describing.describe,
            ListGroupsRequest: describing.list,
            DeleteGroupsRequest: removing.delete_groups,
        }

    # ---------------------------------------------------------------- for the driver

    @property
    def config(self) -> GroupConfig:
        """The configuration in force; it may be replaced at any time, and counts from the next decision on."""
        return self._context.config

    @config.setter
    def config(self, config: GroupConfig) -> None:
        self._context.config = config

    @property
    def statistics(self) -> Statistics:
        """What was done so far."""
        return self._context.statistics

    def counts(self) -> dict[str, int]:
        """The number of groups by the name of their state; states without groups are left out."""
        return self._groups.counts()

    def offset_count(self) -> int:
        """The number of committed offsets of all groups."""
        return sum(len(self._store.of(group_id)) for group_id in self._store.group_ids())

    @property
    def unrestored(self) -> bool:
        """Whether `Restoring` has something to do, once all records are loaded."""
        return self._phase is _Phase.LOADING and self._loading.unrestored

    def next_deadline_ms(self) -> float | None:
        """When the driver has to send `Tick`, or None."""
        return self._context.timers.next_deadline_ms() if self._phase is _Phase.SERVING else None

    def close(self) -> None:
        """No step is taken any more, be it that the coordinator resigned or that it failed: it takes no room."""
        self._phase = _Phase.RESIGNED
        self._context.metadata.give_back()

    def step(self, now_ms: float, event: Event) -> list[Effect]:
        """Take in one event.

        Args:
            now_ms: Monotonic time; never less than in the step before.
            event: See `events.py`.

        Returns:
            What the driver has to do, in this order.
        """
        context = self._context
        context.now_ms = now_ms
        context.effects = []
        if isinstance(event, events.Requested):
            self._serve(event)
        elif isinstance(event, events.Appended):
            if self._phase is _Phase.SERVING:
                self._journal.resolve(event.append_id, ErrorCode.NONE)
        elif isinstance(event, events.AppendFailed):
            assert event.error_code, "a failure without an error"
            if self._phase is _Phase.SERVING:
                self._journal.resolve(event.append_id, event.error_code)
        elif isinstance(event, events.Tick):
            context.set_wall(event.wall_ms)
            self._tick()
        elif isinstance(event, events.RecordsLoaded):
            assert self._phase is _Phase.LOADING, "records were loaded already"
            self._loading.load(event.records)
        elif isinstance(event, events.Restoring):
            assert self._phase is _Phase.LOADING, "the groups were made already"
            self._loading.restore(self._groups, event.groups)
        elif isinstance(event, events.Loaded):
            context.set_wall(event.wall_ms)
            self._loaded()
        elif isinstance(event, events.TopicsDeleted):
            context.set_wall(event.wall_ms)
            if self._phase is _Phase.SERVING:
                self._removing.topics_deleted(event.topics)
        else:
            self._resign()
        return context.effects

    # ---------------------------------------------------------------- events

    def _serve(self, event: Requested) -> None:
        context = self._context
        context.set_wall(event.wall_ms)
        request = event.request
        error: int = _judge_group_id(request)
        if not error:
            if self._phase is _Phase.SERVING:
                response = self._handlers[type(request)](event, request)
                if response is not None:
                    context.effects.append(events.Answered(token=event.token, response=response))
                return
            error = loading_error(request) if self._phase is _Phase.LOADING else ErrorCode.NOT_COORDINATOR
        response = refusal(request, event.api_version, error)
        context.effects.append(events.Answered(token=event.token, response=response))

    def _tick(self) -> None:
        if self._phase is not _Phase.SERVING:
            return
        timers, now_ms = self._context.timers, self._context.now_ms
        while (timer := timers.pop_due(now_ms)) is not None:
            timer.action()

    def _loaded(self) -> None:
        assert self._phase is _Phase.LOADING, "loaded twice"
        self._phase = _Phase.SERVING
        self._loading.restore(self._groups, None)
        self._unwatched.extend(self._groups)
        self._watch()
        self._removing.start()

    def _watch(self) -> None:
        """Sessions begin anew, those of many groups in several steps. Whoever was heard of before has one already."""
        for _ in range(min(WATCHED_AT_ONCE, len(self._unwatched))):
            group = self._unwatched.popleft()
            for member in group.members.values():
                if member.session.deadline_ms is None:
                    self._rebalancing.start_session(group, member)
            if group.state is GroupState.STABLE and len(group.members) > self.config.max_size:
                self._rebalancing.begin(group)  # the limit was lowered: the members that come last are turned out
        if self._unwatched:
            self._context.after(self._watching, 0)

    def _resign(self) -> None:
        self._phase = _Phase.RESIGNED
        for token, (request, api_version) in list(self._context.waiting.items()):
            self._context.answer(token, refusal(request, api_version, ErrorCode.NOT_COORDINATOR))

    def _apply(self, operation: Operation) -> None:
        """An offset is committed. A group that only commits offsets comes into being with the first one."""
        key, value = operation
        if value is not None:
            self._groups.obtain(key.group)
        self._store.apply(operation)


def _judge_group_id(request: GroupRequest) -> ErrorCode:
    """Members need a group with a name; offsets of the group "" are kept for the sake of old clients."""
    if isinstance(request, HeartbeatRequest | JoinGroupRequest | SyncGroupRequest | LeaveGroupRequest):
        valid = bool(request.group_id)
    else:
        valid = True
    if valid and isinstance(request, JoinGroupRequest | OffsetCommitRequest):
        valid = len(request.group_id.encode()) <= GROUP_ID_BYTES_MAX
    return ErrorCode.NONE if valid else ErrorCode.INVALID_GROUP_ID

"""All that writes tombstones: DeleteGroups, OffsetDelete, the expiry of offsets, and topics that are gone."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from kafkalite_core.groups.group import GroupState
from kafkalite_core.groups.records import OffsetKey
from kafkalite_core.groups.refusals import append_error
from kafkalite_core.groups.table import group_tombstone
from kafkalite_core.groups.timers import Timer
from kafkalite_core.protocol.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.offset_delete import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite_core.groups.context import Context
    from kafkalite_core.groups.events import Requested
    from kafkalite_core.groups.group import Group
    from kafkalite_core.groups.journal import Journal
    from kafkalite_core.groups.offsets import OffsetStore
    from kafkalite_core.groups.records import OffsetValue
    from kafkalite_core.groups.table import GroupTable
    from kafkalite_core.protocol.delete_groups import DeleteGroupsRequest
    from kafkalite_core.protocol.offset_delete import OffsetDeleteRequest

SWEPT_AT_ONCE = 5_000
"""Offsets looked at in one step of the expiry, and a group more: a few milliseconds of work."""

AGAIN_MS = 10_000
"""After so long tombstones that could not be written for a deleted topic are tried again."""


class Removing:
    """See the module."""

    __slots__ = ("_again", "_context", "_groups", "_journal", "_orphans", "_store", "_sweep", "_unswept")

    def __init__(self, context: Context, groups: GroupTable, journal: Journal, store: OffsetStore) -> None:
        self._context = context
        self._groups = groups
        self._journal = journal
        self._store = store
        self._sweep = Timer(self._expire_some)
        self._unswept: deque[Group] = deque()
        self._again = Timer(self._remove_again)
        self._orphans: dict[OffsetKey, OffsetValue] = {}

    # ---------------------------------------------------------------- DeleteGroups

    def delete_groups(self, event: Requested, request: DeleteGroupsRequest) -> DeleteGroupsResponse | None:
        """DeleteGroups: empty groups only. Answered when all tombstones are committed, or were refused."""
        codes: dict[str, int] = {}
        doomed: dict[str, Group] = {}
        for name in request.groups_names:
            group = self._groups.get(name)
            if name in doomed:
                continue
            if group is None or group.state is GroupState.DEAD:
                codes[name] = ErrorCode.GROUP_ID_NOT_FOUND
            elif group.state is not GroupState.EMPTY:
                codes[name] = ErrorCode.NON_EMPTY_GROUP
            elif self._journal.is_full:
                codes[name] = ErrorCode.COORDINATOR_NOT_AVAILABLE
            else:
                doomed[name] = group
        if not doomed:
            return _deleted(request, codes)
        self._context.wait(event.token, request, event.api_version)
        # Counted: asking of every group whether it has ended, each time that one does, is quadratic.
        left = len(doomed)

        def done(name: str, error_code: int) -> None:
            nonlocal left
            codes[name] = append_error(error_code)
            left -= 1
            if not left:
                self._context.answer(event.token, _deleted(request, codes))

        for name, group in doomed.items():
            self._delete(group, partial(done, name))
        return None

    def _delete(self, group: Group, done: Callable[[int], None]) -> None:
        """Write a group's tombstones; it is Dead meanwhile, and back if they are not committed."""
        assert group.state is GroupState.EMPTY, "only an empty group is deleted"
        for timer in group.pending_members.values():
            self._context.timers.discard(timer)
        group.pending_members.clear()
        group.state = GroupState.DEAD
        keys = [OffsetKey(group.group_id, *place) for place in self._store.keys_of(group.group_id)]

        def ended(error_code: int) -> None:
            if error_code:
                group.state = GroupState.EMPTY
            else:
                self._groups.drop(group)
            done(error_code)

        self._journal.remove(keys, [group_tombstone(group)], ended)

    # ---------------------------------------------------------------- OffsetDelete

    def delete_offsets(self, event: Requested, request: OffsetDeleteRequest) -> OffsetDeleteResponse | None:
        """OffsetDelete: offsets of topics to which the group does not subscribe."""
        group = self._groups.get(request.group_id)
        if group is None or group.state is GroupState.DEAD:
            return OffsetDeleteResponse(error_code=int(ErrorCode.GROUP_ID_NOT_FOUND))
        if group.state is not GroupState.EMPTY and not group.uses_consumer_protocol:
            return OffsetDeleteResponse(error_code=int(ErrorCode.NON_EMPTY_GROUP))
        if self._journal.is_full:
            return OffsetDeleteResponse(error_code=int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        there = set(self._store.keys_of(request.group_id))
        keys: dict[OffsetKey, None] = {}
        response = OffsetDeleteResponse()
        for topic in request.topics:
            subscribed = group.is_subscribed(topic.name)
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
            answers = OffsetDeleteResponseTopic(name=topic.name)
            response.topics.append(answers)
            for partition in topic.partitions:
                index = partition.partition_index
                answers.partitions.append(OffsetDeleteResponsePartition(partition_index=index, error_code=int(code)))
                if not subscribed and (topic.name, index) in there:
                    keys[OffsetKey(request.group_id, topic.name, index)] = None
        if not keys:
            return response
        self._context.wait(event.token, request, event.api_version)

        def done(error_code: int) -> None:
            failed = OffsetDeleteResponse(error_code=append_error(error_code))
            self._context.answer(event.token, failed if error_code else response)

        self._journal.remove(list(keys), [], done)
        return None

    # ---------------------------------------------------------------- topics that are gone

    def topics_deleted(self, topics: frozenset[str]) -> None:
        """Remove the offsets of deleted topics from every group.

        A topic of such a name that is made later has other records. What could not be removed, as on a full disk, which
        is why topics are deleted, is removed later, unless something was committed since.
        """
        for group_id in self._store.group_ids():
            places = self._store.keys_in(group_id, topics)
            if places:
                self._remove_orphans([OffsetKey(group_id, *place) for place in places])

    def _remove_orphans(self, keys: list[OffsetKey]) -> None:
        def done(error_code: int) -> None:
            # Ends come in the order of the log: nothing that was committed after the tombstones is in force yet.
            left = {key: value for key in keys if (value := self._value(key)) is not None} if error_code else {}
            if left:
                self._orphans.update(left)
                self._context.after(self._again, AGAIN_MS)

        self._journal.remove(keys, [], done)

    def _remove_again(self) -> None:
        orphans, self._orphans = self._orphans, {}
        by_group: dict[str, list[OffsetKey]] = {}
        for key, value in orphans.items():
            if self._value(key) is not value:
                continue
            if self._journal.is_full or self._is_awaited(key):
                self._orphans[key] = value
            else:
                by_group.setdefault(key.group, []).append(key)
        for keys in by_group.values():
            self._remove_orphans(keys)
        if self._orphans:
            self._context.after(self._again, AGAIN_MS)

    def _is_awaited(self, key: OffsetKey) -> bool:
        """Somebody's commit is under way. Tombstones in doubt are not waited for: what is behind them settles them, and
        that may be nothing for as long as nobody commits anything.
        """
        under_way = self._store.open_of(key.group).get((key.topic, key.partition), 0)
        return under_way > self._journal.removal_in_doubt(key)

    def _value(self, key: OffsetKey) -> OffsetValue | None:
        return self._store.of(key.group).get((key.topic, key.partition))

    # ---------------------------------------------------------------- expiry

    def start(self) -> None:
        """Look for expired offsets now and then."""
        self._context.after(self._sweep, self._context.config.retention_check_interval_ms)

    def _expire_some(self) -> None:
        """Look at some groups, and go on with the others in the next step; after the last one there is a pause."""
        if not self._unswept:
            self._unswept.extend(self._groups)
        offsets = 0
        while self._unswept and offsets < SWEPT_AT_ONCE:
            if self._journal.is_full:
                self._unswept.clear()
                break
            group = self._unswept.popleft()
            if self._groups.get(group.group_id) is group:
                offsets += 1 + len(self._store.of(group.group_id))
                self._expire(group)
        if self._unswept:
            self._context.after(self._sweep, 0)
        else:
            self.start()

    def _expire(self, group: Group) -> None:
        """Remove a group's expired offsets; and the group, if it is empty and has no others."""
        offsets, under_way = self._store.of(group.group_id), self._store.open_of(group.group_id)
        expired = [
            place
            for place, value in offsets.items()
            if place not in under_way and not group.is_subscribed(place[0]) and self._is_expired(group, value)
        ]
        abandoned = group.state is GroupState.EMPTY and not group.pending_members
        count = len(expired)

        def done(error_code: int) -> None:
            if not error_code:
                self._context.statistics.offsets_expired += count

        if abandoned and not under_way and count == len(offsets):
            if count or group.is_persisted:
                self._delete(group, done)
            else:
                self._groups.drop(group)
        elif expired:
            self._journal.remove([OffsetKey(group.group_id, *place) for place in expired], [], done)

    def _is_expired(self, group: Group, value: OffsetValue) -> bool:
        """Kafka's rule since KIP-211: the retention of a group that had members begins when it becomes empty.

        But not before the commit, as it does in Kafka: who assigns partitions by itself commits to such a group, too.
        """
        now_ms = self._context.wall_ms
        if not group.protocol_type:
            base_ms = value.commit_timestamp_ms  # a simple group
        elif group.state is GroupState.EMPTY:
            base_ms = max(group.state_timestamp_ms, value.commit_timestamp_ms)
        elif group.state is GroupState.STABLE and group.topics is not None:
            base_ms = value.commit_timestamp_ms  # of a topic that nobody reads any longer
        else:
            return False
        if value.expire_timestamp_ms >= 0:
            return now_ms >= value.expire_timestamp_ms
        return now_ms - base_ms >= self._context.config.offsets_retention_ms


def _deleted(request: DeleteGroupsRequest, codes: dict[str, int]) -> DeleteGroupsResponse:
    names = dict.fromkeys(request.groups_names)
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id=name, error_code=int(codes[name])) for name in names]
    )

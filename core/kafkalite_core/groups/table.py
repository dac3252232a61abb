"""The groups of a coordinator."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kafkalite_core.groups.group import Group, GroupState
from kafkalite_core.groups.records import GroupKey, encode_group, encode_key
from kafkalite_core.groups.timers import Timer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kafkalite_core.groups.context import Context
    from kafkalite_core.groups.events import Record
    from kafkalite_core.groups.journal import Journal
    from kafkalite_core.groups.offsets import OffsetStore


class GroupTable:
    """Groups by their ids, and the timers of their rebalances.

    Attributes:
        on_join_timer: What happens when a group has waited for JoinGroup long enough.
        on_sync_timer: The same for SyncGroup.
    """

    __slots__ = ("_context", "_groups", "_store", "on_join_timer", "on_sync_timer")

    def __init__(self, context: Context, store: OffsetStore) -> None:
        self._context = context
        self._store = store
        self._groups: dict[str, Group] = {}
        self.on_join_timer: Callable[[Group], None]
        self.on_sync_timer: Callable[[Group], None]

    def __iter__(self) -> Iterator[Group]:
        """The groups; a copy, so that groups may come and go meanwhile."""
        return iter(list(self._groups.values()))

    def get(self, group_id: str) -> Group | None:
        """The group of this id."""
        return self._groups.get(group_id)

    @property
    def is_full(self) -> bool:
        """Whether no group can be added."""
        return len(self._groups) >= self._context.config.groups_max

    def obtain(self, group_id: str) -> Group:
        """The group of this id; a new, empty one if there is none."""
        group = self._groups.get(group_id)
        if group is None:
            group = Group(
                group_id,
                join_timer=Timer(lambda: self.on_join_timer(made)),
                sync_timer=Timer(lambda: self.on_sync_timer(made)),
                metadata=self._context.metadata,
            )
            made = group
            self._groups[group_id] = group
        return group

    def drop(self, group: Group) -> None:
        """Forget a group, which has no members."""
        assert not group.members, "members that nobody counts any more"
        for timer in (group.join_timer, group.sync_timer, *group.pending_members.values()):
            self._context.timers.discard(timer)
        del self._groups[group.group_id]

    def drop_if_unused(self, group: Group) -> None:
        """Forget a group that never came to anything: no members, no offsets, no record in the log."""
        nothing = group.state is GroupState.EMPTY and not group.is_persisted and not group.pending_members
        if nothing and not self._store.count_of(group.group_id):
            self.drop(group)

    def counts(self) -> dict[str, int]:
        """Groups by the name of their state."""
        return dict(Counter(group.state.value for group in self._groups.values()))


def group_tombstone(group: Group) -> Record:
    """The record that removes a group."""
    return encode_key(GroupKey(group.group_id)), None


def write_group(
    journal: Journal, group: Group, assignments: Mapping[str, bytes], done: Callable[[int], None] = lambda _code: None
) -> None:
    """Append the group as it is now, with these assignments by member id."""
    group.is_persisted = True
    record = encode_key(GroupKey(group.group_id)), encode_group(group.to_value(assignments))
    journal.append([record], (), done)

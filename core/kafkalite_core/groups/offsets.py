"""The committed offsets of all groups of a coordinator: exactly what the committed part of the log says."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from kafkalite_core.groups.records import OffsetKey, OffsetValue

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TopicPartition: TypeAlias = tuple[str, int]
Operation: TypeAlias = tuple[OffsetKey, OffsetValue | None]
"""An offset that a record sets, or (None) removes."""


class OffsetStore:
    """Committed offsets, and which of them have records under way whose fate is open."""

    __slots__ = ("_committed", "_open")

    def __init__(self) -> None:
        self._committed: dict[str, dict[TopicPartition, OffsetValue]] = {}
        self._open: dict[str, dict[TopicPartition, int]] = {}

    def of(self, group_id: str) -> Mapping[TopicPartition, OffsetValue]:
        """The committed offsets of a group."""
        return self._committed.get(group_id, {})

    def open_of(self, group_id: str) -> Mapping[TopicPartition, int]:
        """The partitions for which records of this group are under way."""
        return self._open.get(group_id, {})

    def keys_of(self, group_id: str) -> list[TopicPartition]:
        """Every partition for which the log may hold an offset of this group."""
        return list({**self.of(group_id), **self.open_of(group_id)})

    def keys_in(self, group_id: str, topics: frozenset[str]) -> list[TopicPartition]:
        """Those of them that belong to these topics: a group that has none costs little."""
        committed, under_way = self.of(group_id), self.open_of(group_id)
        found = [place for place in committed if place[0] in topics]
        return found + [place for place in under_way if place[0] in topics and place not in committed]

    def count_of(self, group_id: str) -> int:
        """An upper bound of the offsets that the group has once everything under way is committed."""
        return len(self.of(group_id)) + len(self.open_of(group_id))

    def group_ids(self) -> list[str]:
        """Groups that have offsets, or may get some."""
        return list({**self._committed, **self._open})

    def open(self, operations: Iterable[Operation]) -> None:
        """Records for these offsets are on their way into the log."""
        for key, _ in operations:
            group = self._open.setdefault(key.group, {})
            place = (key.topic, key.partition)
            group[place] = group.get(place, 0) + 1

    def close(self, key: OffsetKey) -> None:
        """The fate of one of these records is known."""
        group = self._open[key.group]
        place = (key.topic, key.partition)
        group[place] -= 1
        if not group[place]:
            del group[place]
            if not group:
                del self._open[key.group]

    def apply(self, operation: Operation) -> None:
        """A record was committed."""
        key, value = operation
        place = (key.topic, key.partition)
        if value is not None:
            self._committed.setdefault(key.group, {})[place] = value
            return
        group = self._committed.get(key.group)
        if group is not None:
            group.pop(place, None)
            if not group:
                del self._committed[key.group]

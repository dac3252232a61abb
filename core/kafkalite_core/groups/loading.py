"""What a new coordinator learns from the log."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from kafkalite_core.groups.records import GroupValue, OffsetKey, decode_group, decode_key, decode_offset
from kafkalite_core.model.errors import KafkaLiteError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalite_core.groups.context import Context
    from kafkalite_core.groups.events import Record
    from kafkalite_core.groups.offsets import OffsetStore
    from kafkalite_core.groups.table import GroupTable


class Loading:
    """Takes in the records in the order of the log; the last one for a key counts.

    A record that cannot be read is skipped and counted: it must not take all groups of the partition out of service.
    """

    __slots__ = ("_context", "_groups", "_left", "_store")

    def __init__(self, context: Context, store: OffsetStore) -> None:
        self._context = context
        self._store = store
        self._groups: dict[str, GroupValue] = {}
        self._left: deque[str] | None = None

    @property
    def unrestored(self) -> bool:
        """Whether there are groups to make that were not made yet."""
        return self._left is None or bool(self._left)

    def load(self, records: Sequence[Record]) -> None:
        """Some records."""
        assert self._left is None, "records after the groups were made"
        for key, value in records:
            try:
                self._load(key, value)
            except KafkaLiteError:
                self._context.statistics.records_skipped += 1

    def _load(self, encoded: bytes, value: bytes | None) -> None:
        key = decode_key(encoded)
        if isinstance(key, OffsetKey):
            self._store.apply((key, None if value is None else decode_offset(value)))
        elif key is not None and value is None:
            self._groups.pop(key.group, None)
        elif key is not None and value is not None:
            self._groups[key.group] = decode_group(value)

    def restore(self, groups: GroupTable, count: int | None) -> None:
        """Make up to `count` groups, or all: those of the last generation that was written, simple ones for offsets."""
        if self._left is None:
            self._left = deque({**self._groups, **dict.fromkeys(self._store.group_ids())})
        for _ in range(len(self._left) if count is None else min(count, len(self._left))):
            group_id = self._left.popleft()
            group, value = groups.obtain(group_id), self._groups.pop(group_id, None)
            if value is not None:
                group.restore(value)

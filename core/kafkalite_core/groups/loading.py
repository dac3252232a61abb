"""What a new coordinator learns from the log."""

from __future__ import annotations

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

    __slots__ = ("_context", "_groups", "_store")

    def __init__(self, context: Context, store: OffsetStore) -> None:
        self._context = context
        self._store = store
        self._groups: dict[str, GroupValue] = {}

    def load(self, records: Sequence[Record]) -> None:
        """Some records."""
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

    def finish(self, groups: GroupTable) -> None:
        """Make the groups: those of the last generation that was written, and simple ones for other offsets."""
        for group_id, value in self._groups.items():
            groups.obtain(group_id).restore(value)
        self._groups.clear()
        for group_id in self._store.group_ids():
            groups.obtain(group_id)

"""Records on their way into the log, and what their commitment brings about.

The order of the log is the order of the appends. Their ends are handled in that order as well, whatever order they are
reported in; therefore the offsets in memory are at all times those of a prefix of the log, and can never go back.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalite_core.groups.events import Append
from kafkalite_core.groups.records import OffsetKey, OffsetValue, encode_key, encode_offset
from kafkalite_core.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalite_core.groups.context import Context
    from kafkalite_core.groups.events import Record
    from kafkalite_core.groups.offsets import OffsetStore, Operation

TOMBSTONE_BATCH_BYTES = 262_144
"""Removing many offsets is split into batches of about this size, well below any `max.message.bytes`."""

IN_DOUBT = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})
"""The records are in the log of the leader, and it is open whether they will be committed."""


@dataclass(slots=True)
class _Entry:
    append_id: int
    operations: Sequence[Operation]
    done: Callable[[int], None]
    error_code: int | None = None


class Journal:
    """Every `Append` of a coordinator goes through here."""

    __slots__ = ("_apply", "_by_id", "_context", "_doubtful", "_next_id", "_queue", "_store")

    def __init__(self, context: Context, store: OffsetStore, apply: Callable[[Operation], None]) -> None:
        self._context = context
        self._store = store
        self._apply = apply
        self._next_id = 0
        self._queue: deque[_Entry] = deque()
        self._by_id: dict[int, _Entry] = {}
        # The last record in doubt for each offset: committed once anything behind it is.
        self._doubtful: dict[OffsetKey, OffsetValue | None] = {}

    @property
    def is_full(self) -> bool:
        """Whether so many appends are under way that a new one has to be refused."""
        return len(self._queue) >= self._context.config.appends_max

    def removal_in_doubt(self, key: OffsetKey) -> bool:
        """Whether the last record in doubt for this offset is a tombstone: another one after it does no harm."""
        return key in self._doubtful and self._doubtful[key] is None

    def append(self, records: list[Record], operations: Sequence[Operation], done: Callable[[int], None]) -> None:
        """Write records.

        Args:
            records: For the log, in one batch.
            operations: Those of them that are offsets.
            done: Called once with an error code of the partition (0: committed), after the offsets are in force.
        """
        assert records, "an append without records"
        self._next_id += 1
        entry = _Entry(self._next_id, operations, done)
        self._queue.append(entry)
        self._by_id[entry.append_id] = entry
        self._store.open(operations)
        self._context.effects.append(Append(append_id=entry.append_id, records=records))

    def remove(self, keys: Sequence[OffsetKey], tail: list[Record], done: Callable[[int], None]) -> None:
        """Write tombstones for these offsets and then the records of `tail`, in as many batches as they need.

        Args:
            keys: The offsets to remove.
            tail: Records that must not be committed before the tombstones, all in the last batch.
            done: Called once, when all batches ended; with the first error, or 0.
        """
        batches: list[tuple[list[Record], list[Operation]]] = [([], [])]
        size = 0
        for key in keys:
            encoded = encode_key(key)
            if size + len(encoded) > TOMBSTONE_BATCH_BYTES:
                batches.append(([], []))
                size = 0
            batches[-1][0].append((encoded, None))
            batches[-1][1].append((key, None))
            size += len(encoded)
        batches[-1][0].extend(tail)
        codes: list[int] = []

        def ended(error_code: int) -> None:
            codes.append(error_code)
            if len(codes) == len(batches):
                done(next((code for code in codes if code), 0))

        for records, operations in batches:
            self.append(records, operations, ended)

    def resolve(self, append_id: int, error_code: int) -> None:
        """An append ended: `error_code` 0 if it is committed."""
        entry = self._by_id.pop(append_id, None)
        assert entry is not None, f"append {append_id} is not under way"
        entry.error_code = error_code
        while self._queue and self._queue[0].error_code is not None:
            self._end(self._queue.popleft())

    def _end(self, entry: _Entry) -> None:
        error_code = entry.error_code or 0
        if not error_code:
            for key, value in self._doubtful.items():
                self._store.close(key)
                self._apply((key, value))
            self._doubtful.clear()
        for key, value in entry.operations:
            if error_code not in IN_DOUBT:
                self._store.close(key)
                if not error_code:
                    self._apply((key, value))
            else:
                if key in self._doubtful:
                    self._store.close(key)
                self._doubtful[key] = value
        entry.done(error_code)


def offset_record(key: OffsetKey, value: OffsetValue) -> Record:
    """The record of a committed offset."""
    return encode_key(key), encode_offset(value)

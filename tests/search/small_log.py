"""A log of a few records behind the production `Replica` (`kafkalite_core.replica.log_port.ReplicaLog`)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from kafkalite_core.protocol.record_batch import BatchHeader
from kafkalite_core.storage.epoch_cache import EpochCache
from kafkalite_core.storage.errors import UnexpectedAppendOffset

if TYPE_CHECKING:
    from collections.abc import Iterable

RECORD = struct.Struct(">qiB")  # base offset, leader epoch, value
HEADER = BatchHeader(0, 0, -1, 2, 0, 0, 0, 0, 0, -1, -1, -1, 1)

FrozenLog = tuple[tuple[tuple[int, int], ...], int, tuple[tuple[int, int], ...]]
"""(epoch and value of every record, flushed end, epoch and start of every entry of the epoch cache)."""

EMPTY: FrozenLog = ((), 0, ())


class Appended(NamedTuple):
    base_offset: int
    last_offset: int
    log_append_time: int = -1


def epochs_of(entries: Iterable[tuple[int, int]]) -> EpochCache:
    """An epoch cache with these entries, as far as one has them."""
    epochs = EpochCache()
    for epoch, start in entries:
        epochs.assign(epoch, start)
    return epochs


class SmallLog:
    """Records are (leader epoch, value) and lie at offsets 0, 1, 2, …; the epoch cache is the production one."""

    __slots__ = ("epochs", "flushed_end", "generation", "producers", "records")

    start_offset = 0
    stamps_append_time = False

    def __init__(self, frozen: FrozenLog = EMPTY) -> None:
        records, self.flushed_end, entries = frozen
        self.records = list(records)
        self.epochs = epochs_of(entries)
        self.generation = 0
        self.producers = None

    def freeze(self) -> FrozenLog:
        """The log as a tuple."""
        return tuple(self.records), self.flushed_end, tuple(map(tuple, self.epochs.entries))

    @property
    def end_offset(self) -> int:
        return len(self.records)

    def append_as_leader(self, batch, *, leader_epoch: int, now_ms: int) -> Appended:
        offset = len(self.records)
        self.records.append((leader_epoch, batch[0]))
        self.epochs.assign(leader_epoch, offset)
        return Appended(offset, offset)

    def append_as_follower(self, records, *, max_epoch: int, now_ms: int) -> int:
        for base, epoch, value in RECORD.iter_unpack(bytes(records)):
            if epoch > max_epoch:
                break
            if base != len(self.records):
                raise UnexpectedAppendOffset(base, base, len(self.records))
            self.records.append((epoch, value))
            self.epochs.assign(epoch, base)
        return len(self.records)

    def read(self, start: int, end: int) -> bytes:
        """Records from `start` below `end`, as they go into a fetch response."""
        return b"".join(
            RECORD.pack(offset, *self.records[offset]) for offset in range(start, min(end, self.end_offset))
        )

    def truncate_to(self, offset: int) -> None:
        self.epochs.truncate_from_end(offset)
        if offset >= len(self.records):
            return
        del self.records[offset:]
        self._cut()

    def reset_to(self, offset: int) -> None:
        assert offset == 0, "no log of the search begins elsewhere"
        self.records.clear()
        self.epochs.clear()
        self._cut()

    def _cut(self) -> None:
        self.flushed_end = min(self.flushed_end, len(self.records))
        self.generation += 1

    def advance_start(self, offset: int) -> None:
        assert offset == 0, "nothing is deleted in the search"


def crashed(frozen: FrozenLog, kept: int) -> FrozenLog:
    """The log after a crash and recovery: `kept` records were found, and they are synced before anything else.

    Recovery scans the segment that holds the recovery point, and takes the epochs from its batches.
    """
    records, flushed, _ = frozen
    assert flushed <= kept <= len(records)
    found = records[:kept]
    epochs = epochs_of((epoch, offset) for offset, (epoch, _) in enumerate(found))
    return found, kept, tuple(map(tuple, epochs.entries))

"""The part of a partition's log that a replica needs; the simulator and the exhaustive search pass their own.

The production log is `kafkalite_core.storage.log.Log`. All methods are synchronous and called on one thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kafkalite_core.storage.epoch_cache import KnownEpochs

if TYPE_CHECKING:
    from kafkalite_core.protocol.record_batch import BatchHeader


class Epochs(KnownEpochs, Protocol):
    """Which leader epoch began at which offset (KIP-101); kept and truncated together with the log."""

    @property
    def latest_start(self) -> int:
        """Where the newest epoch began, or -1."""
        ...

    def assign(self, epoch: int, start_offset: int) -> bool:
        """`epoch` begins at `start_offset`; False when an epoch at least as new is there already."""
        ...

    def truncate_from_end(self, end_offset: int) -> bool:
        """Forgets epochs that begin at or beyond `end_offset`; whether there were any."""
        ...

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int]:
        """(largest epoch ≤ `epoch`, where it ends), or (-1, -1) when `epoch` is above the newest or none is known."""
        ...


class Appended(Protocol):
    """Where a batch went."""

    @property
    def base_offset(self) -> int:
        """Offset of its first record."""
        ...

    @property
    def last_offset(self) -> int:
        """Offset of its last record."""
        ...

    @property
    def log_append_time(self) -> int:
        """Wall clock in ms for LogAppendTime topics, else -1."""
        ...


class Producers(Protocol):
    """Idempotent producers of the log (KIP-98)."""

    def check(self, header: BatchHeader, *, begins_anywhere: bool = True) -> object:
        """A new batch, or a `Duplicate`; raises `BrokerError` for a wrong sequence or an old producer epoch."""
        ...


class ReplicaLog(Protocol):
    """One partition's log."""

    @property
    def start_offset(self) -> int:
        """First offset that is kept."""
        ...

    @property
    def end_offset(self) -> int:
        """Offset of the next record (LEO)."""
        ...

    @property
    def flushed_end(self) -> int:
        """Records below it are on disk (S8); equals `end_offset` for topics with relaxed flush."""
        ...

    @property
    def generation(self) -> int:
        """Rises with each truncation, so that a flush begun before it proves nothing (S8)."""
        ...

    @property
    def epochs(self) -> Epochs:
        """The leader epochs of the log."""
        ...

    @property
    def stamps_append_time(self) -> bool:
        """Whether `message.timestamp.type` is LogAppendTime."""
        ...

    @property
    def producers(self) -> Producers:
        """The idempotent producers of the log."""
        ...

    def append_as_leader(self, batch: bytearray | memoryview, *, leader_epoch: int, now_ms: int) -> Appended:
        """Gives one batch its offsets and epoch and writes it. Raises `StorageError` (full) or `BrokerError`."""
        ...

    def append_as_follower(self, records: memoryview, *, max_epoch: int, now_ms: int) -> int:
        """Writes batches as they came, those above `max_epoch` dropped (KAFKA-18723); returns the new end offset."""
        ...

    def truncate_to(self, offset: int) -> None:
        """Drops records from `offset` on; the epoch cache follows even when there are none.

        Raises `StorageError` when the disk is full; the log is as before then.
        """
        ...

    def reset_to(self, offset: int) -> None:
        """Drops everything and starts at `offset`. Raises as `truncate_to` does."""
        ...

    def advance_start(self, offset: int) -> object:
        """Raises the start offset."""
        ...

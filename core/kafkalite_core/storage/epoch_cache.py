"""Which leader epoch began at which offset (KIP-101, KIP-279, KIP-320): the `leader-epoch-checkpoint` of a log.

Changes are made in memory at once. The file follows with the next flush (atomically); until then the log itself says
the same, because every batch carries its epoch and recovery rebuilds the cache from the batches.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise
from typing import NamedTuple, Protocol

from kafkalite_core.storage.errors import CorruptCheckpoint

FILE_NAME = "leader-epoch-checkpoint"
UNDEFINED = (-1, -1)


class EpochEntry(NamedTuple):
    """An epoch and the offset of its first record (or of the log end at its election)."""

    epoch: int
    start_offset: int


class KnownEpochs(Protocol):
    """The part of `EpochCache` that `epoch_of_records` needs."""

    @property
    def latest_epoch(self) -> int:
        """The newest epoch, or -1."""
        ...

    def epoch_at(self, offset: int) -> int:
        """The epoch of the record at `offset`, or -1."""
        ...


def epoch_of_records(epochs: KnownEpochs, start_offset: int, end_offset: int) -> int:
    """The leader epoch of the last record of a log; of an empty one the newest epoch that it knows, -1 for none.

    By it and by their ends logs are compared. A leader begins its epoch before it has written anything: that epoch says
    nothing of what the log has.
    """
    return epochs.epoch_at(end_offset - 1) if end_offset > start_offset else epochs.latest_epoch


class EpochCache:
    """The epochs of one log, rising strictly in epoch and in start offset."""

    __slots__ = ("_epochs", "_starts", "version")

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.version = 0
        """Rises with every change; what was written to disk last is known by it."""

    def __len__(self) -> int:
        return len(self._epochs)

    @property
    def entries(self) -> list[EpochEntry]:
        """All entries, oldest first."""
        return [EpochEntry(*pair) for pair in zip(self._epochs, self._starts, strict=True)]

    @property
    def latest_epoch(self) -> int:
        """The newest epoch, or -1."""
        return self._epochs[-1] if self._epochs else -1

    @property
    def latest_start(self) -> int:
        """Where the newest epoch began, or -1."""
        return self._starts[-1] if self._starts else -1

    def assign(self, epoch: int, start_offset: int) -> bool:
        """`epoch` begins at `start_offset`; True when that was news.

        An epoch that is not above the newest one is no news. Entries that begin at or beyond `start_offset` have no
        record and give way.
        """
        assert epoch >= 0
        assert start_offset >= 0
        if self._epochs and epoch <= self._epochs[-1]:
            return False
        keep = bisect_left(self._starts, start_offset)
        del self._epochs[keep:]
        del self._starts[keep:]
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.version += 1
        return True

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int]:
        """(largest epoch ≤ `epoch`, where it ends), or (-1, -1) when that is undefined.

        The newest epoch ends at the log end. An epoch above the newest one is undefined. Below the first entry the
        answer is (`epoch`, start of the first).
        """
        if not self._epochs or epoch < 0 or epoch > self._epochs[-1]:
            return UNDEFINED
        if epoch == self._epochs[-1]:
            return epoch, log_end
        following = bisect_right(self._epochs, epoch)
        if following == 0:
            return epoch, self._starts[0]
        return self._epochs[following - 1], self._starts[following]

    def floor(self, epoch: int) -> EpochEntry | None:
        """The newest entry with an epoch ≤ `epoch`, or None."""
        slot = bisect_right(self._epochs, epoch) - 1
        return EpochEntry(self._epochs[slot], self._starts[slot]) if slot >= 0 else None

    def epoch_at(self, offset: int) -> int:
        """The epoch of the record at `offset`, or -1 when it lies before the first entry."""
        slot = bisect_right(self._starts, offset) - 1
        return self._epochs[slot] if slot >= 0 else -1

    def truncate_from_end(self, end_offset: int) -> bool:
        """Forgets entries that begin at or beyond `end_offset`; also called when the log's truncation is a no-op."""
        keep = bisect_left(self._starts, end_offset)
        if keep == len(self._starts):
            return False
        del self._epochs[keep:]
        del self._starts[keep:]
        self.version += 1
        return True

    def truncate_from_start(self, start_offset: int) -> bool:
        """Forgets entries that end at or before `start_offset`; the one that holds it now begins there."""
        slot = bisect_right(self._starts, start_offset) - 1
        if slot < 0 or (slot == 0 and self._starts[0] == start_offset):
            return False
        del self._epochs[:slot]
        del self._starts[:slot]
        self._starts[0] = start_offset
        self.version += 1
        return True

    def clear(self) -> None:
        """Forgets everything."""
        if self._epochs:
            self._epochs.clear()
            self._starts.clear()
            self.version += 1

    def encode(self) -> bytes:
        """The file in Kafka's text format."""
        lines = ["0", str(len(self._epochs))]
        lines += [f"{epoch} {start}" for epoch, start in zip(self._epochs, self._starts, strict=True)]
        return ("\n".join(lines) + "\n").encode()

    @classmethod
    def decode(cls, data: bytes) -> EpochCache:
        """Reads the file; `CorruptCheckpoint` when it does not parse, is cut short or does not rise.

        Most logs write it without a sync of its own, so a power loss may leave a part of it: `1 115` would still be a
        line when it ends as `1 1`, and a replica that believed it would be cut there.
        """
        cache = cls()
        try:
            lines = data.decode("ascii").split("\n")
            if lines[0] != "0" or lines[-1]:
                raise CorruptCheckpoint(f"{FILE_NAME}: bad version or cut short")
            for line in lines[2:-1]:
                epoch, start = line.split(" ")
                cache._epochs.append(int(epoch))
                cache._starts.append(int(start))
            if len(cache) != int(lines[1]):
                raise CorruptCheckpoint(f"{FILE_NAME}: {len(cache)} lines instead of {lines[1]}")
        except (ValueError, IndexError) as error:
            raise CorruptCheckpoint(f"{FILE_NAME}: {error}") from error
        for values in (cache._epochs, cache._starts):
            if any(low >= high for low, high in pairwise(values)) or (values and values[0] < 0):
                raise CorruptCheckpoint(f"{FILE_NAME}: epochs do not rise")
        return cache

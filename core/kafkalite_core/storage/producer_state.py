"""What a log remembers of idempotent producers (KIP-98): the last five batches of every producer id.

The file `<offset>.snapshot` is Kafka's (version, CRC-32C, one entry per producer with its last batch), followed by an
extension that Kafka's tools skip: the four earlier batches, so that a restart forgets none of the five.
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from crc32c import crc32c

from kafkalite_core.model.limits import NO_PRODUCER_ID, PRODUCER_BATCHES_KEPT
from kafkalite_core.storage.errors import CorruptCheckpoint, InvalidProducerEpoch, OutOfOrderSequence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PRODUCERS_MAX: Final = 65_536
"""Producer ids remembered per log; beyond it the one that was silent longest is forgotten."""

SEQUENCE_MAX: Final = 2**31 - 1
_SEQUENCES: Final = 2**31

_VERSION: Final = 1
_HEAD = Struct(">hI")
_COUNT = Struct(">i")
_ENTRY = Struct(">qhiqiqiq")
_EARLIER = Struct(">qiqq")


class SequencedBatch(Protocol):
    """The fields of a batch header that matter here."""

    @property
    def base_offset(self) -> int:
        """Offset of the first record."""
        ...

    @property
    def last_offset_delta(self) -> int:
        """Last offset minus first offset."""
        ...

    @property
    def producer_id(self) -> int:
        """Producer id, -1 for none."""
        ...

    @property
    def producer_epoch(self) -> int:
        """Producer epoch."""
        ...

    @property
    def base_sequence(self) -> int:
        """Sequence number of the first record."""
        ...


class New(NamedTuple):
    """The batch follows what is known: append it."""


class Duplicate(NamedTuple):
    """The batch is in the log already, at these offsets; it is answered like the original (S9).

    `timestamp` is its largest one, in ms: of a LogAppendTime topic the append time.
    """

    base_offset: int
    last_offset: int
    timestamp: int


NEW: Final = New()


class ProducerBatch(NamedTuple):
    """One remembered batch."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def base_sequence(self) -> int:
        """Sequence number of the first record; sequence numbers wrap at 2^31."""
        return (self.last_sequence - self.offset_delta) % _SEQUENCES

    @property
    def base_offset(self) -> int:
        """Offset of the first record."""
        return self.last_offset - self.offset_delta


class ProducerEntry:
    """One producer: its epoch and its last batches, oldest first."""

    __slots__ = ("batches", "epoch", "quiet_since_ms", "whole")

    def __init__(self, epoch: int, *, whole: bool) -> None:
        self.epoch = epoch
        self.batches: list[ProducerBatch] = []
        self.whole = whole
        """No batch of this producer was ever forgotten: when all are truncated away, the producer is unknown."""
        self.quiet_since_ms: float | None = None
        """When `expire` first found it as it is now; None since its last batch, or since the log was opened."""


class ProducerStates:
    """The producers of one log. `check` before an append, `record` after it; followers and recovery only `record`."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def highest_producer_id(self) -> int:
        """The greatest producer id seen, or -1; blocks of ids handed out are above it (S11)."""
        return max(self._entries, default=NO_PRODUCER_ID)

    def items(self) -> Iterable[tuple[int, ProducerEntry]]:
        """(producer id, what is known of it) of every producer."""
        return self._entries.items()

    def entry(self, producer_id: int) -> ProducerEntry | None:
        """What is known of a producer, or None."""
        return self._entries.get(producer_id)

    def check(self, header: SequencedBatch, *, begins_anywhere: bool = True) -> New | Duplicate:
        """Whether a batch may be appended (KIP-98).

        A batch without producer id is always new. An exact repetition of one of the last five batches is a
        `Duplicate`. Raises `InvalidProducerEpoch` for an older epoch and `OutOfOrderSequence` for any other sequence
        than the next one; a new epoch begins at 0. A producer without state was forgotten, and goes on anywhere;
        without `begins_anywhere` it may as well be one whose first batch was refused, and has to begin at 0.
        """
        if header.producer_id < 0:
            return NEW
        entry = self._entries.get(header.producer_id)
        producer = f"producer {header.producer_id}"
        if entry is None:
            if header.base_sequence > 0 and not begins_anywhere:
                raise OutOfOrderSequence(f"{producer}: begins at {header.base_sequence}, not at 0", gap=True)
            return NEW
        if header.producer_epoch < entry.epoch:
            raise InvalidProducerEpoch(f"{producer}: epoch {header.producer_epoch} is older than {entry.epoch}")
        first = header.base_sequence
        if header.producer_epoch > entry.epoch:
            if first != 0:
                raise OutOfOrderSequence(
                    f"{producer}: new epoch {header.producer_epoch} begins at {first}, not at 0", gap=True
                )
            return NEW
        last = (first + header.last_offset_delta) % _SEQUENCES
        for batch in entry.batches:
            if batch.last_sequence == last and batch.base_sequence == first:
                return Duplicate(batch.base_offset, batch.last_offset, batch.timestamp)
        if not entry.batches:
            return NEW
        expected = (entry.batches[-1].last_sequence + 1) % _SEQUENCES
        if first != expected:
            gap = (first - expected) % _SEQUENCES < _SEQUENCES // 2
            raise OutOfOrderSequence(f"{producer}: sequence {first} after {entry.batches[-1].last_sequence}", gap=gap)
        return NEW

    def record(
        self, producer_id: int, producer_epoch: int, base_sequence: int, base_offset: int, delta: int, timestamp: int
    ) -> None:
        """A batch is in the log: remember it. Batches without sequence (control batches) set the epoch only."""
        entries = self._entries
        entry = entries.pop(producer_id, None)
        if entry is None:
            entry = ProducerEntry(producer_epoch, whole=True)
            if len(entries) >= PRODUCERS_MAX:
                del entries[next(iter(entries))]
        elif producer_epoch != entry.epoch:
            entry.epoch = producer_epoch
            entry.whole = not entry.batches and entry.whole
            entry.batches = []
        entry.quiet_since_ms = None
        entries[producer_id] = entry  # the youngest is last
        if base_sequence < 0:
            return
        batches = entry.batches
        if len(batches) == PRODUCER_BATCHES_KEPT:
            del batches[0]
            entry.whole = False
        last = (base_sequence + delta) % _SEQUENCES
        batches.append(ProducerBatch(last, base_offset + delta, delta, timestamp))

    def truncate_to(self, offset: int) -> bool:
        """Forgets batches at or beyond `offset`; False when the earlier state has to be rebuilt from the log.

        That is so when a producer loses all that is remembered of it, and more was forgotten before.
        """
        complete = True
        for producer_id, entry in list(self._entries.items()):
            kept = [batch for batch in entry.batches if batch.last_offset < offset]
            if len(kept) == len(entry.batches):
                continue
            if kept:
                entry.batches = kept
            else:
                complete = complete and entry.whole
                del self._entries[producer_id]
        return complete

    def expire(self, now_ms: float, expiration_ms: float) -> int:
        """Forgets producers that were silent for longer than `expiration_ms`; returns how many.

        `now_ms` is of a monotonic clock: how long nothing came is what counts. Timestamps of records do not say it
        (they may be of years ago, and what is being sent again then would be new), nor do wall clocks, which jump. The
        time begins at the first call after the last batch, and anew with the process.
        """
        stale: list[int] = []
        for producer_id, entry in self._entries.items():
            if entry.quiet_since_ms is None:
                entry.quiet_since_ms = now_ms
            elif now_ms - entry.quiet_since_ms > expiration_ms:
                stale.append(producer_id)
        for producer_id in stale:
            del self._entries[producer_id]
        return len(stale)

    def clear(self) -> None:
        """Forgets everything."""
        self._entries.clear()

    def encode(self) -> bytes:
        """The snapshot file."""
        latest = [(pid, entry, entry.batches[-1]) for pid, entry in self._entries.items() if entry.batches]
        parts = [_COUNT.pack(len(latest))]
        parts += [
            _ENTRY.pack(
                producer_id, entry.epoch, batch.last_sequence, batch.last_offset, batch.offset_delta,
                batch.timestamp, -1, -1,
            )
            for producer_id, entry, batch in latest
        ]  # fmt: skip
        earlier = [
            _EARLIER.pack(batch.last_offset, batch.offset_delta, batch.timestamp, batch.last_sequence)
            for _, entry, _ in latest
            for batch in entry.batches[:-1]
        ]
        counts = bytes(len(entry.batches) - 1 | (0x80 if entry.whole else 0) for _, entry, _ in latest)
        body = b"".join([*parts, counts, *earlier])
        return _HEAD.pack(_VERSION, crc32c(body)) + body

    @classmethod
    def decode(cls, data: bytes) -> ProducerStates:
        """Reads a snapshot; `CorruptCheckpoint` when it is not whole."""
        states = cls()
        try:
            version, crc = _HEAD.unpack_from(data)
            if version != _VERSION or crc32c(memoryview(data)[_HEAD.size :]) != crc:
                raise CorruptCheckpoint("producer snapshot: wrong version or CRC")
            (count,) = _COUNT.unpack_from(data, _HEAD.size)
            position = _HEAD.size + _COUNT.size
            counts_at = position + count * _ENTRY.size
            if count < 0 or counts_at > len(data):
                raise CorruptCheckpoint(f"producer snapshot: {count} entries do not fit")
            counts = data[counts_at : counts_at + count]
            earlier = _read_earlier(data, counts_at + count)
            for slot in range(count):
                producer_id, epoch, sequence, offset, delta, timestamp, _, _ = _ENTRY.unpack_from(data, position)
                position += _ENTRY.size
                flags = counts[slot] if slot < len(counts) else 0
                entry = ProducerEntry(epoch, whole=bool(flags & 0x80))
                entry.batches = [next(earlier) for _ in range(flags & 0x7F)]
                entry.batches.append(ProducerBatch(sequence, offset, delta, timestamp))
                states._entries[producer_id] = entry
        except (struct_error, StopIteration) as error:
            raise CorruptCheckpoint(f"producer snapshot: {error}") from error
        return states


def _read_earlier(data: bytes, position: int) -> Iterator[ProducerBatch]:
    while position + _EARLIER.size <= len(data):
        offset, delta, timestamp, sequence = _EARLIER.unpack_from(data, position)
        yield ProducerBatch(sequence, offset, delta, timestamp)
        position += _EARLIER.size

"""Reads a partition of `__consumer_offsets` from its start to its end, without holding the event loop.

Bounded pieces are read and decoded on a thread of the I/O pool, and handed over on the loop in bounded slices.

Nobody who is told an offset can see that it is not what was committed, so the bytes are judged here. What this disk has
spoiled, others have whole: rather no coordinator than one that knows less, or something else, than was acknowledged. A
batch that is as it was written and makes no sense, none of them can read either; it is left out.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from kafkalite_broker.compression import decompress
from kafkalite_core.model.errors import KafkaLiteError
from kafkalite_core.protocol.record_batch import iter_batches, iter_records, validate_crc
from kafkalite_core.storage.errors import CorruptMessage, OffsetOutOfRange, ReadInterrupted
from kafkalite_core.storage.reading import ReadResult
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from concurrent.futures import Executor

    from kafkalite_broker.replication.driver import PartitionDriver
    from kafkalite_core.groups.events import Record
    from kafkalite_core.storage.disk import Buffer
    from kafkalite_core.storage.log import Log
    from kafkalite_core.storage.reading import ColdRead

PIECE_BYTES = 512 << 10
"""Read and decoded at once; a single batch may be larger."""

SLICE_RECORDS = 500
"""Applied in one turn of the event loop."""

INTERRUPTED_MAX = 100
"""So often in succession compaction does not overtake one read: the length of a batch is damaged."""

log_events = get_logger(__name__)


class Piece(NamedTuple):
    """What one read brought.

    Attributes:
        records: Keys and values in the order of the log; of several records of one key the last one only.
        next_offset: Where to go on; -1 when there was no batch.
        unreadable: Batches that could not be decoded and were left out.
    """

    records: list[Record]
    next_offset: int
    unreadable: int


async def read_records(log: Log, io_pool: Executor, apply: Callable[[Sequence[Record]], None]) -> int:
    """Hand every record of the log to `apply`, in order; return the end offset up to which it was read.

    The log belongs to a leader: it grows at its end at most, while retention and compaction may change what is before.
    Raises `CorruptMessage`, `ProtocolError` (the bytes are damaged), `DiskFailure`.
    """
    loop = asyncio.get_running_loop()
    position = log.start_offset
    interrupted = 0
    while position < log.end_offset:
        try:
            plan = log.plan_read(position, max_bytes=PIECE_BYTES, end=log.end_offset, minimum_one=True)
            piece = await loop.run_in_executor(io_pool, _read_piece, plan, position)
            if not isinstance(plan, ReadResult):
                log.keep_indexes(plan.loading)
        except OffsetOutOfRange:
            position = max(position, log.start_offset)
            await asyncio.sleep(0)
            continue
        except ReadInterrupted as error:
            interrupted += 1
            if interrupted > INTERRUPTED_MAX:
                raise CorruptMessage(f"{log.directory} at offset {position}: {error}") from error
            await asyncio.sleep(0)
            continue
        interrupted = 0
        if piece.unreadable:
            log_events.error("batches of a group's partition cannot be read", offset=position, count=piece.unreadable)
        for begin in range(0, len(piece.records), SLICE_RECORDS):
            apply(piece.records[begin : begin + SLICE_RECORDS])
            await asyncio.sleep(0)
        position = piece.next_offset if piece.next_offset > position else _next_segment(log, position)
    return position


def _next_segment(log: Log, position: int) -> int:
    """Where the log goes on when compaction left nothing between here and there. The last batch of a segment stays."""
    if any(s.base_offset <= position < s.end_offset for s in log.segments):
        raise CorruptMessage(f"{log.directory} at offset {position}: no batch")
    return min((s.base_offset for s in log.segments if s.base_offset > position), default=log.end_offset)


def _read_piece(plan: ReadResult | ColdRead, position: int) -> Piece:
    """Runs on a thread."""
    result = plan if isinstance(plan, ReadResult) else plan.run()
    return decode_records(result.buffers, position)


def decode_records(buffers: Iterable[Buffer], position: int) -> Piece:
    """Keys and values of the batches from `position` on; markers of transactions and records without key are none.

    Consumers commit the same few keys over and over, and only what a key held last counts: what a compaction would
    leave out need not go through the event loop. Raises `CorruptMessage`, `ProtocolError`.
    """
    latest: dict[bytes, bytes | None] = {}
    next_offset, unreadable = -1, 0
    for buffer in buffers:
        view = memoryview(buffer)
        for at, header in iter_batches(view):
            if header.next_offset <= max(position, next_offset) or not validate_crc(view, at, header):
                raise CorruptMessage(f"batch at offset {header.base_offset}: damaged")
            next_offset = header.next_offset
            if header.is_control:
                continue
            try:
                records = [
                    (bytes(record.key), None if record.value is None else bytes(record.value))
                    for record in iter_records(view, at, header, decompress)
                    if record.key is not None and record.offset >= position
                ]
            except KafkaLiteError:
                # One batch that cannot be read must not keep every group of the partition from being served.
                unreadable += 1
                continue
            for key, value in records:
                # To the end: a record stands where its key was written last.
                latest.pop(key, None)
                latest[key] = value
    return Piece(list(latest.items()), next_offset, unreadable)


class Committed:
    """Waits until the high watermark of a partition has reached an offset."""

    def __init__(self, driver: PartitionDriver) -> None:
        self._driver = driver
        self._moved = asyncio.Event()

    def wake(self, driver: PartitionDriver) -> None:
        """The high watermark or the role changed."""
        del driver
        self._moved.set()

    async def reaches(self, offset: int) -> None:
        """Returns when every record below the offset is committed; cancel it when leadership is lost."""
        self._driver.wait(self, for_log_end=False)
        try:
            while self._driver.replica.high_watermark < offset:
                self._moved.clear()
                await self._moved.wait()
        finally:
            self._driver.stop_waiting(self)

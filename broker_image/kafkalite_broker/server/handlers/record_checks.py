"""Batches whose records have to be read before they are appended: small ones at once, others on a thread, in the order
of their partition.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from kafkalite_broker.compression import decompress
from kafkalite_broker.server.waiting import WaitingFetches
from kafkalite_core.protocol.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite_broker.replication.driver import PartitionDriver
    from kafkalite_broker.server.services import Services
    from kafkalite_core.protocol.primitives import Buffer
    from kafkalite_core.protocol.record_batch import BatchHeader

RECORDS_AT_ONCE = 1000
BYTES_AT_ONCE = 256 << 10
"""Records of one request that are read on the event loop, and bytes that their batches may unfold to; they take a
millisecond or two."""

WAITING_BYTES_MAX = 64 << 20
"""Batches that wait for their checks, or behind others, over all partitions; what comes then is to come again."""
WAITING_BATCH_BYTES = 1 << 10
"""What a batch holds besides its records while it waits."""
PATIENCE_MIN_S = 1.0
"""Who allows no time for replication allows so much all the same for reading the records."""


class ReadAtOnce:
    """What may still be read of one request on the event loop."""

    __slots__ = ("_bytes_left", "_records_left", "_unfolded")

    def __init__(self) -> None:
        self._records_left = RECORDS_AT_ONCE
        self._bytes_left = BYTES_AT_ONCE
        self._unfolded = True

    def run(self, check: Callable[[Callable[[int, memoryview], Buffer]], None], header: BatchHeader) -> bool:
        """Check a batch now; False when it has to be done on a thread. Raises what the check does."""
        if header.record_count > self._records_left or (header.codec and header.size > self._bytes_left):
            return False
        self._records_left -= header.record_count
        self._unfolded = True
        try:
            check(self._decompress)
        except Exception:
            if self._unfolded:
                raise
            # Broken, or too large for now: the thread finds out which.
            return False
        return True

    def _decompress(self, codec: int, payload: memoryview) -> Buffer:
        try:
            found = decompress(codec, payload, self._bytes_left)
        except ProtocolError:
            self._unfolded, self._bytes_left = False, 0
            raise
        self._bytes_left -= len(found)
        return found


class Append:
    """A batch on its way into a partition: it is gone on with once, or given up once.

    Args:
        check: Raises `BrokerError` when the records are not as they should be; None for what needs no check.
        go_on: Called on the event loop, with what the check raised or None; never raises.
        give_up: Called instead of it, with the reason; never raises.
        size_bytes: Of the batch.
    """

    __slots__ = ("_give_up", "_go_on", "_on_done", "check", "done", "is_checked", "size_bytes")

    def __init__(
        self,
        check: Callable[[], None] | None,
        go_on: Callable[[Exception | None], None],
        give_up: Callable[[str], None],
        size_bytes: int,
    ) -> None:
        self.check = check
        self.is_checked = False
        """A thread reads it just now."""
        self.done = False
        self.size_bytes = size_bytes + WAITING_BATCH_BYTES
        self._go_on: Callable[[Exception | None], None] | None = go_on
        self._give_up: Callable[[str], None] | None = give_up
        self._on_done: Callable[[], None] | None = None

    def waits(self, on_done: Callable[[], None]) -> None:
        """It stands in the queue."""
        self._on_done = on_done

    def checked(self, error: Exception | None) -> None:
        """Its turn has come."""
        go_on = self._go_on
        if self._end() and go_on is not None:
            go_on(error)

    def given_up(self, reason: str) -> None:
        """It is not to be appended."""
        give_up = self._give_up
        if self._end() and give_up is not None:
            give_up(reason)

    def expire(self) -> None:
        """See `waiting.Waiter`."""
        self.given_up("its records were not checked in time")

    def _end(self) -> bool:
        """Keeps nothing of the batch; False when that was before."""
        if self.done:
            return False
        self.done = True
        self.check = self._go_on = self._give_up = None
        on_done, self._on_done = self._on_done, None
        if on_done is not None:
            on_done()
        return True


class CheckedAppends:
    """Has records checked, one batch at a time over all partitions: clients that send much must leave the event loop,
    and the threads of the disk, to others.

    A partition takes its batches in the order in which they came, also those that need no check: a producer may have
    several of them on their way. What waits is bounded, in bytes and in time.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._turn = asyncio.Lock()
        self._waiting: dict[PartitionDriver, deque[Append]] = {}
        self._deadlines = WaitingFetches()
        self.waiting_bytes = 0

    def waits_for(self, partition: PartitionDriver) -> bool:
        """Whether a batch of the partition is being checked: what comes behind it has to wait."""
        return partition in self._waiting

    def append(self, partition: PartitionDriver, append: Append, patience_s: float) -> None:
        """Go on with the batch when it is checked and those before it were appended; give it up when that takes longer
        than `patience_s`, or when too much waits already.
        """
        if self.waiting_bytes and self.waiting_bytes + append.size_bytes > WAITING_BYTES_MAX:
            append.given_up("too many batches wait for their records to be checked")
            return
        self.waiting_bytes += append.size_bytes
        append.waits(partial(self._done, append))
        deadline_s = asyncio.get_running_loop().time() + max(patience_s, PATIENCE_MIN_S)
        self._deadlines.add(append, deadline_s)
        waiting = self._waiting.get(partition)
        if waiting is not None:
            waiting.append(append)
            return
        waiting = self._waiting[partition] = deque([append])
        self._services.background(self._work(partition, waiting))

    def _done(self, append: Append) -> None:
        self._deadlines.finished(append)
        if not append.is_checked:
            self.waiting_bytes -= append.size_bytes

    async def _work(self, partition: PartitionDriver, waiting: deque[Append]) -> None:
        while waiting:
            error = await self._check(waiting[0])
            waiting.popleft().checked(error)
        # Not where the work is broken off, since the broker ends: what comes behind a batch that is dropped waits.
        del self._waiting[partition]

    async def _check(self, append: Append) -> Exception | None:
        if append.check is None:
            await asyncio.sleep(0)  # there may be many of them
            return None
        async with self._turn:
            return await self._check_now(append)

    async def _check_now(self, append: Append) -> Exception | None:
        if append.check is None:  # given up meanwhile
            return None
        append.is_checked = True
        try:
            await asyncio.get_running_loop().run_in_executor(self._services.io_pool, append.check)
        except Exception as error:
            return error
        finally:
            append.is_checked = False
            if append.done:
                self.waiting_bytes -= append.size_bytes
        return None

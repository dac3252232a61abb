"""Batches whose records have to be read before they are appended: on a thread, in the order of their partition."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite_broker.replication.driver import PartitionDriver
    from kafkalite_broker.server.services import Services

RECORDS_AT_ONCE = 1000
"""Records of one request that are read on the event loop; they take a millisecond or two."""


class Append(NamedTuple):
    """A batch on its way into a partition.

    Attributes:
        check: Raises `BrokerError` when the records are not as they should be; None for what needs no check.
        go_on: Called on the event loop, with what the check raised or None; never raises.
    """

    check: Callable[[], None] | None
    go_on: Callable[[Exception | None], None]


class CheckedAppends:
    """Has records checked, one batch at a time over all partitions: clients that send much must leave the event loop,
    and the threads of the disk, to others.

    A partition takes its batches in the order in which they came, also those that need no check: a producer may have
    several of them on their way.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._turn = asyncio.Lock()
        self._waiting: dict[PartitionDriver, deque[Append]] = {}

    def waits_for(self, partition: PartitionDriver) -> bool:
        """Whether a batch of the partition is being checked: what comes behind it has to wait."""
        return partition in self._waiting

    def append(self, partition: PartitionDriver, append: Append) -> None:
        """Go on with the batch when it is checked and those before it were appended."""
        waiting = self._waiting.get(partition)
        if waiting is not None:
            waiting.append(append)
            return
        waiting = self._waiting[partition] = deque([append])
        self._services.background(self._work(partition, waiting))

    async def _work(self, partition: PartitionDriver, waiting: deque[Append]) -> None:
        loop = asyncio.get_running_loop()
        try:
            while waiting:
                error: Exception | None = None
                check = waiting[0].check
                if check is not None:
                    try:
                        async with self._turn:
                            await loop.run_in_executor(self._services.io_pool, check)
                    except Exception as refused:
                        error = refused
                waiting.popleft().go_on(error)
        finally:
            del self._waiting[partition]

"""What a broker that stops waits for: that it leads nothing, then that no leader waits for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite_broker.replication.partitions import PartitionManager


async def leads_nothing(partitions: PartitionManager, timeout_s: float) -> bool:
    """Wait until this broker leads no partition; False when it still does after that time."""
    return await _none(partitions, partitions.led_count, timeout_s)


async def in_no_isr(partitions: PartitionManager, timeout_s: float) -> bool:
    """Wait until it is in the ISR of no other leader; False when it still is after that time."""
    return await _none(partitions, partitions.awaited_count, timeout_s)


async def _none(partitions: PartitionManager, count: Callable[[], int], timeout_s: float) -> bool:
    try:
        async with asyncio.timeout(timeout_s):
            while count():
                partitions.changed.clear()
                await partitions.changed.wait()
    except TimeoutError:
        return False
    return True

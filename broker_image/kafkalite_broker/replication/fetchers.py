"""The fetchers of a broker, one for each leader that it follows."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kafkalite_broker.replication.fetcher import Fetcher
from kafkalite_core.replica.events import Role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkalite_broker.replication.driver import PartitionDriver


class Fetchers(dict[int, Fetcher]):
    """Fetchers by the broker id of the leader.

    Args:
        new: Makes one.

    Attributes:
        outdated: Replicas have come since the last `assign`.
    """

    def __init__(self, new: Callable[[int], Fetcher]) -> None:
        super().__init__()
        self._new = new
        self.outdated = False
        self._stopping: set[asyncio.Task[None]] = set()

    def assign(self, drivers: Iterable[PartitionDriver]) -> None:
        """Every follower is with the fetcher of its leader; fetchers without partitions end."""
        self.outdated = False
        wanted: dict[int, set[PartitionDriver]] = {}
        for driver in drivers:
            replica = driver.replica
            if replica.role is Role.FOLLOWER and replica.leader_id >= 0:
                wanted.setdefault(replica.leader_id, set()).add(driver)
        for leader in [leader for leader in self if leader not in wanted]:
            task = asyncio.create_task(self.pop(leader).stop(), name=f"stop fetcher of {leader}")
            self._stopping.add(task)
            task.add_done_callback(self._stopping.discard)
        for leader, followers in wanted.items():
            fetcher = self.get(leader)
            if fetcher is None:
                fetcher = self[leader] = self._new(leader)
            if fetcher.drivers != followers:
                fetcher.drivers = followers
                fetcher.kick()

    async def stop(self) -> None:
        """End all."""
        await asyncio.gather(*(fetcher.stop() for fetcher in self.values()), *self._stopping)
        self.clear()

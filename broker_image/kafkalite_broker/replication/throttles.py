"""The two throttles of a broker: what it sends to replicas that catch up, and what it fetches for its own (KIP-73)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_broker.clock import now_ms
from kafkalite_core.model.config import broker_integer
from kafkalite_core.replica.throttle import UNLIMITED, Throttle, held_back

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalite_broker.replication.driver import PartitionDriver

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"


class ReplicationThrottles:
    """See the module.

    Args:
        broker_id: This broker.
        broker_epoch: Tells its registered epoch.
        config: Kafka's broker keys.
        clock: Monotonic ms.
    """

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        config: Mapping[str, str],
        clock: Callable[[], float] = now_ms,
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._clock = clock
        self._leader = Throttle(broker_integer(config, LEADER_RATE))
        self._follower = Throttle(broker_integer(config, FOLLOWER_RATE))

    def reconfigure(self, config: Mapping[str, str]) -> None:
        """The rates may have changed."""
        self._leader.change(broker_integer(config, LEADER_RATE))
        self._follower.change(broker_integer(config, FOLLOWER_RATE))

    # ------------------------------------------------------------ as leader

    def withholds(self, driver: PartitionDriver, follower: int) -> bool:
        """Whether a follower of a partition led here gets no records now."""
        if self._leader.rate == UNLIMITED:
            return False
        return held_back(
            self._leader,
            driver.config.leader_replication_throttled_replicas,
            partition=driver.number,
            broker_id=self._broker_id,
            in_sync=_follows_in_sync(driver, follower),
            now_ms=self._clock(),
        )

    def sent(self, driver: PartitionDriver, follower: int, size_bytes: int) -> None:
        """Records went to a follower."""
        if self._leader.rate == UNLIMITED:
            return
        if driver.config.leader_replication_throttled_replicas.names(driver.number, self._broker_id):
            self._leader.use(self._clock(), size_bytes, in_sync=_follows_in_sync(driver, follower))

    # ------------------------------------------------------------ as follower

    def wait_ms(self, driver: PartitionDriver) -> float:
        """For how long not to fetch for a replica here; 0 to fetch now."""
        if self._follower.rate == UNLIMITED:
            return 0.0
        now = self._clock()
        waits = held_back(
            self._follower,
            driver.config.follower_replication_throttled_replicas,
            partition=driver.number,
            broker_id=self._broker_id,
            in_sync=self._is_in_sync(driver),
            now_ms=now,
        )
        return self._follower.wait_ms(now) if waits else 0.0

    def received(self, driver: PartitionDriver, size_bytes: int) -> None:
        """Records came from the leader."""
        if self._follower.rate == UNLIMITED:
            return
        if driver.config.follower_replication_throttled_replicas.names(driver.number, self._broker_id):
            self._follower.use(self._clock(), size_bytes, in_sync=self._is_in_sync(driver))

    def _is_in_sync(self, driver: PartitionDriver) -> bool:
        partition = driver.replica.partition
        return partition is not None and partition.isr_epoch_of(self._broker_id) == self._broker_epoch()


def _follows_in_sync(driver: PartitionDriver, follower: int) -> bool:
    partition = driver.replica.partition
    return partition is not None and follower in partition.isr_ids()

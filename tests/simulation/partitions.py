"""All replicas on a broker, kept in step with its metadata cache; the thin twin of the broker's partition manager."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.membership.holdings import is_held, wanted_holdings
from kafkalite_core.model.config import config_of_replicas
from kafkalite_core.model.errors import StorageError
from kafkalite_core.model.partition import NOTHING_SEEN
from kafkalite_core.replica.events import HandOver, MetadataChanged, Role
from kafkalite_core.replica.replica import Replica
from tests.simulation.driver import FLUSH_COMPLETED, TICK, Driver
from tests.simulation.fetcher import Fetcher
from tests.simulation.flusher import Flusher
from tests.simulation.writer import PartitionWriter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite_broker.log.manager import LogManager
    from kafkalite_core.membership.settlement import Settlement
    from kafkalite_core.model.config import TopicConfig
    from kafkalite_core.model.partition import Partition, Topic, TopicRef
    from kafkalite_core.model.topic import Holding
    from kafkalite_core.replica.events import ProposalAnswered, ProposePartition
    from kafkalite_core.storage.log import Log
    from tests.simulation.broker import Broker

_CONFIGS: dict[tuple[tuple[tuple[str, str], ...], bool, bool], TopicConfig] = {}


def config_of(topic: Topic) -> TopicConfig:
    """What the replicas of a topic go by; the same object for the same text."""
    key = (tuple(sorted(topic.config.items())), topic.flush_lag_known, topic.flush_may_lag)
    found = _CONFIGS.get(key)
    if found is None:
        found = _CONFIGS[key] = config_of_replicas(topic)
    return found


class Partitions:
    """See the module."""

    def __init__(self, broker: Broker, logs: LogManager) -> None:
        self.broker = broker
        self.logs = logs
        self.flusher = Flusher(broker)
        self.drivers: dict[tuple[str, int], Driver] = {}
        self._by_log: dict[Log, Driver] = {}
        self._fetchers: dict[int, Fetcher] = {}
        self._unsettled: dict[tuple[str, int], None] = {}
        self._writer = PartitionWriter(broker)

    # ------------------------------------------------------------ metadata

    def partitions_changed(self, changed: Iterable[tuple[TopicRef, int]]) -> None:
        """Entries of the cache changed, appeared or went."""
        for name, number in sorted({(ref.name, number) for ref, number in changed}):
            self._settle(name, number)
        self._assign_fetchers()

    def brokers_changed(self) -> None:
        """A broker registered, was fenced or changed its state."""
        for name, number in list(self.drivers):
            self._settle(name, number)
        self._assign_fetchers()

    def reconcile_all(self) -> None:
        """Bring every replica in step with the cache."""
        cached = {(topic.ref.name, number) for topic in self.broker.cache.topics() for number in topic.partitions}
        for name, number in sorted(cached | set(self.drivers)):
            self._settle(name, number)
        self._assign_fetchers()

    def _settle(self, name: str, number: int) -> None:
        try:
            self._reconcile(name, number)
        except StorageError:
            if (name, number) not in self._unsettled:
                self.broker.disk_full()
            self._unsettled[name, number] = None
        else:
            self._unsettled.pop((name, number), None)

    def _reconcile(self, name: str, number: int) -> None:
        broker = self.broker
        topic = broker.cache.topic(name)
        partition = None if topic is None else topic.partitions.get(number)
        driver = self.drivers.get((name, number))
        wanted = topic is not None and partition is not None and self._belongs_here(topic.ref, number, partition)
        if driver is not None and (not wanted or topic is None or driver.ref.topic_id != topic.ref.topic_id):
            self._forget(driver)
            moved_away = self.moved_away(name, driver.ref.topic_id, number)
            self.logs.set_aside(driver.log, delete_seen=broker.cache.delete_seen(driver.ref), moved_away=moved_away)
            driver = None
        if topic is None or partition is None or not wanted:
            return
        if driver is not None and driver.ref != topic.ref:
            self._forget(driver)
            driver = None
        if driver is None:
            driver = self._host(topic.ref, number)
        driver.metadata_changed(
            MetadataChanged(
                partition=partition,
                brokers=broker.cache.brokers,
                broker_epoch=broker.broker_epoch,
                config=config_of(topic),
                went_back=broker.cache.went_back(driver.ref, number),
                flush_lag_known=topic.flush_lag_known,
            )
        )
        self.logs.note_epochs(driver.log, driver.replica.seen, broker.broker_epoch)

    def _belongs_here(self, ref: TopicRef, number: int, partition: Partition) -> bool:
        cache = self.broker.cache
        return is_held(
            partition,
            is_replica=self.broker.host.id in cache.hosts(ref, number),
            went_back=cache.went_back(ref, number),
            in_use=self.logs.seen(ref, number),
            set_aside=self.logs.seen(ref, number, set_aside=True),
        )

    def moved_away(self, name: str, topic_id: str, number: int) -> bool:
        """Whether that very topic lives and has its replicas of the partition elsewhere."""
        topic = self.broker.cache.topic(name)
        entry = None if topic is None or topic.ref.topic_id != topic_id else topic.partitions.get(number)
        return entry is not None and self.broker.host.id not in entry.replicas

    def holdings(self) -> tuple[Holding, ...]:
        """What this broker's status says of partitions of which the store shows less than is known (S11)."""
        replicas = [driver.replica for driver in self.drivers.values()]
        cache = self.broker.cache
        return wanted_holdings(
            self.broker.host.id, replicas, cache.brokers, cache.asked_for(), remembered=cache.remembered()
        )

    def deletable_up_to(self) -> dict[Log, int]:
        """The logs from which retention may take, and how far: none while the store is behind (S11)."""
        return {
            driver.log: driver.replica.high_watermark
            for driver in self.drivers.values()
            if not driver.replica.store_went_back
        }

    def _host(self, ref: TopicRef, number: int) -> Driver:
        broker = self.broker
        topic = broker.cache.topic(ref.name)
        assert topic is not None
        config = config_of(topic)
        log, high_watermark = self.logs.obtain(ref, number, config, deletion_policy=topic.deletion_policy)
        replica = Replica(
            broker_id=broker.host.id,
            number=number,
            ref=ref,
            log=log,
            high_watermark=high_watermark,
            lag_time_max_ms=broker.shape.lag_time_max_ms,
            seen=self.logs.seen(ref, number) or NOTHING_SEEN,
        )
        ledger = broker.oracles.ledger(ref, number)
        driver = self.drivers[ref.name, number] = Driver(self, ref, number, replica, log, config, ledger)
        self._by_log[log] = driver
        return driver

    def _forget(self, driver: Driver) -> None:
        driver.metadata_changed(
            MetadataChanged(
                partition=None,
                brokers=self.broker.cache.brokers,
                broker_epoch=self.broker.broker_epoch,
                config=driver.config,
            )
        )
        del self.drivers[driver.ref.name, driver.number]
        self._by_log.pop(driver.log, None)
        for fetcher in self._fetchers.values():
            fetcher.drivers.pop(driver, None)
        driver.wake()

    # ------------------------------------------------------------ fetchers

    def _assign_fetchers(self) -> None:
        wanted: dict[int, dict[Driver, None]] = {}
        for driver in self.drivers.values():
            replica = driver.replica
            if replica.role is Role.FOLLOWER and replica.leader_id >= 0:
                wanted.setdefault(replica.leader_id, {})[driver] = None
        for leader in [leader for leader in self._fetchers if leader not in wanted]:
            ended = self._fetchers.pop(leader)
            ended.stopped = True
            ended.close()
        for leader, drivers in wanted.items():
            fetcher = self._fetchers.get(leader)
            if fetcher is None:
                fetcher = self._fetchers[leader] = Fetcher(self.broker, leader)
            if fetcher.drivers != drivers:
                fetcher.drivers = drivers
                fetcher.kick()

    def connection_lost(self, leader: int) -> None:
        """The connection to that broker ended: what was asked on it is asked again, after a pause."""
        fetcher = self._fetchers.get(leader)
        if fetcher is not None:
            fetcher.lost()

    def connections_reset(self, leader: int) -> None:
        """Connections to that broker broke."""
        fetcher = self._fetchers.get(leader)
        if fetcher is not None:
            if fetcher.waits:
                self.broker.world.bite("network_reset")
            fetcher.close()
            fetcher.kick()

    # ------------------------------------------------------------ surroundings of drivers

    def log_flushed(self, log: Log) -> None:
        """A group flush covered this log."""
        driver = self._by_log.get(log)
        if driver is None:
            return
        driver.step(FLUSH_COMPLETED)
        fetcher = self._fetchers.get(driver.replica.leader_id)
        if fetcher is not None and driver in fetcher.drivers:
            fetcher.flushed(driver)

    def propose(self, driver: Driver, proposal: ProposePartition) -> None:
        """Compare-and-swap; the answer goes back to the driver as long as it is hosted."""

        def answer(event: ProposalAnswered) -> None:
            if self.drivers.get((driver.ref.name, driver.number)) is driver:
                driver.step(event)
                self.logs.note_epochs(driver.log, driver.replica.seen, self.broker.broker_epoch)

        self._writer.propose(driver.ref, driver.number, proposal, answer)

    def role_changed(self, driver: Driver) -> None:
        """Fetchers are assigned anew after the change of metadata."""
        self.broker.groups.role_changed(driver)
        fetcher = self._fetchers.get(driver.replica.leader_id)
        if fetcher is not None and driver in fetcher.drivers:
            self.broker.world.at(0.0, self.broker.process, fetcher.kick)

    def position_changed(self, driver: Driver) -> None:
        """Truncation, or a back-off."""
        fetcher = self._fetchers.get(driver.replica.leader_id)
        if fetcher is not None:
            self.broker.world.at(0.0, self.broker.process, fetcher.kick)

    # ------------------------------------------------------------ housekeeping

    def tick(self) -> None:
        """Time went by."""
        if self._unsettled:
            for name, number in list(self._unsettled):
                self._settle(name, number)
            self._assign_fetchers()
        for driver in list(self.drivers.values()):
            driver.step(TICK)
        for fetcher in list(self._fetchers.values()):
            fetcher.tick()

    @property
    def unsettled(self) -> dict[tuple[str, int], Settlement]:
        """Changes of partition entries whose outcome is unknown."""
        return self._writer.unsettled

    def led_count(self) -> int:
        """Partitions that this broker leads."""
        return sum(driver.is_leader for driver in self.drivers.values())

    def awaited_count(self) -> int:
        """Replicas here without which a leader elsewhere commits nothing."""
        broker = self.broker
        entries = [driver.replica.partition for driver in self.drivers.values()]
        return sum(entry is not None and entry.awaits(broker.host.id, broker.broker_epoch) for entry in entries)

    def high_watermarks(self) -> dict[Log, int]:
        """For the checkpoint."""
        return {driver.log: driver.replica.high_watermark for driver in self.drivers.values()}

    def hand_over_all(self, reason: str) -> None:
        """Give away every leadership."""
        for driver in list(self.drivers.values()):
            if driver.is_leader:
                driver.step(HandOver(reason=reason))

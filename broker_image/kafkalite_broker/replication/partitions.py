"""All replicas on this broker: which exist, who leads them, and who is fetched from."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from kafkalite_broker.log.setting_aside import SettingAside
from kafkalite_broker.replication.driver import PartitionDriver
from kafkalite_broker.replication.fetcher import Fetcher
from kafkalite_broker.replication.fetchers import Fetchers
from kafkalite_broker.replication.suspects import SuspectedLeaders
from kafkalite_broker.replication.throttles import ReplicationThrottles
from kafkalite_core.membership.holdings import is_held, wanted_holdings
from kafkalite_core.model.config import RACK_AWARE_SELECTOR, broker_integer, broker_value, config_of_replicas
from kafkalite_core.model.errors import BrokerError, StorageError
from kafkalite_core.model.partition import NOTHING_SEEN
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.replica.events import HandOver, MetadataChanged, Role
from kafkalite_core.replica.replica import Replica
from kafkalite_core.storage.errors import DiskFailure
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from concurrent.futures import Executor

    from kafkalite_broker.cluster.isr_writer import PartitionWriter
    from kafkalite_broker.log.flusher import GroupFlusher
    from kafkalite_broker.log.manager import LogManager
    from kafkalite_broker.replication.fetcher import FetchSettings
    from kafkalite_broker.telemetry import BrokerTelemetry
    from kafkalite_core.membership.metadata_cache import MetadataCache
    from kafkalite_core.model.partition import Partition, TopicPartition, TopicRef
    from kafkalite_core.model.topic import Holding
    from kafkalite_core.replica.events import ProposalAnswered, ProposePartition
    from kafkalite_core.storage.log import Log

SELECTOR = "replica.selector.class"

log_events = get_logger(__name__)


def _ignore(_driver: PartitionDriver) -> None:
    """Nobody wants to know."""


class PartitionManager:
    """The drivers of this broker, kept in step with the metadata cache.

    Args:
        broker_id: This broker.
        broker_epoch: Tells the registered epoch, -1 while there is none.
        broker_config: Kafka's broker keys.
        cache: The metadata.
        logs: Logs on disk.
        flusher: Group commit.
        writer: Compare-and-swaps on topics.
        telemetry: Counters.
        fetch_settings: For the fetchers.
        io_pool: For what waits for the disk.
        on_disk_full: Told that an append found no room.
        on_fatal: Told a `DiskFailure`, after which the process must end (R12).
    """

    def __init__(
        self,
        *,
        broker_id: int,
        broker_epoch: Callable[[], int],
        broker_config: Mapping[str, str],
        cache: MetadataCache,
        logs: LogManager,
        flusher: GroupFlusher,
        writer: PartitionWriter,
        telemetry: BrokerTelemetry,
        fetch_settings: FetchSettings,
        io_pool: Executor,
        on_disk_full: Callable[[], None],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._broker_config = broker_config
        self._cache = cache
        self._logs = logs
        self._flusher = flusher
        self._writer = writer
        self._telemetry = telemetry
        self._fetch_settings = fetch_settings
        self._on_disk_full = on_disk_full
        self._on_fatal = on_fatal
        self._drivers: dict[tuple[str, int], PartitionDriver] = {}
        self._unsettled: set[tuple[str, int]] = set()
        """Partitions that could not be brought in step with the metadata: tried again with every tick."""
        self._by_log: dict[Log, PartitionDriver] = {}
        self._fetchers = Fetchers(self._new_fetcher)
        self.changed = asyncio.Event()
        """Set with every change of metadata, and of a role."""
        self.on_role_changed: Callable[[PartitionDriver], None] = _ignore
        """Told, in the middle of the partition's step, that its role or its leader epoch changed."""
        self._suspects = SuspectedLeaders(cache)
        self.aside = SettingAside(
            logs, io_pool, settle=self._out_of_the_way, on_disk_full=on_disk_full, on_fatal=on_fatal
        )
        self.throttles = ReplicationThrottles(broker_id, broker_epoch, broker_config)
        self.rack_aware = broker_value(broker_config, SELECTOR) == RACK_AWARE_SELECTOR
        """Consumers are sent to replicas in their rack (KIP-392)."""

    # ------------------------------------------------------------ look-up

    def hosted(self, topic: str, number: int) -> PartitionDriver:
        """The replica here. Raises UNKNOWN_TOPIC_OR_PARTITION or NOT_LEADER_OR_FOLLOWER when there is none."""
        driver = self._drivers.get((topic, number))
        if driver is not None:
            return driver
        found = self._cache.topic(topic)
        if found is None or number not in found.partitions:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{number} does not exist")
        raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{number} is not on this broker")

    def leader_of(self, topic: str, number: int) -> PartitionDriver:
        """The replica here, when this broker leads it; else NOT_LEADER_OR_FOLLOWER."""
        driver = self.hosted(topic, number)
        if not driver.is_leader:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {topic}-{number}")
        return driver

    @property
    def suspects(self) -> SuspectedLeaders:
        """Leaders that stopped answering this broker a moment ago."""
        return self._suspects

    def drivers(self) -> Iterable[PartitionDriver]:
        """Every replica on this broker."""
        return self._drivers.values()

    def led_count(self) -> int:
        """Partitions that this broker leads."""
        return sum(driver.is_leader for driver in self._drivers.values())

    def behind_count(self) -> int:
        """Replicas here that follow and are not yet in the ISR under the current broker epoch."""
        epoch = self._broker_epoch()
        return sum(
            driver.replica.role is Role.FOLLOWER
            and driver.replica.partition is not None
            and driver.replica.partition.isr_epoch_of(self._broker_id) != epoch
            for driver in self._drivers.values()
        )

    def awaited_count(self) -> int:
        """Replicas here without which a leader elsewhere commits nothing."""
        epoch = self._broker_epoch()
        entries = [driver.replica.partition for driver in self._drivers.values()]
        return sum(entry is not None and entry.awaits(self._broker_id, epoch) for entry in entries)

    # ------------------------------------------------------------ metadata

    def partitions_changed(self, changed: Iterable[tuple[TopicRef, int]]) -> None:
        """Entries of the cache changed, appeared or went."""
        for name, number in sorted({(ref.name, number) for ref, number in changed}):
            self._settle(name, number)
        self._assign_fetchers()
        self.changed.set()
        self._suspects.look_again()

    def brokers_changed(self) -> None:
        """A broker registered, was fenced or changed its state; or this broker's own epoch changed."""
        for driver in list(self._drivers.values()):
            self._settle(driver.ref.name, driver.number)
        self._assign_fetchers()

    def reconcile_all(self) -> None:
        """Bring every replica in step with the cache; used once the first consistent list is there."""
        names = {(topic.ref.name, number) for topic in self._cache.topics() for number in topic.partitions}
        for name, number in sorted(names | set(self._drivers)):
            self._settle(name, number)
        self._assign_fetchers()

    def _settle(self, name: str, number: int) -> None:
        """Bring one replica in step with the cache. What goes wrong with one does not keep the others from it."""
        key = (name, number)
        try:
            self._reconcile(name, number)
        except DiskFailure as error:
            self._on_fatal(error)
        except StorageError as error:
            # The disk is full: others lead meanwhile, and there may be room later.
            if key not in self._unsettled:
                log_events.error("no room for a replica, trying again", partition=f"{name}-{number}", error=str(error))
                self._on_disk_full()
            self._unsettled.add(key)
        except Exception as error:
            if key not in self._unsettled:
                log_events.error("metadata not applied, trying again", partition=f"{name}-{number}", exc_info=error)
            self._unsettled.add(key)
        else:
            self._unsettled.discard(key)

    def _reconcile(self, name: str, number: int) -> None:
        topic = self._cache.topic(name)
        partition = None if topic is None else topic.partitions.get(number)
        driver = self._drivers.get((name, number))
        wanted = topic is not None and partition is not None and self._belongs_here(topic.ref, number, partition)
        if driver is not None and (not wanted or topic is None or driver.ref.topic_id != topic.ref.topic_id):
            self._drop(driver, reason="no replica here" if topic is not None else "topic is gone")
            driver = None
        if topic is None or partition is None or not wanted:
            return
        if driver is not None and driver.ref != topic.ref:
            # The object was made again and adopted the same topic id: same data, other incarnation (S12).
            self._forget(driver)
            driver = None
        if driver is None:
            if self.aside.waits(topic.ref, number):
                return
            driver = self._host(topic.ref, number)
        self._tell(driver)

    def _out_of_the_way(self, key: TopicPartition) -> None:
        """A log was set aside: a replica may be waiting for its name."""
        self._settle(*key)
        # With the next tick: each time it interrupts what the fetcher waits for.
        self._fetchers.outdated |= key in self._drivers

    def _belongs_here(self, ref: TopicRef, number: int, partition: Partition) -> bool:
        return is_held(
            partition,
            is_replica=self._broker_id in self._cache.hosts(ref, number),
            went_back=self._cache.went_back(ref, number),
            in_use=self._logs.seen(ref, number),
            set_aside=self._logs.seen(ref, number, set_aside=True),
        )

    def holdings(self) -> tuple[Holding, ...]:
        """What this broker's status says of partitions of which the store shows less than is known (S11)."""
        replicas = [driver.replica for driver in self._drivers.values()]
        cache = self._cache
        return wanted_holdings(
            self._broker_id, replicas, cache.brokers, cache.asked_for(), remembered=cache.remembered()
        )

    def _host(self, ref: TopicRef, number: int) -> PartitionDriver:
        topic = self._cache.topic(ref.name)
        assert topic is not None
        config = config_of_replicas(topic, self._broker_config)
        log, high_watermark = self._logs.obtain(ref, number, config, deletion_policy=topic.deletion_policy)
        replica = Replica(
            broker_id=self._broker_id,
            number=number,
            ref=ref,
            log=log,
            high_watermark=high_watermark,
            lag_time_max_ms=broker_integer(self._broker_config, "replica.lag.time.max.ms"),
            seen=self._logs.seen(ref, number) or NOTHING_SEEN,
        )
        self._limit_lag(replica)
        driver = PartitionDriver(ref, number, replica, log, config, self, self._telemetry.topic(ref.name))
        self._drivers[ref.name, number] = driver
        self._by_log[log] = driver
        return driver

    def _tell(self, driver: PartitionDriver) -> None:
        topic = self._cache.topic(driver.ref.name)
        if topic is None or topic.ref != driver.ref:
            return
        partition: Partition | None = topic.partitions.get(driver.number)
        driver.metadata_changed(
            MetadataChanged(
                partition=partition,
                brokers=self._cache.brokers,
                broker_epoch=self._broker_epoch(),
                config=config_of_replicas(topic, self._broker_config),
                went_back=self._cache.went_back(driver.ref, driver.number),
                flush_lag_known=topic.flush_lag_known,
            )
        )
        self._logs.note_epochs(driver.log, driver.replica.seen, self._broker_epoch())

    def _drop(self, driver: PartitionDriver, reason: str) -> None:
        """The replica is not wanted here: its directory becomes a stray, it is not deleted (S10)."""
        self._forget(driver)
        self.aside.want(
            driver.log,
            delete_seen=self._cache.delete_seen(driver.ref),
            moved_away=self.moved_away(driver.ref.name, driver.ref.topic_id, driver.number),
            reason=reason,
        )
        if not any(name == driver.ref.name for name, _ in self._drivers):
            self._telemetry.forget_topic(driver.ref.name)

    def moved_away(self, name: str, topic_id: str, number: int) -> bool:
        """Whether that very topic lives and has its replicas of the partition elsewhere (KAFKA-13972)."""
        topic = self._cache.topic(name)
        entry = None if topic is None or topic.ref.topic_id != topic_id else topic.partitions.get(number)
        return entry is not None and self._broker_id not in entry.replicas

    def _forget(self, driver: PartitionDriver) -> None:
        driver.metadata_changed(
            MetadataChanged(
                partition=None, brokers=self._cache.brokers, broker_epoch=self._broker_epoch(), config=driver.config
            )
        )
        del self._drivers[driver.ref.name, driver.number]
        self._by_log.pop(driver.log, None)
        for fetcher in self._fetchers.values():
            if driver in fetcher.drivers:
                fetcher.drivers.discard(driver)
                # It may be waiting for a flush of this log, which will never be reported.
                fetcher.kick()
        driver.wake_all()

    # ------------------------------------------------------------ fetchers

    def _assign_fetchers(self) -> None:
        self._fetchers.assign(self._drivers.values())

    def _new_fetcher(self, leader: int) -> Fetcher:
        def endpoint() -> tuple[str, int] | None:
            broker = self._cache.brokers.get(leader)
            if broker is None or broker.registration is None:
                return None
            return broker.registration.host, broker.registration.port

        return Fetcher(
            broker_id=self._broker_id,
            leader_id=leader,
            broker_epoch=self._broker_epoch,
            endpoint=endpoint,
            settings=self._fetch_settings,
            throttles=self.throttles,
            on_unreachable=self._suspects.note,
            on_fatal=self._on_fatal,
        )

    # ------------------------------------------------------------ surroundings of drivers

    def mark_dirty(self, driver: PartitionDriver) -> None:
        """The log wants a flush."""
        self._flusher.mark_dirty(driver.log)

    def log_flushed(self, log: Log) -> None:
        """A group flush covered this log."""
        driver = self._by_log.get(log)
        if driver is None:
            return
        self._step(driver, driver.flushed)
        fetcher = self._fetchers.get(driver.replica.leader_id)
        if fetcher is not None:
            fetcher.flushed(driver)

    def _step(self, driver: PartitionDriver, step: Callable[[], None]) -> None:
        """Take a step of one partition on behalf of all: a defect in it does not stop the others."""
        try:
            step()
        except DiskFailure as error:
            self._on_fatal(error)
        except Exception as error:
            log_events.error("step failed", partition=driver.name, exc_info=error)

    def propose(self, driver: PartitionDriver, proposal: ProposePartition) -> None:
        """Compare-and-swap; the answer goes back to the driver as long as it is hosted."""

        def answer(event: ProposalAnswered) -> None:
            if self._drivers.get((driver.ref.name, driver.number)) is driver:
                self._step(driver, partial(driver.step, event))
                self._logs.note_epochs(driver.log, driver.replica.seen, self._broker_epoch())

        log_events.info(
            "proposing partition change",
            partition=driver.name,
            reason=proposal.reason,
            isr=[entry.id for entry in proposal.proposed.isr],
            partition_epoch=proposal.proposed.partition_epoch,
        )
        self._writer.propose(driver.ref, driver.number, proposal, answer)

    def role_changed(self, driver: PartitionDriver) -> None:
        """Fetchers are assigned anew after the change of metadata; positions of this one moved."""
        self.changed.set()
        self.on_role_changed(driver)
        fetcher = self._fetchers.get(driver.replica.leader_id)
        if fetcher is not None and driver in fetcher.drivers:
            fetcher.kick()

    def position_changed(self, driver: PartitionDriver) -> None:
        """Truncation, or a back-off."""
        fetcher = self._fetchers.get(driver.replica.leader_id)
        if fetcher is not None:
            fetcher.position_changed()

    def disk_full(self) -> None:
        """An append found no room."""
        self._on_disk_full()

    # ------------------------------------------------------------ housekeeping

    def tick(self) -> None:
        """Time went by."""
        self.aside.go_on()
        if self._unsettled or self._fetchers.outdated:
            for name, number in list(self._unsettled):
                self._settle(name, number)
            self._assign_fetchers()
        for driver in list(self._drivers.values()):
            self._step(driver, driver.tick)

    def high_watermarks(self) -> dict[Log, int]:
        """For the checkpoint."""
        return {driver.log: driver.replica.high_watermark for driver in self._drivers.values()}

    def deletable_up_to(self) -> dict[Log, int]:
        """The logs from which retention and compaction may take, and how far: none while its store is behind (S11)."""
        return {
            driver.log: driver.replica.high_watermark
            for driver in self._drivers.values()
            if not driver.replica.store_went_back
        }

    def hand_over_all(self, reason: str) -> None:
        """Give away every leadership by this broker's own compare-and-swaps."""
        event = HandOver(reason=reason)
        for driver in list(self._drivers.values()):
            if driver.is_leader:
                self._step(driver, partial(driver.step, event))

    def reconfigure(self, broker_config: Mapping[str, str]) -> None:
        """The broker's keys changed: topics that fall back to them follow."""
        self._broker_config = broker_config
        self.throttles.reconfigure(broker_config)
        self.rack_aware = broker_value(broker_config, SELECTOR) == RACK_AWARE_SELECTOR
        for driver in list(self._drivers.values()):
            self._limit_lag(driver.replica)
            self._settle(driver.ref.name, driver.number)

    def _limit_lag(self, replica: Replica) -> None:
        replica.reconfigure(
            lag_time_max_ms=broker_integer(self._broker_config, "replica.lag.time.max.ms"),
            lag_max_messages=broker_integer(self._broker_config, "replica.lag.max.messages"),
        )

    async def stop_fetching(self) -> None:
        """End all fetchers."""
        await self._fetchers.stop()

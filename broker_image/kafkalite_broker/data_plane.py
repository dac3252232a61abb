"""What serves clients once the disk is recovered: logs, flusher, replicas, listeners, and their housekeeping."""

from __future__ import annotations

import asyncio
import resource
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkalite_broker.clock import wall_ms
from kafkalite_broker.compression import compress, decompress
from kafkalite_broker.descriptors import connections_max
from kafkalite_broker.groups.manager import GroupManager
from kafkalite_broker.groups.offsets_topic import OffsetsTopic
from kafkalite_broker.log.cleaner import LogCleaner
from kafkalite_broker.log.disk import LocalDisk
from kafkalite_broker.log.flusher import GroupFlusher
from kafkalite_broker.log.kernel_sync import kernel_sync_for
from kafkalite_broker.log.manager import LogManager
from kafkalite_broker.log.removals import on_thread
from kafkalite_broker.log.stray_removal import StrayRemoval
from kafkalite_broker.log.volume_sync import volume_sync_for
from kafkalite_broker.replication.fetcher import FetchSettings
from kafkalite_broker.replication.partitions import PartitionManager
from kafkalite_broker.resizable_pool import ResizablePool
from kafkalite_broker.server.answer_budget import AnswerBudget
from kafkalite_broker.server.broker_facts import BrokerFacts
from kafkalite_broker.server.dispatch import RequestTable
from kafkalite_broker.server.handlers import handlers
from kafkalite_broker.server.listener import Server
from kafkalite_broker.server.services import Services
from kafkalite_broker.server.waiting import WaitingFetches
from kafkalite_core.membership.claims import is_claimed, to_set_aside
from kafkalite_core.model.config import broker_integer
from kafkalite_core.model.errors import BrokerError, StorageError
from kafkalite_core.storage.errors import DiskFailure
from kafkalite_core.storage.flushing import names_job
from kafkalite_core.storage.stray_ends import listed, unlisted
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from kafkalite_broker.background import Background
    from kafkalite_broker.cluster.isr_writer import PartitionWriter
    from kafkalite_broker.cluster.link import ClusterLink
    from kafkalite_broker.cluster.producer_ids import ProducerIdAllocator
    from kafkalite_broker.cluster.settings import BrokerSettings
    from kafkalite_broker.cluster.topic_writer import TopicWriter
    from kafkalite_broker.log.recovery_tally import Left, Recovered
    from kafkalite_broker.telemetry import BrokerTelemetry
    from kafkalite_core.model.partition import TopicRef
    from kafkalite_core.storage.log import Log

log = get_logger(__name__)

TICK_S = 0.2
"""Interval of the replicas' ticks: granularity of produce time-outs and lag checks."""


MAKE_ROOM_INTERVAL_S = 10.0
"""A full disk is cleared up this often at most."""

REMOVAL_WAIT_S = 5.0
"""So long a broker that ends waits for a file that is being removed. What is left goes after the next start."""


class DataPlane:
    """Everything of a broker that needs the data directory.

    Args:
        settings: Of this broker.
        cluster_id: Of the cluster; the directory must belong to it.
        link: Metadata and registration.
        writer: Compare-and-swaps.
        producer_ids: Cluster-unique producer ids.
        topic_writer: Writes of clients' wishes.
        telemetry: Counters.
        background: For tasks.
        on_fatal: Told the error after which the process must end (R12).
        on_tick: Called with every turn of the housekeeping loop: the sign of life for the Lease thread.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        cluster_id: str,
        link: ClusterLink,
        writer: PartitionWriter,
        producer_ids: ProducerIdAllocator,
        topic_writer: TopicWriter,
        telemetry: BrokerTelemetry,
        background: Background,
        on_fatal: Callable[[BaseException], None],
        on_tick: Callable[[], None],
    ) -> None:
        config = settings.broker.config
        self._settings = settings
        self._config = config
        self._keys_in_force: Mapping[str, str] = config
        self._generation_in_force: int | None = None
        self._link = link
        self._topic_writer = topic_writer
        self._telemetry = telemetry
        self._background = background
        self._on_fatal = on_fatal
        self._on_tick = on_tick
        self.recovering = False
        """Threads are writing into the data directory, and cannot be told to stop."""
        self._room_wanted_s = float("-inf")
        threads = broker_integer(config, "num.io.threads")
        self._io_pool = ResizablePool(threads, thread_name_prefix="io")
        disk = LocalDisk(settings.data_directory)
        self.logs = LogManager(
            disk,
            cluster_id=cluster_id,
            broker_id=settings.broker_id,
            wall_ms=wall_ms,
            incarnation=settings.incarnation,
            tail_bytes=broker_integer(config, "kafkalite.log.tail.cache.bytes"),
            decompress=decompress,
            compress=compress,
            start_removals=on_thread,
        )
        self._volume_sync = None
        self.logs.lock()
        self._volume_sync = volume_sync_for(disk)
        self._kernel_sync = kernel_sync_for(asyncio.get_running_loop())
        self.flusher = self._make_flusher(threads)
        self.partitions = PartitionManager(
            broker_id=settings.broker_id,
            broker_epoch=lambda: link.broker_epoch,
            broker_config=config,
            cache=link.cache,
            logs=self.logs,
            flusher=self.flusher,
            writer=writer,
            telemetry=telemetry,
            fetch_settings=FetchSettings(
                wait_max_ms=broker_integer(config, "replica.fetch.wait.max.ms"),
                max_bytes=broker_integer(config, "replica.fetch.response.max.bytes"),
                partition_max_bytes=broker_integer(config, "replica.fetch.max.bytes"),
                request_bytes_max=broker_integer(config, "socket.request.max.bytes"),
            ),
            io_pool=self._io_pool,
            on_disk_full=self._disk_full,
            on_fatal=on_fatal,
        )
        self.partitions.aside.on_strays = self.report_strays
        self.groups = self._make_groups()
        self.cleaner, self._stray_removal = self._make_cleaner(), self._make_stray_removal()
        self.server = self._make_server(cluster_id, producer_ids)
        telemetry.drivers = self.partitions.drivers
        telemetry.connections = lambda: len(self.server.connections)
        telemetry.in_flight_bytes = lambda: self.server.budget.used_bytes
        telemetry.flushes = lambda: self.flusher.flushes

    def _make_stray_removal(self) -> StrayRemoval:
        return StrayRemoval(
            self.logs,
            config=self._config,
            told_ms=lambda metadata: self._link.unlisted_ms(metadata.topic_id, metadata.partition),
            claimed=partial(is_claimed, self._link.cache, self._settings.broker_id),
            looked_ms=lambda: self._link.topics_looked_at_s * 1000.0,
            look_at_topics=self._link.look_at_topics,
            report=self.report_strays,
            on_fatal=self._on_fatal,
        )

    def _make_cleaner(self) -> LogCleaner:
        return LogCleaner(
            self.logs,
            high_watermarks=self.partitions.deletable_up_to,
            config=self._config,
            wall_ms=wall_ms,
            telemetry=self._telemetry.cleaner,
            on_fatal=self._on_fatal,
        )

    def _make_flusher(self, threads: int) -> GroupFlusher:
        return GroupFlusher(
            asyncio.get_running_loop(),
            self._io_pool,
            on_flushed=self._log_flushed,
            on_fatal=self._on_fatal,
            workers=threads,
            volume_sync=self._volume_sync,
            kernel_sync=self._kernel_sync,
            on_timed=self._telemetry.flush_seconds.observe,
        )

    def _make_groups(self) -> GroupManager:
        groups = GroupManager(
            OffsetsTopic(self._link.cache, self._topic_writer, self._background.start),
            broker_config=self._config,
            io_pool=self._io_pool,
            telemetry=self._telemetry.groups,
            on_fatal=self._on_fatal,
        )
        self.partitions.on_role_changed = groups.role_changed
        return groups

    def _make_server(self, cluster_id: str, producer_ids: ProducerIdAllocator) -> Server:
        services = Services(
            broker_id=self._settings.broker_id,
            cluster_id=cluster_id,
            facts=BrokerFacts.of(self._settings),
            cache=self._link.cache,
            partitions=self.partitions,
            groups=self.groups,
            waiting=WaitingFetches(),
            answers=AnswerBudget(broker_integer(self._config, "kafkalite.fetch.cold.bytes")),
            producer_ids=producer_ids,
            telemetry=self._telemetry,
            io_pool=self._io_pool,
            topic_writer=self._topic_writer,
            topic_changes=self._link.changes,
            cluster=lambda: self._link.cluster,
            background=self._background.start,
        )
        return Server(
            RequestTable(handlers(services), self._telemetry, self._on_fatal),
            frame_bytes_max=broker_integer(self._config, "socket.request.max.bytes"),
            in_flight_bytes_max=broker_integer(self._config, "queued.max.request.bytes"),
            connections_max=self._connections_max(self._config),
            idle_s=broker_integer(self._config, "connections.max.idle.ms") / 1000.0,
            on_failed=self._on_fatal,
            inter_broker=self._settings.inter_broker.name,
        )

    @staticmethod
    def _connections_max(config: Mapping[str, str]) -> int:
        wanted = broker_integer(config, "max.connections")
        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        fit = connections_max(wanted, allowed)
        if fit < wanted and "max.connections" in config:
            log.warning("fewer connections than wanted: raise RLIMIT_NOFILE", wanted=wanted, fit=fit, allowed=allowed)
        return fit

    async def recover(self, on_progress: Callable[[Left], None]) -> Recovered:
        """Open the data directory; `on_progress` is told what is left. Raises what `LogManager` does."""
        loop = asyncio.get_running_loop()

        def progress(left: Left) -> None:
            loop.call_soon_threadsafe(on_progress, left)

        threads = broker_integer(self._config, "num.io.threads")

        def recover() -> Recovered:
            try:
                return self.logs.open(threads=threads, on_progress=progress)
            finally:
                self.recovering = False

        self.recovering = True
        return await loop.run_in_executor(None, recover)

    async def serve(self) -> None:
        """Take over the replicas that the metadata name, set aside what nobody claims, and listen."""
        self.partitions.reconcile_all()
        self._link.holdings = self.partitions.holdings
        self._set_unclaimed_aside()
        while not await self.partitions.aside.finished(TICK_S):
            self._on_tick()
        self.report_strays()
        for listener in self._settings.bound_listeners():
            await self.server.listen(listener.name, listener.bind_host, listener.bind_port)
        for loop in (self._tick(), self._checkpoint(), self._retain(), self.cleaner.run()):
            self._background.start(self.vital(loop))

    def _set_unclaimed_aside(self) -> None:
        """Logs that no topic claims become strays; on a full disk later, and never while their topic cannot be read."""
        for unclaimed, metadata in to_set_aside(self._link.cache, self.logs.unclaimed()):
            moved_away = self.partitions.moved_away(metadata.topic, metadata.topic_id, metadata.partition)
            why = "its replica moved away" if moved_away else "no topic claims it"
            self.partitions.aside.want(unclaimed, moved_away=moved_away, reason=why)

    def report_strays(self) -> None:
        """Say in the broker's status which directories were set aside (S10)."""
        known = self.logs.listed_strays()
        self._link.report_strays(listed(known), unlisted(known))

    def reconfigure(self, config: Mapping[str, str], generation: int | None) -> None:
        """Go by these keys of the broker from now on, of that generation of the cluster; None: not by a cluster's."""
        if config != self._keys_in_force:
            self._keys_in_force = config
            self.partitions.reconfigure(config)
            self.groups.reconfigure(config)
            self.cleaner.reconfigure(config)
            self.server.limit_connections(self._connections_max(config))
            self.flusher.workers = threads = broker_integer(config, "num.io.threads")
            self._io_pool.resize(threads)
        self._generation_in_force = generation

    def _look_at_flushed(self) -> None:
        """Tell of which topics a tightened flush was caught up with (S4)."""
        if self._generation_in_force is not None:
            self._link.flushed.look(
                self._link.cache,
                self._settings.broker_id,
                broker_config=self._keys_in_force,
                generation=self._generation_in_force,
                log_of=self._log_of,
            )

    def _log_of(self, ref: TopicRef, number: int) -> Log | None:
        try:
            driver = self.partitions.hosted(ref.name, number)
        except BrokerError:
            return None
        return driver.log if driver.ref == ref else None

    def stop_reading(self) -> None:
        """Take no further request, nor replica. To be called before anything is dropped that was asked for."""
        self.server.stop_reading()
        self.partitions.aside.end_hosting()

    async def close(self, *, clean: bool, broker_epoch: int | None) -> None:
        """Stop serving. A clean end flushes everything and leaves the marker (R9), unless the epoch is not known."""
        self._stray_removal.close()
        await self.server.stop()
        self.groups.close()
        await self.partitions.stop_fetching()
        await self.cleaner.stop()
        if clean:
            await self.partitions.aside.stop()
            await self.flusher.drain()
            # A checkpoint or a read may still be under way on a thread; nothing may follow the clean marker.
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, self._io_pool.shutdown)
            await loop.run_in_executor(None, self.logs.removals.close, REMOVAL_WAIT_S)
            marks = self.partitions.high_watermarks()
            if not await loop.run_in_executor(None, lambda: self.logs.close(marks, broker_epoch=broker_epoch)):
                log.warning("no room for the clean-shutdown marker: the next start reads the logs as after a crash")
        else:
            self.partitions.aside.close()
            self.logs.abandon()
        if self._volume_sync is not None:
            self._volume_sync.close()
        if self._kernel_sync is not None:
            self._kernel_sync.close()
        self._io_pool.shutdown(wait=False)

    def _log_flushed(self, flushed: Log) -> None:
        self.partitions.log_flushed(flushed)

    # ------------------------------------------------------------ housekeeping

    async def vital(self, work: Coroutine[Any, Any, None]) -> None:
        """Work without which the broker would only seem to be alive: it ends when this ends."""
        try:
            await work
        except Exception as error:
            log.error("housekeeping failed", exc_info=error)
            self._on_fatal(error)

    def _disk_full(self) -> None:
        """An append found no room: make some, later in this turn of the loop and not with every append."""
        loop = asyncio.get_running_loop()
        if loop.time() - self._room_wanted_s >= MAKE_ROOM_INTERVAL_S:
            self._room_wanted_s = loop.time()
            loop.call_soon(self._make_room)

    def _make_room(self) -> None:
        try:
            self.logs.make_room(self.partitions.deletable_up_to())
            self._stray_removal.look()
        except StorageError as error:
            log.error("no room could be made", error=str(error))
        except Exception as error:
            self._on_fatal(error)
        else:
            log.warning("the disk is full: made room", free_bytes=self.logs.disk.free_bytes())

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while True:
            due_s = max(due_s + TICK_S, loop.time())
            await asyncio.sleep(due_s - loop.time())
            self._telemetry.event_loop_lag_seconds.set(max(loop.time() - due_s, 0.0))
            self._on_tick()
            self.partitions.tick()
            self._set_unclaimed_aside()  # for some there was no room
            self._link.report_holdings()
            left = to_set_aside(self._link.cache, self.logs.unclaimed())
            self._link.look_at_notice(all_set_aside=self.partitions.aside.idle and not left)
            self._look_at_flushed()

    async def _checkpoint(self) -> None:
        interval_s = broker_integer(self._config, "replica.high.watermark.checkpoint.interval.ms") / 1000.0
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(interval_s)
            named = self.partitions.high_watermarks()
            await loop.run_in_executor(self._io_pool, names_job(named))
            # A log may have been cut below its high watermark meanwhile (S11, an unclean election).
            now = self.partitions.high_watermarks()
            marks = {each: min(mark, now[each]) for each, mark in named.items() if each in now}
            await loop.run_in_executor(self._io_pool, self.logs.checkpoint_job(marks))

    async def _retain(self) -> None:
        while True:
            await asyncio.sleep(broker_integer(self._config, "log.retention.check.interval.ms") / 1000.0)
            try:
                self._retain_once()
            except DiskFailure:
                raise
            except Exception as error:
                # A full disk, or a defect; either way data are kept for longer, which harms nobody at once.
                log.error("retention failed, trying again later", exc_info=error)

    def _retain_once(self) -> None:
        for unflushed in self.logs.logs_to_flush():
            self.flusher.mark_dirty(unflushed)
        retired = self.logs.retention_pass(
            self.partitions.deletable_up_to(),
            producer_expiration_ms=broker_integer(self._keys_in_force, "producer.id.expiration.ms"),
        )
        for directory, segments in retired.items():
            log.info("segments beyond retention", directory=directory, segments=segments)
        self._stray_removal.look()

"""The life of a broker: lock the disk, recover, register, catch up, serve, hand over, close.

Nothing here decides: the order of the steps, and who is told about what, is all that it holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from time import monotonic, time
from typing import TYPE_CHECKING, Any

from kafkalite_broker.background import Background
from kafkalite_broker.cluster.config_watch import ConfigWatch
from kafkalite_broker.cluster.isr_writer import PartitionWriter
from kafkalite_broker.cluster.lease_thread import LeaseThread
from kafkalite_broker.cluster.link import ClusterLink
from kafkalite_broker.cluster.producer_ids import ProducerIdAllocator
from kafkalite_broker.cluster.termination import TerminationMessage
from kafkalite_broker.compression import decompress
from kafkalite_broker.log.flusher import GroupFlusher
from kafkalite_broker.log.manager import LogManager
from kafkalite_broker.replication.fetcher import FetchSettings
from kafkalite_broker.replication.partitions import PartitionManager
from kafkalite_broker.server.dispatch import RequestTable
from kafkalite_broker.server.handlers import handlers
from kafkalite_broker.server.listener import Server
from kafkalite_broker.server.services import Services
from kafkalite_broker.server.waiting import WaitingFetches
from kafkalite_broker.telemetry import BrokerTelemetry
from kafkalite_core.membership.registration import Identity
from kafkalite_core.model.cluster import BrokerState
from kafkalite_core.model.config import broker_integer
from kafkalite_runtime.kube import KubeClient
from kafkalite_runtime.logging import get_logger
from kafkalite_runtime.telemetry import TelemetryServer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite_broker.cluster.settings import BrokerConfig, BrokerSettings
    from kafkalite_core.model.partition import TopicRef

log = get_logger(__name__)

TICK_S = 0.2
"""Interval of the replicas' ticks: granularity of produce time-outs and lag checks."""

HAND_OVER_BY_OPERATOR_S = 2.0
"""A broker that stops lets the operator move its leaders; when that takes longer it hands over by its own writes."""

HAND_OVER_LIMIT_S = 6.0
LEAVING_S = 0.3
"""Between the loss of the last leadership and the end: clients and followers hear where to go instead."""

FATAL_EXIT_CODE = 70


class Broker:
    """One broker process.

    Args:
        settings: Of this broker.
        environ: For the way to the Kubernetes API.
    """

    def __init__(self, settings: BrokerSettings, environ: Mapping[str, str]) -> None:
        self._settings = settings
        self._environ = environ
        config = settings.broker.config
        self._termination = TerminationMessage(settings.termination_path, settings.incarnation)
        self._client = KubeClient.from_environment(environ)
        self._background = Background()
        self._telemetry = BrokerTelemetry()
        self._io_pool = ThreadPoolExecutor(broker_integer(config, "num.io.threads"), thread_name_prefix="io")
        self._stopping = asyncio.Event()
        self._serving = False
        self._state = "starting"
        self._exit_code = 0
        self._loop_ticked_s = monotonic()
        self._link = ClusterLink(
            self._client,
            settings,
            on_partitions_changed=self._partitions_changed,
            on_brokers_changed=self._brokers_changed,
            on_registered=self._registered,
            on_superseded=self._superseded,
        )
        self._logs = LogManager(
            settings.data_directory,
            broker_id=settings.broker_id,
            pool=self._io_pool,
            tail_bytes=broker_integer(config, "kafkalite.log.tail.cache.bytes"),
            decompress=decompress,
        )
        self._flusher = GroupFlusher(
            self._logs,
            self._io_pool,
            on_flushed=self._log_flushed,
            on_failure=self._disk_failed,
            observe=self._telemetry.flush_seconds.observe,
        )
        self._writer = PartitionWriter(
            self._client,
            absorb=self._link.absorb_topic,
            committed=self._link.cache.partition,
            registry=self._telemetry.registry,
        )
        self._partitions = PartitionManager(
            broker_id=settings.broker_id,
            broker_epoch=lambda: self._link.broker_epoch,
            broker_config=config,
            cache=self._link.cache,
            logs=self._logs,
            flusher=self._flusher,
            writer=self._writer,
            telemetry=self._telemetry,
            fetch_settings=FetchSettings(
                wait_max_ms=broker_integer(config, "replica.fetch.wait.max.ms"),
                max_bytes=broker_integer(config, "replica.fetch.response.max.bytes"),
                partition_max_bytes=broker_integer(config, "replica.fetch.max.bytes"),
            ),
        )
        self._producer_ids = ProducerIdAllocator(self._client, settings.namespace, settings.cluster)
        self._config_watch = ConfigWatch(settings.config_path, settings.broker, self._config_changed)
        self._endpoint = TelemetryServer(
            self._telemetry.registry,
            settings.metrics_port,
            settings.metrics_host,
            healthz=self._healthy,
            readyz=self._ready,
        )
        self._lease = LeaseThread(
            lambda: KubeClient.from_environment(environ),
            settings,
            config=lambda: self._config_watch.current,
            broker_epoch=lambda: self._link.broker_epoch,
            owner_uid=lambda: self._link.owner_uid,
            main_loop_age_s=lambda: monotonic() - self._loop_ticked_s,
            oldest_flush_age_s=self._flusher.oldest_age_s,
        )
        self._server: Server | None = None

    # ------------------------------------------------------------ life cycle

    async def run(self) -> int:
        """Run until asked to stop; returns the exit code."""
        await self._endpoint.start()
        try:
            await self._start()
            await self._stopping.wait()
            if self._exit_code == 0:
                await self._hand_over()
        finally:
            await self._close()
        return self._exit_code

    def stop(self) -> None:
        """Begin the controlled shutdown; once more: end at once."""
        if self._stopping.is_set():
            log.warning("asked to stop twice: ending without handing over")
            self._exit_now(1, "asked to stop twice")
        self._stopping.set()

    async def _start(self) -> None:
        self._say("waiting for the lock of the data directory")
        await self._logs.lock()
        self._termination.write()
        await self._link.start()
        self._say("recovering logs")
        await self._logs.recover(progress=lambda text: self._say(f"recovering logs: {text}"))
        self._say("waiting for the Kubernetes API")
        await self._until_stopped(self._link.synced())
        self._say("waiting for the operator to give the cluster an id")
        cluster_id = await self._until_stopped(self._link.cluster_id_known())
        if self._stopping.is_set():
            return
        identity = self._logs.identify(str(cluster_id))
        for highest in self._logs.highest_producer_ids():
            self._producer_ids.seen_in_log(highest)
        listener = self._settings.inter_broker
        self._say("registering")
        await self._link.register(
            Identity(
                broker_id=self._settings.broker_id,
                incarnation=self._settings.incarnation,
                directory_id=identity.directory_id,
                trusted=identity.trusted,
                clean_epoch=identity.clean_epoch,
                host=listener.advertised_host,
                port=listener.advertised_port,
                metrics_url=self._settings.metrics_url,
            )
        )
        self._lease.start()
        await self._serve(str(cluster_id))

    async def _serve(self, cluster_id: str) -> None:
        config = self._settings.broker.config
        self._serving = True
        self._partitions.reconcile_all()
        services = Services(
            broker_id=self._settings.broker_id,
            cluster_id=cluster_id,
            cache=self._link.cache,
            partitions=self._partitions,
            waiting=WaitingFetches(),
            producer_ids=self._producer_ids,
            telemetry=self._telemetry,
            io_pool=self._io_pool,
            background=self._background.start,
        )
        self._server = Server(
            RequestTable(handlers(services), self._telemetry),
            frame_bytes_max=broker_integer(config, "socket.request.max.bytes"),
            in_flight_bytes_max=broker_integer(config, "queued.max.request.bytes"),
            connections_max=broker_integer(config, "max.connections"),
            idle_s=broker_integer(config, "connections.max.idle.ms") / 1000.0,
        )
        server = self._server
        self._telemetry.drivers = self._partitions.drivers
        self._telemetry.connections = lambda: len(server.connections)
        self._telemetry.in_flight_bytes = lambda: server.budget.used_bytes
        for listener in self._settings.bound_listeners():
            await server.listen(listener.name, listener.bind_host, listener.bind_port)
        for loop in (self._tick(), self._checkpoint(), self._retain(), self._config_watch.run()):
            self._background.start(loop)
        self._say("waiting for the registration")
        await self._until_stopped(self._link.set_state(BrokerState.RUNNING))
        self._say("running")
        log.info("broker is up", broker=self._settings.broker_id, epoch=self._link.broker_epoch)

    async def _until_stopped(self, work: Any) -> Any:
        """The result of the work, or None when the broker is asked to stop first."""
        task = asyncio.ensure_future(work)
        stop = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if task.done():
            return task.result()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return None

    async def _hand_over(self) -> None:
        """Controlled shutdown: the operator moves the leaders; without it the broker does so itself."""
        if not self._serving:
            return
        self._say("handing over leadership")
        began_s = monotonic()
        told = await self._link.set_state(BrokerState.SHUTTING_DOWN, deadline_s=HAND_OVER_BY_OPERATOR_S)
        if not await self._partitions.leads_nothing(HAND_OVER_BY_OPERATOR_S if told else 0.0):
            self._partitions.hand_over_all("the broker is stopping")
            await self._partitions.leads_nothing(HAND_OVER_LIMIT_S)
        left = self._partitions.led_count()
        log.info("leadership handed over", seconds=round(monotonic() - began_s, 3), partitions_left=left)
        await asyncio.sleep(LEAVING_S)

    async def _close(self) -> None:
        self._say("closing")
        epoch, was_serving = self._link.broker_epoch, self._serving
        self._serving = False
        if self._server is not None:
            await self._server.stop()
        await self._partitions.stop_fetching()
        await self._background.stop()
        await self._producer_ids.stop()
        await self._writer.stop()
        await self._flusher.stop()
        if self._exit_code == 0:
            await self._logs.close(self._partitions.high_watermarks(), broker_epoch=epoch if was_serving else None)
        self._lease.stop()
        await self._link.stop()
        await self._endpoint.stop()
        await self._client.close()
        self._termination.write(broker_epoch=epoch if epoch >= 0 else None, reason="stopped in order")
        self._io_pool.shutdown(wait=False)
        log.info("broker has stopped", broker=self._settings.broker_id)

    # ------------------------------------------------------------ callbacks

    def _partitions_changed(self, changed: set[tuple[TopicRef, int]]) -> None:
        if self._serving:
            self._partitions.partitions_changed(changed)
            self._link.report_strays(self._logs.strays())

    def _brokers_changed(self) -> None:
        if self._serving:
            self._partitions.brokers_changed()

    def _registered(self, broker_epoch: int) -> None:
        self._termination.write(broker_epoch=broker_epoch)
        self._brokers_changed()

    def _superseded(self, reason: str) -> None:
        """A newer incarnation of this broker exists (R8): end at once, without the clean marker."""
        log.error("superseded: ending", reason=reason)
        self._exit_code = 1
        self._stopping.set()

    def _log_flushed(self, flushed: Any) -> None:
        self._partitions.log_flushed(flushed)

    def _disk_failed(self, error: BaseException) -> None:
        """After a failed fsync nobody knows what is on the disk (R12): end now, never try again."""
        log.critical("the disk failed: ending", error=str(error))
        self._exit_now(FATAL_EXIT_CODE, f"the disk failed: {error}")

    def _exit_now(self, code: int, reason: str) -> None:
        self._termination.write(broker_epoch=self._link.broker_epoch, reason=reason)
        os._exit(code)

    def _config_changed(self, config: BrokerConfig) -> None:
        self._partitions.reconfigure(config.config)

    # ------------------------------------------------------------ loops

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while True:
            due_s = max(due_s + TICK_S, loop.time())
            await asyncio.sleep(due_s - loop.time())
            self._telemetry.event_loop_lag_seconds.set(max(loop.time() - due_s, 0.0))
            self._loop_ticked_s = monotonic()
            self._partitions.tick()

    async def _checkpoint(self) -> None:
        interval_s = broker_integer(self._settings.broker.config, "replica.high.watermark.checkpoint.interval.ms") / 1e3
        while True:
            await asyncio.sleep(interval_s)
            await self._logs.checkpoint(self._partitions.high_watermarks())

    async def _retain(self) -> None:
        config = self._settings.broker.config
        while True:
            await asyncio.sleep(broker_integer(config, "log.retention.check.interval.ms") / 1000.0)
            self._logs.retain(
                self._partitions.high_watermarks(),
                now_ms=int(time() * 1000),
                producer_expiration_ms=broker_integer(config, "producer.id.expiration.ms"),
            )
            await self._logs.remove_strays(
                now_ms=int(time() * 1000),
                retention_ms=broker_integer(config, "kafkalite.stray.retention.ms"),
                deleted_retention_ms=broker_integer(config, "kafkalite.stray.deleted.retention.ms"),
            )
            self._link.report_strays(self._logs.strays())

    # ------------------------------------------------------------ health

    def _say(self, state: str) -> None:
        if state != self._state:
            self._state = state
            log.info("state", state=state)

    def _healthy(self) -> bool | str:
        """Alive: the event loop answers, and no flush hangs. Never depends on the API server."""
        age_s = self._flusher.oldest_age_s()
        limit_s = 60.0
        return True if age_s < limit_s else f"a flush has been hanging for {age_s:.0f} s"

    def _ready(self) -> bool | str:
        if not self._serving:
            return self._state
        if not self._link.registered:
            return self._link.obstacle or "not registered"
        behind = self._partitions.behind_count()
        return True if not behind else f"{behind} replicas are catching up"

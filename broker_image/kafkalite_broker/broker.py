"""The life of a broker: lock the disk, recover, register, catch up, serve, hand over, close.

Nothing here decides: the order of the steps, and who is told about what, is all that it holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from kafkalite_broker.background import Background, nobody, watch
from kafkalite_broker.cluster.config_watch import ConfigWatch
from kafkalite_broker.cluster.isr_writer import PartitionWriter
from kafkalite_broker.cluster.lease_thread import LeaseThread
from kafkalite_broker.cluster.link import ClusterLink
from kafkalite_broker.cluster.producer_ids import ProducerIdAllocator
from kafkalite_broker.cluster.rack import rack_of
from kafkalite_broker.cluster.recovery_report import RecoveryReport
from kafkalite_broker.cluster.termination import TerminationMessage
from kafkalite_broker.cluster.topic_writer import TopicWriter
from kafkalite_broker.data_plane import DataPlane
from kafkalite_broker.replication.leaving import in_no_isr, leads_nothing
from kafkalite_broker.telemetry import BrokerTelemetry
from kafkalite_core.membership.registration import Identity
from kafkalite_core.model.cluster import BrokerState
from kafkalite_core.model.config import valid_broker_config
from kafkalite_core.model.errors import StorageError
from kafkalite_core.storage.errors import DiskFailure
from kafkalite_core.storage.identity import forget_taken
from kafkalite_core.storage.last_registration import LastRegistration, last_registration, note_registration
from kafkalite_runtime.kube import KubeClient
from kafkalite_runtime.logging import get_logger
from kafkalite_runtime.telemetry import TelemetryServer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from kafkalite_broker.cluster.settings import BrokerConfig, BrokerSettings
    from kafkalite_broker.log.recovery_tally import Left, Recovered
    from kafkalite_core.model.partition import Topic, TopicRef

log = get_logger(__name__)

HAND_OVER_BY_OPERATOR_S = 2.0
"""A broker that stops lets the operator move its leaders; when that takes longer it hands over by its own writes."""

HAND_OVER_LIMIT_S = 6.0
LEAVING_S = 0.3
"""Between the loss of the last leadership and the end: clients and followers hear where to go instead."""

LEAVE_ISR_LIMIT_S = 3.0
"""Of the wait until every leader has taken the broker out of its ISR. It fetches meanwhile, since until then producers
with acks=all wait for it. A leader that cannot write to the API server does not keep a broker from stopping."""

FLUSH_HANGS_S = 60.0
FATAL_EXIT_CODE = 70
IMPATIENT_EXIT_CODE = 1
SUPERSEDED_EXIT_CODE = 71


class Broker:
    """One broker process.

    Args:
        settings: Of this broker.
        environ: For the way to the Kubernetes API.
    """

    def __init__(self, settings: BrokerSettings, environ: Mapping[str, str]) -> None:
        self._settings = settings
        self._termination = TerminationMessage(settings.termination_path, settings.incarnation)
        self._client = KubeClient.from_environment(environ)
        self._background = Background()
        self._telemetry = BrokerTelemetry()
        self._stopping = asyncio.Event()
        self._outlived = asyncio.Event()
        """A newer incarnation took over: nothing is handed over any more."""
        self._plane: DataPlane | None = None
        self._serving = False
        self._state = "starting"
        self._exit_code = 0
        self._loop_ticked_s = monotonic()
        self._link = ClusterLink(
            self._client,
            settings,
            on_partitions_changed=self._partitions_changed,
            on_brokers_changed=self._brokers_changed,
            on_topics_gone=self._topics_gone,
            on_registered=self._registered,
            on_superseded=self._superseded,
            on_failed=self._cannot_go_on,
            on_cluster_changed=lambda _: self._reconfigure(),
        )
        self._writer = PartitionWriter(
            self._client,
            absorb=self._link.absorb_topic,
            committed=self._link.cache.partition,
            registry=self._telemetry.registry,
            on_failed=self._cannot_go_on,
        )
        self._producer_ids = ProducerIdAllocator(self._client, settings.namespace, settings.cluster)
        self._topic_writer = TopicWriter(
            self._client,
            settings.namespace,
            settings.cluster,
            cache=self._link.cache,
            absorb=self._link.absorb_topic,
            found_cluster=lambda: self._link.cluster,
        )
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
            noticed=lambda: self._link.notice.uids,
            flushed=lambda: self._link.flushed.tokens,
            main_loop_age_s=lambda: monotonic() - self._loop_ticked_s,
            oldest_flush_age_s=self._oldest_flush_age_s,
        )

    async def run(self) -> int:
        """Run until asked to stop; returns the exit code."""
        await self._endpoint.start()
        try:
            await _unless(self._stopping, self._start())
            await self._stopping.wait()
            # It may lead from the moment that it serves, whatever the registration says by then.
            if self._serving and self._plane is not None:
                await _unless(self._outlived, self._hand_over(self._plane))
        finally:
            await self._close()
        return self._exit_code

    def stop(self) -> None:
        """Begin the controlled shutdown; asked once more: end at once."""
        if self._stopping.is_set():
            log.warning("asked to stop twice: ending without handing over")
            self._exit_now(IMPATIENT_EXIT_CODE, "asked to stop twice")
        self._stopping.set()

    # ------------------------------------------------------------ life cycle

    async def _start(self) -> None:
        await self._link.start()
        self._say("waiting for the Kubernetes API")
        await self._link.synced()
        self._say("waiting for the operator to give the cluster an id")
        cluster_id = await self._link.cluster_id_known()
        self._say("recovering the logs")
        plane = self._plane = DataPlane(
            self._settings,
            cluster_id=cluster_id,
            link=self._link,
            writer=self._writer,
            producer_ids=self._producer_ids,
            topic_writer=self._topic_writer,
            telemetry=self._telemetry,
            background=self._background,
            on_fatal=self._cannot_go_on,
            on_tick=self._ticked,
        )
        self._termination.write()
        recovered = await self._recover(plane)
        self._producer_ids.highest_in_logs = plane.logs.highest_producer_id
        self._say("waiting for the rack")
        rack = await rack_of(self._settings)
        self._say("registering")
        await self._link.register(self._identity(recovered, last_registration(plane.logs.disk), rack))
        self._ticked()
        self._lease.start()
        self._serving = True
        await plane.serve()
        self._reconfigure()
        self._background.start(plane.vital(self._config_watch.run()))
        self._say("catching up with the metadata")
        while not await self._link.set_state(BrokerState.RUNNING):
            log.info("still waiting for the registration", obstacle=self._link.obstacle)
        self._say("running")
        log.info("broker is up", broker=self._settings.broker_id, epoch=self._link.broker_epoch)

    async def _recover(self, plane: DataPlane) -> Recovered:
        report = RecoveryReport(self._client, self._settings)

        def progress(left: Left) -> None:
            self._say(f"recovering the logs: {left.logs} left, {left.segments} segments of those under way")
            report.progress(left.logs, left.segments)

        reporting = asyncio.create_task(report.run(), name="recovery report")
        watch(reporting, nobody)
        try:
            return await plane.recover(progress)
        finally:
            reporting.cancel()  # what is on its way does not land on the registration, see `patches`

    def _identity(self, recovered: Recovered, last: LastRegistration | None, rack: str) -> Identity:
        findings = recovered.findings
        listener = self._settings.inter_broker
        log.info(
            "data directory opened",
            directory=findings.directory_id,
            trusted=findings.trusted,
            fresh=findings.fresh,
            clean_epoch=findings.clean_epoch,
            cut_below_flushed=findings.cut_below_flushed,
            checkpoint_lost=findings.checkpoint_lost,
            logs=len(recovered.reports),
        )
        return Identity(
            broker_id=self._settings.broker_id,
            incarnation=self._settings.incarnation,
            directory_id=findings.directory_id,
            trusted=findings.trusted,
            clean_epoch=findings.clean_epoch,
            taken=findings.taken,
            last=last,
            host=listener.advertised_host,
            port=listener.advertised_port,
            rack=rack,
            metrics_url=self._settings.metrics_url,
        )

    async def _hand_over(self, plane: DataPlane) -> None:
        """Controlled shutdown: the operator moves the leaders; without it the broker does so itself."""
        self._say("handing over leadership")
        began_s, partitions = monotonic(), plane.partitions
        told = await self._link.set_state(BrokerState.SHUTTING_DOWN, deadline_s=HAND_OVER_BY_OPERATOR_S)
        if not await leads_nothing(partitions, HAND_OVER_BY_OPERATOR_S if told else 0.0):
            partitions.hand_over_all("the broker is stopping")
            await leads_nothing(partitions, HAND_OVER_LIMIT_S)
        left = partitions.led_count()
        log.info("leadership handed over", seconds=round(monotonic() - began_s, 3), partitions_left=left)
        # Leaders read it from the registration: without that they do not know that they are to take it out.
        limit_s = LEAVE_ISR_LIMIT_S if told else 0.0
        await asyncio.gather(asyncio.sleep(LEAVING_S), in_no_isr(partitions, limit_s))
        log.info("left the ISRs", seconds=round(monotonic() - began_s, 3), partitions_left=partitions.awaited_count())

    async def _close(self) -> None:
        if self._plane is not None and self._plane.recovering:
            # Threads write into the directory and cannot be interrupted; its lock must not be given up under them.
            # Recovery can be broken off at any point, so the end is like a crash, and nothing has been served yet.
            log.info("stopped while recovering the logs")
            self._exit_now(self._exit_code, "stopped while recovering the logs")
        self._say("closing")
        served, self._serving = self._serving, False
        if self._plane is not None:
            # First of all: of batches that wait for their checks, which are dropped, none behind may be appended.
            self._plane.stop_reading()
        await self._background.stop()
        await self._producer_ids.stop()
        await self._writer.stop()
        # Before the epoch is read that the clean marker names: nobody registers anew while the logs are closed.
        await self._link.stop()
        epoch = self._link.broker_epoch
        clean = served and self._exit_code == 0  # a newer incarnation may have been seen until just now
        if self._plane is not None:
            await self._plane.close(clean=clean, broker_epoch=None if self._link.in_doubt else epoch)
        self._lease.stop()
        await self._endpoint.stop()
        await self._client.close()
        reason = "stopped in order" if clean else "stopped"
        self._termination.write(broker_epoch=epoch if epoch >= 0 else None, reason=reason)
        log.info("broker has stopped", broker=self._settings.broker_id)

    # ------------------------------------------------------------ callbacks

    def _partitions_changed(self, changed: set[tuple[TopicRef, int]]) -> None:
        if self._serving and self._plane is not None:
            self._plane.partitions.partitions_changed(changed)
            self._plane.report_strays()

    def _brokers_changed(self) -> None:
        if self._serving and self._plane is not None:
            self._plane.partitions.brokers_changed()

    def _topics_gone(self, topics: list[Topic]) -> None:
        if self._serving and self._plane is not None:
            cache = self._link.cache
            # Another object may have claimed the same name: then the topic goes on for its groups.
            self._plane.groups.topics_deleted(
                (topic, cache.delete_seen(topic.ref)) for topic in topics if cache.topic(topic.ref.name) is None
            )

    def _registered(self, broker_epoch: int) -> None:
        self._termination.write(broker_epoch=broker_epoch)
        if self._plane is not None:
            disk, registration = self._plane.logs.disk, self._link.registration
            assert registration is not None, "it was registered just now"
            # On disk before anything is reported under it: should the store lose it, the directory can prove it (R9).
            self._note(
                partial(note_registration, disk, registration),
                otherwise="no room to note the registration: it counts for less, should the store lose it",
            )
            self._note(partial(forget_taken, disk), otherwise="what the clean marker became could not be removed")
        self._brokers_changed()

    def _note(self, work: Callable[[], None], *, otherwise: str) -> None:
        """Write to the data directory what the broker can do without, but not with a disk that fails."""
        try:
            work()
        except StorageError as error:
            log.error(otherwise, error=str(error))
        except DiskFailure as error:
            self._cannot_go_on(error)

    def _superseded(self, reason: str) -> None:
        """A newer incarnation of this broker exists (R8): end at once, without the clean marker."""
        log.error("superseded: ending", reason=reason)
        self._exit_code = SUPERSEDED_EXIT_CODE
        self._outlived.set()
        self._stopping.set()

    def _cannot_go_on(self, error: BaseException) -> None:
        """After a failed fsync nobody knows what is on the disk (R12): end now, never try again.

        The same after a defect that ended what has to run for ever: without it the broker would only seem to live.
        """
        log.critical("ending at once", error=str(error), kind=type(error).__name__)
        self._exit_now(FATAL_EXIT_CODE, f"{type(error).__name__}: {error}")

    def _exit_now(self, code: int, reason: str) -> None:
        self._termination.write(broker_epoch=self._link.broker_epoch, reason=reason)
        os._exit(code)

    def _config_changed(self, _config: BrokerConfig) -> None:
        self._reconfigure()

    def _reconfigure(self) -> None:
        """Have the keys that need no restart follow the cluster. The watch shows them before the file does."""
        cluster = self._link.cluster
        config = self._config_watch.current.config if cluster is None else valid_broker_config(cluster.config)
        if self._plane is not None and self._serving:
            self._plane.reconfigure(config, None if cluster is None else cluster.generation)

    def _ticked(self) -> None:
        self._loop_ticked_s = monotonic()

    # ------------------------------------------------------------ health

    def _oldest_flush_age_s(self) -> float:
        return 0.0 if self._plane is None else self._plane.flusher.oldest_flush_age_s()

    def _say(self, state: str) -> None:
        if state != self._state:
            self._state = state
            log.info("state", state=state)

    def _healthy(self) -> bool | str:
        """Alive: the event loop answers, and no flush hangs. Never depends on the API server."""
        age_s = self._oldest_flush_age_s()
        return True if age_s < FLUSH_HANGS_S else f"a flush has been hanging for {age_s:.0f} s"

    def _ready(self) -> bool | str:
        if not self._serving or self._plane is None:
            return self._state
        if not self._link.registered:
            return self._link.obstacle or "not registered"
        behind = self._plane.partitions.behind_count()
        return True if not behind else f"{behind} replicas are catching up"


async def _unless(event: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Do the work unless that happens first; then it is broken off."""
    if event.is_set():
        work.close()
        return
    task, happened = asyncio.ensure_future(work), asyncio.ensure_future(event.wait())
    await asyncio.wait({task, happened}, return_when=asyncio.FIRST_COMPLETED)
    happened.cancel()
    if not task.done():
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return
    task.result()

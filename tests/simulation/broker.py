"""One broker process: recover, register, catch up, serve, hand over, end; crash at any point."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkalite_broker.log.manager import LogManager
from kafkalite_broker.log.strays import StrayRules
from kafkalite_core.membership.claims import is_claimed, to_set_aside
from kafkalite_core.membership.lease import plan_renewal
from kafkalite_core.membership.producer_ids import ProducerIds
from kafkalite_core.membership.registration_events import Identity
from kafkalite_core.model.cluster import BrokerState
from kafkalite_core.model.config import RACK_AWARE_SELECTOR, broker_value
from kafkalite_core.model.errors import StorageError
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.replica.events import ProduceRequested
from kafkalite_core.storage.errors import DiskFailure
from kafkalite_core.storage.flushing import names_job
from kafkalite_core.storage.identity import forget_taken
from kafkalite_core.storage.last_registration import last_registration, note_registration
from kafkalite_core.storage.stray_ends import listed, unlisted
from tests.simulation.driver import Produce
from tests.simulation.groups import Groups
from tests.simulation.leases import LeaseRenewer
from tests.simulation.link import Link
from tests.simulation.oracles import noting
from tests.simulation.partitions import Partitions
from tests.simulation.producer_ids import Draws
from tests.simulation.registrar import Registrar
from tests.simulation.world import Process, ProcessDied

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalite_core.membership.metadata_cache import MetadataCache
    from kafkalite_core.model.partition import Topic, TopicRef
    from kafkalite_core.protocol.record_batch import BatchHeader
    from tests.simulation.api import Outcome
    from tests.simulation.driver import Driver
    from tests.simulation.host import Host
    from tests.simulation.platter import Tag

SELECTOR = "replica.selector.class"
HAND_OVER_BY_OPERATOR_MS = 2_000.0
HAND_OVER_LIMIT_MS = 6_000.0
LEAVE_ISR_LIMIT_MS = 3_000.0
CLOSE_MS = 300.0
MAKE_ROOM_INTERVAL_MS = 1_000.0
STRAY_RETENTION_MS = 7 * 86_400_000
LATE_JOBS, LATE_JOB_MS = 0.3, 300.0
"""Share of the checkpoints that another thread writes some time after their values were taken."""


class Broker:
    """See the module.

    Attributes:
        fuse: After so many more effects the process dies; 0 for not at all.
        serving: Requests are taken.
    """

    def __init__(self, host: Host, incarnation: str) -> None:
        self.host = host
        self.cluster = host.cluster
        self.world = host.world
        self.network = host.cluster.network
        self.api = host.cluster.api
        self.oracles = host.cluster.oracles
        self.shape = host.cluster.shape
        self.chance = host.chance.random
        self.incarnation = incarnation
        self.process = Process(f"{host.name}/{incarnation}", host.died)
        self.fuse = 0
        self.fuse_power = False
        self.serving = False
        self.stopping = False
        self.sessions = 0
        self.started_undamaged = True
        self._opening = False
        self._running_said = False
        self._ticked_ms = 0.0
        self._room_wanted_ms = float("-inf")
        self.registrar: Registrar | None = None
        self.link = Link(self)
        self.producer_ids = ProducerIds()
        self.draws = Draws(self)
        self.logs: LogManager
        self.partitions: Partitions
        self.groups = Groups(self)

    # ------------------------------------------------------------ time, chance, death

    def mono_ms(self) -> float:
        """This machine's monotonic clock."""
        return self.host.clock.mono_ms(self.world.now)

    def wall_ms(self) -> int:
        """This machine's wall clock."""
        return self.host.clock.wall_ms(self.world.now)

    def after(self, local_ms: float, action: Callable[..., None], *args: object) -> None:
        """Call `action` after a while by this machine's clock."""
        self.world.at(local_ms / self.host.clock.rate, self.process, action, *args)

    def burn(self) -> None:
        """One more effect: it may be the last."""
        self.fuse -= 1
        if not self.fuse:
            self.world.bite("crash_effect")
            raise ProcessDied(self.process, "died between two effects", power=self.fuse_power)

    def die(self, reason: str) -> None:
        """The process ends itself, at once."""
        raise ProcessDied(self.process, reason)

    def trace(self, text: str) -> None:
        """A line of the readable trace."""
        if self.world.tracing:
            self.world.trace(self.host.name, text)

    def call(self, verb: str, *args: Any, answer: Callable[[Outcome, Any], None]) -> None:
        """Ask the API server."""
        self.api.call(self.host.name, self.process, verb, *args, answer=answer)

    # ------------------------------------------------------------ life

    def begin(self) -> None:
        """The process has started."""
        self.host.disk.process = self.process
        self.started_undamaged = not self.host.damaged
        self.trace(f"{self.incarnation} starts")
        self.world.at(0.0, self.process, self.link.start)

    @property
    def cache(self) -> MetadataCache:
        """The metadata."""
        return self.link.cache

    @property
    def rack_aware(self) -> bool:
        """Whether consumers are sent to replicas in their rack (KIP-392)."""
        cluster = self.link.cluster
        return cluster is not None and broker_value(cluster.config, SELECTOR) == RACK_AWARE_SELECTOR

    @property
    def broker_epoch(self) -> int:
        """The registered epoch, -1 before the first registration."""
        return -1 if self.registrar is None else self.registrar.broker_epoch

    def link_moved(self) -> None:
        """The link may know enough now to begin."""
        if not self._opening and self.link.synced:
            assert self.link.cluster is not None
            self._opening = True
            # The cluster may be made again, and have no id for a moment, while the logs are recovered.
            self.world.at(1.0 + self.chance() * 50.0, self.process, self._open, self.link.cluster.cluster_id)

    def _open(self, cluster_id: str) -> None:
        self.logs = LogManager(
            self.host.disk,
            broker_id=self.host.id,
            cluster_id=cluster_id,
            wall_ms=self.wall_ms,
            mono_ms=self.mono_ms,
            incarnation=self.incarnation,
            tail_bytes=self.shape.tail_bytes,
            reserve_bytes=self.shape.reserve_bytes,
            unique_hex=self.host.unique_hex,
        )
        try:
            recovered = self.logs.open(threads=1)
        except (StorageError, DiskFailure) as error:
            self.die(f"cannot open the data directory: {error}")
        findings = recovered.findings
        self.partitions = Partitions(self, self.logs)
        self.producer_ids.raise_floor(self.logs.highest_producer_id())
        self.trace(f"recovered: {findings} {[(r.directory, r.end_offset, r.reason) for r in recovered.reports]}")
        identity = Identity(
            broker_id=self.host.id,
            incarnation=self.incarnation,
            directory_id=findings.directory_id,
            trusted=findings.trusted,
            clean_epoch=findings.clean_epoch,
            taken=findings.taken,
            last=last_registration(self.host.disk),
            host=self.host.name,
            port=9092,
            rack=self.host.rack,
        )
        self.registrar = Registrar(self, identity)
        LeaseRenewer(self).turn()
        self.serving = True
        self.partitions.reconcile_all()
        self._set_unclaimed_aside()
        self._ticked_ms = self.mono_ms()
        self.after(self.shape.tick_ms, self._tick)
        self.after(self.shape.checkpoint_ms * (0.5 + self.chance()), self._checkpoint)
        self.registrar.want_state(BrokerState.RUNNING)

    def _tick(self) -> None:
        self._ticked_ms = self.mono_ms()
        self.partitions.tick()
        if self.logs.unclaimed():
            self._set_unclaimed_aside()
        self.groups.tick()
        assert self.registrar is not None
        self.registrar.look_at_holdings()
        self.link.look_at_notice()
        self.link.look_at_flushed()
        self.after(self.shape.tick_ms, self._tick)

    def _set_unclaimed_aside(self) -> None:
        for log, metadata in to_set_aside(self.cache, self.logs.unclaimed()):
            moved_away = self.partitions.moved_away(metadata.topic, metadata.topic_id, metadata.partition)
            try:
                self.logs.set_aside(log, delete_seen=False, moved_away=moved_away)
            except StorageError as error:
                self.trace(f"no room to set a log aside: {error}")
                self.disk_full()
                break
        self.report_strays()

    def _checkpoint(self) -> None:
        marks = self.partitions.high_watermarks()
        names_job(marks)()
        if self.chance() < LATE_JOBS:
            self.after(LATE_JOB_MS * self.chance(), self.logs.checkpoint_job(marks))
        else:
            self.logs.checkpoint(marks)
            noting.checked(self)
        self._retain()
        self.after(self.shape.checkpoint_ms, self._checkpoint)

    def _retain(self) -> None:
        try:
            if self.shape.retention:
                self.logs.retention_pass(self.partitions.deletable_up_to())
            self._look_at_strays()
        except StorageError as error:
            self.trace(f"no room for retention: {error}")

    def _look_at_strays(self) -> None:
        """What `StrayRemoval` does, but that it is asked for often enough to need no timer of its own."""
        rules = StrayRules(
            retention_ms=STRAY_RETENTION_MS,
            deleted_retention_ms=self.shape.stray_deleted_retention_ms,
            told_ms=lambda metadata: self.link.unlisted_ms(metadata.topic_id, metadata.partition),
            claimed=partial(is_claimed, self.cache, self.host.id),
            looked_ms=self.link.topics_looked_at_ms,
            unlisted_ms=self.shape.stray_unlisted_ms,
        )
        self._tell_leaving()
        try:
            with self._strays_watched():
                self.logs.remove_strays(rules)
        except StorageError:
            self.report_strays()
            raise
        self._tell_leaving()
        self.report_strays()
        if self.logs.strays_due:
            self.link.look_at_topics()

    def _tell_leaving(self) -> None:
        listed = {stray.directory for stray in self.logs.listed_strays()}
        leaving: dict[Tag, set[str]] = {}
        for stray in self.logs.strays():
            if stray.metadata is not None and stray.directory not in listed:
                tag = stray.metadata.topic_id, stray.metadata.partition
                leaving.setdefault(tag, set()).add(stray.directory)
        self.oracles.strays_leave(self.host.id, leaving)

    @contextmanager
    def _strays_watched(self) -> Iterator[None]:
        before = {stray.directory: stray.metadata for stray in self.logs.strays()}
        try:
            yield
        finally:  # also when the process dies
            for directory, metadata in before.items():
                if metadata is not None and not self.host.disk.exists(directory):
                    self.trace(f"{directory} is removed")
                    self.oracles.stray_removed(self.host.id, (metadata.topic_id, metadata.partition))

    def disk_full(self) -> None:
        """Something found no room: make some, later and not with every append."""
        if self.mono_ms() - self._room_wanted_ms >= MAKE_ROOM_INTERVAL_MS:
            self._room_wanted_ms = self.mono_ms()
            self.after(0.0, self._make_room)

    def _make_room(self) -> None:
        try:
            self.logs.make_room(self.partitions.deletable_up_to() if self.shape.retention else {})
            self._look_at_strays()
        except StorageError as error:
            self.trace(f"no room could be made: {error}")

    def stop(self) -> None:
        """SIGTERM: the controlled shutdown."""
        if self.stopping or self.registrar is None or not self.serving:
            self.world.at(0.0, self.process, self.die, "stopped before it served")
            return
        self.stopping = True
        self.trace("stopping")
        self.registrar.want_state(BrokerState.SHUTTING_DOWN)
        self.after(HAND_OVER_BY_OPERATOR_MS, self._hand_over, self.mono_ms() + HAND_OVER_LIMIT_MS)

    def _hand_over(self, deadline_ms: float) -> None:
        if self.partitions.led_count() and self.mono_ms() < deadline_ms:
            self.partitions.hand_over_all("the broker is stopping")
            self.after(250.0, self._hand_over, deadline_ms)
        else:
            self._leave(self.mono_ms() + LEAVE_ISR_LIMIT_MS)

    def _leave(self, deadline_ms: float) -> None:
        if self.partitions.awaited_count() and self.mono_ms() < deadline_ms:
            self.after(100.0, self._leave, deadline_ms)
        else:
            self.after(CLOSE_MS, self._close)

    def _close(self) -> None:
        self.serving = False
        self.groups.close()
        if not self.partitions.flusher.idle:
            self.after(2.0, self._close)
            return
        in_doubt = self.registrar is not None and self.registrar.in_doubt
        epoch = None if in_doubt else self.broker_epoch
        clean = self.logs.close(self.partitions.high_watermarks(), broker_epoch=epoch, threads=1)
        self.die("stopped in order" if clean else "no room for the clean-shutdown marker")

    # ------------------------------------------------------------ what the link tells

    def partitions_changed(self, changed: set[tuple[TopicRef, int]]) -> None:
        """Entries of the cache changed."""
        if self.serving:
            self.partitions.partitions_changed(changed)
            self.report_strays()

    def brokers_changed(self) -> None:
        """Brokers of the cache changed."""
        if self.serving:
            self.partitions.brokers_changed()

    def topics_gone(self, topics: list[Topic]) -> None:
        """Topics left the cache."""
        if self.serving:
            self.groups.topics_gone(topics)

    def registered(self, broker_epoch: int) -> None:
        """A new broker epoch."""
        self.trace(f"registered with epoch {broker_epoch}")
        self._note_registration()
        forget_taken(self.host.disk)
        self.brokers_changed()

    def _note_registration(self) -> None:
        registration = None if self.registrar is None else self.registrar.registration
        assert registration is not None
        try:
            note_registration(self.host.disk, registration)
        except StorageError as error:
            self.trace(f"no room to note the registration: {error}")
            self.host.unnoted = True
        except DiskFailure as error:
            self.die(f"cannot note the registration: {error}")

    def report_strays(self) -> None:
        """List the directories that were set aside (S10)."""
        assert self.registrar is not None
        known = self.logs.listed_strays()
        self.registrar.want_strays(tuple(listed(known)), unlisted(known))

    # ------------------------------------------------------------ what others ask

    def peer(self, broker_id: int) -> Broker | None:
        """The broker that is reached at the registered address of another one."""
        known = self.cache.brokers.get(broker_id)
        if known is None or known.registration is None:
            return None
        return self.cluster.hosts[broker_id].broker

    def may_renew(self, lease_duration_s: float) -> bool:
        """Whether this process may claim to be alive."""
        now_ms = self.mono_ms()
        oldest = self.partitions.flusher.oldest_ms
        return plan_renewal(
            broker_epoch=self.broker_epoch,
            lease_duration_s=lease_duration_s,
            main_loop_age_s=(now_ms - self._ticked_ms) / 1000.0,
            oldest_flush_age_s=0.0 if oldest is None else (self.world.now - oldest) / 1000.0,
        ).renew

    def driver(self, topic: str, number: int) -> Driver | None:
        """The replica here, None when there is none."""
        return self.partitions.drivers.get((topic, number)) if self.serving else None

    def produce(
        self,
        topic: str,
        number: int,
        batch: bytearray,
        header: BatchHeader,
        acks: int,
        reply: Callable[[int, str, int, int], None],
    ) -> None:
        """A client's batch; `reply(error code, topic id, base offset, leader epoch)` once, when acks asks for it."""
        driver = self.driver(topic, number)
        if driver is None:
            reply(int(ErrorCode.NOT_LEADER_OR_FOLLOWER), "", -1, -1)
            return
        driver.parked += 1
        driver.step(
            ProduceRequested(
                token=Produce(acks, header.record_count, reply),
                acks=acks,
                batch=bytearray(batch),
                header=header,
                received_ms=self.mono_ms(),
                deadline_ms=self.mono_ms() + self.shape.request_timeout_ms,
                wall_ms=self.wall_ms(),
            )
        )

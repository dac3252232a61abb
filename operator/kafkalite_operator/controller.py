"""The controller task: while it holds the Lease it plans on every event and carries the actions out.

Planning is level-triggered: an event only wakes it, and bursts are planned once; how often, and how much is carried out
at once, is a rule of the core (`pacing`). An object with an action under way is left out until that one is answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkalite_core.controller.actions import (
    Action,
    EndReplaceRequest,
    Fence,
    ReadBrokers,
    ReadClusters,
    RemoveBroker,
    ReplaceBroker,
    ResizePods,
    RestartPods,
    UpdateBrokerStatus,
)
from kafkalite_core.controller.at_rest import AtRest
from kafkalite_core.controller.emptied import Emptied
from kafkalite_core.controller.fencing import judge
from kafkalite_core.controller.pacing import Urgency, pause_s, urgency_of
from kafkalite_core.controller.plan import plan
from kafkalite_core.controller.preferred import balanced, setting
from kafkalite_core.controller.scale_down import removals, wanted_brokers
from kafkalite_core.resources.naming import identity_name
from kafkalite_operator.cluster_status import ClusterStatus
from kafkalite_operator.default_clusters import STATUS_PAUSE_S, DefaultClusters
from kafkalite_operator.executor import Executor
from kafkalite_operator.infrastructure import Infrastructure
from kafkalite_operator.lease_reader import LeaseReader
from kafkalite_operator.listeners import Listeners
from kafkalite_operator.listing import RESYNC_S, Listing
from kafkalite_operator.nodes import Nodes
from kafkalite_operator.owning import Owning
from kafkalite_operator.racks import Racks
from kafkalite_operator.removal import BrokerRemoval
from kafkalite_operator.replacements import LOOK_S, Replacements
from kafkalite_operator.resizing import Resizing
from kafkalite_operator.restarts import Restarts
from kafkalite_operator.troubles import Troubles
from kafkalite_operator.unread_leases import UnreadLeases
from kafkalite_operator.volumes import Volumes
from kafkalite_operator.work import Work
from kafkalite_runtime.kube.errors import KubeForbidden
from kafkalite_runtime.kube.kinds import BROKERS, CLUSTERS, CONFIG_MAPS, PODS, TOPICS, Kind
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite_core.controller.snapshot import Snapshot
    from kafkalite_core.resources.manifests import ClusterSettings
    from kafkalite_operator.elector_thread import ElectorThread
    from kafkalite_operator.metrics import OperatorMetrics
    from kafkalite_operator.settings import OperatorSettings
    from kafkalite_operator.store import ClusterKey, Store
    from kafkalite_runtime.kube.client import KubeClient
    from kafkalite_runtime.kube.events import EventRecorder

TICK_S = 1.0
EXPIRED_PAUSE_S = 0.05
GROWING_S = 2.0
"""Volumes that grow are looked at so often."""

_log = get_logger(__name__)


class Controller:
    """See the module. `run` is the task; `on_object` takes what the watch delivers."""

    def __init__(
        self,
        *,
        client: KubeClient,
        store: Store,
        elector: ElectorThread,
        settings: OperatorSettings,
        metrics: OperatorMetrics,
        events: EventRecorder,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._store = store
        self._elector = elector
        self._settings = settings
        self._metrics = metrics
        self._events = events
        self._clock = clock
        self._executor = Executor(client, store, metrics, events, clock)
        status, nodes = ClusterStatus(self._executor, store, events), Nodes(client, clock)
        self._infrastructure = Infrastructure(client, store, events, status, clock)
        self._listeners = Listeners(client, store, nodes, status, clock)
        self._racks = Racks(client, store, nodes, status)
        self._volumes = Volumes(client, store, events)
        self._owning = Owning(client, store)
        self._restarts = Restarts(client, store, metrics, events, clock)
        self._resizing = Resizing(client, store, events)
        self._replacements = Replacements(
            client, store, executor=self._executor, nodes=nodes, volumes=self._volumes, events=events, clock=clock
        )
        self._emptied: dict[str, Emptied] = {}
        self._removal = BrokerRemoval(client, store, self._infrastructure, events, self._emptied, clock)
        namespaces = self._cluster_namespaces
        self.leases = LeaseReader(client, store.leases, namespaces, self.on_leases, clock)
        self._unread_leases = UnreadLeases(self.leases, status)
        self._wake = asyncio.Event()
        self._hurry = asyncio.Event()
        self._work = Work(may_act=elector.held, wake=self.wake_up, metrics=metrics, clock=clock)
        self._default_clusters = DefaultClusters(
            client, store, executor=self._executor, work=self._work, events=events, spec=settings.default_cluster
        )
        self._troubles = Troubles(store, events)
        self._epochs: dict[str, int] = {}
        self._read_awaited = False
        """Elections and new topics wait for the brokers to be read: then they are planned at once."""
        self._listing = Listing(client, store, settings.watch_namespaces, self._on_read, clock)
        self._balanced_at: dict[ClusterKey, float] = {}
        self._ensured: dict[str, tuple[object, float]] = {}
        self._at_rest: dict[ClusterKey, AtRest] = {}

    def on_object(self, kind: Kind, type_: str, obj: dict[str, Any]) -> None:
        """An event of the watch."""
        if self._store.apply(kind, type_, obj):
            self.wake_up(kind is not TOPICS)

    def wake_up(self, urgent: bool = True) -> None:
        """Plan soon; at once when it is `urgent`, which is all that fences and elections follow from."""
        self._wake.set()
        if urgent:
            self._hurry.set()

    def on_leases(self) -> None:
        """The Leases were read. Elections that wait for their turn are held up by a plan only if it will fence."""
        self.wake_up(not self._work.electing or self._will_fence())

    def _will_fence(self) -> bool:
        now = self._clock()
        known = [(key, self._epochs.get(settings.cluster.uid)) for key, settings in self._known_clusters()]
        try:
            return any(judge(self._snapshot(key, own, balance_due=False), now) for key, own in known if own is not None)
        except Exception:
            return True  # a round tells which cluster that is, and goes on with the others

    @property
    def electing(self) -> bool:
        """Elections are under way or wait: whatever else is written can wait for them."""
        return self._work.electing

    def _cluster_namespaces(self) -> list[str]:
        return [namespace for namespace, _ in self._store.clusters()]

    # -- the task -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve term after term. Every round awaits something: what was started needs the loop."""
        while True:
            await self._elector.acquired.wait()
            if not self._elector.held():
                # The Lease ran out and the elector, which waits for the API server, has not said so yet.
                await asyncio.sleep(EXPIRED_PAUSE_S)
                continue
            term = self._elector.terms
            try:
                await self._serve(term)
            finally:
                await self._stand_down()

    async def _serve(self, term: int) -> None:
        self._epochs.clear()
        self._ensured.clear()
        self._emptied.clear()
        self._at_rest.clear()
        self._executor.begin_term()
        self._listing.begin()
        while self._elector.held() and self._elector.terms == term:
            self._wake.clear()
            self._hurry.clear()
            started = self._clock()
            for namespace in self._listing.due():
                self._work.start(("resync", namespace or ""), self._listing.everything(namespace))
            if self._listing.begun:
                self._round()
                self._metrics.reconcile_s.observe(self._clock() - started)
                self._metrics.last_success.set(time.time())
            await self._rest(started)

    async def _rest(self, started: float) -> None:
        """Wait for something to do, and rest after the round that began at `started`."""
        until = self._clock() + pause_s(self._clock() - started, waits=self._work.waits)
        await asyncio.sleep(0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TICK_S):
                await self._wake.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, until - self._clock())):
                await self._hurry.wait()

    async def _stand_down(self) -> None:
        self._metrics.stand_down()
        self._at_rest.clear()
        await self._work.cancel()

    def _on_read(self) -> None:
        if self._read_awaited:
            self._read_awaited = False
            self.wake_up()

    # -- one round ----------------------------------------------------------------------------------------------

    def _round(self) -> None:
        self._work.plan_anew()
        clusters = self._store.clusters()
        self._at_rest = {key: self._at_rest.get(key, AtRest()) for key in clusters}
        self._balanced_at = {key: at for key, at in self._balanced_at.items() if key in clusters}
        for uid in self._emptied.keys() - {settings.cluster.uid for settings in clusters.values()}:
            del self._emptied[uid]
        self._troubles.round(clusters)
        snapshots: list[Snapshot] = []
        for key, settings in self._known_clusters():
            try:
                snapshot = self._control(key, settings)
            except Exception as error:
                self._not_controlled(key, settings, error)
                continue
            self._troubles.controlled(key)
            if snapshot is not None:
                snapshots.append(snapshot)
        unread = {(each.namespace, each.name) for each in self._store.refused.values() if each.kind is CLUSTERS}
        for key, topics in self._store.topics_by_cluster().items():
            if key not in clusters and key not in unread and self._listing.knows(key[0]):
                for view in topics.values():
                    self._default_clusters.look(view)
        self._metrics.observe(snapshots, active=True)

    def _known_clusters(self) -> list[tuple[ClusterKey, ClusterSettings]]:
        """Those whose namespaces were read in this term."""
        return [each for each in sorted(self._store.clusters().items()) if self._listing.knows(each[0][0])]

    def _not_controlled(self, key: ClusterKey, settings: ClusterSettings, error: Exception) -> None:
        """What nobody thought of in one cluster must not keep the others without leaders."""
        self._at_rest[key] = AtRest()  # the plan may have ended halfway
        self._metrics.reconcile_failures.labels("plan").inc()
        self._troubles.not_controlled(key, settings, error)

    def _control(self, key: ClusterKey, settings: ClusterSettings) -> Snapshot | None:
        """Plan for one cluster and begin what is planned; None while the control of it is being taken."""
        if self._unread_leases.due(settings):
            self._work.look(("leases", settings.cluster.uid), self._unread_leases.tell(settings))
        epoch = self._epoch_of(key, settings)
        if epoch is None:
            return None
        due = self._balance_due(key, settings)
        snapshot = self._look_at_emptied(settings, self._snapshot(key, epoch, balance_due=due))
        now = self._clock()
        actions = plan(snapshot, now, self._at_rest[key])
        if due and balanced(snapshot, actions, now):
            self._balanced_at[key] = now
        self._dispatch(settings, actions, epoch)
        self._ensure(settings, snapshot)
        if self._restarts.due(settings, snapshot):
            self._work.look(("template", settings.cluster.uid), self._restarts.look(settings), pause_s=TICK_S)
        if self._replacements.due(settings, snapshot):
            look = self._replacements.look(settings, snapshot)
            self._work.look(("lost", settings.cluster.uid), look, pause_s=LOOK_S, reads_nodes=True)
        return snapshot

    def _snapshot(self, key: ClusterKey, epoch: int, *, balance_due: bool) -> Snapshot:
        snapshot = self._store.snapshot(
            key,
            controller_epoch=epoch,
            observing_since=self.leases.observing_since(key[0]),
            unheard_until=self.leases.unheard_until(key[0]),
            balance_due=balance_due,
        )
        emptied = self._emptied.get(snapshot.cluster.uid)
        unlisted = emptied.unlisted(snapshot) if emptied is not None else {}
        return replace(snapshot, unlisted=unlisted) if unlisted else snapshot

    def _look_at_emptied(self, settings: ClusterSettings, snapshot: Snapshot) -> Snapshot:
        """Only where a volume may be deleted because of it: what is remembered costs a look at all topics."""
        uid = settings.cluster.uid
        if not settings.delete_claim and snapshot.cluster.node_loss != "replace":
            self._emptied.pop(uid, None)
            return snapshot
        emptied = self._emptied.setdefault(uid, Emptied())
        emptied.look(snapshot, self._clock())
        return replace(snapshot, unlisted=emptied.unlisted(snapshot))

    async def _read_again(self, key: ClusterKey, epoch: int) -> Snapshot | None:
        """All that a restart is decided on, read consistently; None when it is not for this controller to decide.

        Pods come first: what registered, and what joined an ISR, before a pod was ready is in the later lists.
        """
        for kind in (PODS, BROKERS, CLUSTERS, TOPICS):
            await self._listing.kind(kind, key[0])
        mine = key in self._store.clusters() and self._epoch_of(key, self._store.clusters()[key]) == epoch
        return self._snapshot(key, epoch, balance_due=False) if mine and self._elector.held() else None

    def _epoch_of(self, key: ClusterKey, settings: ClusterSettings) -> int | None:
        """The epoch that this term controls the cluster with; None while it is being taken."""
        cluster = settings.cluster
        topics = self._store.topics_by_cluster().get(key, {}).values()
        written = max((view.topic.controller_epoch for view in topics), default=0)
        own = self._epochs.get(cluster.uid)
        mine = cluster.controller_holder == self._elector.identity and cluster.controller_epoch == own
        if own is not None and mine and own >= written and cluster.cluster_id:
            return own
        wanted = max(cluster.controller_epoch, written) + 1
        registered = [broker.epoch for broker in self._store.brokers_of(key).values()]
        listed = [view.facts.broker_epoch for view in topics]
        first = max([0, *registered, *listed]) + 1
        self._work.start(("control", cluster.uid), self._take_control(settings, wanted, first))
        return None

    async def _take_control(self, settings: ClusterSettings, epoch: int, first_broker_epoch: int) -> None:
        try:
            await self._executor.take_control(
                settings, holder=self._elector.identity, epoch=epoch, first_broker_epoch=first_broker_epoch
            )
        except KubeForbidden as error:  # the ConfigMap that keeps the id: as long as that is not read, nothing is made
            name = identity_name(settings.cluster.name)
            await self._infrastructure.not_read(settings, CONFIG_MAPS.kind, name, error)
            raise
        self._epochs[settings.cluster.uid] = epoch

    def _balance_due(self, key: ClusterKey, settings: ClusterSettings) -> bool:
        interval = setting(settings.cluster.config, "leader.imbalance.check.interval.seconds")
        assert isinstance(interval, int)
        now = self._clock()
        return now - self._balanced_at.setdefault(key, now) >= interval

    def _dispatch(self, settings: ClusterSettings, actions: list[Action], epoch: int) -> None:
        namespace = settings.cluster.namespace
        if any(isinstance(action, Fence) for action in actions):
            # The elections that follow need fresh brokers: read them while the fence is being written.
            self._work.start(("brokers", namespace), self._listing.kind(BROKERS, namespace))
        elif any(urgency_of(action) is Urgency.ELECTION for action in actions):
            # More of them than go out at once are planned again: by then the brokers have been read, too.
            self._work.start(("brokers", namespace), self._listing.kind(BROKERS, namespace), urgency=Urgency.CHANGE)
        busy = False
        for action in actions:
            urgency = urgency_of(action)
            if urgency is Urgency.TELLING and busy:
                continue
            if isinstance(action, RestartPods | ResizePods | ReplaceBroker | RemoveBroker | EndReplaceRequest):
                self._dispatch_to_pods(settings, action, epoch)
                continue
            # What was refused and waits for its next attempt keeps no condition from being told.
            if isinstance(action, ReadBrokers | ReadClusters):
                self._read_awaited = True
                what, kind = ("brokers", BROKERS) if isinstance(action, ReadBrokers) else ("clusters", CLUSTERS)
                busy |= self._work.start((what, namespace), self._listing.kind(kind, namespace))
                continue
            again_s = STATUS_PAUSE_S if urgency is Urgency.TELLING else 0.0
            make = (
                partial(self._replacements.update_status, settings, action)
                if isinstance(action, UpdateBrokerStatus)
                else partial(self._executor.carry_out, settings, action, epoch)
            )
            busy |= self._work.offer(action.key, make, urgency, pause_s=again_s) and urgency is not Urgency.TELLING

    def _dispatch_to_pods(
        self,
        settings: ClusterSettings,
        action: RestartPods | ResizePods | ReplaceBroker | RemoveBroker | EndReplaceRequest,
        epoch: int,
    ) -> None:
        """What takes a second look, and more than one call."""
        read_again = partial(self._read_again, (settings.cluster.namespace, settings.cluster.name), epoch)
        match action:
            case RestartPods():
                self._work.start(action.key, self._restarts.carry_out(settings, action, read_again))
            case ResizePods():
                self._work.start(action.key, self._resizing.carry_out(settings, action))
            case ReplaceBroker():
                work = self._replacements.carry_out(settings, action, read_again)
                self._work.start(action.key, work, pause_s=TICK_S)
            case EndReplaceRequest():
                self._work.start(action.key, self._replacements.end(settings, action))
            case RemoveBroker():
                self._work.start(action.key, self._removal.remove(settings, action), pause_s=TICK_S)

    def _ensure(self, settings: ClusterSettings, snapshot: Snapshot) -> None:
        ids = wanted_brokers(snapshot)
        if settings.cluster.deleting:
            return
        if self._racks.due(settings):  # a broker that starts waits for its rack, whatever stands still
            self._work.look(("racks", settings.cluster.uid), self._racks.label(settings), reads_nodes=True)
        removed = removals(snapshot)
        removing = bool(removed)
        # Who is about to be removed is reached until it has ended, and may be kept after all.
        reached = [*ids, *(action.broker.id for action in removed if action.broker.id not in ids)]
        if self._listeners.due(settings, reached):  # clients are told where brokers are, whatever stands still
            look = self._look_at_listeners(settings, reached)
            nodes = self._listeners.reads_nodes(settings)
            self._work.look(("listeners", settings.cluster.uid), look, reads_nodes=nodes)
        if settings.cluster.paused:
            return
        if self._owning.due(settings):
            self._work.look(("owners", settings.cluster.uid), self._owning.own(settings), pause_s=TICK_S)
        state = (snapshot.generation, tuple(ids), removing)
        known, at = self._ensured.get(settings.cluster.uid, (None, 0.0))
        period_s = GROWING_S if self._volumes.growing(settings) else RESYNC_S
        if known != state or self._clock() - at > period_s:
            self._work.look(
                ("infrastructure", settings.cluster.uid), self._ensure_all(settings, ids, state, removing=removing)
            )

    async def _look_at_listeners(self, settings: ClusterSettings, ids: list[int]) -> None:
        """A Service of a broker goes only after the look that its pod is worth (`BrokerRemoval.still_wanted`)."""
        kept = ids
        if ids and not settings.cluster.paused:
            kept = await self._removal.still_wanted(settings, list(range(max(ids) + 1)))
        await self._listeners.look(settings, ids, sorted({*ids, *kept}))

    async def _ensure_all(
        self, settings: ClusterSettings, ids: list[int], state: object, *, removing: bool = False
    ) -> None:
        try:
            if not removing:  # a StatefulSet shrinks only after another look: `BrokerRemoval`
                await self._infrastructure.ensure(settings, await self._removal.still_wanted(settings, ids))
        finally:
            await self._volumes.ensure(settings, ids)
        self._ensured[settings.cluster.uid] = (state, self._clock())

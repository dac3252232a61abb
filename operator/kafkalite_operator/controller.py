"""The controller task: while it holds the Lease it plans on every event and carries the actions out.

Planning is level-triggered: an event only wakes it, and bursts are planned once. Actions on different objects run at
the same time; an object with an action under way is left out until that one is answered.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from kafkalite_core.controller.actions import (
    Action,
    Fence,
    ReadBrokers,
    UpdateClusterStatus,
    UpdateTopicStatus,
)
from kafkalite_core.controller.at_rest import AtRest
from kafkalite_core.controller.conditions import orphan_conditions
from kafkalite_core.controller.plan import plan, wanted_brokers
from kafkalite_core.controller.preferred import setting
from kafkalite_core.model.errors import KafkaLiteError
from kafkalite_core.model.topic import DEFAULT_CLUSTER_NAME
from kafkalite_core.resources.manifests import default_cluster
from kafkalite_operator.executor import Executor
from kafkalite_operator.infrastructure import Infrastructure
from kafkalite_operator.lease_reader import LeaseReader
from kafkalite_runtime.complaints import Complaints
from kafkalite_runtime.kube.errors import KubeConflict, KubeInvalid, KubeThrottled, KubeUnavailable
from kafkalite_runtime.kube.kinds import BROKERS, CLUSTERS, PODS, TOPICS, Kind
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from kafkalite_core.controller.snapshot import Snapshot, TopicView
    from kafkalite_core.resources.manifests import ClusterSettings
    from kafkalite_operator.elector import Elector
    from kafkalite_operator.metrics import OperatorMetrics
    from kafkalite_operator.settings import OperatorSettings
    from kafkalite_operator.store import ClusterKey, Store
    from kafkalite_runtime.kube.client import KubeClient
    from kafkalite_runtime.kube.events import EventRecorder

TICK_S = 1.0
EXPIRED_PAUSE_S = 0.05
RESYNC_S = 30.0
DOUBT_S = 3.0
"""Shortest time between two lists of everything because events came in an order that needs an explanation."""

STATUS_PAUSE_S = 0.25
"""Conditions of one object are written at most this often."""

BACKOFFS_S = (0.0, 0.05, 0.2, 0.5, 1.0, 2.0, 5.0)
Key = tuple[str, str]
_log = get_logger(__name__)


class Controller:
    """See the module. `run` is the task; `on_object` takes what the watch delivers."""

    def __init__(
        self,
        *,
        client: KubeClient,
        store: Store,
        elector: Elector,
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
        self._infrastructure = Infrastructure(client, store, events)
        namespaces = self._cluster_namespaces
        self.leases = LeaseReader(client, store.leases, namespaces, self.wake_up, clock)
        self._wake = asyncio.Event()
        self._in_flight: dict[Key, asyncio.Task[None]] = {}
        self._failures: dict[Key, int] = {}
        self._complaints = Complaints(_log)
        self._not_before: dict[Key, float] = {}
        self._epochs: dict[str, int] = {}
        self._brokers_read_at = float("-inf")
        self._resynced_at = float("-inf")
        self._balanced_at: dict[ClusterKey, float] = {}
        self._ensured: dict[str, tuple[object, float]] = {}
        self._at_rest: dict[ClusterKey, AtRest] = {}
        self.synced = False

    def on_object(self, kind: Kind, type_: str, obj: dict[str, Any]) -> None:
        """An event of the watch."""
        if self._store.apply(kind, type_, obj):
            self._wake.set()

    def wake_up(self) -> None:
        """Plan soon."""
        self._wake.set()

    def _cluster_namespaces(self) -> list[str]:
        return [namespace for namespace, _ in self._store.clusters()]

    # -- the task -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve term after term. Every round awaits something: the elector shares this loop."""
        while True:
            await self._elector.acquired.wait()
            if not self._elector.held():
                # The Lease ran out and the elector, which waits for the API server, has not noticed yet. Its turn.
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
        self._at_rest.clear()
        self._resynced_at = float("-inf")
        while self._elector.held() and self._elector.terms == term:
            self._wake.clear()
            started = self._clock()
            if started - self._resynced_at > (DOUBT_S if self._store.doubtful else RESYNC_S):
                self._start(("resync", ""), self._resync())
            if self._resynced_at != float("-inf"):
                self._round()
                self._metrics.reconcile_s.observe(self._clock() - started)
                self._metrics.last_success.set(time.time())
            try:
                async with asyncio.timeout(TICK_S):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _stand_down(self) -> None:
        self._metrics.active_controllers.set(0)
        tasks = list(self._in_flight.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _resync(self) -> None:
        """Consistent lists of everything: the start of a term, and a belt for a watch that went silent."""
        self._store.doubtful = False
        for kind in (CLUSTERS, BROKERS, TOPICS, PODS):
            for namespace in self._settings.watch_namespaces or (None,):
                await self._list(kind, namespace)
        self._resynced_at = self._clock()
        self.synced = True

    async def _list(self, kind: Kind, namespace: str | None) -> None:
        started = self._clock()
        selector = "app.kubernetes.io/name=kafkalite,app.kubernetes.io/component=broker" if kind is PODS else ""
        listed = await self._client.list(kind, namespace, label_selector=selector, deadline_s=5.0)
        if kind is PODS:
            for pod in listed.items:
                self._store.apply(kind, "ADDED", pod)
            return
        self._store.relist(kind, listed.items, listed.resource_version, namespace, asked_at=started)
        if kind is BROKERS:
            self._brokers_read_at = started

    # -- one round ----------------------------------------------------------------------------------------------

    def _round(self) -> None:
        clusters = self._store.clusters()
        self._at_rest = {key: self._at_rest.get(key, AtRest()) for key in clusters}
        snapshots: list[Snapshot] = []
        for key, settings in sorted(clusters.items()):
            epoch = self._epoch_of(key, settings)
            if epoch is None:
                continue
            snapshot = self._store.snapshot(
                key,
                controller_epoch=epoch,
                observing_since=self.leases.observing_since(key[0]),
                balance_due=self._balance_due(key, settings),
                brokers_age_s=self._clock() - self._brokers_read_at,
            )
            snapshots.append(snapshot)
            self._dispatch(settings, plan(snapshot, self._clock(), self._at_rest[key]), epoch)
            self._ensure(settings, snapshot)
        for key, topics in self._store.topics_by_cluster().items():
            if key not in clusters:
                for view in topics.values():
                    self._adopt_orphan(view)
        self._metrics.observe(snapshots, active=True)

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
        self._start(("control", cluster.uid), self._take_control(settings, wanted, first))
        return None

    async def _take_control(self, settings: ClusterSettings, epoch: int, first_broker_epoch: int) -> None:
        await self._executor.take_control(
            settings, holder=self._elector.identity, epoch=epoch, first_broker_epoch=first_broker_epoch
        )
        self._epochs[settings.cluster.uid] = epoch

    def _balance_due(self, key: ClusterKey, settings: ClusterSettings) -> bool:
        interval = setting(settings.cluster.config, "leader.imbalance.check.interval.seconds")
        assert isinstance(interval, int)
        now = self._clock()
        if now - self._balanced_at.setdefault(key, now) < interval:
            return False
        self._balanced_at[key] = now
        return True

    def _dispatch(self, settings: ClusterSettings, actions: list[Action], epoch: int) -> None:
        namespace = settings.cluster.namespace
        if any(isinstance(action, Fence) for action in actions):
            # The elections that follow need fresh brokers: read them while the fence is being written.
            self._start(("brokers", namespace), self._list(BROKERS, namespace))
        urgent = False
        for action in actions:
            if isinstance(action, UpdateTopicStatus | UpdateClusterStatus):
                if not urgent:
                    self._start(action.key, self._executor.carry_out(settings, action, epoch), pause_s=STATUS_PAUSE_S)
                continue
            # What was refused and waits for its next attempt keeps no condition from being told.
            if isinstance(action, ReadBrokers):
                urgent |= self._start(("brokers", namespace), self._list(BROKERS, namespace))
                continue
            urgent |= self._start(action.key, self._executor.carry_out(settings, action, epoch))

    def _ensure(self, settings: ClusterSettings, snapshot: Snapshot) -> None:
        ids = wanted_brokers(snapshot)
        if settings.cluster.paused:
            return
        state = (snapshot.generation, tuple(ids))
        known, at = self._ensured.get(settings.cluster.uid, (None, 0.0))
        if known != state or self._clock() - at > RESYNC_S:
            self._start(("infrastructure", settings.cluster.uid), self._ensure_all(settings, ids, state))

    async def _ensure_all(self, settings: ClusterSettings, ids: list[int], state: object) -> None:
        await self._infrastructure.ensure(settings, ids)
        self._ensured[settings.cluster.uid] = (state, self._clock())

    def _adopt_orphan(self, view: TopicView) -> None:
        """A topic without cluster: make the default one, or say that there is none."""
        if view.topic.deleting:
            return
        spec = self._settings.default_cluster
        follows = spec is not None and view.spec.cluster == DEFAULT_CLUSTER_NAME
        namespace = view.topic.ref.namespace
        if follows and spec is not None:
            self._start(("cluster", f"{namespace}/{view.spec.cluster}"), self._make_cluster(namespace, spec))
        conditions = orphan_conditions(view, cluster_follows=follows)
        if all(condition in view.conditions for condition in conditions):
            return
        action = UpdateTopicStatus(
            topic=view.topic.ref, generation=view.topic.generation, conditions=conditions, in_sync=view.in_sync or "0/0"
        )
        self._start(action.key, self._executor.update_topic_status(action), pause_s=STATUS_PAUSE_S)

    async def _make_cluster(self, namespace: str, spec: dict[str, Any]) -> None:
        body = default_cluster(namespace, DEFAULT_CLUSTER_NAME, spec)
        try:
            made = await self._client.create(CLUSTERS, namespace, body)
        except KubeConflict:
            await self._executor.refresh(CLUSTERS, namespace, DEFAULT_CLUSTER_NAME)
            return
        self._store.apply(CLUSTERS, "ADDED", made)
        _log.info("default cluster made", namespace=namespace, name=DEFAULT_CLUSTER_NAME)
        message = "made for a topic without cluster"
        self._events.record(made, "Normal", "ClusterCreated", message)

    # -- tasks --------------------------------------------------------------------------------------------------

    def _start(self, key: Key, work: Coroutine[Any, Any, None], *, pause_s: float = 0.0) -> bool:
        """Run `work` for the object `key` unless it has work under way, failed a moment ago, or was just written.

        Whether work for it is under way now.
        """
        if key in self._in_flight or self._clock() < self._not_before.get(key, 0.0):
            work.close()
            return key in self._in_flight
        self._in_flight[key] = asyncio.create_task(self._guard(key, work, pause_s), name=f"{key[0]} {key[1]}")
        return True

    async def _guard(self, key: Key, work: Coroutine[Any, Any, None], pause_s: float) -> None:
        """The root of one action: whatever goes wrong, the object is planned again after a while."""
        delay = pause_s
        try:
            if not self._elector.held():
                work.close()
                return
            await work
            self._failures.pop(key, None)
            self._complaints.well(key, "action applied again", key=key)
        except KafkaLiteError as error:
            delay = max(pause_s, self._back_off(key, error))
        except Exception:
            _log.exception("action failed", key=key)
            self._metrics.reconcile_failures.labels(key[0]).inc()
            delay = BACKOFFS_S[-1]
        finally:
            del self._in_flight[key]
            if delay > 0:
                self._not_before[key] = self._clock() + delay
                asyncio.get_running_loop().call_later(delay, self._wake.set)
            else:
                self._not_before.pop(key, None)
            self._wake.set()

    def _back_off(self, key: Key, error: KafkaLiteError) -> float:
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self._metrics.reconcile_failures.labels(key[0]).inc()
        # One lost race is nothing to talk about: the next round decides on the newer state at once.
        lost_race = isinstance(error, KubeInvalid | KubeConflict) and failures == 0
        if lost_race:
            _log.debug("action not applied", key=key, error=str(error))
        else:
            self._complaints.wrong(key, "action not applied", error, key=key, failures=failures + 1)
        if isinstance(error, KubeThrottled):
            return error.retry_after_s
        first = 1 if isinstance(error, KubeUnavailable) else 0
        return BACKOFFS_S[min(failures + first, len(BACKOFFS_S) - 1)]

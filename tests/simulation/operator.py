"""One operator process: it watches, and while it holds the Lease it plans and carries the actions out."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from kafkalite_core.controller.actions import (
    Fence,
    ReadBrokers,
    ReadClusters,
    RemoveBroker,
    UpdateClusterStatus,
    UpdateTopicStatus,
)
from kafkalite_core.controller.at_rest import AtRest
from kafkalite_core.controller.plan import plan
from kafkalite_core.controller.preferred import balanced, setting
from kafkalite_core.controller.scale_down import removals, wanted_brokers
from tests.simulation.api import Outcome
from tests.simulation.elector import Elector, LeaseReader
from tests.simulation.executor import Executor
from tests.simulation.operator_store import Store
from tests.simulation.oracles import last_resort
from tests.simulation.parsed import cluster_of
from tests.simulation.reflector import Reflector
from tests.simulation.removal import shrink
from tests.simulation.world import Process, ProcessDied

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite_core.controller.actions import Action
    from tests.simulation.clock import Clock
    from tests.simulation.cluster import SimCluster
    from tests.simulation.patching import Json

TICK_MS = 1000.0
ANEW_S = 10.0
RESYNC_S = 30.0
DOUBT_S = 3.0
STATUS_PAUSE_MS = 250.0
BACK_OFFS_MS = (0.0, 50.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0)
RESTART_MS_MAX = 4000.0
Key = tuple[str, str]


class OperatorHost:
    """Where an operator runs; the process is started again after each end."""

    def __init__(self, cluster: SimCluster, number: int, clock: Clock) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.name = f"o{number}"
        self.clock = clock
        self.chance = self.world.rng(f"operator {number}")
        self.operator: Operator | None = None
        self.starts = 0
        self.held = 0

    def start(self) -> None:
        """Start it, unless it runs or is held."""
        if self.operator is None and not self.held:
            self.starts += 1
            self.operator = Operator(self, f"{self.name}-{self.starts}")
            self.operator.begin()

    def died(self, death: ProcessDied) -> None:
        """The process is gone."""
        self.operator = None
        if self.world.tracing:
            self.world.trace(self.name, f"died: {death.reason}")
        self.world.at(200.0 + self.chance.random() * RESTART_MS_MAX, None, self.start)


class Operator:
    """See the module.

    Attributes:
        fuse: After so many more calls of the API server the process dies; 0 for not at all.
    """

    def __init__(self, host: OperatorHost, identity: str) -> None:
        self.host = host
        self.world = host.world
        self.identity = identity
        self.api = host.cluster.api
        self.chance = host.chance.random
        self.process = Process(identity, host.died)
        self.fuse = 0
        self.store = Store(self.now_s)
        self.elector = Elector(self)
        self.leases = LeaseReader(self)
        self.executor = Executor(self)
        self._woken = False
        self._in_flight: dict[Key, int] = {}
        self._failures: dict[Key, int] = {}
        self._not_before_s: dict[Key, float] = {}
        self._epoch: int | None = None
        self._term = -1
        self._at_rest = AtRest()
        self._resynced_s: float | None = None
        self._asked_s = {"brokers": float("-inf"), "clusters": float("-inf")}
        self._took_s = {"brokers": (0.0, 0.0), "clusters": (0.0, 0.0)}
        self._doubted = False
        self._reflectors: list[Reflector] = []
        self._anew_s = float("-inf")
        self._balanced_s = 0.0

    def begin(self) -> None:
        """The process has started."""
        self.trace(f"{self.identity} starts")
        cluster = self.host.cluster
        for kind in ("clusters", "brokers", "topics", "pods"):
            reflector = Reflector(
                self.world, cluster.network, cluster.api, self.host.name, self.process, kind,
                lambda items, _version, kind=kind: self._listed(kind, items),
                lambda event, obj, kind=kind: self._event(kind, event, obj),
                self.chance, lists_after_loss=False,
            )  # fmt: skip
            self._reflectors.append(reflector)
            reflector.start()
        self.elector.turn()
        self.leases.turn()
        self._balanced_s = self.now_s()
        self._tick()

    # ------------------------------------------------------------ surroundings

    def now_s(self) -> float:
        """This process's monotonic clock."""
        return self.host.clock.mono_ms(self.world.now) / 1000.0

    def after(self, local_ms: float, action: Callable[..., None], *args: object) -> None:
        """Call `action` after a while by this machine's clock."""
        self.world.at(local_ms / self.host.clock.rate, self.process, action, *args)

    def trace(self, text: str) -> None:
        """A line of the readable trace."""
        if self.world.tracing:
            self.world.trace(self.host.name, text)

    def call(self, verb: str, *args: Any, answer: Callable[[Outcome, Any], None]) -> None:
        """Ask the API server; the process may die before any call."""
        if self.fuse:
            self.fuse -= 1
            if not self.fuse:
                raise ProcessDied(self.process, "died between two calls")
        self.api.call(self.host.name, self.process, verb, *args, answer=answer, deadline_ms=3000.0)

    def wake(self) -> None:
        """Plan soon."""
        if not self._woken:
            self._woken = True
            self.world.at(0.0, self.process, self._round)

    # ------------------------------------------------------------ watching

    def _listed(self, kind: str, items: list[Json]) -> None:
        """kopf hands its lists over as events: what is gone without an event only an own list tells."""
        for item in items:
            self._event(kind, "ADDED", item)

    def _event(self, kind: str, event: str, obj: Json) -> None:
        if self.store.apply(kind, event, obj):
            self.wake()

    def _tick(self) -> None:
        self.wake()
        self.after(TICK_MS, self._tick)

    # ------------------------------------------------------------ rounds

    def _round(self) -> None:
        self._woken = False
        elector = self.elector
        if not elector.held():
            self._term = -1
            return
        now_s = self.now_s()
        if self._term != elector.terms:
            self._term = elector.terms
            self._epoch, self._resynced_s = None, None
            self._at_rest = AtRest()
        if self._is_due(now_s):
            self.start(("resync", ""), self._resync)
        obj = self.store.cluster_object()
        if self._resynced_s is None or obj is None:
            return
        epoch = self._epoch_of(obj)
        if epoch is None:
            return
        due = self._balance_due(obj)
        snapshot = self.store.snapshot(
            obj,
            controller_epoch=epoch,
            observing_since=self.leases.observing_since(),
            unheard_until=self.leases.unheard_until(),
            balance_due=due,
            brokers_age_s=now_s - self._asked_s["brokers"],
            brokers_read_s=min(self._took_s["brokers"]),
            clusters_age_s=now_s - self._asked_s["clusters"],
            clusters_read_s=min(self._took_s["clusters"]),
        )
        actions = plan(snapshot, now_s, self._at_rest)
        if due and balanced(snapshot, actions, now_s):
            self._balanced_s = now_s
        last_resort.decided(self.host.cluster.oracles, snapshot, actions)
        self.host.cluster.oracles.epochs.decided(snapshot, actions)
        self._dispatch(actions, epoch)
        if self.host.cluster.shape.scales and not removals(snapshot):
            self._run_brokers(len(wanted_brokers(snapshot)))

    def _is_due(self, now_s: float) -> bool:
        """Whether everything has to be listed again: the last time is too long ago, or events were in an odd order."""
        if self.store.doubtful:
            self.store.doubtful, self._doubted = False, True
        return self._resynced_s is None or now_s - self._resynced_s > (DOUBT_S if self._doubted else RESYNC_S)

    def _run_brokers(self, count: int) -> None:
        if count < self.host.cluster.pods():
            self.start(("pods", ""), partial(shrink, self, count), pause_ms=TICK_MS)
        else:
            self.host.cluster.run_brokers(count)

    def _resync(self, done: Callable[[Outcome], None]) -> None:
        kinds = ["clusters", "brokers", "topics", "pods"]
        started_s = self.now_s()
        self._doubted = False

        def listed(outcome: Outcome, result: Any) -> None:
            nonlocal started_s
            if outcome is not Outcome.OK:
                done(outcome)
                return
            kind = kinds.pop(0)
            self._relist(kind, result, started_s)
            self._note_read(kind, started_s)
            if kinds:
                started_s = self.now_s()
                self.call("list", kinds[0], answer=listed)
                return
            self._resynced_s = self.now_s()
            done(Outcome.OK)

        self.call("list", kinds[0], answer=listed)

    def _read(self, kind: str, done: Callable[[Outcome], None]) -> None:
        started_s = self.now_s()

        def listed(outcome: Outcome, result: Any) -> None:
            if outcome is Outcome.OK:
                self._relist(kind, result, started_s)
                self._note_read(kind, started_s)
            done(outcome)

        self.call("list", kind, answer=listed)

    def _relist(self, kind: str, result: Any, asked_s: float) -> None:
        before = self.store.went_back_s
        self.store.relist(kind, *result, asked_s=asked_s)
        if self.store.went_back_s > before and self.now_s() - self._anew_s >= ANEW_S:
            self._anew_s = self.now_s()
            for reflector in self._reflectors:
                reflector.begin_anew()

    def _note_read(self, kind: str, asked_s: float) -> None:
        if kind in self._took_s:
            self._asked_s[kind] = asked_s
            self._took_s[kind] = (self.now_s() - asked_s, self._took_s[kind][0])

    def _epoch_of(self, obj: Json) -> int | None:
        cluster = cluster_of(obj)
        views = list(self.store.topic_views().values())
        written = max((view.topic.controller_epoch for view in views), default=0)
        own = self._epoch
        mine = cluster.controller_holder == self.identity and cluster.controller_epoch == own
        if own is not None and mine and own >= written and cluster.cluster_id:
            return own
        wanted = max(cluster.controller_epoch, written) + 1
        registered = [broker.epoch for broker in self.store.brokers().values()]
        listed = [view.facts.broker_epoch for view in views]
        first = max([0, *registered, *listed]) + 1

        def take(done: Callable[[Outcome], None]) -> None:
            def taken(outcome: Outcome) -> None:
                if outcome is Outcome.OK:
                    self._epoch = wanted
                    self.trace(f"controls the cluster with epoch {wanted}")
                done(outcome)

            self.executor.take_control(obj, wanted, first, taken)

        self.start(("control", ""), take)
        return None

    def _balance_due(self, obj: Json) -> bool:
        interval = setting(cluster_of(obj).config, "leader.imbalance.check.interval.seconds")
        assert isinstance(interval, int)
        return self.now_s() - self._balanced_s >= interval

    def _dispatch(self, actions: list[Action], epoch: int) -> None:
        if any(isinstance(action, Fence) for action in actions):
            self.start(("read brokers", ""), partial(self._read, "brokers"))
        urgent = False
        for action in actions:
            if isinstance(action, Fence) and action.by_expiry:
                obj = self.store.cluster_object()
                assert obj is not None
                self.host.cluster.oracles.justice.fenced_for_silence(
                    self.identity, action.broker.object_name, self.now_s(), cluster_of(obj).lease_duration_s
                )
            if isinstance(action, UpdateTopicStatus | UpdateClusterStatus):
                if not urgent:
                    self._act(action, epoch, pause_ms=STATUS_PAUSE_MS)
                continue
            if isinstance(action, RemoveBroker):
                self._act(action, epoch, pause_ms=TICK_MS)
                continue
            if isinstance(action, ReadBrokers | ReadClusters):
                kind = "brokers" if isinstance(action, ReadBrokers) else "clusters"
                urgent |= self.start((f"read {kind}", ""), partial(self._read, kind))
                continue
            urgent |= self._act(action, epoch)

    def _act(self, action: Action, epoch: int, pause_ms: float = 0.0) -> bool:
        return self.start(action.key, lambda done: self.executor.carry_out(action, epoch, done), pause_ms=pause_ms)

    # ------------------------------------------------------------ work under way

    def start(self, key: Key, work: Callable[[Callable[[Outcome], None]], None], *, pause_ms: float = 0.0) -> bool:
        """Run `work` for the object `key` unless it has work under way, failed a moment ago, or was just written.

        Whether work for it is under way now.
        """
        term = self.elector.terms
        if key in self._in_flight or self.now_s() < self._not_before_s.get(key, 0.0):
            return key in self._in_flight
        self._in_flight[key] = term

        def done(outcome: Outcome) -> None:
            if self._in_flight.get(key) != term:
                return
            del self._in_flight[key]
            delay_ms = pause_ms
            if outcome is Outcome.OK:
                self._failures.pop(key, None)
            else:
                failures = self._failures.get(key, 0)
                self._failures[key] = failures + 1
                first = 1 if outcome in {Outcome.REFUSED, Outcome.AMBIGUOUS, Outcome.THROTTLED} else 0
                delay_ms = max(pause_ms, BACK_OFFS_MS[min(failures + first, len(BACK_OFFS_MS) - 1)])
            if delay_ms:
                self._not_before_s[key] = self.now_s() + delay_ms / 1000.0
                self.after(delay_ms + 0.1, self.wake)
            else:
                self._not_before_s.pop(key, None)
                self.wake()

        work(done)
        return True

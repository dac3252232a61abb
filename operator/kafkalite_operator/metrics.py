"""Metrics of the operator, with the names that existing Kafka dashboards query."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from kafkalite_core.controller.preferred import imbalanced

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite_core.controller.snapshot import Snapshot

_FAST = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_FAILOVER = (0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_CONTROLLER = "kafka_controller_kafkacontroller_"


class OperatorMetrics:
    """All series of the operator in one registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._seen_while_active: list[Gauge] = []
        self.active_controllers = self._gauge(f"{_CONTROLLER}activecontrollercount", "1 while this operator acts.")
        self.offline_partitions = self._gauge(f"{_CONTROLLER}offlinepartitionscount", "Partitions without leader.")
        self.imbalance = self._gauge(
            f"{_CONTROLLER}preferredreplicaimbalancecount", "Partitions not led by their preferred leader."
        )
        self.topics = self._gauge(f"{_CONTROLLER}globaltopiccount", "Topics.")
        self.partitions = self._gauge(f"{_CONTROLLER}globalpartitioncount", "Partitions.")
        self.active_brokers = self._gauge(f"{_CONTROLLER}activebrokercount", "Brokers that are alive.")
        self.fenced_brokers = self._gauge(f"{_CONTROLLER}fencedbrokercount", "Registered brokers that are fenced.")
        self.election_ms = self._histogram(
            "kafka_controller_controllerstats_leaderelectionrateandtimems",
            "Time from the decision until the new leaders of one topic were written, in milliseconds.",
            tuple(bound * 1000 for bound in _FAST),
        )
        self.unclean_elections = Counter(
            "kafka_controller_controllerstats_uncleanleaderelections",
            "Leaders elected outside the ISR.",
            registry=self.registry,
        )
        self.elections = Counter(
            "kafkalite_leader_elections", "Partitions that were given a leader anew.", registry=self.registry
        )
        self.failover_s = self._histogram(
            "kafkalite_failover_duration_seconds",
            "From the sight of a broker's exit or Lease expiry until a topic's new leaders were written.",
            _FAILOVER,
        )
        self.cas_s = self._histogram("kafkalite_cas_latency_seconds", "Duration of one compare-and-swap.", _FAST)
        self.cas_conflicts = Counter(
            "kafkalite_cas_conflicts", "Compare-and-swaps that found another state.", registry=self.registry
        )
        self.fences = Counter("kafkalite_broker_fences", "Brokers fenced.", ["reason"], registry=self.registry)
        self.pods_pending = self._gauge("kafkalite_rolling_pods_pending", "Pods that wait for their restart.")
        self.rolling = self._gauge("kafkalite_rolling_in_progress", "Clusters whose brokers are being restarted.")
        self.pod_restarts = Counter(
            "kafkalite_rolling_pod_restarts", "Pods deleted to be made again.", registry=self.registry
        )
        self.reconcile_s = self._histogram(
            "kafkalite_operator_reconcile_duration_seconds", "Duration of one planning round.", _FAST
        )
        self.reconcile_failures = Counter(
            "kafkalite_operator_action_failures", "Actions that failed, by kind.", ["action"], registry=self.registry
        )
        self.last_success = Gauge(
            "kafkalite_operator_reconcile_last_success_timestamp_seconds",
            "Wall clock of the last complete round.",
            registry=self.registry,
        )

    def _gauge(self, name: str, text: str) -> Gauge:
        gauge = Gauge(name, text, registry=self.registry)
        self._seen_while_active.append(gauge)
        return gauge

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, text, buckets=buckets, registry=self.registry)

    def stand_down(self) -> None:
        """Another operator acts now: what this one saw last is not how things are, and would be reported for ever."""
        for gauge in self._seen_while_active:
            gauge.set(0)

    def observe(self, snapshots: Iterable[Snapshot], *, active: bool) -> None:
        """Set the gauges from what the controller saw."""
        snapshots = list(snapshots)
        views = [view for s in snapshots for view in s.placed_topics()]
        brokers = [broker for s in snapshots for broker in s.brokers.values()]
        self.active_controllers.set(int(active))
        self.topics.set(len(views))
        self.partitions.set(sum(len(view.topic.partitions) for view in views))
        self.offline_partitions.set(sum(view.facts.counts.offline for view in views))
        self.imbalance.set(sum(missing for s in snapshots for missing, _ in imbalanced(s).values()))
        self.pods_pending.set(sum(len(s.rolling.pending) for s in snapshots))
        self.rolling.set(sum(s.rolling.in_progress for s in snapshots))
        self.active_brokers.set(sum(broker.alive for broker in brokers))
        self.fenced_brokers.set(sum(broker.registration is not None and broker.fenced for broker in brokers))

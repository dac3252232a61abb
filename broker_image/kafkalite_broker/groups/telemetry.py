"""What `/metrics` tells of groups, under the names that the JMX exporter gives to Kafka's."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prometheus_client.metrics_core import Metric

    from kafkalite_broker.groups.led_partition import LedPartition

GROUPS = "kafka_coordinator_group_groupmetadatamanager_numgroups"
COORDINATOR = "kafka_server_group_coordinator_metrics_"
STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Empty", "Dead")

COUNTERS = {
    "offset_commits": ("offset_commit_count", "Partitions' offsets committed by groups"),
    "rebalances_completed": ("group_completed_rebalance_count", "Rebalances that reached a new generation"),
    "offsets_expired": ("offset_expiration_count", "Offsets that were removed because their group is gone for long"),
}


class GroupTelemetry(Collector):
    """Counts when somebody scrapes; counters of coordinators that resigned are kept."""

    def __init__(self) -> None:
        self.led: Callable[[], Iterable[LedPartition]] = tuple
        self._past: Counter[str] = Counter()

    def resigned(self, led: LedPartition) -> None:
        """A coordinator goes: what it counted stays."""
        for attribute in COUNTERS:
            self._past[attribute] += getattr(led.coordinator.statistics, attribute)

    def collect(self) -> Iterator[Metric]:
        """The samples, computed now."""
        led = list(self.led())
        counts: Counter[str] = Counter()
        for partition in led:
            counts.update(partition.coordinator.counts())
        yield GaugeMetricFamily(GROUPS, "Groups that this broker coordinates", value=sum(counts.values()))
        for state in STATES:
            yield GaugeMetricFamily(GROUPS + state.lower(), f"Groups that are {state}", value=counts[state])
        for attribute, (name, text) in COUNTERS.items():
            total = self._past[attribute] + sum(getattr(part.coordinator.statistics, attribute) for part in led)
            yield CounterMetricFamily(COORDINATOR + name, text, value=total)
        loaded = sum(partition.loaded for partition in led)
        partitions = GaugeMetricFamily(
            COORDINATOR + "num_partitions", "Partitions of groups that this broker leads", labels=["state"]
        )
        partitions.add_metric(["active"], loaded)
        partitions.add_metric(["loading"], len(led) - loaded)
        yield partitions
        yield GaugeMetricFamily(
            COORDINATOR + "partition_load_time_max",
            "Milliseconds that the slowest load of these partitions took",
            value=max((partition.load_ms or 0.0 for partition in led), default=0.0),
        )

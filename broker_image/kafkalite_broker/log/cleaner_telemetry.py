"""What `/metrics` tells of compaction, under the names that the JMX exporter gives to Kafka's MBeans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.metrics_core import Metric

CLEANER = "kafka_log_logcleaner_"
MANAGER = "kafka_log_logcleanermanager_"


class CleanerTelemetry(Collector):
    """Figures of the last pass and of the last look for one.

    Attributes:
        idle_ms: Tells the milliseconds since the last look.
    """

    def __init__(self) -> None:
        self.idle_ms: Callable[[], float] = lambda: 0.0
        self.max_dirty_ratio = 0.0
        self.max_compaction_delay_ms = 0
        self.uncleanable = 0
        self.recopy_ratio = 0.0
        self.clean_seconds = 0.0
        self.map_ratio = 0.0

    def looked(self, *, max_dirty_ratio: float, max_delay_ms: int, uncleanable: int) -> None:
        """The logs were looked at."""
        self.max_dirty_ratio = max_dirty_ratio
        self.max_compaction_delay_ms = max_delay_ms
        self.uncleanable = uncleanable

    def cleaned(self, *, bytes_read: int, bytes_written: int, seconds: float, map_ratio: float) -> None:
        """A pass has ended."""
        self.recopy_ratio = bytes_written / bytes_read if bytes_read else 0.0
        self.clean_seconds = seconds
        self.map_ratio = map_ratio

    def collect(self) -> Iterator[Metric]:
        """The samples, computed now."""
        for name, text, value in (
            (MANAGER + "time_since_last_run_ms", "Since logs were last looked at for compaction", self.idle_ms()),
            (MANAGER + "max_dirty_percent", "Dirty bytes of the dirtiest log", 100 * self.max_dirty_ratio),
            (MANAGER + "uncleanable_partitions_count", "Logs that cannot be compacted", self.uncleanable),
            (
                CLEANER + "cleaner_recopy_percent",
                "Bytes that the last pass left of those read",
                100 * self.recopy_ratio,
            ),
            (CLEANER + "max_clean_time_secs", "Seconds that the last pass took", self.clean_seconds),
            (CLEANER + "max_buffer_utilization_percent", "Memory that its keys took", 100 * self.map_ratio),
            (
                CLEANER + "max_compaction_delay_secs",
                "By how much max.compaction.lag.ms is exceeded at most",
                self.max_compaction_delay_ms / 1000,
            ),
        ):
            yield GaugeMetricFamily(name, text, value=value)

"""The broker's metrics, under the names that the JMX exporter gives to Kafka's MBeans.

Counters on the hot path are plain integers; they become Prometheus samples when somebody scrapes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Gauge, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from kafkalite_broker.groups.telemetry import GroupTelemetry
from kafkalite_broker.log.cleaner_telemetry import CleanerTelemetry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prometheus_client.metrics_core import Metric

    from kafkalite_broker.replication.driver import PartitionDriver

FLUSH_BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
LATENCY_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

TOPIC_COUNTERS = {
    "bytes_in": ("bytesin", "Bytes of batches appended for clients"),
    "bytes_out": ("bytesout", "Bytes of batches sent to consumers"),
    "messages_in": ("messagesin", "Records appended for clients"),
    "produce_requests": ("totalproducerequests", "Batches received from clients"),
    "failed_produce_requests": ("failedproducerequests", "Batches answered with an error"),
    "fetch_requests": ("totalfetchrequests", "Answers to consumers that carried data"),
    "failed_fetch_requests": ("failedfetchrequests", "Partitions of fetches that an unexpected error left unread"),
    "replication_bytes_out": ("replicationbytesout", "Bytes of batches sent to followers"),
}


class PartitionTelemetry:
    """Counters of one topic, shared by its partitions on this broker."""

    __slots__ = (*TOPIC_COUNTERS, "isr_expands", "isr_shrinks")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.messages_in = 0
        self.produce_requests = 0
        self.failed_produce_requests = 0
        self.fetch_requests = 0
        self.failed_fetch_requests = 0
        self.replication_bytes_out = 0
        self.isr_shrinks = 0
        self.isr_expands = 0

    def produced(self) -> None:
        """A batch arrived from a client."""
        self.produce_requests += 1

    def appended(self, records: int, size_bytes: int) -> None:
        """A batch was appended."""
        self.messages_in += records
        self.bytes_in += size_bytes

    def fetched(self, size_bytes: int, *, follower: bool) -> None:
        """Batches were sent."""
        if follower:
            self.replication_bytes_out += size_bytes
        else:
            self.fetch_requests += 1
            self.bytes_out += size_bytes

    def fetch_failed(self) -> None:
        """A partition could not be read, for a consumer or a follower, because of an error that nobody expects.

        A leader that moved, another epoch, an unknown topic and an offset out of range are not counted, as in Kafka.
        """
        self.failed_fetch_requests += 1

    def isr_changed(self, *, shrunk: int, expanded: int) -> None:
        """An ISR change of a partition that this broker leads was committed."""
        self.isr_shrinks += shrunk > 0
        self.isr_expands += expanded > 0

    def add(self, other: PartitionTelemetry) -> None:
        """Count what the other one has counted."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class BrokerTelemetry(Collector):
    """All metrics of a broker.

    Args:
        drivers: Tells the partitions on this broker.
        connections: Tells the number of client connections.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.drivers: Callable[[], Iterable[PartitionDriver]] = tuple
        self.connections: Callable[[], int] = lambda: 0
        self.in_flight_bytes: Callable[[], int] = lambda: 0
        self.flushes: Callable[[], int] = lambda: 0
        self._topics: dict[str, PartitionTelemetry] = {}
        self._gone = PartitionTelemetry()
        """What topics counted that are no longer here: totals never fall."""
        self._request_seconds = Histogram(
            "kafkalite_request_seconds",
            "Time from the arrival of a request to its answer, waits included",
            ["request"],
            registry=self.registry,
            buckets=LATENCY_BUCKETS_S,
        )
        self.flush_seconds = Histogram(
            "kafkalite_log_flush_seconds",
            "Time of a group flush, until all that it covers is on the disk",
            registry=self.registry,
            buckets=FLUSH_BUCKETS_S,
        )
        self._request_children: dict[str, Histogram] = {}
        self.event_loop_lag_seconds = Gauge(
            "kafkalite_event_loop_lag_seconds", "By how much the event loop was late last", registry=self.registry
        )
        self.groups = GroupTelemetry()
        self.registry.register(self.groups)
        self.cleaner = CleanerTelemetry()
        self.registry.register(self.cleaner)
        ProcessCollector(registry=self.registry)
        self.registry.register(self)

    def topic(self, name: str) -> PartitionTelemetry:
        """The counters of a topic."""
        counters = self._topics.get(name)
        if counters is None:
            counters = self._topics[name] = PartitionTelemetry()
        return counters

    def forget_topic(self, name: str) -> None:
        """The topic is gone: so are its series, but the totals keep what it counted."""
        counters = self._topics.pop(name, None)
        if counters is not None:
            self._gone.add(counters)

    def request_answered(self, api: str, seconds: float) -> None:
        """A request was answered."""
        child = self._request_children.get(api)
        if child is None:
            child = self._request_children[api] = self._request_seconds.labels(api)
        child.observe(seconds)

    def produce_failed(self, topic: str, error_code: int) -> None:
        """A batch was answered with an error. Topics that do not exist get no series: clients could invent many."""
        del error_code
        if topic in self._topics:
            self._topics[topic].failed_produce_requests += 1

    def collect(self) -> Iterator[Metric]:
        """The samples, computed now."""
        yield from self._topic_counters()
        yield from self._replica_manager()
        yield from self._partitions()
        yield GaugeMetricFamily(
            "kafka_server_socket_server_metrics_connection_count", "Client connections", value=self.connections()
        )
        yield GaugeMetricFamily(
            "kafkalite_requests_in_flight_bytes",
            "Bytes of requests in memory: frames, whole or not, and what is left of requests that wait",
            value=self.in_flight_bytes(),
        )

        yield CounterMetricFamily("kafkalite_flushes", "Group flushes begun", value=self.flushes())

    def _topic_counters(self) -> Iterator[Metric]:
        for attribute, (name, text) in TOPIC_COUNTERS.items():
            family = CounterMetricFamily(f"kafka_server_brokertopicmetrics_{name}", text)
            values = {topic: getattr(counters, attribute) for topic, counters in self._topics.items()}
            family.add_sample(f"{family.name}_total", {}, getattr(self._gone, attribute) + sum(values.values()))
            for topic, value in values.items():
                family.add_sample(f"{family.name}_total", {"topic": topic}, value)
            yield family
        for name, text in (
            ("isrshrinks", "Times that an ISR lost members"),
            ("isrexpands", "Times that an ISR gained members"),
        ):
            attribute = "isr_" + name.removeprefix("isr")
            total = sum(getattr(counters, attribute) for counters in (self._gone, *self._topics.values()))
            yield CounterMetricFamily(f"kafka_server_replicamanager_{name}", text, value=total)

    def _replica_manager(self) -> Iterator[Metric]:
        drivers = list(self.drivers())
        led = [driver.replica for driver in drivers if driver.is_leader]
        offline = sum(driver.replica.leader_id < 0 for driver in drivers)
        for name, text, value in (
            ("replicamanager_partitioncount", "Replicas on this broker", len(drivers)),
            ("replicamanager_leadercount", "Partitions that this broker leads", len(led)),
            (
                "replicamanager_underreplicatedpartitions",
                "Led partitions whose ISR is smaller than their replica list",
                sum(replica.under_replicated for replica in led),
            ),
            (
                "replicamanager_underminisrpartitioncount",
                "Led partitions of whose ISR fewer members count than min.insync.replicas asks for",
                sum(replica.under_min_isr for replica in led),
            ),
            (
                "replicamanager_atminisrpartitioncount",
                "Led partitions whose ISR is just min.insync.replicas",
                sum(replica.at_min_isr for replica in led),
            ),
            ("replicamanager_offlinereplicacount", "Replicas here whose partition has no leader", offline),
            (
                "replicafetchermanager_maxlag",
                "Committed records that a replica which follows here lacks at most",
                max((driver.follower_lag for driver in drivers), default=0),
            ),
        ):
            yield GaugeMetricFamily(f"kafka_server_{name}", text, value=value)

    def _partitions(self) -> Iterator[Metric]:
        size = GaugeMetricFamily("kafka_log_log_size", "Bytes of the log", labels=["topic", "partition"])
        lag = GaugeMetricFamily(
            "kafkalite_partition_high_watermark_lag",
            "Records that are in the log of the leader and not yet committed",
            labels=["topic", "partition"],
        )
        for driver in self.drivers():
            labels = [driver.ref.name, str(driver.number)]
            size.add_metric(labels, sum(segment.size for segment in driver.log.segments))
            if driver.is_leader:
                lag.add_metric(labels, driver.log.end_offset - driver.replica.high_watermark)
        yield size
        yield lag

"""One kind of failure, again and again, on a local cluster under load: what clients see of each.

The pause of a failure is the longest time without an acknowledged record of a partition whose leader was harmed, from
its last one before the harm until everything is whole again; of a failure that harms several partitions, the slowest
one's. Run by `failover_report`, each kind in a process of its own; what the API server's absence does is in
`failover_api`.
"""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from bench.client_statistics import ClientStatistics
from kafkalite_cli.verify.load import Load
from kafkalite_cli.verify.metadata_checker import check_metadata
from kafkalite_cli.verify.replicas import compare_replicas
from tests.chaos.cluster import BROKERS, ChaosError, Cluster
from tests.chaos.faults import NETWORK
from tests.chaos.network import EVERYBODY, address, between
from tests.chaos.rig import build
from tests.chaos.workloads import WORKLOADS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tests.chaos.faults import Run

TOPIC = "failover"
HEALED = "healed"
REPLICAS = 3
WHOLE_LIMIT_S = 120.0
PAUSE_LIMIT_S = 120.0
FORGIVEN_S = 11.0
"""A process that ran less long before it was harmed is held back by the kubelet before it is started again."""
MOVE_LIMIT_S = 60.0

DEFAULT_CLIENT: dict[str, Any] = {}
ONE_IN_FLIGHT: dict[str, Any] = {
    # librdkafka's idempotent producer lets a thread of each broker spin while more than five records of a partition are
    # under way and others wait: rd_kafka_toppar_producer_serve asks to be woken at a time that is over. On a machine
    # with brokers on it the slow answer that began it takes longer by that, a second and more on two processors.
    "max.in.flight": 1,
}
RESTARTED_CLIENT: dict[str, Any] = {
    **ONE_IN_FLIGHT,
    # Here every broker is restarted each twelve seconds or so. librdkafka doubles its pause from one attempt to connect
    # to a broker to the next, also over restarts that are less than ten seconds apart, up to ten seconds: a leader may
    # then be there for eight seconds before it is asked. This is the limit that Java's client has by default.
    "reconnect.backoff.max.ms": 1_000,
}
QUICK_CLIENT: dict[str, Any] = {
    **ONE_IN_FLIGHT,
    # A broker that hangs, or whose host is cut off, keeps its connections open: only the client's own time-outs end
    # the wait for its answers, and librdkafka's is 60 s. It also asks for the leaders every 5 minutes only.
    "socket.timeout.ms": 2_000,
    "topic.metadata.refresh.interval.ms": 1_000,
    "socket.connection.setup.timeout.ms": 2_000,
    "api.version.request.timeout.ms": 2_000,
    "reconnect.backoff.max.ms": 500,
}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of failure.

    Attributes:
        text: What is done, for the document.
        client: librdkafka settings of producers and consumers.
        targets: Percentile -> seconds that the pause is to stay below.
        least: How many failures are asked for.
        by_partition: The targets are those of single partitions.
        needs: What the cluster needs besides itself.
    """

    text: str
    harm: Callable[[Lab, int], Any] | None = None
    client: dict[str, Any] = field(default_factory=RESTARTED_CLIENT.copy)
    targets: dict[str, float] = field(default_factory=dict)
    least: int = 100
    by_partition: bool = False
    needs: frozenset[str] = frozenset()


@dataclass(slots=True)
class Result:
    """One line of the results: samples are seconds."""

    kind: str
    rate: float
    partitions: int
    client: dict[str, Any]
    pauses_s: list[float] = field(default_factory=list)
    partition_pauses_s: list[float] = field(default_factory=list)
    heal_s: list[float] = field(default_factory=list)
    acked: int = 0
    unknown: int = 0
    anomalies: dict[str, int] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    problem: str = ""
    minutes: float = 0.0
    facts: dict[str, Any] = field(default_factory=dict)

    def sample(self, pauses: Sequence[tuple[str, float, list[float]]]) -> None:
        """Take what the load has seen, in order: what was done, the pause in ms, and that of each partition.

        Of a run that broke, the failure that it broke in may not have harmed anything, or not be over: no sample.
        """
        done = list(pauses)
        if self.problem and done and done[-1][0] != HEALED:
            self.problem += f" (the longest pause since that failure began: {done.pop()[1] / 1000:.2f} s)"
        for what, pause_ms, of_partitions_ms in done:
            if what != HEALED:
                self.pauses_s.append(round(pause_ms / 1000, 4))
                self.partition_pauses_s += [round(each_ms / 1000, 4) for each_ms in of_partitions_ms]


class Lab:
    """A cluster, its load, and what was measured."""

    def __init__(self, kind: str, folder: Path, *, rate: float, partitions: int) -> None:
        self.kind, self.folder = KINDS[kind], folder
        self.result = Result(kind, rate, partitions, self.kind.client)
        self.statistics = ClientStatistics()
        self._began_s = time.monotonic()

    def say(self, text: str) -> None:
        """A line of what happens."""
        print(f"  {time.monotonic() - self._began_s:7.1f} s  {text}", flush=True)

    def run(self, body: Callable[[Lab], None]) -> dict[str, Any]:
        """Start everything, run the body, judge; the line for the results."""
        with ExitStack() as stack:
            scenario: Any = SimpleNamespace(fault=SimpleNamespace(needs=self.kind.needs), workload=WORKLOADS["steady"])
            run: Run = build(scenario, self.folder, random.Random(), stack, self.say)
            self.cluster: Cluster = run.cluster
            self.network = run.network
            self.cluster.create_topic(TOPIC, partitions=self.result.partitions, min_insync_replicas="2")
            self.load = Load(
                self.cluster.bootstrap,
                TOPIC,
                self.result.rate,
                keys=self.result.partitions * 10,
                history=self.folder / "history.jsonl",
                producer_config={**self.kind.client, **self.statistics.config},
                consumer_config={**self.kind.client, **self.statistics.config},
            )
            stack.callback(self.load.stop, 2.0)
            self.load.start()
            self.load.wait_acks(round(5 * self.result.rate), 120)
            self.say("cluster and load are up")
            try:
                body(self)
                self.cluster.wait_whole(WHOLE_LIMIT_S)
            except Exception as error:  # what was measured until then counts all the same
                self.result.problem = f"{type(error).__name__}: {error}"
                self.say(self.result.problem)
            self.load.stop()
            self._judge()
        return asdict(self.result)

    def _judge(self) -> None:
        """All three checkers; their anomalies go into one count."""
        report, result = self.load.report(), self.result
        result.acked, result.unknown, result.anomalies = report.acked, report.unknown, dict(report.counts)
        self.cluster.log.sync()
        metadata = check_metadata(self.folder / "metadata.jsonl")
        ends = {(TOPIC, partition): offset + 1 for partition, offset in self.load.acks.highest.items()}
        directories = {broker: self.cluster.data_directory(broker) for broker in range(BROKERS)}
        starts = {(TOPIC, partition): offset for partition, offset in self.load.starts.items()}
        replicas = compare_replicas(
            directories, topics={TOPIC}, high_watermarks=ends, starts=starts, copies=min(REPLICAS, BROKERS)
        )
        result.anomalies |= metadata.counts | replicas.counts
        if not metadata.changes:
            result.anomalies["metadata-not-recorded"] = 1
        if replicas.uncompared or not replicas.records:
            result.anomalies["uncompared"] = max(1, len(replicas.uncompared))
        result.facts |= {"elections_judged": metadata.elections, "records_compared": replicas.records}
        result.errors = dict(self.load.errors)
        result.minutes = round((time.monotonic() - self._began_s) / 60, 2)
        result.sample([(pause.fault, pause.gap_ms, list(pause.gaps_ms.values())) for pause in report.pauses])

    # --- one failure

    def fail(self, number: int) -> None:
        """Harm the broker that leads most until its partitions are served again; wait until all is whole."""
        broker = self.victim()
        time.sleep(random.random())
        # What it leads when it is harmed, not a moment before: of others no pause is to be measured.
        self._led = led = self.cluster.led_by(TOPIC, broker)
        if not led:
            raise ChaosError(f"broker {broker} leads nothing any more")
        epochs = self.leader_epochs(led)
        assert self.kind.harm is not None
        with self.kind.harm(self, broker):
            harmed_s = time.monotonic()
            self.served_by_others(epochs, broker)
            served_s = time.monotonic() - harmed_s
        self.cluster.wait_whole(WHOLE_LIMIT_S)
        self.load.fault(HEALED, [])
        whole_s = round(time.monotonic() - harmed_s, 2)
        self.result.heal_s.append(whole_s)
        self.say(
            f"{number:4} broker {broker} leads {led}: served again after {served_s:.2f} s, whole after {whole_s:.2f} s"
        )

    def note(self, broker: int) -> None:
        """Called right before the harm is done."""
        self.load.fault(f"{self.result.kind} broker {broker}", self._led)

    def victim(self) -> int:
        """The broker that leads most partitions; it and the operator have run for a while when this returns."""
        self.cluster.wait_whole(WHOLE_LIMIT_S)
        broker = max(range(BROKERS), key=lambda each: len(self.cluster.led_by(TOPIC, each)))
        for target in (broker, "operator"):
            while (age_s := age_of(self.cluster.record(target).start_time)) < FORGIVEN_S:
                time.sleep(FORGIVEN_S - age_s)
        return broker

    def leader_epochs(self, led: list[int]) -> dict[int, int]:
        """Leader epochs of these partitions now."""
        entries = self.cluster.partitions(TOPIC)
        return {number: int(entries[number]["leaderEpoch"]) for number in led}

    def served_by_others(self, epochs: dict[int, int], broker: int) -> None:
        """Wait until each of the partitions was given away and acknowledges. Raises ChaosError: it did not bite."""

        def moved() -> bool:
            now = self.leader_epochs(list(epochs))
            return all(now[number] > epoch for number, epoch in epochs.items())

        if not self.cluster.log.wait(moved, MOVE_LIMIT_S):
            raise ChaosError(f"broker {broker} was harmed, and {sorted(epochs)} were not given to others")
        moved_us = time.monotonic_ns() // 1000
        self.load.acks.watch(moved_us, epochs)
        self.load.pauses_after(moved_us / 1e6, epochs, PAUSE_LIMIT_S)


def age_of(start_time: int) -> float:
    """Seconds since a process of this start time (in ticks since boot) was started."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - start_time / os.sysconf("SC_CLK_TCK")


# --- kinds


@contextmanager
def by_signal(lab: Lab, broker: int, number: int) -> Iterator[None]:
    """A signal that ends the broker; the kubelet starts it again."""
    record = lab.cluster.record(broker)
    lab.note(broker)
    record.signal(number)
    yield
    if not lab.cluster.wait_replaced(broker, record):
        raise ChaosError(f"broker {broker} was not started again")


@contextmanager
def stopped(lab: Lab, broker: int) -> Iterator[None]:
    """The broker hangs, its connections stay open."""
    lab.note(broker)
    with lab.cluster.frozen(broker):
        yield


@contextmanager
def cut(lab: Lab, broker: int) -> Iterator[None]:
    """Nothing passes between the broker's host and any other one."""
    assert lab.network is not None
    others = [EVERYBODY, *(address(other) for other in range(BROKERS) if other != broker)]
    lab.note(broker)
    with lab.network.drops(between([address(broker)], others)):
        yield


@contextmanager
def operator_too(lab: Lab, broker: int) -> Iterator[None]:
    """SIGKILL operator and leader at the same moment; the kubelet starts both again."""
    operator, record = lab.cluster.record("operator"), lab.cluster.record(broker)
    lab.note(broker)
    operator.signal(signal.SIGKILL)
    record.signal(signal.SIGKILL)
    yield
    if not (lab.cluster.wait_replaced("operator", operator) and lab.cluster.wait_replaced(broker, record)):
        raise ChaosError("operator or broker were not started again")


KINDS = {
    "term": Kind(
        "The leader is stopped in order (SIGTERM), as in a roll or a drain.",
        lambda lab, broker: by_signal(lab, broker, signal.SIGTERM),
        targets={"p99": 1.0},
    ),
    "kill": Kind(
        "The leader's process is killed (SIGKILL); its pod reports the end.",
        lambda lab, broker: by_signal(lab, broker, signal.SIGKILL),
        targets={"p50": 0.5, "p99": 2.0},
    ),
    "stop": Kind(
        "The leader hangs (SIGSTOP) and nobody reports it: only its Lease, of 5 s, tells.",
        stopped,
        client=QUICK_CLIENT,
        targets={"p99": 9.0},
    ),
    "cut": Kind(
        "The leader's host is cut off from everything; nobody reports it either.",
        cut,
        client=QUICK_CLIENT,
        targets={"p99": 9.0},
        needs=frozenset({NETWORK}),
    ),
    "operator": Kind(
        "Leader and operator are killed at the same moment (SIGKILL); there is one operator.",
        operator_too,
        targets={"p99": 15.0},
    ),
    "stop-default": Kind(
        "The leader hangs (SIGSTOP), and clients have librdkafka's default time-outs.",
        stopped,
        client=DEFAULT_CLIENT,
        least=0,
    ),
    "api-short": Kind(
        "The API server hangs for a short while (SIGSTOP), again and again; the slowest of all partitions counts.",
        least=30,
    ),
    "api": Kind("The API server hangs (SIGSTOP) for long, under load, then comes back.", least=1),
}

"""The traffic under which faults are injected: what is produced and read, and how much of it is the least that counts.

Every workload is idempotent producers with acks=all and readers; all of them write a history (docs/verify.md).
"""

from __future__ import annotations

import http.client
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from kafkalite_cli.verify.group_load import GroupLoad
from kafkalite_cli.verify.group_report import GroupLimits
from kafkalite_cli.verify.history import Assign, Foreign, read_history
from kafkalite_cli.verify.load import Load, LoadError
from tests.chaos.api import ApiRefusedError
from tests.chaos.cluster import ChaosError, NotHealedError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from tests.chaos.cluster import Cluster

TOPIC = "chaos"
CLIENT = {
    # A hung broker keeps its connections open: a client gives it up by its own time-out, 60 s by default.
    "socket.timeout.ms": 10_000,
    "socket.connection.setup.timeout.ms": 5_000,
    "reconnect.backoff.max.ms": 1_000,
}
OBSERVE_S = 0.1  # between two rounds of asking for the ends of all partitions: a new leader knows less for moments only
FLOOR = 0.1  # of the intended rate, over the whole time of the load, faults included
WARM_UP_RECORDS = 300
STOP_LIMIT_S = 120.0
SERVED_LIMIT_S = 60.0
GROUP_SETTLE_S = 60.0
GROUP_LIMITS = GroupLimits(settle_ms=120_000, stuck_ms=180_000)  # safety and convergence; speed is measured elsewhere


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One kind of traffic. `members`: of a consumer group that reads and commits as well; 0: no group."""

    name: str
    text: str
    partitions: int = 6
    rate: int = 1500
    producers: int = 2
    keys: int = 60
    size: int = 100
    members: int = 0
    churn: bool = False
    topic_config: dict[str, str] = field(default_factory=dict)
    producer_config: dict[str, Any] = field(default_factory=dict)


WORKLOADS = {
    each.name: each
    for each in (
        Workload(name="steady", text="six partitions, two producers, a reader"),
        Workload(name="single", text="one partition, one producer: nothing hides a reordering", partitions=1, producers=1, rate=1000, keys=20),
        Workload(name="wide", text="24 partitions, four producers", partitions=24, producers=4, rate=2000, keys=240),
        Workload(name="rolling", text="segments of 64 KiB: rolling, flushing and indexing all the time", partitions=3, size=500, rate=800, topic_config={"segment_bytes": "65536"}, producer_config={"batch.size": 32768}),
        Workload(name="packed", text="compressed batches of many records", partitions=3, rate=4000, size=200, producer_config={"linger.ms": 50, "compression.type": "lz4"}),
        Workload(name="group", text="a consumer group of three commits what it reads", rate=500, members=3),
        Workload(name="churn", text="other topics come and go meanwhile", churn=True, rate=1000),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the clients' histories say. `unread`: acknowledged, and not given to the reader in the load in its time."""

    ok: bool
    acked: int
    read: int
    anomalies: dict[str, int]
    examples: tuple[str, ...]
    longest_gap_ms: float
    too_large: int = 0
    unread: int = 0
    allowed: dict[str, int] = field(default_factory=dict)


class Churn:
    """A thread that makes and deletes small topics; what the API server refuses or does not hear is tried again."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="churn", daemon=True)
        self.made = 0

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, and leave none of the topics."""
        self._ended.set()
        self._thread.join()

    def _work(self) -> None:
        number = 0
        while not self._ended.wait(0.7):
            name = f"churn-{number}"
            body = {"apiVersion": "kafkalite.io/v1alpha1", "kind": "KafkaLiteTopic", "metadata": {"name": name}}
            body["spec"] = {"partitions": 2, "replicas": 3}
            if self._asked("create", "kafkalitetopics", body):
                self.made += 1
                self._ended.wait(0.7)
                limit = time.monotonic() + 60
                while not self._asked("delete", "kafkalitetopics", name) and time.monotonic() < limit:
                    time.sleep(0.3)
            number += 1

    def _asked(self, call: str, *arguments: Any) -> bool:
        try:
            getattr(self._cluster.api, call)(*arguments)
        except ApiRefusedError as error:
            return error.code == 404 and call == "delete"
        except (OSError, http.client.HTTPException):
            return False
        return True


class Traffic:
    """One workload on one topic; `load` is its producers and reader whether there is a group or not.

    `alone`: nobody else has ever written to this topic, so that a record of somebody else's is an anomaly.
    `allowed`: kinds of anomaly that clients are not promised to be spared under this fault; they are counted apart.
    """

    def __init__(
        self,
        cluster: Cluster,
        workload: Workload,
        directory: Path,
        topic: str = TOPIC,
        *,
        alone: bool = False,
    ) -> None:
        self.workload, self.topic, self._alone = workload, topic, alone
        self.allowed: Collection[str] = ()
        self._cluster = cluster
        self._directory = directory
        self._group: GroupLoad | None = None
        self._churn: Churn | None = None
        self._load: Load | None = None
        self._began_s = self._ended_s = 0.0

    def start(self) -> None:
        """Make the topic, begin, wait for the first acknowledgements. Raises NotHealedError or LoadError."""
        w, directory = self.workload, self._directory
        directory.mkdir(parents=True, exist_ok=True)
        config = {"min_insync_replicas": "2", **w.topic_config}
        self._cluster.create_topic(self.topic, partitions=w.partitions, **config)
        bootstrap = self._cluster.bootstrap
        self._wait_served(bootstrap)
        if w.members:
            self._group = GroupLoad(
                bootstrap,
                self.topic,
                directory,
                members=w.members,
                producers=w.producers,
                rate=w.rate,
                observe_s=OBSERVE_S,
            )
            self._load = self._group.log
        else:
            self._load = Load(
                bootstrap,
                self.topic,
                w.rate,
                keys=w.keys,
                size=w.size,
                producers=w.producers,
                history=directory / "log.jsonl",
                observe_s=OBSERVE_S,
                producer_config=CLIENT | w.producer_config,
                consumer_config=CLIENT,
            )
        if w.churn:
            self._churn = Churn(self._cluster)
            self._churn.start()
        self._began_s = time.monotonic()
        (self._group or self._load).start()
        try:
            self._load.wait_acks(WARM_UP_RECORDS, timeout_s=60)
            if self._group:
                self._group.wait_stable(w.members, timeout_s=GROUP_SETTLE_S)
                self._group.wait_committed(timeout_s=GROUP_SETTLE_S)
        except LoadError as error:
            raise NotHealedError(f"topic {self.topic}: {error}") from error

    def _wait_served(self, bootstrap: str) -> None:
        """Wait until brokers tell clients of the topic: what stands at the API server reaches them a moment later."""
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
        limit = time.monotonic() + SERVED_LIMIT_S
        while True:
            try:
                found = admin.list_topics(self.topic, timeout=5).topics[self.topic].partitions
            except KafkaException:
                found = {}
            if len(found) == self.workload.partitions and all(each.leader >= 0 for each in found.values()):
                return
            if time.monotonic() > limit:
                raise NotHealedError(f"brokers tell of {len(found)} partitions of topic {self.topic}")
            time.sleep(0.1)

    @property
    def load(self) -> Load:
        """The producers and the reader outside any group."""
        assert self._load is not None, "start() first"
        return self._load

    @property
    def acked(self) -> int:
        """Records acknowledged so far."""
        return self.load.acks.count

    def fault(self, name: str, partitions: list[int]) -> None:
        """Note in the history that the leaders of these partitions are harmed now."""
        (self._group or self.load).fault(name, partitions)

    def coordinator(self) -> int:
        """The broker that coordinates the group. Raises ChaosError when there is none."""
        assert self._group is not None, "no group in this workload"
        coordinator = self._group.describe().coordinator
        if coordinator is None:
            raise ChaosError("the group has no coordinator")
        return int(coordinator.id)

    def wait_coordinator(self, other_than: int, timeout_s: float) -> bool:
        """Wait until another broker coordinates the group; False when the time is over."""
        limit = time.monotonic() + timeout_s
        while time.monotonic() < limit:
            with suppress(ChaosError, KafkaException):
                if self.coordinator() != other_than:
                    return True
            time.sleep(0.1)  # brokers offer no event for this
        return False

    def wait_without_member(self, timeout_s: float) -> bool:
        """Wait until the group goes on with one member less; False when the time is over."""
        assert self._group is not None, "no group in this workload"
        try:
            self._group.wait_stable(self.workload.members - 1, timeout_s)
        except LoadError:
            return False
        return True

    def term_member(self) -> None:
        """SIGTERM the group's oldest member."""
        assert self._group is not None, "no group in this workload"
        self._group.term_member(self._group.members[0])

    def start_member(self) -> None:
        """Start one more member of the group."""
        assert self._group is not None, "no group in this workload"
        self._group.start_member()

    @contextmanager
    def frozen_member(self) -> Iterator[None]:
        """SIGSTOP the group's oldest member for the body, then SIGCONT."""
        assert self._group is not None, "no group in this workload"
        with self._group.frozen_member(self._group.members[0]):
            yield

    def replace_member(self) -> int:
        """SIGKILL the group's oldest member and start another one; the number of the killed one."""
        assert self._group is not None, "no group in this workload"
        victim = self._group.members[0]
        self._group.kill_member(victim)
        self._group.start_member()
        return victim

    def wait_progress(self, timeout_s: float) -> None:
        """Wait until every partition acknowledged a record that was sent after now. Raises NotHealedError."""
        now_us, numbers = time.monotonic_ns() // 1000, list(range(self.load.partitions))
        self.load.acks.watch(now_us, numbers)
        try:
            self.load.pauses_after(now_us / 1e6, numbers, timeout_s)
            if self._group:
                self._group.wait_stable(self.workload.members, timeout_s)
        except LoadError as error:
            raise NotHealedError(f"no progress after healing: {error}") from error

    def stop(self, timeout_s: float = STOP_LIMIT_S) -> None:
        """End; at the end of this everything was read once more. Raises LoadError when a client failed."""
        if self._churn:
            self._churn.stop()
            self._churn = None
        if self._load is not None:
            self._ended_s = self._ended_s or time.monotonic()
            (self._group or self._load).stop(timeout_s)

    def floor(self) -> int:
        """The acknowledged records without which the run shows nothing."""
        return max(WARM_UP_RECORDS, round(FLOOR * self.workload.rate * (self._ended_s - self._began_s)))

    def _foreign(self) -> int:
        """Records in the topic that this traffic did not make, those before its first one included."""
        found = 0
        for event in read_history(self._directory / "log.jsonl"):
            if isinstance(event, Foreign):
                found += 1
            elif isinstance(event, Assign) and event.consumer == 0:
                found += event.offset
        return found

    def judge(self) -> Judgement:
        """What the histories say; after `stop`."""
        if self._group:
            verdict = self._group.verdict(GROUP_LIMITS)
            log, group = verdict.log, verdict.group
            counts = {**log.counts, **group.counts}
            examples = [*log.examples, *group.examples]
        else:
            log = self.load.report()
            counts, examples = dict(log.counts), list(log.examples)
        if self._alone and (foreign := self._foreign()):
            counts["foreign"] = foreign
        allowed = {kind: counts.pop(kind) for kind in counts.keys() & set(self.allowed)}
        return Judgement(
            ok=not counts,
            acked=log.acked,
            read=log.read,
            anomalies=counts,
            examples=tuple(str(each) for each in examples[:10]),
            longest_gap_ms=log.longest_ack_gap_ms,
            too_large=self.load.too_large,
            unread=sum(self.load.unread.values()),
            allowed=allowed,
        )

"""Produce the flights of 2013, kill the leader of the busiest partition halfway, read everything back: the verdict.

    python examples/flights/demo.py            # `make demo`: starts KafkaLite when it does not run

Exit code 0: everything acknowledged was read back once.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from confluent_kafka import Consumer, TopicPartition
from flights import COUNT
from produce import PROGRESS_EVERY, Produced, produce_flights, progress_bar

HERE = Path(__file__).resolve().parent
READY_LIMIT_S = 60.0
READ_LIMIT_S = 120.0
RATE = 20_000.0  # slow enough that a record sent after the kill does not queue behind thousands that were sent before


class Cluster(Protocol):
    """What the demonstration needs of a cluster."""

    bootstrap: str

    def leaders(self, topic: str) -> dict[int, int]:
        """Partition -> broker that leads it."""

    def pid(self, broker: int) -> int:
        """The process of a broker."""

    def kill(self, broker: int) -> None:
        """SIGKILL a broker."""


class KafkaLiteCluster:
    """The cluster of `kafkalite up` in this working directory, through its command line."""

    def __init__(self) -> None:
        beside = Path(sys.executable).with_name("kafkalite")
        self._executable = str(beside) if beside.exists() else shutil.which("kafkalite")
        if self._executable is None:
            raise SystemExit("no `kafkalite` beside this Python or on PATH: pip install 'kafkalite[local,examples]'")
        self.run("up")
        self.bootstrap = str(self.status()["bootstrap"])

    def run(self, *arguments: str) -> None:
        """Run `kafkalite …` and show what it says."""
        if (code := subprocess.run([self._executable, *arguments], check=False).returncode) != 0:
            raise SystemExit(f"`kafkalite {' '.join(arguments)}` ended with exit code {code}")

    def status(self) -> dict[str, Any]:
        """`kafkalite status -o json`."""
        command = [self._executable, "status", "-o", "json"]
        output = subprocess.run(command, check=True, capture_output=True).stdout
        status: dict[str, Any] = json.loads(output)
        return status

    def topic(self, name: str) -> list[dict[str, Any]]:
        """The partitions of a topic, none when there is no such topic."""
        found = [topic["partitions"] for topic in self.status()["topics"] if topic["name"] == name]
        return found[0] if found else []

    def ensure_topic(self, name: str, manifest: Path) -> None:
        """Apply the manifest and wait until every replica of every partition is in sync."""
        self.run("apply", "-f", str(manifest))
        limit = time.monotonic() + READY_LIMIT_S
        while not (partitions := self.topic(name)) or any(len(p["isr"]) < len(p["replicas"]) for p in partitions):
            if time.monotonic() > limit:
                raise SystemExit(f"topic {name} is not in sync after {READY_LIMIT_S:.0f} s; see `kafkalite status`")

    def leaders(self, topic: str) -> dict[int, int]:
        """Partition -> broker that leads it."""
        return {partition["partition"]: partition["leader"] for partition in self.topic(topic)}

    def pid(self, broker: int) -> int:
        """The process of a broker."""
        return next(int(entry["pid"]) for entry in self.status()["brokers"] if entry["id"] == broker)

    def kill(self, broker: int) -> None:
        """`kafkalite kill`."""
        self.run("kill", str(broker))


@dataclass(slots=True)
class Murder:
    """The kill of a leader, and how long its partitions then went without an acknowledgement."""

    cluster: Cluster
    topic: str
    broker: int = -1
    partitions: set[int] = field(default_factory=set)
    instant: float | None = None
    pauses_s: dict[int, float] = field(default_factory=dict)
    thread: threading.Thread | None = None

    def start(self, busiest: int) -> None:
        """Kill the leader of a partition in the background."""
        self.thread = threading.Thread(target=self._kill, args=(busiest,))
        self.thread.start()

    def _kill(self, busiest: int) -> None:
        leaders = self.cluster.leaders(self.topic)
        self.broker = leaders[busiest]
        self.partitions = {partition for partition, leader in leaders.items() if leader == self.broker}
        process = os.pidfd_open(self.cluster.pid(self.broker))
        killing = threading.Thread(target=self.cluster.kill, args=(self.broker,))
        killing.start()
        poll = select.poll()
        poll.register(process, select.POLLIN)  # readable at the instant when the process has ended
        if poll.poll(30_000):
            self.instant = time.monotonic()
        os.close(process)
        killing.join()

    def acknowledged(self, partition: int, sent: float, acknowledged: float) -> None:
        """The first acknowledgement of a record sent after the kill ends the pause of its partition."""
        if self.instant is not None and sent > self.instant and partition in self.partitions:
            self.pauses_s.setdefault(partition, acknowledged - self.instant)


def consumer_of(cluster: Cluster) -> Consumer:
    """A consumer without a group."""
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "unused", "enable.auto.commit": False}
    return Consumer({**settings, "auto.offset.reset": "error", "log_level": 2})


def ends_of(cluster: Cluster, topic: str) -> dict[int, int]:
    """Partition -> end of the log now: earlier flights in the topic are not this run's."""
    consumer = consumer_of(cluster)
    try:
        partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
        return {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=20)[1] for p in partitions}
    finally:
        consumer.close()


def produce_and_kill(cluster: Cluster, topic: str, *, rate: float, count: int) -> tuple[Produced, Murder]:
    """Send the flights; halfway the leader of the partition with the most acknowledgements is killed."""
    murder = Murder(cluster, topic)
    per_partition: Counter[int] = Counter()
    with progress_bar() as progress:
        task = progress.add_task("produce", total=count)

        def on_ack(acknowledged: int, partition: int, sent: float, now: float) -> None:
            per_partition[partition] += 1
            if murder.thread is None and acknowledged >= count // 2:
                murder.start(per_partition.most_common(1)[0][0])
            murder.acknowledged(partition, sent, now)
            if acknowledged % PROGRESS_EVERY == 0 or acknowledged == count:
                progress.update(task, completed=acknowledged)

        produced = produce_flights(cluster.bootstrap, topic, rate=rate, limit=count, on_ack=on_ack)
    if murder.thread is not None:
        murder.thread.join()
    return produced, murder


def consume(cluster: Cluster, topic: str, begins: dict[int, int], produced: Produced) -> bytearray:
    """Read from where the run began to behind the last acknowledged record; returns how often each row was there."""
    seen = bytearray(COUNT)
    consumer = consumer_of(cluster)
    ends = {partition: max(end, produced.ends.get(partition, 0)) for partition, end in ends_of(cluster, topic).items()}
    positions = dict(begins)
    consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in begins.items()])
    limit = time.monotonic() + READ_LIMIT_S
    read = 0
    with progress_bar() as progress:
        task = progress.add_task("consume", total=sum(ends.values()) - sum(begins.values()))
        while any(positions[partition] < end for partition, end in ends.items()) and time.monotonic() < limit:
            for message in consumer.consume(2000, 0.5):
                if message.error() is None:
                    read += 1
                    positions[message.partition()] = message.offset() + 1
                    row = int(dict(message.headers())["row"])
                    seen[row] = min(seen[row] + 1, 255)
            progress.update(task, completed=read)
    consumer.close()
    return seen


def verdict(produced: Produced, murder: Murder, seen: bytearray) -> bool:
    """Print the verdict line; returns whether everything acknowledged was there exactly once."""
    missing = sum(
        1 for acknowledged, times in zip(produced.acknowledged, seen, strict=True) if acknowledged and not times
    )
    duplicated = sum(1 for times in seen if times > 1)
    consumed = sum(1 for times in seen if times)
    failed = sum(produced.failed.values())
    unhealed = murder.instant is None or not murder.partitions <= set(murder.pauses_s)
    longest = "none ended" if unhealed else f"{max(murder.pauses_s.values()):.3f} s"
    good = not (missing or duplicated or failed or unhealed)
    print(
        f"{'OK' if good else 'BROKEN'}: produced {produced.count:,}, consumed {consumed:,}, missing {missing:,}, "
        f"duplicated {duplicated:,}, longest pause {longest} (SIGKILL of broker {murder.broker}, "
        f"leader of {len(murder.partitions)} partitions)" + (f"; not acknowledged: {produced.failed}" if failed else "")
    )
    return good


def demonstrate(cluster: Cluster, topic: str, *, rate: float = RATE, count: int = COUNT) -> bool:
    """The whole demonstration on a topic that exists."""
    begins = ends_of(cluster, topic)
    produced, murder = produce_and_kill(cluster, topic, rate=rate, count=count)
    return verdict(produced, murder, consume(cluster, topic, begins, produced))


def main() -> int:
    """Up, topic, flights, kill, read, verdict."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=RATE, help="records per second; 0: no limit")
    parser.add_argument("--count", type=int, default=COUNT, help="only the first flights")
    arguments = parser.parse_args()
    cluster = KafkaLiteCluster()
    cluster.ensure_topic("flights", HERE / "topic.yaml")
    return 0 if demonstrate(cluster, "flights", rate=arguments.rate, count=arguments.count) else 1


if __name__ == "__main__":
    sys.exit(main())

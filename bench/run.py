"""`make bench`: KafkaLite and Apache Kafka in turn, on this machine, with the same clients.

    python bench/run.py                    # everything, three rounds: some 40 minutes
    python bench/run.py --quick            # one short round: some three minutes
    python bench/run.py --systems kafka    # one system alone
    python bench/run.py --only "100 B"     # the cases with this in their names
    python bench/run.py --publish          # also write bench/report.md, which is committed

Both clusters run all the time and are measured one after the other, in alternating order: what disturbs the machine
disturbs both. Start time and idle figures are taken while the other one is down.
Results: bench/results/<time>.json and .md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from processes import cpu_percent, memory_mb
from report import Sample, markdown
from systems import Kafka, KafkaLite, System
from workloads import consume, latency, produce

HERE = Path(__file__).resolve().parent
BATCHES = (16384, 131072)


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    rounds: int
    megabytes: dict[int, int]  # record size -> MB a case
    warm_megabytes: int
    latency_s: float
    idle_s: float
    flushes: tuple[str, ...] = ("flush", "relaxed")


FULL = Size(rounds=3, megabytes={1024: 100, 100: 100}, warm_megabytes=60, latency_s=20, idle_s=20)
QUICK = Size(rounds=1, megabytes={1024: 25, 100: 10}, warm_megabytes=15, latency_s=5, idle_s=5)


class Bench:
    """The measurements of one run: all cases, or those with `only` in their names."""

    def __init__(self, systems: list[System], size: Size, only: str = "") -> None:
        self.systems, self.size, self.only = systems, size, only
        self.samples: list[Sample] = []
        self._topics = 0

    def add(self, system: System, case: str, number: int, figures: dict[str, float]) -> None:
        """Keep and show one sample."""
        self.samples.append(Sample(system.name, case, number, figures))
        shown = ", ".join(f"{name} {value:,.2f}" for name, value in figures.items() if value)
        print(f"[{number}] {system.name}: {case}: {shown}", flush=True)

    def topic(self, system: System, flush: str) -> str:
        """A new topic."""
        self._topics += 1
        name = f"bench-{self._topics}"
        system.create_topic(name, flush)
        return name

    def start_and_idle(self, system: System, number: int) -> None:
        """Start time, then what the idle cluster takes."""
        figures = {"start_s": system.start()}
        time.sleep(self.size.idle_s / 2)  # starting up is over
        brokers, control = system.brokers(), system.control()
        figures["idle_broker_memory_mb"] = memory_mb(brokers)
        figures["idle_control_memory_mb"] = memory_mb(control)
        before = time.monotonic()
        figures["idle_broker_cpu_percent"] = cpu_percent(brokers, self.size.idle_s)
        figures["idle_control_cpu_percent"] = cpu_percent(control, time.monotonic() - before) if control else 0.0
        self.add(system, "start and idle", number, figures)

    def warm(self, system: System) -> None:
        """Unmeasured work: the JVM's compiler has seen the hot path."""
        topic = self.topic(system, "relaxed")
        for batch in BATCHES:
            produce(system, topic, size=1024, count=self.size.warm_megabytes * 1_000_000 // 1024, batch=batch)
        system.delete_topic(topic)

    def in_turn(self, number: int) -> list[System]:
        """Who goes first alternates."""
        return self.systems if number % 2 else self.systems[::-1]

    def round(self, number: int) -> None:
        """Every case once, on each system before the next case."""
        for size, megabytes in self.size.megabytes.items():
            count = megabytes * 1_000_000 // size
            for batch in BATCHES:
                for flush in self.size.flushes:
                    case = f"{size} B, {batch // 1024} KB batches, {flush}"
                    if self.only not in f"produce {case}":
                        continue
                    for system in self.in_turn(number):
                        topic = self.topic(system, flush)
                        self.add(
                            system,
                            f"produce {case}",
                            number,
                            produce(system, topic, size=size, count=count, batch=batch),
                        )
                        if batch == BATCHES[-1] and flush == "relaxed":
                            self.add(
                                system, f"consume {size} B", number, consume(system, topic, size=size, count=count)
                            )
                        system.delete_topic(topic)
        for flush in self.size.flushes:
            for linger_ms in (5, 0):
                case = f"500 msg/s, linger {linger_ms}, {flush}"
                if self.only not in case:
                    continue
                for system in self.in_turn(number):
                    topic = self.topic(system, flush)
                    figures = latency(system, topic, rate=500, seconds=self.size.latency_s, linger_ms=linger_ms)
                    self.add(system, case, number, figures)
                    system.delete_topic(topic)

    def run(self) -> None:
        """Everything; the clusters are stopped whatever happens."""
        try:
            for number in range(1, self.size.rounds + 1 if self.only in "start and idle" else 1):
                for system in self.systems:
                    self.start_and_idle(system, number)
                    system.stop()
            for system in self.systems:
                system.start()
                self.warm(system)
            for number in range(1, self.size.rounds + 1):
                self.round(number)
        finally:
            for system in self.systems:
                system.stop()


def about(size: Size, systems: list[System]) -> dict[str, str]:
    """What a reader needs to judge the figures."""
    command = ["git", "-C", str(HERE), "describe", "--always", "--dirty"]
    commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    return {
        "commit": commit or "unknown",
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{os.cpu_count()} cores, {platform.platform()}, Python {platform.python_version()}",
        "load before the run": load,
        "systems": ", ".join(system.name for system in systems),
        "rounds": f"{size.rounds}",
    }


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--systems", default="kafkalite,kafka", help="comma separated: kafkalite, kafka")
    parser.add_argument("--only", default="", help="cases whose names contain this")
    parser.add_argument("--publish", action="store_true", help="also write bench/report.md")
    arguments = parser.parse_args()
    size = QUICK if arguments.quick else FULL
    if arguments.rounds:
        size = Size(**{**asdict(size), "rounds": arguments.rounds})
    makers = {"kafkalite": KafkaLite, "kafka": Kafka}
    systems: list[System] = [makers[name]() for name in arguments.systems.split(",")]
    facts = about(size, systems)
    bench = Bench(systems, size, arguments.only)
    try:
        bench.run()
    finally:
        if bench.samples:
            write(bench.samples, facts, publish=arguments.publish)
    return 0


def write(samples: list[Sample], facts: dict[str, str], *, publish: bool) -> None:
    """Results as JSON and Markdown."""
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    stem = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    document = {"about": facts, "samples": [asdict(sample) for sample in samples]}
    (results / f"{stem}.json").write_text(json.dumps(document, indent=1) + "\n")
    text = markdown(samples, facts)
    (results / f"{stem}.md").write_text(text)
    if publish:
        (HERE / "report.md").write_text(text)
    print(text)


if __name__ == "__main__":
    sys.exit(main())

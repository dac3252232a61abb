"""The proof of consumer groups: a group reads while every broker is killed in turn, and members come and go in order.

    python bench/groups.py                              # six members, four producers, a kill every 20 s for 10 minutes
    python bench/groups.py --strategy cooperative       # or eager (default), or mixed: two preferences in one group
    python bench/groups.py --kill-members               # also SIGKILL a member after each broker, and replace it
    python bench/groups.py --system kafka --settle-s 20 # the same against Apache Kafka, which fails over in 10 s
    python bench/groups.py --minutes 1 --every-s 10     # a short one

Starts a cluster of its own. Each kill waits until the last one has healed: all replicas in sync, the group stable.
Whenever one has healed, a member leaves in order and another one joins, or only one of the two, so that the group has
up to one member more or less than at the start; the same right after every second kill, and each of the coordinator.
The last lines are the verdict; the exit code is 1 when a promise was broken, or when not every such change was followed
by a rebalance that could be measured. Every run adds a line to the ledger (bench/results/groups.jsonl); the histories
(docs/verify.md describes them) and the cluster's logs stay in .cache/groups-proof/<time>.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_peer.peer import CACHE, NODES, START_LIMIT_S, KafkaPeer
from systems import Kafka, KafkaLite

from kafkalite_cli.verify.group_checker import SETTLE_MS, STUCK_AFTER_SESSION_MS
from kafkalite_cli.verify.group_load import GroupLoad, GroupVerdict
from kafkalite_cli.verify.group_report import Change, GroupLimits
from kafkalite_core.model.errors import KafkaLiteError

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / ".cache" / "groups-proof"
LEDGER = ROOT / "bench" / "results" / "groups.jsonl"
STRATEGIES = {
    "eager": ["range,roundrobin"],
    "cooperative": ["cooperative-sticky"],
    "mixed": ["range,roundrobin", "roundrobin,range"],  # clients cannot mix eager and cooperative in one group
}
TOPIC = "groups-proof"
REPLICAS = 3
HEAL_LIMIT_S = 120.0
NOTICE_LIMIT_S = 15.0
CHANGES = ["a swap", "a join", "a leave", "a leave", "a join"]  # in turn: as many members in the end, one more or less
LOOK_S = 0.2


class NotHealedError(RuntimeError):
    """The cluster did not come back; the text says what is missing."""


@dataclass(slots=True)
class KafkaLiteVictims:
    """KafkaLite's brokers, which the kubelet starts again."""

    system: KafkaLite = field(
        default_factory=lambda: KafkaLite(
            home=WORK / "kafkalite", port=int(os.environ.get("KAFKALITE_PROOF_PORT", "27092"))
        )
    )

    def kill(self, broker: int, instant: Instant) -> None:
        """SIGKILL; `instant` is called right before."""
        pid = next(int(entry["pid"]) for entry in self.system.status()["brokers"] if entry["id"] == broker)
        instant()
        os.kill(pid, signal.SIGKILL)


@dataclass(slots=True)
class KafkaVictims:
    """Apache Kafka's brokers, started again at once."""

    system: Kafka = field(
        default_factory=lambda: Kafka(peer=KafkaPeer(directory=CACHE / "groups", port=19692, heap="512m"))
    )

    def kill(self, broker: int, instant: Instant) -> None:
        """SIGKILL, and start it again; `instant` is called right before."""
        peer = self.system.peer
        pid = peer.pid(broker)
        assert pid is not None
        instant()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        peer.start_node(broker)
        peer.wait_ready(broker, time.monotonic() + START_LIMIT_S)


class Instant:
    """Called when the harm is done: notes it in the history."""

    def __init__(self, load: GroupLoad, name: str, partitions: list[int]) -> None:
        self._load, self._name, self._partitions = load, name, partitions

    def __call__(self) -> None:
        self._load.fault(self._name, self._partitions)


class Proof:
    """One run."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.victims = KafkaLiteVictims() if options.system == "kafkalite" else KafkaVictims()
        self.brokers = list(range(3)) if options.system == "kafkalite" else list(NODES)
        self.directory = WORK / datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        self.kills = 0
        self.heal_s: list[float] = []
        self.outages_us: list[tuple[float, float]] = []  # from the kill until all replicas are in sync
        self.orders = 0  # of CHANGES
        self.ordered = 0  # members that were told to join or leave
        self.problem = ""
        self._admin: AdminClient | None = None

    @property
    def admin(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.victims.system.bootstrap, "log_level": 2})
        return self._admin

    def run(self) -> GroupVerdict:
        """Start everything, do the harm, judge."""
        options, system = self.options, self.victims.system
        self.directory.mkdir(parents=True)
        print(f"{system.name}: serves after {system.start():.1f} s; histories in {self.directory}", flush=True)
        try:
            self.create_topic()
            load = GroupLoad(
                system.bootstrap,
                TOPIC,
                self.directory,
                members=options.members,
                strategies=STRATEGIES[options.strategy],
                producers=options.producers,
                rate=options.rate,
                session_timeout_ms=options.session_ms,
            )
            with load:
                load.wait_stable(options.members, timeout_s=60)
                try:
                    self.harm(load)
                except (NotHealedError, KafkaLiteError, KafkaException) as error:  # judged all the same, and failed
                    self.problem = str(error)
                    print(f"gave up: {error}", flush=True)
            limits = GroupLimits(
                settle_ms=options.settle_s * 1000,
                stuck_ms=options.stuck_s * 1000 if options.stuck_s else options.session_ms + STUCK_AFTER_SESSION_MS,
                changes_min=max(1, self.ordered),
            )
            return load.verdict(limits)
        finally:
            self.keep_logs()
            system.stop()

    def keep_logs(self) -> None:
        """The processes' logs go with the cluster; a broken promise is looked into afterwards."""
        if isinstance(self.victims.system, KafkaLite):
            shutil.copytree(self.victims.system.home / "logs", self.directory / "cluster-logs", dirs_exist_ok=True)

    def create_topic(self) -> None:
        """The topic of the proof, in sync."""
        topic = NewTopic(TOPIC, self.options.partitions, REPLICAS, config={"min.insync.replicas": "2"})
        self.admin.create_topics([topic])[TOPIC].result(60)
        self.wait_healed()

    def harm(self, load: GroupLoad) -> None:
        """Kill the brokers in turn until the time is over."""
        end_s = time.monotonic() + 60 * self.options.minutes
        next_s = time.monotonic() + min(5.0, self.options.every_s)
        while next_s < end_s:
            time.sleep(max(0.0, next_s - time.monotonic()))
            broker = self.brokers[self.kills % len(self.brokers)]
            led = self.led_by(broker)
            coordinator = self.coordinator(load) == broker
            name = f"SIGKILL broker {broker}" + (", the coordinator" if coordinator else "")
            killed_s = time.monotonic()
            self.victims.kill(broker, Instant(load, name, led))
            self.kills += 1
            changed = [self.order_change(load)] if coordinator or self.kills % 2 == 0 else []
            self.wait_noticed(broker, led)
            self.wait_healed()
            self.outages_us.append((killed_s * 1e6, time.monotonic() * 1e6))
            load.wait_left()
            load.wait_stable(len(load.members), timeout_s=HEAL_LIMIT_S)
            self.heal_s.append(time.monotonic() - killed_s)
            words = "; ".join([f"{name}, leads {len(led)}", *changed])
            print(f"{self.kills:4} {words}: healed after {self.heal_s[-1]:.1f} s", flush=True)
            self.change_members(load)
            if self.options.kill_members:
                self.replace_member(load)
            next_s = max(killed_s + self.options.every_s, time.monotonic())

    def change_members(self, load: GroupLoad) -> None:
        """One change of the membership while all brokers are there; wait until the group has noticed."""
        began_s = time.monotonic()
        changed = self.order_change(load)
        load.wait_left()
        load.wait_stable(len(load.members), timeout_s=HEAL_LIMIT_S)
        print(f"     {changed}: stable after {time.monotonic() - began_s:.1f} s", flush=True)

    def order_change(self, load: GroupLoad) -> str:
        """Begin the next of CHANGES; what it is, in words. Who leaves is the oldest and the newest member in turn."""
        change, present = CHANGES[self.orders % len(CHANGES)], load.members
        words: list[str] = []
        if change != "a join":
            leaving = present[0] if self.orders % 2 == 0 else present[-1]
            load.leave_member(leaving)
            words.append(f"member {leaving} leaves")
        if change != "a leave":
            words.append(f"member {load.start_member()} joins")
        self.orders += 1
        self.ordered += len(words)
        return f"{', '.join(words)}, {len(load.members)} then"

    def replace_member(self, load: GroupLoad) -> None:
        """SIGKILL the member that has been there longest, start another, wait until the group has noticed both."""
        began_s = time.monotonic()
        victim = load.members[0]
        load.kill_member(victim)
        load.start_member()
        time.sleep(self.options.session_ms / 1000)  # the coordinator knows of no death before
        load.wait_stable(len(load.members), timeout_s=HEAL_LIMIT_S)
        print(f"     SIGKILL member {victim}: replaced after {time.monotonic() - began_s:.1f} s", flush=True)

    def in_outage(self, change: Change) -> bool:
        """Whether the membership changed while a killed broker was not back in sync."""
        return any(began <= change.changed_us <= ended for began, ended in self.outages_us)

    def led_by(self, broker: int) -> list[int]:
        """The topic's partitions that this broker leads now."""
        partitions = self.admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions
        return [number for number, partition in partitions.items() if partition.leader == broker]

    def coordinator(self, load: GroupLoad) -> int:
        """The broker that coordinates the group now."""
        coordinator = load.describe().coordinator
        return -1 if coordinator is None else int(coordinator.id)

    def wait_noticed(self, broker: int, led: list[int]) -> None:
        """Wait until the cluster knows that `broker` is gone: right after a kill all looks well."""
        limit = time.monotonic() + NOTICE_LIMIT_S
        while led and time.monotonic() < limit:
            try:
                if len(self.led_by(broker)) < len(led):
                    return
            except KafkaException:
                pass  # whoever was asked may be the one that is gone
            time.sleep(LOOK_S)

    def wait_healed(self) -> None:
        """Every broker is there, every partition of every topic has a leader and all replicas in sync."""
        limit, missing = time.monotonic() + HEAL_LIMIT_S, ["no answer"]
        while time.monotonic() < limit:
            try:
                metadata = self.admin.list_topics(timeout=5)
            except KafkaException as error:
                missing = [error.args[0].str()]
            else:
                missing = [f"broker {number}" for number in self.brokers if number not in metadata.brokers]
                missing += [
                    f"{name}-{number}"
                    for name, topic in metadata.topics.items()
                    for number, partition in topic.partitions.items()
                    if partition.leader < 0 or len(partition.isrs) < len(partition.replicas)
                ]
                if not missing and TOPIC in metadata.topics:
                    return
            time.sleep(LOOK_S)
        raise NotHealedError(f"not healed after {HEAL_LIMIT_S:.0f} s: {', '.join(missing[:20])}")


def commit() -> str:
    """The revision that was proved, with a + when files had been changed."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty=+"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def show(verdict: GroupVerdict, proof: Proof) -> None:
    """The verdict in words."""
    log, group = verdict.log, verdict.group
    for example in [*log.examples, *group.examples]:
        print(f"  {example}")
    print(
        f"log: {log.acked:,} acknowledged, {log.unknown:,} unknown, anomalies: {log.counts or 'none'}; longest pause "
        f"between acknowledgements {log.longest_ack_gap_ms:,.0f} ms"
    )
    print(
        f"group: {group.delivered:,} records delivered, {group.redelivered:,} reads more than once; "
        f"{group.commits:,} commits acknowledged, failed: {group.commit_errors or 'none'}; "
        f"{group.observations:,} observations of committed offsets"
    )
    print(
        f"group: {group.members} members, {group.generations} generations, {group.rebalances} rebalances; the first "
        f"took {group.first_ms:,.0f} ms after the last member had come, the longest of the others "
        f"{group.settle_ms_max:,.0f} ms after the last change or fault ({group.unsettled_ms_max:,.0f} ms in all); "
        f"longest without an assignment {group.waiting_ms_max:,.0f} ms"
    )
    print(
        f"delivery after acknowledgement: p50 {group.delivery_ms_p50:,.0f} ms, p99 {group.delivery_ms_p99:,.0f} ms, "
        f"max {group.delivery_ms_max:,.0f} ms"
    )
    show_changes(group.changes, proof)
    outages = sum(proof.in_outage(change) for change in group.changes)
    print(
        f"changes: {proof.ordered} ordered, {group.changed} measured in {len(group.changes)} rebalances, "
        f"{outages} of them before a killed broker was back in sync; settled after p50 {group.change_ms_p50:,.0f} ms, "
        f"max {group.change_ms_max:,.0f} ms; {sum(change.unheard for change in group.changes)} leaves unheard"
    )
    if proof.heal_s:
        print(f"{proof.kills} brokers killed, healed after {max(proof.heal_s):.1f} s at most")
    words = "every promise was kept" if verdict.ok else f"anomalies: {log.counts | group.counts}"
    print(f"verdict: {'OK' if passed(verdict, proof) else 'BROKEN'}: {proof.problem or words}")


def show_changes(changes: list[Change], proof: Proof) -> None:
    """Every rebalance after a change of the membership, as the members' own histories tell it."""
    for number, change in enumerate(changes, 1):
        words = [f"member {member} left" for member in change.left]
        words += [f"member {member} joined" for member in change.joined]
        if proof.in_outage(change):
            words.append(f"{change.fault_ms:,.0f} ms after {change.fault}")
        since_first = f" ({change.all_ms:,.0f} ms in all)" if change.all_ms > change.took_ms else ""
        since_first += ": no coordinator heard of the leave before the session time-out" if change.unheard else ""
        settled = f"{change.members} members settled after {change.took_ms:,.0f} ms{since_first}"
        print(f"{number:4} {', '.join(words)}: {settled}")


def passed(verdict: GroupVerdict, proof: Proof) -> bool:
    """Whether the run proves anything, and nothing was broken."""
    measured = verdict.group.delivered > 0 and proof.kills > 0 and verdict.group.changed > 0
    return verdict.ok and not proof.problem and measured


def write_ledger(path: Path, verdict: GroupVerdict, proof: Proof) -> None:
    """Add one line: what was run, on what, and how it ended."""
    line = {
        "time": proof.directory.name,
        "commit": commit(),
        "passed": passed(verdict, proof),
        "problem": proof.problem,
        "options": {name: str(v) if isinstance(v, Path) else v for name, v in vars(proof.options).items()},
        "kills": proof.kills,
        "ordered": proof.ordered,
        "heal_s": [round(seconds, 2) for seconds in proof.heal_s],
        "verdict": json.loads(msgspec.json.encode(verdict)),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as ledger:
        ledger.write(json.dumps(line) + "\n")


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--system", default="kafkalite", choices=["kafkalite", "kafka"])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--every-s", type=float, default=20, help="between two kills, at least")
    parser.add_argument("--members", type=int, default=6)
    parser.add_argument("--producers", type=int, default=4)
    parser.add_argument("--rate", type=float, default=400, help="records per second in all")
    parser.add_argument("--partitions", type=int, default=12)
    parser.add_argument("--strategy", default="eager", choices=sorted(STRATEGIES))
    parser.add_argument("--session-ms", type=int, default=10_000)
    parser.add_argument("--settle-s", type=float, default=SETTLE_MS / 1000, help="bound of a rebalance")
    parser.add_argument("--stuck-s", type=float, help="bound of a member or record  (default: session time-out + 2)")
    parser.add_argument("--kill-members", action="store_true")
    parser.add_argument("--ledger", type=Path, default=LEDGER)
    options = parser.parse_args()
    if options.members < 2:
        parser.error("--members: 2 or more, one of them leaves")
    proof = Proof(options)
    verdict = proof.run()
    write_ledger(options.ledger, verdict, proof)
    show(verdict, proof)
    return 0 if passed(verdict, proof) else 1


if __name__ == "__main__":
    sys.exit(main())

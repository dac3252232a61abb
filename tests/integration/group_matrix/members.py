"""The members of a cell: processes of unmodified clients, and what their output says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.integration.group_matrix.history import Ended, Owns, Read, Started
from tests.integration.java_tools import command_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import IO

    from tests.integration.group_matrix.history import Event

SESSION_MS = 6000
HEARTBEAT_MS = 300
COMMIT_MS = 200
SCRIPT = Path(__file__).parents[1] / "group_member.py"
SCRIPT_NAMES = {"confluent-kafka": "confluent", "kafka-python": "kafka-python", "aiokafka": "aiokafka"}
JAVA_ASSIGNORS = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}
# The console consumer does not say what it is assigned; its library does so in its log. That goes to the other stream:
# a record is printed in several pieces, and threads that log would write in between.
JAVA_LOGGING = """
status = off
appender.out.type = Console
appender.out.name = err
appender.out.target = SYSTEM_ERR
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = log: %m%n
rootLogger.level = off
logger.rebalance.name = org.apache.kafka.clients.consumer.internals.ConsumerRebalanceListenerInvoker
logger.rebalance.level = info
logger.rebalance.additivity = false
logger.rebalance.appenderRef.out.ref = err
logger.joining.name = org.apache.kafka.clients.consumer.internals.ConsumerCoordinator
logger.joining.level = info
logger.joining.additivity = false
logger.joining.appenderRef.out.ref = err
"""
JAVA_JOINS = "(Re-)joining group"
LIBRDKAFKA_LOG = re.compile(r"%[0-7]\|\d+\.\d+\|.*", re.DOTALL)


def command(client: str, strategy: str, bootstrap: str, group: str, topic: str, directory: Path) -> list[str]:
    """The process of a member."""
    if client == "java":
        return _java(strategy, bootstrap, group, topic, directory)
    if client == "kcat":
        return _kcat(strategy, bootstrap, group, topic)
    settings = json.dumps({"partition.assignment.strategy": strategy})
    return [sys.executable, str(SCRIPT), SCRIPT_NAMES[client], bootstrap, group, topic, settings]


def _java(strategy: str, bootstrap: str, group: str, topic: str, directory: Path) -> list[str]:
    logging = directory / "log4j2.properties"
    logging.write_text(JAVA_LOGGING)
    arguments = ["--bootstrap-server", bootstrap, "--topic", topic, "--group", group, "--from-beginning"]
    for name in ("print.partition", "print.offset"):
        arguments += ["--formatter-property", f"{name}=true"]
    for name, value in {
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "auto.commit.interval.ms": COMMIT_MS,
        "partition.assignment.strategy": JAVA_ASSIGNORS[strategy],
    }.items():
        arguments += ["--command-property", f"{name}={value}"]
    java, *rest = command_line("kafka-console-consumer", *arguments)
    return [java, f"-Dlog4j2.configurationFile={logging}", *rest]


def _kcat(strategy: str, bootstrap: str, group: str, topic: str) -> list[str]:
    line = ["kcat", "-b", bootstrap, "-G", group, "-u", "-f", "%p %o\n"]
    for name, value in {
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "auto.commit.interval.ms": COMMIT_MS,
        "auto.offset.reset": "earliest",
        "partition.assignment.strategy": strategy,
        # What it did when it failed: see `known`.
        "debug": "topic,metadata",
    }.items():
        line += ["-X", f"{name}={value}"]
    return [*line, topic]


class Words:
    """Understands the lines of one member: `read` gives a record, or the partitions that it owns now, or None."""

    def __init__(self, client: str) -> None:
        self._owned: set[int] = set()
        self.read: Callable[[str], tuple[int, int] | frozenset[int] | None] = {
            "java": self._java,
            "kcat": self._kcat,
        }.get(client, self._script)

    def _script(self, line: str) -> tuple[int, int] | frozenset[int] | None:
        word, *numbers = line.split() or [""]
        if word == "record":
            return int(numbers[0]), int(numbers[1])
        return frozenset(map(int, numbers)) if word == "assigned" else None

    def _kcat(self, line: str) -> tuple[int, int] | frozenset[int] | None:
        if found := re.fullmatch(r"(\d+) (\d+)", line.strip()):
            return int(found[1]), int(found[2])
        # Eager: `% Group G rebalanced (memberid M): assigned: T [0], T [1]` or `revoked: …`; cooperative:
        # `% Group G rebalanced: incremental assignment of 2 partition(s) (…): T [0], …` or `incremental revoke of …`.
        if " rebalanced" not in line:
            return None
        partitions = {int(number) for number in re.findall(r" \[(\d+)\]", line)}
        return self._change(partitions, gains="revoke" not in line.partition(" rebalanced")[2])

    def _java(self, line: str) -> tuple[int, int] | frozenset[int] | None:
        if found := re.match(r"Partition:(\d+)\s+Offset:(\d+)\s", line):
            return int(found[1]), int(found[2])
        # `… Adding newly assigned partitions: [T-0, T-1]`, and `Revoke previously …` or `Lost previously …`.
        if not (found := re.search(r"(Adding newly|Revoke previously|Lost previously) assigned partitions(.*)", line)):
            return None
        partitions = {int(number) for number in re.findall(r"-(\d+)(?=[],\s]|$)", found[2])}
        return self._change(partitions, gains=found[1].startswith("Adding"))

    def _change(self, partitions: set[int], *, gains: bool) -> frozenset[int]:
        if gains:
            self._owned |= partitions
        else:
            self._owned -= partitions
        return frozenset(self._owned)


class Unlogged:
    """Takes the log of librdkafka out of kcat's error stream: whole lines of it, at any place of kcat's own lines."""

    def __init__(self) -> None:
        self._begun = ""

    def take(self, line: str) -> tuple[str, str]:
        """(what kcat said, what was logged); kcat's line is said when it is whole."""
        found = LIBRDKAFKA_LOG.search(line)
        if found is None:
            said, self._begun = self._begun + line, ""
            return said, ""
        self._begun += line[: found.start()]
        return "", found[0]


class Member:
    """A process; what it says goes into the history as it is said."""

    def __init__(self, name: str, client: str, line: list[str], directory: Path, tell: Callable[[Event], None]) -> None:
        self.name = name
        self.owned: frozenset[int] = frozenset()
        self._tell = tell
        self._words = Words(client)
        self._killed = False
        self._starting = client == "java"
        self.errors = directory / f"{name}.err"
        tell(Started(time.monotonic(), name))
        with self.errors.open("wb") as errors:
            # Both tell of rebalances on the error stream.
            self.process = subprocess.Popen(
                line,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE if client in {"java", "kcat"} else errors,
                text=True,
            )
        outputs = [stream for stream in (self.process.stdout, self.process.stderr) if stream is not None]
        self._readers = [
            threading.Thread(target=self._read, args=(stream,), name=name, daemon=True) for stream in outputs
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: IO[str]) -> None:
        unlogged = Unlogged()
        with self.errors.open("a") as rest:
            for read in stream:
                line, logged = unlogged.take(read)
                rest.write(logged)
                if not line:
                    continue
                said = self._words.read(line)
                now_s = time.monotonic()
                if self._starting and JAVA_JOINS in line:
                    # Until now it was the virtual machine that took the time.
                    self._starting = False
                    self._tell(Started(now_s, self.name))
                elif isinstance(said, tuple):
                    self._tell(Read(now_s, self.name, *said))
                elif said is None:
                    rest.write(line)
                else:
                    self.owned = said
                    self._tell(Owns(now_s, self.name, said))
        if stream is self.process.stdout:
            self._tell(Ended(time.monotonic(), self.name, self._killed))

    def kill(self) -> None:
        """SIGKILL; returns when everything that it had printed was read."""
        self._killed = True
        self.process.kill()
        self.process.wait(10)
        for reader in self._readers:
            reader.join(10)
        self.process.stdout.close()
        if self.process.stderr is not None:
            self.process.stderr.close()

"""Apache Kafka's own command-line tools, one JVM for each command, as their shell scripts start them."""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
JARS = ROOT / ".cache" / "java-tools"
MAIN = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
}
# A command is over before compiling it well would pay.
JVM = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Dlog4j2.level=ERROR")
LIMIT_S = 90


@dataclass(frozen=True)
class Output:
    """What a command printed; `text` is both streams together."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.out.splitlines() if line.strip()]


def command_line(tool: str, *arguments: str) -> list[str]:
    """The process that a tool's script would start."""
    if not (JARS / "fetched").exists():
        raise RuntimeError("Apache Kafka's tools are not there: run `make java-tools` (Java 17 and Maven)")
    return ["java", *JVM, "-cp", f"{JARS}/*", MAIN[tool], *arguments]


class JavaTools:
    """The tools against one cluster."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def run(self, tool: str, *arguments: str, data: str = "", code: int | None = 0) -> Output:
        """Run one command to its end; `code` is the exit code that is expected, None for any."""
        done = subprocess.run(
            command_line(tool, "--bootstrap-server", self.bootstrap, *arguments),
            input=data,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        output = Output(done.returncode, done.stdout, done.stderr)
        assert code is None or output.code == code, f"{tool} {' '.join(arguments)}: {output}"
        return output


def bootstrap_elsewhere() -> str | None:
    """Another cluster that the tests of other people's clients are pointed to, such as an Apache Kafka.

    With KAFKA_BOOTSTRAP=host:port the expectations are put to the test themselves: `python bench/kafka_peer/peer.py up`
    starts a cluster that must meet them. Custom resources are left out then.
    """
    return os.environ.get("KAFKA_BOOTSTRAP")


def table(text: str) -> list[dict[str, str]]:
    """A table of kafka-consumer-groups: a line of names in capitals, then lines of values."""
    lines = [line for line in text.splitlines() if line.strip()]
    start = next(index for index, line in enumerate(lines) if line.split()[0] in ("GROUP", "TOPIC"))
    names = lines[start].replace("COORDINATOR (ID)", "COORDINATOR").split()
    rows = []
    for line in lines[start + 1 :]:
        values = re.sub(r"(\S+:\d+)\s+\((\d+)\)", r"\1/\2", line).split()
        assert len(values) == len(names), (names, line)
        rows.append(dict(zip(names, values, strict=True)))
    return rows

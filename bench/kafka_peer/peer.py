"""Apache Kafka as the peer of the benchmarks: three combined KRaft nodes on this machine, from Maven coordinates.

    python bench/kafka_peer/peer.py fetch     # once: copy the jars into .cache/kafka-peer/libs
    python bench/kafka_peer/peer.py up        # fresh cluster on 127.0.0.1:19092..19094 (KAFKA_PEER_PORT moves it)
    python bench/kafka_peer/peer.py status
    python bench/kafka_peer/peer.py kill 1    # SIGKILL broker 1; `start 1` brings it back
    python bench/kafka_peer/peer.py down

Needs Java 17 or newer and Maven. Heap, garbage collector and thread counts are those of Kafka's own start script.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("KAFKA_PEER_CACHE", HERE.parent.parent / ".cache" / "kafka-peer"))
NODES = (1, 2, 3)
CONTROLLER_PORT_DISTANCE = 100
START_LIMIT_S = 120.0
STOP_LIMIT_S = 30.0
READY_LINE = b"Kafka Server started"
JVM_OPTIONS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)


class PeerError(RuntimeError):
    """The peer cannot run here; the text says why and what to do."""


def require_tools() -> None:
    """Raise PeerError unless Java 17+ and Maven can be run."""
    if shutil.which("java") is None:
        raise PeerError(
            "Apache Kafka needs Java 17 or newer: no `java` on PATH (Debian: apt-get install openjdk-17-jre-headless)"
        )
    text = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', text)
    if found is None or int(found[1]) < 17:
        raise PeerError(f"Apache Kafka needs Java 17 or newer, `java -version` says: {text.splitlines()[:1]}")
    if not any(CACHE.joinpath("libs").glob("kafka_2.13-*.jar")) and shutil.which("mvn") is None:
        raise PeerError("Maven is needed to fetch Apache Kafka: no `mvn` on PATH (Debian: apt-get install maven)")


def fetch() -> int:
    """Copy Apache Kafka's jars into the cache unless they are there; returns how many jars there are."""
    require_tools()
    libs = CACHE / "libs"
    marker = CACHE / "fetched"
    pom = (HERE / "pom.xml").read_text()
    if not (marker.exists() and marker.read_text() == pom):
        shutil.rmtree(libs, ignore_errors=True)
        CACHE.mkdir(parents=True, exist_ok=True)
        command = ["mvn", "-B", "-ntp", "-q", "-f", str(HERE / "pom.xml"), "dependency:copy-dependencies"]
        subprocess.run([*command, "-DincludeScope=runtime", f"-DoutputDirectory={libs}"], check=True)
        marker.write_text(pom)
    return len(list(libs.glob("*.jar")))


@dataclass(slots=True)
class KafkaPeer:
    """A cluster of three Apache Kafka brokers, replication factor 3, min.insync.replicas 2.

    Args:
        directory: data, configuration and logs of the cluster.
        port: of the first broker; the others follow. Controllers listen 100 above.
        properties: additional lines for server.properties, such as {"log.flush.interval.messages": "1"}.
        heap: of each broker, -Xms and -Xmx.
    """

    directory: Path = field(default_factory=lambda: CACHE / "run")
    port: int = field(default_factory=lambda: int(os.environ.get("KAFKA_PEER_PORT", "19092")))
    properties: dict[str, str] = field(default_factory=dict)
    heap: str = "1g"

    @property
    def bootstrap(self) -> str:
        """Addresses for a client's bootstrap.servers."""
        return ",".join(f"127.0.0.1:{self.port + n - 1}" for n in NODES)

    def node_directory(self, node: int) -> Path:
        """Where one node keeps its data and its log."""
        return self.directory / f"node-{node}"

    def pid(self, node: int) -> int | None:
        """Process id of a running node, None when it does not run (a recycled pid is recognised)."""
        try:
            pid = int((self.node_directory(node) / "pid").read_text())
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            return None
        return pid if str(self.node_directory(node)).encode() in command else None

    def start(self, *, fresh: bool = True) -> float:
        """Start all nodes and wait until each says that it serves; returns the seconds it took, formatting included."""
        running = [node for node in NODES if self.pid(node)]
        if running:
            raise PeerError(f"nodes {running} of {self.directory} run already: `peer.py down` first")
        fetch()
        if fresh:
            shutil.rmtree(self.directory, ignore_errors=True)
        began = time.monotonic()
        if fresh:
            self._format()
        for node in NODES:
            self.start_node(node)
        try:
            for node in NODES:
                self.wait_ready(node, began + START_LIMIT_S)
        except PeerError:
            self.stop()
            raise
        return time.monotonic() - began

    def start_node(self, node: int) -> None:
        """Start one node that does not run; does not wait."""
        directory = self.node_directory(node)
        with (directory / "server.log").open("wb") as log:
            process = subprocess.Popen(
                [*self._java(self.heap, *JVM_OPTIONS), "kafka.Kafka", str(directory / "server.properties")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        (directory / "pid").write_text(str(process.pid))

    def wait_ready(self, node: int, limit: float) -> None:
        """Wait until the node logged that it started; `limit` is an instant of time.monotonic()."""
        log = self.node_directory(node) / "server.log"
        while READY_LINE not in (text := log.read_bytes()):
            if self.pid(node) is None and not _just_started(log):
                raise PeerError(f"node {node} ended while starting; {log}:\n{_cause(text)}")
            if time.monotonic() > limit:
                raise PeerError(f"node {node} did not start in time; see {log}")
            time.sleep(0.05)  # the JVM offers no event for this

    def kill(self, node: int, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to one node."""
        pid = self.pid(node)
        if pid is None:
            raise PeerError(f"node {node} does not run")
        os.kill(pid, number)

    def stop(self) -> None:
        """SIGTERM to all nodes, SIGKILL to what is left after 30 s."""
        limit = time.monotonic() + STOP_LIMIT_S
        for node in NODES:
            if pid := self.pid(node):
                os.kill(pid, signal.SIGTERM)
        for node in NODES:
            while (pid := self.pid(node)) and time.monotonic() < limit:
                _reap(pid)
                time.sleep(0.05)
            if pid := self.pid(node):
                os.kill(pid, signal.SIGKILL)
                _reap(pid)

    def _java(self, heap: str, *options: str) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={HERE / 'log4j2.xml'}"
        return ["java", f"-Xms{heap}", f"-Xmx{heap}", *options, logging, "-cp", f"{CACHE / 'libs'}/*"]

    def _format(self) -> None:
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if cluster_id.startswith("-"):  # the formatting tool would take it for an option
            cluster_id = "A" + cluster_id[1:]
        formatting = []
        for node in NODES:
            directory = self.node_directory(node)
            directory.mkdir(parents=True)
            lines = self.server_properties(node)
            (directory / "server.properties").write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
            command = [*self._java("128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"), "kafka.tools.StorageTool"]
            arguments = ["format", "-t", cluster_id, "-c", str(directory / "server.properties")]
            with (directory / "format.log").open("wb") as log:
                formatting.append(subprocess.Popen([*command, *arguments], stdout=log, stderr=log))
        for node, process in zip(NODES, formatting, strict=True):
            if process.wait(START_LIMIT_S) != 0:
                raise PeerError(f"formatting failed:\n{(self.node_directory(node) / 'format.log').read_text()}")

    def server_properties(self, node: int) -> dict[str, str]:
        """server.properties of one node: Kafka's defaults but for addresses, replication and `properties`."""
        broker = f"PLAINTEXT://127.0.0.1:{self.port + node - 1}"
        controller_port = self.port + CONTROLLER_PORT_DISTANCE
        internal_topics = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
        return {
            "process.roles": "broker,controller",
            "node.id": str(node),
            "controller.quorum.voters": ",".join(f"{n}@127.0.0.1:{controller_port + n - 1}" for n in NODES),
            "listeners": f"{broker},CONTROLLER://127.0.0.1:{controller_port + node - 1}",
            "advertised.listeners": broker,
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.node_directory(node) / "data"),
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            **{f"{topic}.replication.factor": "3" for topic in internal_topics},
            "transaction.state.log.min.isr": "2",
            "share.coordinator.state.topic.min.isr": "2",
            **self.properties,
        }


def _just_started(log: Path) -> bool:
    """Between fork and exec the command line is not yet Java's."""
    return time.time() - log.stat().st_ctime < 2.0


def _cause(log: bytes) -> str:
    """The lines of a server log that say why: errors with what follows them, else its end."""
    text = log.decode(errors="replace")
    errors = text.find(" ERROR ")
    return text[errors : errors + 3000] if errors >= 0 else text[-2000:]


def _reap(pid: int) -> None:
    """Collect an ended child; what another process started is not ours to collect."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["fetch", "up", "down", "status", "kill", "start"])
    parser.add_argument("node", type=int, nargs="?", choices=NODES)
    parser.add_argument("--property", action="append", default=[], metavar="KEY=VALUE", help="for server.properties")
    parser.add_argument("--keep", action="store_true", help="up: keep the data of the previous run")
    arguments = parser.parse_args()
    peer = KafkaPeer(properties=dict(item.split("=", 1) for item in arguments.property))
    try:
        if arguments.command == "fetch":
            print(f"{fetch()} jars in {CACHE / 'libs'}")
        elif arguments.command == "up":
            seconds = peer.start(fresh=not arguments.keep)
            print(f"Apache Kafka serves on {peer.bootstrap} after {seconds:.1f} s")
        elif arguments.command == "down":
            peer.stop()
        elif arguments.command == "status":
            print(json.dumps({"bootstrap": peer.bootstrap, "pids": {node: peer.pid(node) for node in NODES}}))
        elif arguments.node is None:
            parser.error(f"{arguments.command} needs the number of a node")
        elif arguments.command == "kill":
            peer.kill(arguments.node)
        else:
            peer.start_node(arguments.node)
            peer.wait_ready(arguments.node, time.monotonic() + START_LIMIT_S)
    except PeerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

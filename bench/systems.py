"""The systems under test behind one interface: KafkaLite by its command line, Apache Kafka by `kafka_peer`."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_peer.peer import CACHE, NODES, KafkaPeer

from kafkalite_runtime.kube.client import KubeClient
from kafkalite_runtime.kube.kinds import CLUSTERS, TOPICS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ROOT = Path(__file__).resolve().parent.parent
PARTITIONS = 6
REPLICAS = 3
TOPIC_LIMIT_S = 60.0
NEVER = "9223372036854775807"
FLUSH = {
    "flush": "1",
    "relaxed": NEVER,
}  # flush.messages of a topic: before every acknowledgement, or whenever the kernel likes
COMMON = {"min.insync.replicas": "2"}
DELETED_TOPICS = {
    # Kafka removes the files of a deleted topic after a minute, KafkaLite keeps them for an hour. Until then they hold
    # memory: Kafka's next case gets back what its last ones had, KafkaLite's would take new memory every time, for
    # which a virtual machine pays up to 0.7 s of CPU per 100 MB.
    "kafkalite.stray.deleted.retention.ms": "60000",
    "log.retention.check.interval.ms": "10000",
}


class System(Protocol):
    """A cluster of three brokers that can be started, measured and stopped."""

    name: str

    @property
    def bootstrap(self) -> str:
        """Addresses for clients."""

    def start(self) -> float:
        """Start a fresh cluster; seconds until it serves."""

    def stop(self) -> None:
        """Stop it; its data may go."""

    def brokers(self) -> list[int]:
        """Process ids of the brokers."""

    def control(self) -> list[int]:
        """Process ids of everything else that belongs to the cluster."""

    def create_topic(self, name: str, flush: str) -> None:
        """Make a topic of PARTITIONS x REPLICAS, `flush` being a key of FLUSH, and wait until it is in sync."""

    def delete_topic(self, name: str) -> None:
        """Remove it; does not wait."""


def wait_in_sync(bootstrap: str, topic: str) -> None:
    """Wait until every partition has a leader and all replicas are in sync."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    limit = time.monotonic() + TOPIC_LIMIT_S
    while time.monotonic() < limit:
        try:
            known = admin.list_topics(topic, timeout=10).topics.get(topic)
        except KafkaException:
            known = None
        partitions = list(known.partitions.values()) if known else []
        if len(partitions) == PARTITIONS and all(p.leader >= 0 and len(p.isrs) == REPLICAS for p in partitions):
            return
        time.sleep(0.1)
    raise RuntimeError(f"{topic} on {bootstrap} is not in sync after {TOPIC_LIMIT_S:.0f} s")


@dataclass(slots=True)
class Kafka:
    """Apache Kafka: three combined KRaft nodes with 1 GB of heap each."""

    name: str = "kafka"
    # Neither in the range of ports that KafkaLite takes below (29092 to 29212) nor in the ephemeral one.
    peer: KafkaPeer = field(default_factory=lambda: KafkaPeer(directory=CACHE / "bench", port=19492))

    @property
    def bootstrap(self) -> str:
        return self.peer.bootstrap

    def start(self) -> float:
        return self.peer.start()

    def stop(self) -> None:
        self.peer.stop()
        shutil.rmtree(self.peer.directory, ignore_errors=True)

    def brokers(self) -> list[int]:
        return [pid for node in NODES if (pid := self.peer.pid(node)) is not None]

    def control(self) -> list[int]:
        return []  # the controllers live in the brokers

    def create_topic(self, name: str, flush: str) -> None:
        config = {**COMMON, "flush.messages": FLUSH[flush]}
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})
        admin.create_topics([NewTopic(name, PARTITIONS, REPLICAS, config=config)])[name].result()
        wait_in_sync(self.bootstrap, name)

    def delete_topic(self, name: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})  # it must outlive its answer
        admin.delete_topics([name])[name].result()


@dataclass(slots=True)
class KafkaLite:
    """KafkaLite in local mode: embedded control plane, operator, three brokers."""

    name: str = "kafkalite"
    home: Path = ROOT / ".cache" / "bench" / "kafkalite"
    port: int = field(default_factory=lambda: int(os.environ.get("KAFKALITE_BENCH_PORT", "29092")))

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self.port + n}" for n in range(3))

    def run(self, *arguments: str) -> str:
        """Run `kafkalite …`; its output. Raises RuntimeError with what it said when it fails."""
        environment = {**os.environ, "KAFKALITE_HOME": str(self.home), "KAFKALITE_PORT": str(self.port)}
        command = [str(Path(sys.executable).with_name("kafkalite")), *arguments]
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(
                f"`kafkalite {' '.join(arguments)}`: exit code {done.returncode}\n{done.stdout}{done.stderr}"
            )
        return done.stdout

    def status(self) -> dict[str, Any]:
        """`kafkalite status -o json`."""
        status: dict[str, Any] = json.loads(self.run("status", "-o", "json"))
        return status

    def start(self) -> float:
        if self.home.exists():
            self.stop()
        self.home.mkdir(parents=True)
        began = time.monotonic()
        self.run("up")
        start_s = time.monotonic() - began
        asyncio.run(self._with_client(self._configure))
        self.run("down")  # an interval that changes is taken over when the present one has ended
        self.run("up")
        return start_s

    def stop(self) -> None:
        self.run("down")
        shutil.rmtree(self.home, ignore_errors=True)

    def brokers(self) -> list[int]:
        return [int(broker["pid"]) for broker in self.status()["brokers"]]

    def control(self) -> list[int]:
        status = self.status()
        brokers = {broker["pid"] for broker in status["brokers"]}
        return [int(process["pid"]) for process in status["processes"] if process["pid"] not in {None, *brokers}]

    def create_topic(self, name: str, flush: str) -> None:
        spec = {"partitions": PARTITIONS, "replicas": REPLICAS, "config": {**COMMON, "flush.messages": FLUSH[flush]}}
        topic = {
            "apiVersion": "kafkalite.io/v1alpha1",
            "kind": "KafkaLiteTopic",
            "metadata": {"name": name},
            "spec": spec,
        }
        manifest = self.home / f"{name}.yaml"
        manifest.write_text(json.dumps(topic))  # JSON is YAML
        self.run("apply", "-f", str(manifest))
        wait_in_sync(self.bootstrap, name)

    def delete_topic(self, name: str) -> None:
        async def delete(client: KubeClient) -> None:
            await client.delete(TOPICS, "default", name, deadline_s=10.0)

        asyncio.run(self._with_client(delete))

    async def _configure(self, client: KubeClient) -> None:
        await client.merge_patch(
            CLUSTERS, "default", "kafkalite", {"spec": {"config": DELETED_TOPICS}}, deadline_s=10.0
        )

    async def _with_client(self, call: Callable[[KubeClient], Awaitable[None]]) -> None:
        client = KubeClient.from_environment({"KUBECONFIG": str(self.home / "kubeconfig")})
        try:
            await call(client)
        finally:
            await client.close()

"""A local cluster for one scenario: `kafkalite up` by way of a launcher, its processes, its state."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.request
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from kafkalite_local.pytest_plugin import free_ports
from kafkalite_runtime.home import API_SERVER, KUBELET, SUPERVISOR, Home, ProcessRecord
from tests.chaos.api import Api
from tests.chaos.launcher import OPERATOR_POD, Launcher, broker_pod
from tests.chaos.metadata_log import MetadataLog, members

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.chaos.network import Network

BROKERS = 3
FLUSHES = "kafkalite_log_flush_seconds"
METRICS_TIMEOUT_S = 30.0
UP_LIMIT_S = 180
DOWN_LIMIT_S = 90
Json = dict[str, Any]


class ChaosError(RuntimeError):
    """A scenario cannot go on; the text says why."""


class NotHealedError(ChaosError):
    """The program did not come back, or did not go on, within a generous limit."""


class PromiseError(ChaosError):
    """The program did what it must never do, as the scenario itself saw."""


class Cluster:
    """Three brokers, an operator and the control plane below `folder`; `network` gives each broker a host of its own."""

    def __init__(self, folder: Path, network: Network | None = None) -> None:
        self.home = Home((folder / "home").absolute())
        self.ports = free_ports()
        self.launcher = Launcher(folder / "launcher")
        self.api = Api(self.home.kubeconfig)
        self.log = MetadataLog(self.api, folder / "metadata.jsonl")
        self.network = network
        self._environment = dict(os.environ, KAFKALITE_HOME=str(self.home.root), KAFKALITE_PORT=str(self.ports.base))
        self.launcher.make()
        self.home.create()

    # --- life

    def up(self) -> None:
        """Start it, or bring back what is missing of it. Raises NotHealedError."""
        try:
            self._run("up", "--timeout", str(UP_LIMIT_S - 20), limit_s=UP_LIMIT_S)
        except ChaosError as error:
            raise NotHealedError(str(error)) from error

    def follow(self) -> None:
        """Begin to record the metadata history, and know every broker."""
        self.log.start()
        if not self.log.wait(lambda: len(self.brokers()) == BROKERS, 30):
            raise ChaosError("the brokers are not to be seen at the API server")

    def down(self) -> None:
        """Stop everything; what was frozen is woken first. Raises ChaosError when something cannot be stopped."""
        self.log.end()
        for path in [self.home.record(name) for name in (SUPERVISOR, API_SERVER, KUBELET)] + [
            *self.home.pod_records.glob("*.json")
        ]:
            if record := ProcessRecord.read(path):
                record.signal(signal.SIGCONT)
        self._run("down", "--timeout", str(DOWN_LIMIT_S // 2), limit_s=DOWN_LIMIT_S)
        self.log.join()

    def _run(self, *arguments: str, limit_s: float) -> str:
        with subprocess.Popen(
            self.launcher.command(*arguments),
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.home.root,
        ) as process:
            try:
                output, _ = process.communicate(timeout=limit_s)
            except subprocess.TimeoutExpired:
                process.kill()
                raise ChaosError(f"kafkalite {' '.join(arguments)} did not end within {limit_s} s") from None
        if process.returncode != 0:
            raise ChaosError(f"kafkalite {' '.join(arguments)}: exit code {process.returncode}: {output[-2000:]}")
        return output

    @property
    def bootstrap(self) -> str:
        """For clients."""
        hosts = [self.network.broker_host(n) if self.network else "127.0.0.1" for n in range(BROKERS)]
        return ",".join(f"{host}:{self.ports.broker(n)}" for n, host in enumerate(hosts))

    # --- processes

    def record(self, target: int | str) -> ProcessRecord:
        """The process of a broker (by id), of `operator`, `apiserver`, `kubelet` or `supervisor`."""
        if isinstance(target, int):
            path = self.home.pod_records / f"{broker_pod(target)}.json"
        elif target == "operator":
            path = self.home.pod_records / f"{OPERATOR_POD}.json"
        else:
            path = self.home.record(target)
        record = ProcessRecord.read(path)
        if record is None:
            raise ChaosError(f"no record of {target}")
        return record

    def signal(self, target: int | str, number: int) -> int:
        """Send a signal to the very process of the record; its pid. Raises ChaosError when it is gone already."""
        record = self.record(target)
        if not record.signal(number):
            raise ChaosError(f"{target} (pid {record.pid}) had ended before it was to be harmed")
        return record.pid

    @contextmanager
    def frozen(self, *targets: int | str) -> Iterator[None]:
        """SIGSTOP for the body, SIGCONT to the same processes afterwards, those that are left."""
        records = [self.record(target) for target in targets]
        try:
            for record in records:
                record.signal(signal.SIGSTOP)
            yield
        finally:
            for record in records:
                record.signal(signal.SIGCONT)

    def wait_replaced(self, target: int | str, record: ProcessRecord, timeout_s: float = 60) -> bool:
        """Wait until another process has taken the place of this one."""
        limit = time.monotonic() + timeout_s
        while time.monotonic() < limit:
            with suppress(ChaosError):
                now = self.record(target)
                if (now.pid, now.start_time) != (record.pid, record.start_time) and now.alive():
                    return True
            time.sleep(0.05)  # a record is a file; nothing tells when it changes
        return False

    # --- state

    def brokers(self) -> dict[int, Json]:
        """The brokers' objects by id."""
        return {int(obj["spec"]["brokerId"]): obj for obj in self.log.objects("kafkalitebrokers").values()}

    def partitions(self, topic: str) -> dict[int, Json]:
        """The partitions' entries of a topic."""
        obj = self.log.objects("kafkalitetopics").get(topic) or {}
        found = (obj.get("status") or {}).get("partitions") or {}
        return {int(number): entry for number, entry in found.items()}

    def led_by(self, topic: str, broker: int) -> list[int]:
        """The topic's partitions that a broker leads."""
        return [number for number, entry in self.partitions(topic).items() if entry["leader"] == broker]

    def lacks(self, topic: str, broker: int) -> list[int]:
        """The topic's partitions in whose ISR a broker is not."""
        return [number for number, entry in self.partitions(topic).items() if broker not in members(entry)]

    def disk_of(self, broker: int) -> tuple[str, int]:
        """(directory id, since when its content is trusted) as the broker registered; another one after it was empty."""
        registration = (self.brokers()[broker].get("status") or {}).get("registration") or {}
        return str(registration.get("directoryId", "")), int(registration.get("trustedSince", -1))

    def slow_flushes(self, broker: int, over_s: float) -> float:
        """Group flushes of this process of the broker that took longer; `over_s` is a bound of the histogram's buckets.

        Raises OSError when its telemetry does not answer.
        """
        host = self.network.broker_host(broker) if self.network else "127.0.0.1"
        url = f"http://{host}:{self.ports.broker_metrics(broker)}/metrics"
        with urllib.request.urlopen(url, timeout=METRICS_TIMEOUT_S) as answer:
            found = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if line[:1] != "#")
        quick = found[f'{FLUSHES}_bucket{{le="{over_s}"}}']
        return float(found[f"{FLUSHES}_count"]) - float(quick)

    def create_topic(self, name: str, *, partitions: int, replicas: int = 3, **config: str) -> None:
        """Make a topic and wait until all its replicas are in sync. Raises NotHealedError when they do not become so."""
        spec = {
            "partitions": partitions,
            "replicas": replicas,
            "config": {key.replace("_", "."): value for key, value in config.items()},
        }
        body = {"apiVersion": "kafkalite.io/v1alpha1", "kind": "KafkaLiteTopic"}
        self.api.create("kafkalitetopics", {**body, "metadata": {"name": name}, "spec": spec})
        if not self.log.wait(lambda: len(self.partitions(name)) == partitions and not self.missing(), 60):
            raise NotHealedError(f"topic {name} is not in sync: {self.missing()}")

    def missing(self) -> list[str]:
        """What keeps the cluster from being whole, in words; empty: every broker runs, every replica is in sync."""
        found = [f"broker {n} is not running" for n, obj in self.brokers().items() if not runs(obj)]
        for name, topic in self.log.objects("kafkalitetopics").items():
            entries = (topic.get("status") or {}).get("partitions") or {}
            if len(entries) < int(topic["spec"].get("partitions", 1)):
                found.append(f"topic {name} has {len(entries)} partitions")
            wanted = int(topic["spec"].get("replicas", 1))
            found += [
                f"{name}-{number}: leader {entry['leader']}, ISR {sorted(members(entry))} of {entry['replicas']}"
                for number, entry in entries.items()
                if entry["leader"] < 0
                or len(members(entry)) < max(wanted, len(entry["replicas"]))
                or entry.get("adding")
                or entry.get("removing")
            ]
        return found

    def wait_whole(self, timeout_s: float) -> None:
        """Wait until nothing is missing, by what the API server says. Raises NotHealedError with what is missing."""
        if not self.log.wait(lambda: not self.missing(), timeout_s):
            raise NotHealedError(f"not whole after {timeout_s:.0f} s: {'; '.join(self.missing())[:1500]}")

    def data_directory(self, broker: int) -> Path:
        """Where a broker keeps its data: its claim's folder, which may be a mount point."""
        return self.home.volumes / f"data-{broker_pod(broker)}"

    def state_text(self) -> str:
        """The partitions as JSON, for a failure's report."""
        topics = self.log.objects("kafkalitetopics")
        return json.dumps({name: (topic.get("status") or {}).get("partitions") for name, topic in topics.items()})


def runs(broker: Json) -> bool:
    """A broker's registration stands and is not fenced."""
    status = broker.get("status") or {}
    registration = status.get("registration") or {}
    fenced = int((status.get("fencing") or {}).get("fencedEpoch", -1))
    return registration.get("state") == "Running" and int(registration["brokerEpoch"]) > fenced

"""A local cluster of real processes, used only through what users have: the command line and the Kubernetes API."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kubernetes import client, config, watch
from urllib3.exceptions import HTTPError

from kafkalite_core.protocol.metadata import MetadataRequest, MetadataRequestTopic
from kafkalite_local.pytest_plugin import free_ports
from tests.integration.wire import Wire
from tests.stopping import stop

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

GROUP, VERSION = "kafkalite.io", "v1alpha1"
NAMESPACE = "default"
KAFKALITE = Path(sys.executable).parent / "kafkalite"


class Cluster:
    def __init__(self, home: Path, port: int) -> None:
        self.home = home
        self.port = port
        self.environment = dict(os.environ, KAFKALITE_HOME=str(home), KAFKALITE_PORT=str(port))
        self._api: client.ApiClient | None = None

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self.port + n}" for n in range(3))

    # the command line ------------------------------------------------------------------------------------------------

    def run(self, *arguments: str, check: bool = True, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        result = subprocess.run(
            [str(KAFKALITE), *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        if check and result.returncode != 0:
            raise AssertionError(f"kafkalite {' '.join(arguments)}: {result.stdout}\n{result.stderr}")
        return result

    def up(self) -> None:
        self.run("up")

    def down(self) -> None:
        self.run("down", check=False)

    def status(self) -> dict:
        return json.loads(self.run("status", "-o", "json").stdout)

    def kill(self, target: int | str, name: str = "KILL") -> None:
        self.run("kill", str(target), "--signal", name)

    def pid(self, target: int | str) -> int:
        """Pid of a broker (by id), or of operator, apiserver, kubelet; read from the run directory, which is fast."""
        run = self.home / "run"
        name = f"pods/kafkalite-broker-{target}" if isinstance(target, int) else target
        if target == "operator":
            name = next(str(path.relative_to(run)).removesuffix(".json") for path in run.glob("pods/*operator*.json"))
        return int(json.loads((run / f"{name}.json").read_text())["pid"])

    def signal(self, target: int | str, number: int) -> int:
        """Send a signal straight to the process; returns its pid."""
        pid = self.pid(target)
        os.kill(pid, number)
        return pid

    @contextlib.contextmanager
    def frozen(self, *targets: int | str) -> Iterator[None]:
        """SIGSTOP for the body, which begins when they stand still, then SIGCONT to the same processes.

        One of them may have been replaced meanwhile: the kubelet restarts what does not answer its liveness probe.
        """
        pids = [self.pid(target) for target in targets]
        try:
            for pid in pids:
                stop(pid)
            yield
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    # the Kubernetes API -----------------------------------------------------------------------------------------------

    @property
    def api(self) -> client.CustomObjectsApi:
        if self._api is None:
            self._api = config.new_client_from_config(str(self.home / "kubeconfig"))
        return client.CustomObjectsApi(self._api)

    def close(self) -> None:
        if self._api is not None:
            self._api.close()
            self._api = None

    def create_topic(
        self, name: str, *, partitions: int = 1, replicas: int = 3, wait: bool = True, **topic_config: str
    ) -> dict:
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "KafkaLiteTopic",
            "metadata": {"name": name},
            "spec": {
                "partitions": partitions,
                "replicas": replicas,
                "config": {key.replace("_", "."): value for key, value in topic_config.items()},
            },
        }
        made = self.api.create_namespaced_custom_object(GROUP, VERSION, NAMESPACE, "kafkalitetopics", body)
        if not wait:
            return made
        made = self.wait_topic(name, in_sync)
        self.wait_known(name, partitions)
        return made

    def topic(self, name: str) -> dict:
        return self.api.get_namespaced_custom_object(GROUP, VERSION, NAMESPACE, "kafkalitetopics", name)

    def delete_topic(self, name: str) -> None:
        self.api.delete_namespaced_custom_object(GROUP, VERSION, NAMESPACE, "kafkalitetopics", name)

    def patch_topic(self, name: str, body: dict) -> dict:
        return self.api.patch_namespaced_custom_object(GROUP, VERSION, NAMESPACE, "kafkalitetopics", name, body)

    def partition(self, topic: str, number: int = 0) -> dict:
        return self.topic(topic)["status"]["partitions"][str(number)]

    def leader(self, topic: str, number: int = 0) -> int:
        return int(self.partition(topic, number)["leader"])

    def wait_topic(self, name: str, predicate, timeout: float = 60) -> dict:
        """Wait on the watch stream until the topic satisfies the predicate."""
        return self._wait("kafkalitetopics", name, predicate, timeout)

    def wait_broker(self, number: int, predicate, timeout: float = 60) -> dict:
        return self._wait("kafkalitebrokers", f"kafkalite-broker-{number}", predicate, timeout)

    def wait_cluster(self, predicate, timeout: float = 180) -> dict:
        return self._wait("kafkaliteclusters", "kafkalite", predicate, timeout)

    def wait_known(
        self, topic: str, partitions: int, *, brokers: Sequence[int] = range(3), timeout: float = 60
    ) -> None:
        """Every one of `brokers` that listens names this very topic, so many partitions, their leaders and their ISR.

        Brokers hear of changes by their watches, each in its own time; a program that lists topics, or that speaks to
        one broker without asking again, may come too early.
        """
        end = time.monotonic() + timeout
        while told := [number for number in brokers if not self._knows(number, topic, partitions)]:
            assert time.monotonic() < end, f"brokers {told} do not know {topic} with {partitions} partitions"
            time.sleep(0.02)

    def _knows(self, broker: int, topic: str, partitions: int) -> bool:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        try:
            with Wire(("127.0.0.1", self.port + broker)) as wire:
                (answered,) = wire.request(3, 12, request).topics
        except ConnectionRefusedError:
            return True  # it is down, and will read everything when it comes
        except (OSError, EOFError):
            return False
        status = self.topic(topic).get("status", {})
        wanted = {
            number: (entry["leader"], sorted(entry["isr"])) for number, entry in status.get("partitions", {}).items()
        }
        found = {str(each.partition_index): (each.leader_id, sorted(each.isr_nodes)) for each in answered.partitions}
        return str(answered.topic_id) == status.get("topicId") and len(found) == partitions and found == wanted

    def wait_healed(self, timeout: float = 90) -> None:
        """Every broker runs and every replica of every topic is in sync."""
        for number in range(3):
            self.wait_broker(number, running, timeout)
        for item in self.api.list_namespaced_custom_object(GROUP, VERSION, NAMESPACE, "kafkalitetopics")["items"]:
            self.wait_topic(item["metadata"]["name"], in_sync, timeout)

    def _wait(self, plural: str, name: str, predicate, timeout: float) -> dict:
        end = time.monotonic() + timeout
        seen = None
        while (left := end - time.monotonic()) > 0:
            stream = watch.Watch().stream(
                self.api.list_namespaced_custom_object,
                GROUP,
                VERSION,
                NAMESPACE,
                plural,
                field_selector=f"metadata.name={name}",
                timeout_seconds=max(int(left), 1),
            )
            try:
                for event in stream:
                    seen = event["object"]
                    if event["type"] != "DELETED" and predicate(seen):
                        return seen
            except HTTPError:
                # The API server is being restarted by the test; the supervisor needs about a second.
                time.sleep(0.2)
        raise AssertionError(f"{plural}/{name}: not {predicate.__name__} within {timeout} s: {json.dumps(seen)[:3000]}")

    # files ------------------------------------------------------------------------------------------------------------

    def log_directory(self, broker: int, topic: str, number: int = 0) -> Path:
        return next((self.home / "volumes").glob(f"*broker-{broker}/**/{topic}-{number}"))


def in_sync(topic: dict) -> bool:
    """All replicas in the ISR, and a leader everywhere."""
    partitions = topic.get("status", {}).get("partitions") or {}
    return len(partitions) >= topic["spec"].get("partitions", 1) and all(
        entry["leader"] >= 0 and len(entry["isr"]) == len(entry["replicas"]) for entry in partitions.values()
    )


def has_leaders(topic: dict) -> bool:
    partitions = topic.get("status", {}).get("partitions") or {}
    return bool(partitions) and all(entry["leader"] >= 0 for entry in partitions.values())


def running(broker: dict) -> bool:
    status = broker.get("status", {})
    registration = status.get("registration") or {}
    fenced = (status.get("fencing") or {}).get("fencedEpoch", -1)
    return registration.get("state") == "Running" and registration["brokerEpoch"] > fenced


def condition(topic: dict, kind: str) -> dict | None:
    found = [entry for entry in topic.get("status", {}).get("conditions", []) if entry["type"] == kind]
    return found[0] if found else None


@contextlib.contextmanager
def started(home: Path) -> Iterator[Cluster]:
    """A cluster of its own, with that home and ports that nobody has; it is down afterwards."""
    cluster = Cluster(home, free_ports().base)
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.close()
        cluster.down()

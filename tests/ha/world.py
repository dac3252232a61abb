"""A namespace of a real API server with operators, as processes or in this loop, and brokers that only register."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import uuid
from typing import TYPE_CHECKING, Any

from kafkalite_core.resources import naming
from kafkalite_core.resources.topics import parse_topic
from kafkalite_runtime.kube.client import KubeClient
from kafkalite_runtime.kube.config import KubeConfig
from kafkalite_runtime.kube.errors import KubeNotFound, KubeUnavailable
from kafkalite_runtime.kube.kinds import (
    BROKERS,
    CLUSTERS,
    LEASES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    STATEFUL_SETS,
    TOPICS,
    Kind,
)
from kafkalite_runtime.kube.reflector import Reflector
from tests.cluster.processes import Program
from tests.ha.gate import Gate
from tests.unit.operator.fakes import FakeBroker, eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.control_plane import ControlPlane
    from tests.ha.machinery import Machinery

NAMESPACES = Kind("", "v1", "namespaces", "Namespace", namespaced=False)
ACCOUNTS = Kind("", "v1", "serviceaccounts", "ServiceAccount")
RECORDED = (BROKERS, PODS, STATEFUL_SETS, PERSISTENT_VOLUME_CLAIMS)
CLUSTER = "kafkalite"
SPEC = {
    "replicas": 3,
    "listeners": [{"name": "plain", "type": "hostport", "port": 9092, "host": "127.0.0.1"}],
    "failureDetection": {"leaseDurationSeconds": 3, "renewIntervalSeconds": 1},
}
OPERATOR = "import sys; from kafkalite_operator.main import main; sys.exit(main())"


def free_port() -> int:
    """A port of loopback that nobody listens on just now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


async def sockets_closed() -> None:
    """TLS ends with a dialogue, which would outlive the loop: wait until nothing but the loop's own pipe is left."""
    selector = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
    await eventually(lambda: len(selector.get_map()) <= 1)


class OperatorProcess:
    """One replica of the operator, as in its pod."""

    def __init__(self, folder: Path, name: str, environment: dict[str, str]) -> None:
        self.name = name
        self.port = free_port()
        self._environment = {**environment, "POD_NAME": name, "KAFKALITE_METRICS_PORT": str(self.port)}
        self.log = folder / f"{name}.log"
        self.expected_to_end = False
        self._program: Program | None = None

    def start(self, uid: str = "") -> None:
        """Start it, as a new pod unless `uid` is that of the earlier one."""
        environment = {**self._environment, "POD_UID": uid or str(uuid.uuid4())}
        command = ["/usr/bin/env", *(f"{key}={value}" for key, value in environment.items())]
        self._program = Program(self.name, [*command, sys.executable, "-c", OPERATOR], self.log)

    @property
    def pid(self) -> int:
        assert self._program is not None
        return self._program.process.pid

    def signal(self, number: int) -> None:
        self.expected_to_end |= number == signal.SIGTERM
        os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        assert self._program is not None
        self.expected_to_end = True
        self._program.process.kill()
        self._program.process.wait()

    def running(self) -> bool:
        assert self._program is not None
        return self._program.process.poll() is None

    async def ended(self, timeout_s: float = 20.0) -> int:
        """Its exit code."""
        assert self._program is not None
        return await asyncio.to_thread(self._program.process.wait, timeout_s)

    def stop(self) -> None:
        if self._program is not None and self.running():
            self.signal(signal.SIGCONT)
            self._program.stop()

    def lines(self) -> list[dict[str, Any]]:
        """What it logged; a line that is no JSON comes as {"text": …}."""
        found = []
        for line in self.log.read_text(errors="replace").splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                found.append({"text": line})
        return found

    def said(self, text: str) -> list[dict[str, Any]]:
        return [line for line in self.lines() if line.get("msg") == text]


class World:
    """See the module; made by the fixture `world`."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane = plane
        self.folder = folder
        self.ns = f"ha-{uuid.uuid4().hex[:8]}"
        self.client = KubeClient(KubeConfig.from_file(plane.kubeconfig))
        self.gate = Gate(plane.kubeconfig, folder)
        self.operators: dict[str, OperatorProcess] = {}
        self.brokers: dict[int, FakeBroker] = {}
        self.history: dict[str, list[dict[str, Any]]] = {CLUSTERS.plural: [], TOPICS.plural: []}
        self.events: dict[str, list[tuple[str, dict[str, Any]]]] = {kind.plural: [] for kind in RECORDED}
        self.machinery: Machinery | None = None
        self._recording: list[asyncio.Task[None]] = []

    async def open(self, *, pods: bool = True) -> World:
        """Make the namespace, with what pods need in it, and begin to record what happens to clusters and topics."""
        await self.client.create(NAMESPACES, None, {"metadata": {"name": self.ns}})
        if pods:
            await eventually(lambda: self.get(ACCOUNTS, "default"))
            await self.client.create(ACCOUNTS, self.ns, {"metadata": {"name": "kafkalite-broker"}})
        for kind in (CLUSTERS, TOPICS):
            heard = self.history[kind.plural]
            reflector = Reflector(
                self.client, kind, self.ns, "", heard.extend, lambda _, obj, heard=heard: heard.append(obj), lambda: 0.0
            )
            self._recording.append(asyncio.create_task(reflector.run()))
            await reflector.synced.wait()
        for kind in RECORDED:
            await self._record(kind)
        return self

    async def _record(self, kind: Kind) -> None:
        """What happens to objects that are deleted, too."""
        heard = self.events[kind.plural]

        def event(type_: str, obj: dict[str, Any]) -> None:
            heard.append((type_, obj))

        def listed(items: list[dict[str, Any]]) -> None:
            assert not (heard and items), "the recording has a gap"

        reflector = Reflector(self.client, kind, self.ns, "", listed, event, lambda: 0.0)
        self._recording.append(asyncio.create_task(reflector.run()))
        await reflector.synced.wait()

    async def close(self) -> None:
        if self.machinery is not None:
            await self.machinery.end()
        for broker in self.brokers.values():
            await broker.freeze()
        for operator in self.operators.values():
            operator.stop()
        for task in self._recording:
            task.cancel()
        await asyncio.gather(*self._recording, return_exceptions=True)
        await self.gate.close()
        await self.client.close()

    # -- operators -------------------------------------------------------------------------------------------------

    async def operator(self, name: str, *, token: str = "", start: bool = True, **environment: str) -> OperatorProcess:
        """Start a replica of the operator, behind the gate."""
        kubeconfig = await self.gate.open(name, token=token)
        variables = {
            "KUBECONFIG": str(kubeconfig),
            "KAFKALITE_OPERATOR_NAMESPACE": self.ns,
            "KAFKALITE_WATCH_NAMESPACES": self.ns,
            "KAFKALITE_DEFAULT_CLUSTER": json.dumps(SPEC),
            "PYTHONPATH": os.pathsep.join(sys.path),
            "PYTHONWARNINGS": "",
            **environment,
        }
        self.operators[name] = OperatorProcess(self.folder, name, variables)
        if start:
            self.operators[name].start()
        return self.operators[name]

    async def holder(self) -> str:
        """The name of the replica that holds the Lease; empty when nobody does."""
        lease = await self.get(LEASES, naming.OPERATOR_LEASE)
        return str((lease or {}).get("spec", {}).get("holderIdentity") or "").partition("_")[0]

    async def leader(self, *, other_than: str = "") -> str:
        """Wait until some replica (of another name) is the controller of the cluster; its name."""

        async def named() -> str:
            for operator in self.operators.values():
                assert operator.expected_to_end or operator.running(), operator.log.read_text()[-2000:]
            obj = await self.get(CLUSTERS, CLUSTER)
            controller = ((obj or {}).get("status") or {}).get("controller") or {}
            name = str(controller.get("holder", "")).partition("_")[0]
            return name if name != other_than and name == await self.holder() else ""

        return str(await eventually(named))

    # -- brokers ---------------------------------------------------------------------------------------------------

    async def start_brokers(self, count: int = 3, *, renew: bool = True) -> None:
        made = {number: FakeBroker(self.client, number, namespace=self.ns) for number in range(count)}
        self.brokers |= made
        await asyncio.gather(*(broker.start(renew=renew) for broker in made.values()))

    # -- objects ---------------------------------------------------------------------------------------------------

    async def get(self, kind: Kind, name: str) -> dict[str, Any] | None:
        """None when there is none."""
        with contextlib.suppress(KubeNotFound):
            return await self.client.get(kind, self.ns if kind.namespaced else None, name)
        return None

    async def make_topic(self, name: str = "orders", **spec: Any) -> dict[str, Any]:
        body = {
            "apiVersion": TOPICS.api_version,
            "kind": TOPICS.kind,
            "metadata": {"name": name},
            "spec": {"partitions": 3, "replicas": 3, **spec},
        }
        return await self.client.create(TOPICS, self.ns, body)

    async def topic(self, name: str = "orders") -> Any:
        return parse_topic(await self.client.get(TOPICS, self.ns, name))

    async def condition(self, kind: Kind, name: str, type_: str) -> tuple[str, str, str]:
        """Status, reason and message; empty when it is not there."""
        obj = await self.get(kind, name)
        for entry in ((obj or {}).get("status") or {}).get("conditions") or []:
            if entry["type"] == type_:
                return entry["status"], entry["reason"], entry.get("message", "")
        return "", "", ""

    async def ready(self, name: str = "orders", *, timeout_s: float = 60.0) -> Any:
        """Wait until the topic's spec was seen and it is Ready; the topic."""

        async def check() -> bool:
            obj = await self.get(TOPICS, name)
            status = (obj or {}).get("status") or {}
            now = {entry["type"]: entry["status"] for entry in status.get("conditions") or []}
            wanted = (obj or {}).get("spec", {}).get("partitions")
            return now.get("Ready") == "True" and len(status.get("partitions") or {}) == wanted

        await eventually(check, timeout_s=timeout_s)
        return await self.topic(name)

    async def refused_later(self, coroutine: Any) -> None:
        with contextlib.suppress(KubeUnavailable):
            await coroutine

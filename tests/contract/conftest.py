"""The contract suite: what operator, brokers and kubectl rely on, asked of running API servers.

Every test runs twice: against the embedded server, as a process of its own, and against a real kube-apiserver with etcd
and its controllers (tests/cluster). `-k embedded` and `-k kube-apiserver` choose one. KAFKALITE_CONTRACT_KUBECONFIG names
any other server instead of both; the CRDs have to be installed there.

What only one of them can be asked takes the fixture `embedded` or `real` and is skipped on the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from kafkalite_local.pytest_plugin import free_ports
from tests.cluster.control_plane import control_plane

ROOT = Path(__file__).resolve().parents[2]
NAMED = os.environ.get("KAFKALITE_CONTRACT_KUBECONFIG", "")
EMBEDDED, REAL = "embedded", "kube-apiserver"

TOPICS = "/apis/kafkalite.io/v1alpha1/namespaces/{ns}/kafkalitetopics"
CLUSTERS = "/apis/kafkalite.io/v1alpha1/namespaces/{ns}/kafkaliteclusters"
BROKERS = "/apis/kafkalite.io/v1alpha1/namespaces/{ns}/kafkalitebrokers"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases"
CONFIG_MAPS = "/api/v1/namespaces/{ns}/configmaps"
PODS = "/api/v1/namespaces/{ns}/pods"
EVENTS = "/api/v1/namespaces/{ns}/events"
STATEFUL_SETS = "/apis/apps/v1/namespaces/{ns}/statefulsets"

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"


@dataclass(frozen=True)
class Server:
    """What is asked."""

    kind: str
    kubeconfig: Path
    etcd_url: str = ""


class ServerProcess:
    """The embedded server as a process: start, kill, start again on the same files and port."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = free_ports().api_server
        self.kubeconfig = home / "kubeconfig"
        self.process: subprocess.Popen[bytes] | None = None

    def cpu_seconds(self) -> float:
        """CPU time that the process used so far: unlike wall time it does not depend on what else runs."""
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def start(self) -> float:
        """Start and wait until it answers. Returns the seconds that took."""
        self.home.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        arguments = ["-m", "kafkalite_local.apiserver.main", "--home", str(self.home), "--port", str(self.port)]
        with (self.home / "apiserver.log").open("ab") as log:
            self.process = subprocess.Popen([sys.executable, *arguments], stdout=log, stderr=log)
        deadline = began + 60
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as probe:
                probe.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
                if b"200 OK" in probe.recv(100) and self.kubeconfig.exists():
                    return time.monotonic() - began
            if self.process.poll() is not None:
                break
            time.sleep(0.01)
        raise AssertionError((self.home / "apiserver.log").read_text())

    def kill(self, number: int = signal.SIGKILL) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait(20)


@dataclass
class Answer:
    status: int
    body: Any
    headers: Any

    @property
    def revision(self) -> str:
        return self.body["metadata"]["resourceVersion"]


class Api:
    """Plain HTTP to one API server."""

    def __init__(self, session: aiohttp.ClientSession, server: str, headers: dict[str, str], ssl: Any) -> None:
        self.session = session
        self.server = server
        self.headers = headers
        self.ssl = ssl

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        media: str = "application/json",
        accept: str = "",
        **query: Any,
    ) -> Answer:
        headers = dict(self.headers)
        data = None
        if body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            headers["Content-Type"] = media
        if accept:
            headers["Accept"] = accept
        params = {key: str(value) for key, value in query.items()}
        if data is not None and len(data) > 1 << 16:
            data = io.BytesIO(data)
        async with self.session.request(
            method, self.server + path, data=data, headers=headers, params=params, ssl=self.ssl
        ) as response:
            text = await response.text()
            parsed = json.loads(text) if text.startswith(("{", "[")) else text
            return Answer(response.status, parsed, response.headers)

    async def get(self, path: str, **query: Any) -> Answer:
        return await self.call("GET", path, **query)

    async def create(self, path: str, body: Any, **query: Any) -> Answer:
        answer = await self.call("POST", path, body, **query)
        assert answer.status == 201, answer.body
        return answer

    async def patch(self, path: str, body: Any, media: str = JSON_PATCH, **query: Any) -> Answer:
        return await self.call("PATCH", path, body, media=media, **query)

    @contextlib.asynccontextmanager
    async def watch(self, path: str, **query: Any):
        """Yields `next_event(timeout)`, which returns None at the end of the stream."""
        accept = query.pop("accept", "")
        headers = {**self.headers, **({"Accept": accept} if accept else {})}
        params = {"watch": "true", **{key: str(value) for key, value in query.items()}}
        async with self.session.get(
            self.server + path, headers=headers, params=params, ssl=self.ssl, timeout=aiohttp.ClientTimeout(total=None)
        ) as response:
            assert response.status == 200, await response.text()

            async def next_event(timeout: float = 10.0) -> Any:
                async with asyncio.timeout(timeout):
                    line = await response.content.readline()
                return json.loads(line) if line else None

            try:
                yield next_event
            finally:
                # TLS ends with a dialogue, which no test waits for; without it the socket would outlive the loop.
                if response.connection is not None and response.connection.transport is not None:
                    response.connection.transport.abort()


def connection(kubeconfig: Path) -> tuple[str, dict[str, str], Any]:
    from kafkalite_runtime.kube.config import KubeConfig

    config = KubeConfig.from_file(kubeconfig)
    token = config.token or (config.token_file.get() if config.token_file else "")
    return config.server, {"Authorization": f"Bearer {token}"} if token else {}, config.ssl_context or True


@pytest.fixture(scope="session", params=["named"] if NAMED else [EMBEDDED, REAL])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """The server under test."""
    if request.param == EMBEDDED:
        with embedded_server(tmp_path_factory.mktemp("embedded")) as process:
            yield Server(EMBEDDED, process.kubeconfig)
    elif request.param == REAL:
        with control_plane(tmp_path_factory.mktemp("real") / "control-plane") as plane:
            yield Server(REAL, plane.kubeconfig, plane.etcd_url)
    else:
        yield Server(request.param, Path(NAMED))


@contextlib.contextmanager
def embedded_server(home: Path):
    process = ServerProcess(home)
    process.start()
    try:
        yield process
    finally:
        process.kill(signal.SIGTERM)
    assert process.process.returncode == 0, "the server did not stop cleanly"
    log = (home / "apiserver.log").read_text()
    assert "Traceback" not in log, log


@pytest.fixture(scope="session")
def kubeconfig(server: Server) -> Path:
    """The kubeconfig of the server under test."""
    return server.kubeconfig


@pytest.fixture
async def api(kubeconfig: Path):
    """Plain HTTP to the server under test."""
    async with open_api(kubeconfig) as opened:
        yield opened


@contextlib.asynccontextmanager
async def open_api(kubeconfig: Path):
    server, headers, ssl = connection(kubeconfig)
    async with aiohttp.ClientSession(auto_decompress=True, connector=aiohttp.TCPConnector(limit=0)) as session:
        yield Api(session, server, headers, ssl)


@pytest.fixture
async def ns(api: Api, server: Server) -> str:
    """A namespace of the test's own."""
    name = f"contract-{uuid.uuid4().hex[:10]}"
    await api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    if server.kind != EMBEDDED:
        # Admission refuses pods until a controller has made the service account that they run as.
        async with api.watch(f"/api/v1/namespaces/{name}/serviceaccounts") as next_event:
            while (await next_event())["object"]["metadata"]["name"] != "default":
                pass
    return name


@pytest.fixture
def embedded(server: Server) -> None:
    """Skips where another server than the embedded one is under test."""
    if server.kind != EMBEDDED:
        pytest.skip("only the embedded server can be asked this")


@pytest.fixture
def real(server: Server) -> None:
    """Skips where the embedded server is under test."""
    if server.kind == EMBEDDED:
        pytest.skip("the embedded server does not have this")


@pytest.fixture
def own_server(tmp_path: Path):
    """An embedded server of the test's own, which it may kill."""
    server = ServerProcess(tmp_path / "home")
    server.start()
    yield server
    if server.process is not None and server.process.poll() is None:
        server.kill()


async def until(condition: Any, *, seconds: float = 30.0) -> None:
    """Ask again until `condition()` is true: for what no watch of the test can tell."""
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110 - the condition is a request to another process
            await asyncio.sleep(0.02)


def topic(name: str = "orders", *, partitions: int = 3, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kafkalite.io/v1alpha1",
        "kind": "KafkaLiteTopic",
        "metadata": {"name": name},
        "spec": {"partitions": partitions, "replicas": 3, **spec},
    }


def cluster(name: str = "c", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kafkalite.io/v1alpha1",
        "kind": "KafkaLiteCluster",
        "metadata": {"name": name},
        "spec": spec,
    }


def broker_object(name: str = "c-broker-0", broker_id: int = 0) -> dict[str, Any]:
    return {
        "apiVersion": "kafkalite.io/v1alpha1",
        "kind": "KafkaLiteBroker",
        "metadata": {"name": name},
        "spec": {"clusterRef": {"name": "c"}, "brokerId": broker_id},
    }


def entry(leader: int = 0, leader_epoch: int = 0, partition_epoch: int = 0, isr: tuple = (0, 1, 2)) -> dict[str, Any]:
    return {
        "leader": leader,
        "leaderEpoch": leader_epoch,
        "partitionEpoch": partition_epoch,
        "minIsr": 2,
        "replicas": [0, 1, 2],
        "isr": list(isr),
        "isrBrokerEpochs": [7 for _ in isr],
        "elr": [],
        "elrBrokerEpochs": [],
        "adding": [],
        "removing": [],
    }


def config_map(name: str, **extra: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **extra}, "data": {"a": "b"}}


async def placed_topic(api: Api, ns: str, name: str = "orders", partitions: int = 3) -> dict[str, Any]:
    """A topic whose status the controller has written."""
    path = TOPICS.format(ns=ns)
    await api.create(path, topic(name, partitions=partitions))
    status = {
        "topicId": str(uuid.uuid4()),
        "controllerEpoch": 3,
        "partitions": {str(number): entry(number % 3, 4, 11) for number in range(partitions)},
    }
    answer = await api.patch(f"{path}/{name}/status", {"status": status}, MERGE_PATCH)
    assert answer.status == 200, answer.body
    return answer.body


def causes(answer: Answer) -> list[tuple[str, str]]:
    """Fields and messages of a refusal of 422."""
    assert (answer.status, answer.body["reason"]) == (422, "Invalid"), answer.body
    return [(cause["field"], cause["message"]) for cause in answer.body["details"]["causes"]]


def load_crds() -> list[dict[str, Any]]:
    return [yaml.safe_load(file.read_text()) for file in sorted((ROOT / "crds").glob("*.yaml"))]

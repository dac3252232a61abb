"""A KafkaLite cluster for your own tests: `pytest_plugins = ["kafkalite_local.pytest_plugin"]`.

    def test_orders(kafkalite_cluster):
        producer = Producer({"bootstrap.servers": kafkalite_cluster.bootstrap})

Three real brokers in seconds, on free ports, with their state in a temporary folder; stopped at the end.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafkalite_runtime.home import API_SERVER_OFFSET, METRICS_OFFSET, OPERATOR_OFFSET, Home, Ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BROKERS = 3
FIRST_PORT = 20_092
LAST_PORT = 32_000  # below the ports that Linux gives to outgoing connections
STEP = 130
COMMAND_LIMIT_S = 180


@dataclass(frozen=True, slots=True)
class LocalCluster:
    """A running cluster, used as its users use it: through `kafkalite` and the Kubernetes API."""

    home: Home
    ports: Ports

    @property
    def bootstrap(self) -> str:
        """`bootstrap.servers` for Kafka clients."""
        return ",".join(f"127.0.0.1:{self.ports.broker(n)}" for n in range(BROKERS))

    @property
    def kubeconfig(self) -> Path:
        """For kubectl and Kubernetes clients."""
        return self.home.kubeconfig

    def run(self, *arguments: str) -> str:
        """Run `kafkalite …` for this cluster; its output. Raises RuntimeError with everything it said."""
        environment = os.environ | {"KAFKALITE_HOME": str(self.home.root), "KAFKALITE_PORT": str(self.ports.base)}
        result = subprocess.run(
            [str(Path(sys.executable).with_name("kafkalite")), *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_LIMIT_S,
            check=False,
        )
        if result.returncode != 0:
            raise RuntimeError(
                f"kafkalite {' '.join(arguments)}: exit code {result.returncode}\n{result.stdout}{result.stderr}"
            )
        return result.stdout

    def status(self) -> dict[str, Any]:
        """`kafkalite status -o json`."""
        document: dict[str, Any] = json.loads(self.run("status", "-o", "json"))
        return document

    def kill(self, name: int | str, signal: str = "KILL") -> None:
        """Signal a broker (by id), `operator`, `apiserver` or `kubelet`."""
        self.run("kill", str(name), "--signal", signal)

    def apply(self, path: Path | str) -> None:
        """Create or change what a manifest describes."""
        self.run("apply", "-f", str(path))


def free_ports() -> Ports:
    """A base port from which every port that a cluster needs is free. Raises RuntimeError when there is none."""
    offsets = [*range(BROKERS), *range(METRICS_OFFSET, METRICS_OFFSET + BROKERS), OPERATOR_OFFSET, API_SERVER_OFFSET]
    # Test runs at the same time begin at different places.
    start = FIRST_PORT + os.getpid() % 64 * STEP
    for base in [*range(start, LAST_PORT, STEP), *range(FIRST_PORT, start, STEP)]:
        if all(_is_free(base + offset) for offset in offsets):
            return Ports(base)
    raise RuntimeError(f"no free range of ports between {FIRST_PORT} and {LAST_PORT}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@contextmanager
def running_cluster(folder: Path, *, files: tuple[str, ...] = ()) -> Iterator[LocalCluster]:
    """Start a cluster below `folder`, stop it at the end. Raises RuntimeError when it does not start."""
    cluster = LocalCluster(Home((folder / "kafkalite").absolute()), free_ports())
    try:
        cluster.run("up", *(argument for file in files for argument in ("-f", file)))
        yield cluster
    finally:
        cluster.run("down")


@pytest.fixture(scope="session")
def kafkalite_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One cluster for the whole test run."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def make_kafkalite_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., LocalCluster]]:
    """A function that starts another cluster for this one test; arguments: manifests to apply as well."""
    from contextlib import ExitStack

    with ExitStack() as stack:
        yield lambda *files: stack.enter_context(running_cluster(tmp_path_factory.mktemp("cluster"), files=files))

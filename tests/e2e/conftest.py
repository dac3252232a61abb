"""The chart on a cluster of the user's choice: KUBECONFIG names it, `make kind-up images` makes one.

KAFKALITE_E2E_REGISTRY    where the nodes find the three images (empty: they have them, by `make images`)
KAFKALITE_E2E_PATIENCE    factor for limits of time, for a machine that has something else to do
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "kafkalite"
NAMESPACE = "kafkalite-e2e"
REGISTRY = os.environ.get("KAFKALITE_E2E_REGISTRY", "").rstrip("/")
PATIENCE = float(os.environ.get("KAFKALITE_E2E_PATIENCE", "1"))
TOPIC = "first"
POLL_S = 0.2


def image(name: str) -> str:
    return f"{REGISTRY}/{name}" if REGISTRY else name


def built(script: str) -> Path:
    """What a script of tools/ has built."""
    done = subprocess.run([ROOT / "tools" / script], stdout=subprocess.PIPE, text=True, check=True)
    return Path(done.stdout.strip())


@dataclass(frozen=True)
class Cluster:
    """A cluster that runs, by its command-line tools."""

    kubectl_binary: Path
    helm_binary: Path
    home: Path

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "HOME": str(self.home)}

    def kubectl(self, *arguments: str, text: str = "", limit_s: float = 60) -> str:
        return self._call([str(self.kubectl_binary), f"--namespace={NAMESPACE}", *arguments], text, limit_s)

    def helm(self, *arguments: str, limit_s: float = 300) -> str:
        return self._call([str(self.helm_binary), f"--namespace={NAMESPACE}", *arguments], "", limit_s)

    def get(self, *arguments: str) -> dict[str, Any]:
        return json.loads(self.kubectl("get", "--output=json", *arguments))

    def wait(self, what: str, *arguments: str, limit_s: float) -> None:
        seconds = limit_s * PATIENCE
        self.kubectl("wait", f"--for={what}", f"--timeout={seconds:.0f}s", *arguments, limit_s=seconds + 30)

    def apply(self, *objects: dict[str, Any]) -> None:
        document = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("apply", "--filename=-", text=json.dumps(document))

    def until(self, true: Callable[[], bool], what: str, limit_s: float) -> None:
        """For what `kubectl wait` has no words for."""
        deadline = time.monotonic() + limit_s * PATIENCE
        while not true():
            assert time.monotonic() < deadline, f"not within {limit_s * PATIENCE:.0f} s: {what}\n{self.story()}"
            time.sleep(POLL_S)

    def story(self) -> str:
        """What a reader of a failure wants to know."""
        said = self.kubectl("get", "klt,klc,klb,pods,pvc", "--output=wide")
        return said + self.kubectl("get", "events", "--sort-by=.lastTimestamp")[-3000:]

    def in_client(self, program: str, *arguments: str) -> subprocess.Popen[str]:
        """A program of this folder in the pod with the client."""
        command = [str(self.kubectl_binary), f"--namespace={NAMESPACE}", "exec", "--stdin", "client", "--",
                   "python3", "-c", (ROOT / "tests" / "e2e" / "client" / program).read_text(), *arguments]  # fmt: skip
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self.environment)

    def consumed(self) -> list[str]:
        """Values of all records of the topic."""
        reader = self.in_client("consume.py", bootstrap(), TOPIC)
        said, _ = reader.communicate(timeout=120 * PATIENCE)
        assert reader.returncode == 0, said
        return json.loads(said)

    def _call(self, command: list[str], text: str, limit_s: float) -> str:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, check=False, timeout=limit_s, env=self.environment
        )
        assert done.returncode == 0, f"{' '.join(command)[:300]}\n{done.stdout}{done.stderr}"
        return done.stdout


def bootstrap() -> str:
    """By the name that the chart's notes give."""
    return f"kafkalite-bootstrap.{NAMESPACE}.svc:9092"


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    if not os.environ.get("KUBECONFIG"):
        pytest.fail('KUBECONFIG names no cluster; one to throw away: eval "$(make --silent kind-up)" && make images')
    found = Cluster(built("kubernetes/build.sh") / "kubectl", built("helm/build.sh"), tmp_path_factory.mktemp("home"))
    found.kubectl("get", "--raw=/readyz")
    return found


@pytest.fixture(scope="session")
def release(cluster: Cluster) -> Iterator[float]:
    """The chart, in a namespace that is gone afterwards. The value is the time at which its installation began."""
    had_definitions = "kafkalite.io" in cluster.kubectl("get", "crd", "--output=name")
    cluster.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", limit_s=180)
    cluster.kubectl("create", "namespace", NAMESPACE)
    cluster.apply(client_pod())
    cluster.wait("condition=Ready", "pod/client", limit_s=60)
    began = time.monotonic()
    cluster.helm("install", "kafkalite", str(CHART), "--wait", "--timeout=3m",
                 f"--set=image.repository={image('kafkalite-operator')}",
                 f"--set=brokers.image.repository={image('kafkalite-broker')}")  # fmt: skip
    print(f"helm install: {time.monotonic() - began:.1f} s", file=sys.stderr)
    yield began
    cluster.kubectl("delete", "klt,klc", "--all", limit_s=180)
    cluster.helm("uninstall", "kafkalite")
    cluster.kubectl("delete", "namespace", NAMESPACE, limit_s=240)
    if not had_definitions:
        names = (f"{name}.kafkalite.io" for name in ("kafkalitetopics", "kafkaliteclusters", "kafkalitebrokers"))
        cluster.kubectl("delete", "crd", *names, limit_s=120)


def client_pod() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "client"},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "client", "image": f"{image('kafkalite-e2e-client')}:0.1.0"}],
        },
    }

"""A Kubernetes cluster that runs, by its command-line tools, and what KafkaLite's resources in it say."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkalite_runtime.kube import BROKERS, TOPICS
from kafkalite_runtime.kube.config import KubeConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite_runtime.kube import Kind

ROOT = Path(__file__).resolve().parents[2]
CLIENT = ROOT / "tests" / "e2e" / "client"
NAMESPACE = "kafkalite-e2e"
REGISTRY = os.environ.get("KAFKALITE_E2E_REGISTRY", "").rstrip("/")
PATIENCE = float(os.environ.get("KAFKALITE_E2E_PATIENCE", "1"))
POLL_S = 0.2
READ_LIMIT_S = 30
BROKER_PODS = "--selector=app.kubernetes.io/component=broker"
OPERATOR_PODS = "--selector=app.kubernetes.io/component=operator"


def image(name: str) -> str:
    """With the registry, when one was named."""
    return f"{REGISTRY}/{name}" if REGISTRY else name


class CommandError(AssertionError):
    """A command ended with another exit code than 0; the text is what it said."""


@dataclass(frozen=True)
class Cluster:
    """One namespace of it, as the administrator sees it."""

    kubectl_binary: Path
    helm_binary: Path
    home: Path
    namespace: str = NAMESPACE

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "HOME": str(self.home)}

    @property
    def bootstrap(self) -> str:
        """By the name that the chart's notes give."""
        return f"kafkalite-bootstrap.{self.namespace}.svc:9092"

    def kubectl(self, *arguments: str, text: str = "", limit_s: float = 60) -> str:
        return self._call([str(self.kubectl_binary), f"--namespace={self.namespace}", *arguments], text, limit_s)

    def helm(self, *arguments: str, limit_s: float = 300) -> str:
        return self._call([str(self.helm_binary), f"--namespace={self.namespace}", *arguments], "", limit_s)

    def get(self, *arguments: str) -> dict[str, Any]:
        return json.loads(self.kubectl("get", "--output=json", *arguments))

    def items(self, *arguments: str) -> list[dict[str, Any]]:
        return self.get(*arguments)["items"]

    def wait(self, what: str, *arguments: str, limit_s: float) -> None:
        seconds = limit_s * PATIENCE
        self.kubectl("wait", f"--for={what}", f"--timeout={seconds:.0f}s", *arguments, limit_s=seconds + 30)

    def apply(self, *objects: dict[str, Any]) -> None:
        document = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("apply", "--filename=-", text=json.dumps(document))

    def patch(self, name: str, change: dict[str, Any]) -> None:
        self.kubectl("patch", name, "--type=merge", f"--patch={json.dumps(change)}")

    def until(self, true: Callable[[], bool], what: str, limit_s: float) -> float:
        """For what `kubectl wait` has no words for. Returns how many seconds it took.

        A question without an answer is asked again: what is asked for may not be there yet, or the API server be harmed.
        """
        began = time.monotonic()
        while True:
            unanswered = ""
            try:
                if true():
                    return time.monotonic() - began
            except (CommandError, subprocess.TimeoutExpired) as error:
                unanswered = f"\nthe last question had no answer: {error}"
            assert time.monotonic() < began + limit_s * PATIENCE, (
                f"not within {limit_s * PATIENCE:.0f} s: {what}{unanswered}\n{self.story()}"
            )
            time.sleep(POLL_S)

    def story(self) -> str:
        """What a reader of a failure wants to know."""
        questions = (
            ("get", "klt,klc,klb,pods,pvc", "--output=wide"),
            ("get", "events", "--sort-by=.lastTimestamp"),
            ("logs", OPERATOR_PODS, "--tail=20", "--prefix"),
        )
        said = []
        for question in questions:
            try:
                said.append(self.kubectl(*question)[-4000:])
            except (CommandError, subprocess.TimeoutExpired) as error:
                said.append(str(error))
        return "\n".join(said)

    def start(self, pod: str, *command: str) -> subprocess.Popen[str]:
        """A command in a pod, with its standard input and output."""
        words = [str(self.kubectl_binary), f"--namespace={self.namespace}", "exec", "--stdin", pod, "--", *command]
        return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self.environment)

    def in_client(self, program: str, *arguments: str) -> subprocess.Popen[str]:
        """A program of the folder `client` in the pod with the client."""
        return self.start("client", "python3", "-c", (CLIENT / program).read_text(), *arguments)

    def consumed(self, topic: str) -> list[str]:
        """Values of all records of the topic."""
        reader = self.in_client("consume.py", self.bootstrap, topic)
        said, _ = reader.communicate(timeout=120 * PATIENCE)
        assert reader.returncode == 0, said
        return json.loads(said)

    # -- what the resources say ----------------------------------------------------------------------------------------

    def read(self, kind: Kind, name: str = "") -> dict[str, Any]:
        """As `get`, for what is asked again and again: a tenth of a second of CPU less, of which brokers have too little."""
        config = KubeConfig.from_file(Path(os.environ["KUBECONFIG"]))
        token = config.token_file.get() if config.token_file else config.token
        request = urllib.request.Request(config.server + kind.path(self.namespace, name))
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=READ_LIMIT_S, context=config.ssl_context) as answer:
                return json.load(answer)
        except OSError as error:
            raise CommandError(f"{request.full_url}: {error}") from error

    def partitions(self, topic: str) -> dict[int, Any]:
        found = self.read(TOPICS, topic).get("status", {}).get("partitions", {})
        return {int(number): entry for number, entry in found.items()}

    def led_by(self, topic: str, broker: int) -> list[int]:
        return [number for number, entry in self.partitions(topic).items() if entry["leader"] == broker]

    def epochs(self) -> dict[int, int]:
        """The epoch of each broker's present registration."""
        brokers = self.read(BROKERS)["items"]
        return {each["spec"]["brokerId"]: registered(each) for each in brokers}

    def whole(self, topic: str, partitions: int, replicas: int) -> bool:
        """Whether every partition has a leader, and so many replicas, and all in sync since they registered last."""
        entries, epochs = self.partitions(topic), self.epochs()
        return len(entries) == partitions and all(
            entry["leader"] >= 0
            and len(entry["replicas"]) == len(entry["isr"]) == replicas
            and [epochs.get(member) for member in entry["isr"]] == entry["isrBrokerEpochs"]
            for entry in entries.values()
        )

    def node_of(self, pod: str) -> str:
        return self.get(f"pod/{pod}")["spec"]["nodeName"]

    def containers_ready(self, selector: str = BROKER_PODS) -> int:
        statuses = [
            status for pod in self.items("pods", selector) for status in pod["status"].get("containerStatuses", [])
        ]
        return sum(status["ready"] for status in statuses)

    def leading_operator(self) -> str:
        """The pod that holds the operator's Lease; empty while nobody does."""
        holder = self.get("lease/kafkalite-operator")["spec"].get("holderIdentity") or ""
        names = [pod["metadata"]["name"] for pod in self.items("pods", OPERATOR_PODS)]
        return next((name for name in names if holder.startswith(f"{name}_")), "")

    def acting_operator(self, limit_s: float = 30) -> str:
        """As above, when there is one."""
        self.until(lambda: bool(self.leading_operator()), "an operator holds the Lease", limit_s)
        return self.leading_operator()

    def restarts(self, pod: str) -> int:
        """How often its container was started again."""
        return self.get(f"pod/{pod}")["status"]["containerStatuses"][0]["restartCount"]

    def _call(self, command: list[str], text: str, limit_s: float) -> str:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, check=False, timeout=limit_s, env=self.environment
        )
        if done.returncode != 0:
            raise CommandError(f"{' '.join(command)[:300]}\n{done.stdout}{done.stderr}")
        return done.stdout


def registered(broker: dict[str, Any]) -> int:
    """The epoch of its present registration; -1 when it never registered."""
    return broker.get("status", {}).get("registration", {}).get("brokerEpoch", -1)


def broker_pod(broker: int) -> str:
    """Of the default cluster."""
    return f"kafkalite-broker-{broker}"


def client_pod(name: str, *command: str) -> dict[str, Any]:
    """A pod with the client, which does `command`, or waits for what is executed in it.

    Where it may, it runs beside the control plane: nodes of brokers are harmed and drained.
    """
    container: dict[str, Any] = {"name": "client", "image": f"{image('kafkalite-e2e-client')}:0.1.0"}
    role = {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}
    preferred = {"weight": 100, "preference": {"matchExpressions": [role]}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "restartPolicy": "Never",
            "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}},
            "tolerations": [{**role, "effect": "NoSchedule"}],
            "containers": [{**container, "command": list(command)} if command else container],
        },
    }

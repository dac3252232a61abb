"""A topic under load while something is harmed, and the verdict of the checkers: nothing lost, nothing doubled, all in sync."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkalite_cli.verify.metadata_checker import check_metadata
from kafkalite_cli.verify.metadata_recorder import MetadataRecorder
from kafkalite_runtime.kube import KubeClient
from kafkalite_runtime.kube.config import KubeConfig
from tests.e2e.cluster import PATIENCE, CommandError, broker_pod, client_pod

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kafkalite_cli.verify.metadata_checker import MetadataReport
    from tests.e2e.cluster import Cluster

PARTITIONS = 6
BROKERS = 3
RATE = 300
FLOOR = 0.2
"""Of the intended rate, over the whole time with all faults: a test without load proves nothing."""
WHOLE_LIMIT_S = 120
SERVED_LIMIT_S = 60
STARTED_LIMIT_S = 180
"""After the API server was away scheduler and kubelets ask it again a minute later, at the latest; then the pod starts."""
STOP_LIMIT_S = 90
CLIENT = {
    # What hangs, or is on a node that does, keeps its connections open: only the client's own time-outs, of 60 s by
    # default, end the wait for its answers.
    "socket.timeout.ms": 2_000,
    "topic.metadata.refresh.interval.ms": 1_000,
    "socket.connection.setup.timeout.ms": 2_000,
    "api.version.request.timeout.ms": 2_000,
    "reconnect.backoff.max.ms": 500,
    # A few lines, in the pod's log: when and why a producer begins a new epoch, after which records may come twice.
    "debug": "eos",
}


RESOURCES = {"requests": {"cpu": "250m", "memory": "256Mi"}}
"""Without a share of its own it stands still whenever the API server beside it has much to do, and measures that."""


class Load:
    """The clients of `kafkalite verify run` in a pod, on one topic."""

    def __init__(self, cluster: Cluster, topic: str, *, partitions: int = PARTITIONS, rate: float = RATE) -> None:
        self.cluster, self.topic, self.partitions, self.rate = cluster, topic, partitions, rate
        self.client: dict[str, Any] = dict(CLIENT)
        self.pod = f"load-{topic}"
        self.replicas = BROKERS

    def start(self) -> None:
        """Returns when records are acknowledged."""
        settings = {"bootstrap": self.cluster.bootstrap, "topic": self.topic, "rate": self.rate, "client": self.client}
        pod = client_pod(self.pod, "python3", "/opt/kafkalite/load.py", "run", json.dumps(settings))
        pod["spec"]["containers"][0]["resources"] = RESOURCES
        self.cluster.apply(pod)
        self.cluster.wait("condition=Ready", f"pod/{self.pod}", limit_s=STARTED_LIMIT_S)
        self.acknowledged(round(self.rate))

    def tell(self, *command: Any, limit_s: float = 30) -> Any:
        """A command of client/load.py, and its answer. Raises AssertionError with what went wrong."""
        words = ("python3", "/opt/kafkalite/load.py", "tell", json.dumps(command))
        return json.loads(self.cluster.kubectl("exec", self.pod, "--", *words, limit_s=limit_s + 180))

    def acknowledged(self, count: int, limit_s: float = SERVED_LIMIT_S) -> None:
        """Wait until so many more records are acknowledged."""
        self.tell("acknowledged", count, limit_s * PATIENCE, limit_s=limit_s * PATIENCE)

    def fault(self, name: str, partitions: Iterable[int]) -> None:
        """To be called right before it."""
        self.tell("fault", name, list(partitions))

    def served(self, partitions: Iterable[int] | None = None, limit_s: float = SERVED_LIMIT_S) -> None:
        """Wait until each of the partitions (None: all) acknowledges a record that is sent from now on."""
        chosen = range(self.partitions) if partitions is None else partitions
        self.tell("served", list(chosen), limit_s * PATIENCE, limit_s=limit_s * PATIENCE)

    def whole(self) -> None:
        """Wait until every partition is back in full ISR."""
        self.cluster.until(
            lambda: self.cluster.whole(self.topic, self.partitions, self.replicas), "every ISR full", WHOLE_LIMIT_S
        )

    def stop(self) -> dict[str, Any]:
        """The verdict: answers, the reader in the load and the final read each have their time."""
        return self.tell("stop", STOP_LIMIT_S * PATIENCE, limit_s=3 * STOP_LIMIT_S * PATIENCE)

    def story(self) -> str:
        """What the clients said, and the brokers: for a reader of a failure."""
        said = []
        for pod, tail in ((self.pod, 300), *((broker_pod(broker), 60) for broker in range(BROKERS))):
            try:
                said.append(f"{pod}:\n{self.cluster.kubectl('logs', pod, f'--tail={tail}')[-24_000:]}")
            except (CommandError, subprocess.TimeoutExpired) as error:
                said.append(f"{pod}: {error}")
        return "\n".join(said)

    def victim(self, *, besides: str = "", on: str = "") -> Victim:
        """The broker that leads most partitions, on another node than the load, and than `besides`; or the one of `on`."""
        entries = self.cluster.partitions(self.topic)
        leaders = [entry["leader"] for entry in entries.values()]
        places = {broker: self.cluster.node_of(broker_pod(broker)) for broker in range(BROKERS)}
        spared = {self.cluster.node_of(self.pod), besides}
        chosen = [each for each, node in places.items() if node not in spared and on in {"", node}]
        assert chosen, f"no broker is on another node than {spared}{f', and on {on}' if on else ''}: {places}"
        broker = max(chosen, key=leaders.count)
        led = {number: entry["leaderEpoch"] for number, entry in entries.items() if entry["leader"] == broker}
        assert led, f"broker {broker} leads nothing: {leaders}"
        return Victim(self, broker, places[broker], self.cluster.epochs()[broker], led)


@dataclass(frozen=True)
class Victim:
    """A broker right before it is harmed: what it leads, with the epochs, and that of its registration."""

    load: Load
    broker: int
    node: str
    epoch: int
    led: dict[int, int]

    @property
    def pod(self) -> str:
        return broker_pod(self.broker)

    def about_to(self, what: str) -> None:
        """Note what is done to it."""
        self.load.fault(f"{what} of broker {self.broker}", self.led)

    def replaced(self, limit_s: float) -> None:
        """Wait until what it led was given away, or anew to its next process, and is served."""
        cluster, topic = self.load.cluster, self.load.topic

        def elected() -> bool:
            entries = cluster.partitions(topic)
            return all(
                entries[number]["leaderEpoch"] > epoch and entries[number]["leader"] >= 0
                for number, epoch in self.led.items()
            )

        cluster.until(elected, f"{sorted(self.led)}, which broker {self.broker} led, have leaders anew", limit_s)
        self.load.served(self.led, limit_s)

    def back(self, limit_s: float) -> None:
        """Wait until it has registered anew."""
        cluster = self.load.cluster
        cluster.until(
            lambda: cluster.epochs()[self.broker] > self.epoch, f"broker {self.broker} registers anew", limit_s
        )


@contextmanager
def recorded(cluster: Cluster, folder: Path) -> Iterator[Callable[[], MetadataReport]]:
    """Changes of topics, brokers and clusters are recorded meanwhile; gives what judges them afterwards."""
    changes, config = folder / "metadata.jsonl", Path(os.environ["KUBECONFIG"])
    with MetadataRecorder(lambda: KubeClient(KubeConfig.from_file(config)), changes, cluster.namespace):
        yield lambda: check_metadata(changes)


@contextmanager
def under_load(
    cluster: Cluster, topic: str, folder: Path, *, replicas: int = BROKERS, one_history: bool = True, **client: Any
) -> Iterator[Load]:
    """A topic with a load. In the end everything has to be there once, in order, and on every replica.

    `one_history`: changes of the custom resources have to keep the rules, too, which nothing does in a store that goes back.
    `client`: further settings of the clients, with _ for a dot.
    """
    steps = Steps()
    cluster.apply(topic_object(topic, replicas))
    load = Load(cluster, topic)
    load.replicas = replicas
    load.client |= {key.replace("_", "."): value for key, value in client.items()}
    load.whole()
    try:
        with recorded(cluster, folder) as judged:
            load.start()
            steps.done("begun")
            yield load
            steps.done("harmed")
            load.whole()
            load.fault("whole again", [])
            load.served()
            steps.done("whole")
            report = load.stop()
            steps.done("read")
        judge(load, report)
        metadata = judged()
        assert metadata.ok or not one_history, metadata
    except BaseException:
        print(cluster.story(), load.story(), sep="\n", file=sys.stderr)
        raise
    finally:
        cluster.kubectl("delete", f"pod/{load.pod}", f"klt/{topic}", "--ignore-not-found", limit_s=120)
        steps.done("removed")
        print(f"{topic}: {steps}", file=sys.stderr)


class Steps:
    """What took how long."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._said: list[str] = []

    def done(self, what: str) -> None:
        now = time.monotonic()
        self._said.append(f"{what} {now - self._last:.1f} s")
        self._last = now

    def __str__(self) -> str:
        return ", ".join(self._said)


def judge(load: Load, report: dict[str, Any]) -> None:
    """Raises AssertionError with what clients saw."""
    for pause in report["pauses"]:
        if pause["gaps_ms"]:
            each = ", ".join(f"{gap_ms / 1000:.2f}" for gap_ms in pause["gaps_ms"].values())
            print(f"pause: {pause['fault']}: {pause['gap_ms'] / 1000:.2f} s (its partitions: {each})", file=sys.stderr)
    short = {name: report[name] for name in ("seconds", "acked", "unknown", "failed", "read", "counts", "errors")}
    assert report["ok"], {**short, "examples": report["examples"]}
    assert report["unknown"] == report["failed"] == 0, short
    assert report["acked"] > FLOOR * load.rate * report["seconds"], short
    assert report["read"] >= report["acked"], short


def topic_object(name: str, replicas: int = BROKERS, partitions: int = PARTITIONS) -> dict[str, Any]:
    """A topic of which `acks=all` asks two replicas at least."""
    spec = {"partitions": partitions, "replicas": replicas, "config": {"min.insync.replicas": str(min(2, replicas))}}
    return {"apiVersion": "kafkalite.io/v1alpha1", "kind": "KafkaLiteTopic", "metadata": {"name": name}, "spec": spec}

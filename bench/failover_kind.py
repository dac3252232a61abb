"""How long clients wait when something fails on a real Kubernetes: measures it, and writes docs/failover-kind.md.

    make failover-report CONTEXT=kind                             # 30 failures of each kind, in a cluster of its own
    make failover-report CONTEXT=kind ARGS="--n 3"                # a short one
    make failover-report CONTEXT=kind ARGS="--only first,roll"    # some kinds
    make failover-report CONTEXT=kind ARGS="--render"             # only write the document

With KUBECONFIG set it is measured there, in the namespace kafkalite-failover. First the chart is installed several
times, each time until a client has read the first record (`first`). Every kind of failure has a topic and a load of its
own, as in tests/e2e, and adds a line to bench/results/failover-kind.jsonl; lines of one tree hash add up. A kind in
which something breaks has a line of what was measured until then, with the reason; the others go on. Exit code 1: some
kind is incomplete, or had anomalies.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.failover_clauses import first_record
from bench.failover_document import Page, render
from bench.failover_first import FIRST, first_records, measured_first
from bench.failover_lab import HEALED, ONE_IN_FLIGHT, Result
from bench.failover_report import BESIDE, ROOT, conditions
from bench.failover_results import read, write
from kafkalite_runtime.kube import CLUSTERS
from tests.cluster.kind.stages import build
from tests.e2e.cluster import BROKER_PODS, OPERATOR_PODS, Cluster
from tests.e2e.harm import Killer, Nodes
from tests.e2e.installation import installed
from tests.e2e.load import CLIENT, PARTITIONS, Load, recorded, topic_object

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.load import Victim

NAMESPACE = "kafkalite-failover"
RESULTS = ROOT / "bench" / "results" / "failover-kind.jsonl"
DOCUMENT = ROOT / "docs" / "failover-kind.md"
KAFKALITE = Path(sys.executable).parent / "kafkalite"
SERVED_LIMIT_S = 120
RETURN_LIMIT_S = 300
MEASURING_CLIENT = {**CLIENT, **ONE_IN_FLIGHT}
ROLL_LIMIT_S = 900
PREFERRED_LIMIT_S = 30
CLUSTER = "kafkalite"
ROLL_ANNOTATION = "failover-report/roll"
FEW = {"restart": 10}  # kinds of which so many are enough


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of failure.

    Attributes:
        name: In the tables.
        text: What is done, for the document.
        harm: Does it once, and returns when what was led is served again.
        targets: Percentile -> seconds that the pause is to stay below.
        least: How many failures are asked for.
        by_partition: The targets are those of single partitions.
        nodes: Whether it harms nodes, which have to be our own.
    """

    name: str
    text: str
    harm: Callable[[Lab], None]
    targets: dict[str, float] = field(default_factory=dict)
    least: int = 30
    by_partition: bool = False
    nodes: bool = False


class Lab:
    """One kind of failure under load, again and again."""

    def __init__(self, kind: str, cluster: Cluster, killer: Killer, nodes: Nodes | None, rate: float) -> None:
        self.kind, self.cluster, self.killer, self.nodes = kind, cluster, killer, nodes
        self.load = Load(cluster, f"failover-{kind}", rate=rate)
        self.load.client = dict(MEASURING_CLIENT)
        self._began_s = time.monotonic()

    def say(self, text: str) -> None:
        """A line of what happens."""
        print(f"  {time.monotonic() - self._began_s:7.1f} s  {text}", flush=True)

    def run(self, count: int) -> dict[str, Any]:
        """So many failures, or as many as there were until something broke; the line for the results."""
        result = Result(self.kind, self.load.rate, PARTITIONS, MEASURING_CLIENT)
        for work in (lambda: self._measure(count, result), self._clear):
            try:
                work()
            except Exception as error:  # what was measured until then is kept, and the other kinds go on
                self._broke(result, error)
        result.minutes = round((time.monotonic() - self._began_s) / 60, 2)
        return asdict(result)

    def _measure(self, count: int, result: Result) -> None:
        self.cluster.apply(topic_object(self.load.topic))
        self.load.whole()
        with tempfile.TemporaryDirectory() as folder:
            with recorded(self.cluster, Path(folder)) as judged:
                self.load.start()
                try:
                    for number in range(count):
                        result.heal_s.append(self._once(number + 1))
                except Exception as error:  # the load has the samples of those before, and says them when it stops
                    self._broke(result, error)
                self._note(self.load.stop(), result)
            metadata = judged()
        result.anomalies |= metadata.counts
        result.facts |= {"elections_judged": metadata.elections}

    def _clear(self) -> None:
        names = (f"pod/{self.load.pod}", f"klt/{self.load.topic}")
        self.cluster.kubectl("delete", *names, "--ignore-not-found", limit_s=120)

    def _broke(self, result: Result, error: Exception) -> None:
        self.say(str(error))
        said = " ".join(f"{type(error).__name__}: {error}".split())[:500]
        result.problem = f"{result.problem}; {said}" if result.problem else said

    def _note(self, report: dict[str, Any], result: Result) -> None:
        """Into the result what the load says."""
        result.sample([(each["fault"], each["gap_ms"], list(each["gaps_ms"].values())) for each in report["pauses"]])
        result.acked, result.unknown = report["acked"], report["unknown"]
        result.anomalies |= report["counts"]
        result.errors = report["errors"]

    def _once(self, number: int) -> float:
        self.rested()
        time.sleep(random.random())  # a random moment of the renewals of Leases
        began_s = time.monotonic()
        KINDS[self.kind].harm(self)
        served_s = time.monotonic() - began_s
        self.load.whole()
        self.load.fault(HEALED, [])
        whole_s = round(time.monotonic() - began_s, 2)
        self.say(f"{number:4} served again after {served_s:.1f} s, whole after {whole_s:.1f} s")
        return whole_s

    def rested(self) -> None:
        """Replace pods whose container was started again: the kubelet holds them back, longer each time."""
        for pod in [each["metadata"]["name"] for each in self.cluster.items("pods", BROKER_PODS)]:
            if self.cluster.restarts(pod) > 0:
                broker = int(pod.rpartition("-")[2])
                epoch = self.cluster.epochs()[broker]
                self.cluster.kubectl("delete", f"pod/{pod}", limit_s=120)
                self.cluster.until(
                    lambda b=broker, e=epoch: self.cluster.epochs()[b] > e, f"{pod} is back", RETURN_LIMIT_S
                )
                self.load.whole()
        for pod in [each["metadata"]["name"] for each in self.cluster.items("pods", OPERATOR_PODS)]:
            if self.cluster.restarts(pod) > 0:
                self.cluster.kubectl("delete", f"pod/{pod}", limit_s=120)
        [deployment] = self.cluster.items("deployments", OPERATOR_PODS)
        name = f"deployment/{deployment['metadata']['name']}"
        self.cluster.kubectl("rollout", "status", name, "--timeout=120s", limit_s=150)
        self.cluster.acting_operator(RETURN_LIMIT_S)

    # -- what is done --------------------------------------------------------------------------------------------------

    def harmed(self, victim: Victim, what: str, harm: Callable[[], Any]) -> None:
        """Note it, do it, wait until the victim's partitions are served and it is back."""
        victim.about_to(what)
        harm()
        victim.replaced(SERVED_LIMIT_S)
        victim.back(RETURN_LIMIT_S)

    def node_harmed(self, victim: Victim, how: str) -> None:
        """The same for a node, which is mended when others serve."""
        assert self.nodes is not None
        victim.about_to(f"{how} of the node")
        with self.nodes.paused(victim.node) if how == "pause" else self.nodes.stopped(victim.node):
            victim.replaced(SERVED_LIMIT_S)
        victim.back(RETURN_LIMIT_S)

    @property
    def operator_node(self) -> str:
        """Of the operator that acts."""
        return self.cluster.node_of(self.cluster.acting_operator())


def roll(lab: Lab) -> None:
    """All brokers, by the operator, for an annotation of their pods: every partition's longest pause counts."""
    cluster, epochs = lab.cluster, lab.cluster.epochs()
    lab.load.fault("roll", range(PARTITIONS))
    annotations = {ROLL_ANNOTATION: str(time.time_ns())}
    cluster.patch(f"klc/{CLUSTER}", {"spec": {"template": {"pod": {"metadata": {"annotations": annotations}}}}})

    def over() -> bool:
        # Before the operator has seen the change the roll is not in progress, either: every broker tells.
        anew = cluster.epochs()
        rolling = cluster.read(CLUSTERS, CLUSTER).get("status", {}).get("rolling", {})
        return all(anew[broker] > epoch for broker, epoch in epochs.items()) and rolling.get("inProgress") is False

    cluster.until(over, "every broker is restarted, and the roll is over", ROLL_LIMIT_S)
    try:  # the leaderships that go back belong to the roll
        cluster.until(lambda: led_by_first(cluster, lab.load.topic), "first replicas lead", PREFERRED_LIMIT_S)
    except AssertionError:
        lab.say("not every partition is led by its first replica again")


def led_by_first(cluster: Cluster, topic: str) -> bool:
    """Every partition by its preferred leader."""
    return all(entry["leader"] == entry["replicas"][0] for entry in cluster.partitions(topic).values())


def restart(lab: Lab) -> None:
    """All brokers, one after the other, by `kafkalite restart`, without moving leaderships first."""
    lab.load.fault("restart", range(PARTITIONS))
    words = [KAFKALITE, "restart", "--all", "--yes", f"--kubeconfig={os.environ['KUBECONFIG']}", "-n", NAMESPACE]
    subprocess.run(words, check=True, timeout=ROLL_LIMIT_S, cwd=ROOT)


def delete(lab: Lab) -> None:
    """The pod of a leader is deleted."""
    victim = lab.load.victim()
    lab.harmed(victim, "deletion", lambda: lab.cluster.kubectl("delete", f"pod/{victim.pod}", limit_s=120))


def kill(lab: Lab) -> None:
    """SIGKILL of a leader."""
    victim = lab.load.victim()
    lab.harmed(victim, "SIGKILL", lambda: lab.killer.signal("SIGKILL", victim.pod))


def kill_both(lab: Lab) -> None:
    """SIGKILL of a leader and of the operator that acts."""
    victim, operator = lab.load.victim(), lab.cluster.acting_operator()
    lab.harmed(victim, "SIGKILL", lambda: lab.killer.signal("SIGKILL", victim.pod, operator))


KINDS = {
    "roll": Kind(
        "rolling",
        "The operator restarts every broker for another annotation of their pods (`spec.template.pod`), until"
        " `status.rolling` is over; one sample is one roll, of its partitions the slowest.",
        roll,
        targets={"p99": 1.0},
        by_partition=True,
    ),
    "restart": Kind(
        "restart --all",
        "`kafkalite restart --all` deletes one pod after the other without moving leaderships first; one sample is one"
        " such restart.",
        restart,
        least=0,
    ),
    "delete": Kind(
        "pod deleted", "The pod of a leader is deleted, with its grace period.", delete, targets={"p99": 1.0}
    ),
    "kill": Kind("SIGKILL", "The process of a leader is killed; its pod reports the end.", kill, targets={"p99": 3.0}),
    "pause": Kind(
        "node hangs",
        "The node of a leader stands still (`docker pause`), unreported; the operator that acts is elsewhere.",
        lambda lab: lab.node_harmed(lab.load.victim(besides=lab.operator_node), "pause"),
        targets={"p99": 9.0},
        nodes=True,
    ),
    "stop": Kind(
        "node stops",
        "The node of a leader is shut down (`docker stop`); the operator that acts is elsewhere.",
        lambda lab: lab.node_harmed(lab.load.victim(besides=lab.operator_node), "stop"),
        targets={"p99": 9.0},
        nodes=True,
    ),
    "pause-both": Kind(
        "node hangs, operator too",
        "The same for the node that has the operator that acts: its standby takes over first.",
        lambda lab: lab.node_harmed(lab.load.victim(on=lab.operator_node), "pause"),
        targets={"p99": 15.0},
        nodes=True,
    ),
    "kill-both": Kind(
        "SIGKILL, operator too",
        "A leader and the operator that acts are killed in the same moment.",
        kill_both,
        targets={"p99": 15.0},
    ),
}

HEAD = """\
# Failover on Kubernetes: how long clients wait

Made by `make failover-report CONTEXT=kind`; do not edit. The cluster is that of
[`make kind-up`](kind.md): four nodes that share one machine with the clients, three brokers, two operators. A topic
with replication factor 3 and `min.insync.replicas` 2, an idempotent producer with `acks=all`, flush before
acknowledgement.

A *pause* is the longest time without an acknowledged record of a partition whose leader was harmed, from the last
acknowledgement before the harm until everything is whole again; of its partitions the slowest counts. Every history is
judged by [`kafkalite verify`](verify.md), and every change of the custom resources. A *roll* is the operator's own: it
moves leaderships away before it restarts a broker; its limit is for the pauses of all partitions, not of the slowest.
"""
FOOT = f"""\
The kubelet looks once a second at what its containers do: that is what a SIGKILL takes longer here than on local
processes. All nodes, the control plane and the clients share the CPUs of one machine. Clients
use `{", ".join(f"{name}={value}" for name, value in MEASURING_CLIENT.items())}`: with more requests under way
librdkafka's idempotent producer spins while it waits, which took both processors from the brokers.

```
make failover-report CONTEXT=kind                          # 30 failures of each kind, about two hours
make failover-report CONTEXT=kind ARGS="--n 3"             # a short one
make failover-report CONTEXT=kind ARGS="--only first,roll" # some kinds; first: until the first record is read
make failover-report CONTEXT=kind ARGS="--render"          # write this document anew from the results
```
"""
PAGE = Page(
    kinds=KINDS,
    names={FIRST: "first record", **{name: kind.name for name, kind in KINDS.items()}},
    head=HEAD,
    foot=FOOT,
    curves="failover-kind-cumulative.svg",
    bars="failover-kind-histograms.svg",
    apart={FIRST: "first_record_s"},
    asked={FIRST: first_record},
    sections=(first_records,),
)


def measure(kinds: list[str], options: argparse.Namespace) -> list[str]:
    """Measure the kinds, each adds a line; those that are incomplete, or had anomalies."""
    with tempfile.TemporaryDirectory() as home:
        cluster = Cluster(build("kubernetes/build.sh") / "kubectl", build("helm/build.sh"), Path(home), NAMESPACE)
        failed = []
        if FIRST in kinds:
            print("--- first: from the installation of the chart to the first record that is read", flush=True)
            before = os.getloadavg()[0]
            line = measured_first(cluster, options.n)
            write({**conditions(before, options.beside), **line}, options.results)
            failed += [FIRST] if line["problem"] else []
        harms = [kind for kind in kinds if kind != FIRST]
        return failed + (harm_all(harms, cluster, options) if harms else [])


def harm_all(kinds: list[str], cluster: Cluster, options: argparse.Namespace) -> list[str]:
    """As above, in a cluster without the chart."""
    failed = []
    with installed(cluster):
        killer, nodes = Killer(cluster), Nodes.of(cluster)
        killer.install()
        for kind in kinds:
            if KINDS[kind].nodes and nodes is None:
                print(f"--- {kind}: left out, the nodes of this cluster are not ours to stop")
                continue
            print(f"--- {kind}: {KINDS[kind].text}", flush=True)
            before, count = os.getloadavg()[0], min(options.n, FEW.get(kind, options.n))
            line = Lab(kind, cluster, killer, nodes, options.rate).run(count)
            write({**conditions(before, options.beside), **line}, options.results)
            if line["problem"] or line["anomalies"]:
                failed.append(kind)
    return failed


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=30, help="failures of each kind")
    parser.add_argument("--only", default=",".join(PAGE.names), help="kinds, separated by commas")
    parser.add_argument("--rate", type=float, default=600, help="records per second")
    parser.add_argument("--beside", default="", help=BESIDE)
    parser.add_argument("--render", action="store_true", help="measure nothing")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--document", type=Path, default=DOCUMENT)
    options = parser.parse_args(arguments)
    options.kinds = options.only.split(",")
    if wrong := set(options.kinds) - set(PAGE.names):
        parser.error(f"no kind of failure: {', '.join(sorted(wrong))}; there are {', '.join(PAGE.names)}")
    return options


def main() -> int:
    """Entry point."""
    options = parse()
    read(options.results)  # who measures for two hours wants to know before that they cannot be read
    if not options.render and not os.environ.get("KUBECONFIG"):
        words = [
            sys.executable,
            "-m",
            "tests.cluster",
            "kind",
            "run",
            "--",
            sys.executable,
            "-m",
            "bench.failover_kind",
        ]
        return subprocess.run([*words, *sys.argv[1:]], cwd=ROOT, check=False).returncode
    try:
        failed = [] if options.render else measure(options.kinds, options)
    finally:  # a cluster that broke may refuse to be cleared as well
        for path in render(read(options.results), options.document, PAGE):
            print(f"wrote {path}")
    if failed:
        print(f"incomplete, or with anomalies: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""Faults of the API server as brokers and operator see it: they reach it through a proxy that treats them badly."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.chaos.cluster import BROKERS, ChaosError, NotHealedError
from tests.chaos.faults import PROXY, STALE_END, Bite, Run, fault
from tests.chaos.launcher import OPERATOR_POD, broker_pod
from tests.chaos.signal_faults import FENCED_LIMIT_S, LEASE_S, kill

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kafkalite_runtime.home import Ports

OPERATOR = "operator"
CLIENTS = (*(f"broker-{n}" for n in range(BROKERS)), OPERATOR)
ANSWER_LIMIT_S = 20.0


def pod_of(client: str) -> str:
    """The pod behind a client's name."""
    return OPERATOR_POD if client == OPERATOR else broker_pod(int(client.rpartition("-")[2]))


class ApiProxy:
    """The proxy's process and its orders."""

    def __init__(self, folder: Path, host: str, upstream: str, forwards: tuple[str, ...] = ()) -> None:
        self.host = host
        self.ports = dict(zip(CLIENTS, _free(host, len(CLIENTS)), strict=True))
        command = [sys.executable, "-m", "tests.chaos.api_proxy", "--host", host, "--upstream", upstream]
        for client, port in self.ports.items():
            command += ["--client", f"{client}:{port}"]
        for forward in forwards:
            command += ["--forward", forward]
        if forwards:
            command += ["--after", str(folder / "home" / "kubeconfig")]
        with (folder / "api-proxy.err").open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self._answer()

    def lines_for(self, client: str) -> list[str]:
        """Shell with which a pod's process starts: its kubeconfig names the client's port."""
        server = f"http://{self.host}:{self.ports[client]}"
        return [
            f'sed "s#server: .*#server: {server}#" "$KUBECONFIG" > "$KUBECONFIG.{client}"',
            f'export KUBECONFIG="$KUBECONFIG.{client}"',
        ]

    def counters(self) -> dict[str, int]:
        """What was done so far."""
        return self._ask({})

    def set(self, *rules: dict[str, Any]) -> None:
        """Replace the rules in force."""
        self._ask({"rules": list(rules)})

    @contextmanager
    def rules(self, *rules: dict[str, Any]) -> Iterator[None]:
        """In force for the body."""
        self.set(*rules)
        try:
            yield
        finally:
            self.set()

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _ask(self, order: dict[str, Any]) -> dict[str, int]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise ChaosError("the API proxy has ended") from None
        return self._answer()

    def _answer(self) -> dict[str, int]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ChaosError(f"the API proxy has ended with exit code {self._process.wait()}")
        found: dict[str, int] = json.loads(line)
        return found


def _free(host: str, count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind((host, 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def upstream_of(ports: Ports) -> str:
    """Where the API server really is."""
    return f"127.0.0.1:{ports.api_server}"


# --- the faults -------------------------------------------------------------------------------------------------------


def proxy(run: Run) -> ApiProxy:
    """The run's proxy."""
    assert run.proxy is not None
    return run.proxy


def did(run: Run, kind: str, count: int = 1) -> Bite:
    """The proxy did so to requests from now on."""
    return run.grows(f"{count} x {kind} by the proxy", lambda: proxy(run).counters().get(kind, 0), count)


@contextmanager
def bad_api(run: Run, name: str, count: int, *rules: dict[str, Any]) -> Iterator[None]:
    """The rules are in force for the body; that the first of them met so many requests proves the bite."""
    run.harm(name, [], did(run, rules[0]["kind"], count))
    with proxy(run).rules(*rules):
        yield


def leader_dies_meanwhile(run: Run) -> None:
    """Something has to be decided while the API is bad: a leader is killed."""
    kill(run, run.leader(), "leader", run.election())
    run.sleep(3, 8)


@fault("api-latency", needs=(PROXY,), workloads=("steady", "churn"))
def api_latency(run: Run) -> None:
    """Every answer of the API server takes 0.1 to 1.5 s, and the leader is killed."""
    with bad_api(run, "API latency", 10, {"kind": "latency", "low_s": 0.1, "high_s": 1.5}):
        leader_dies_meanwhile(run)


@fault("api-429", needs=(PROXY,), workloads=("steady", "churn"))
def api_429(run: Run) -> None:
    """Half of all requests are turned away with 429 and Retry-After, and the leader is killed."""
    with bad_api(run, "API answers 429", 5, {"kind": "429", "probability": 0.5}):
        leader_dies_meanwhile(run)


@fault("api-500", needs=(PROXY,), workloads=("steady", "single"))
def api_500(run: Run) -> None:
    """Half of all requests are answered with 500, and the leader is killed."""
    with bad_api(run, "API answers 500", 5, {"kind": "500", "probability": 0.5}):
        leader_dies_meanwhile(run)


@fault("api-cut", needs=(PROXY,), workloads=("steady", "wide"))
def api_cut(run: Run) -> None:
    """A third of the answers break off in mid-body, and the leader is killed."""
    with bad_api(run, "API answers cut in half", 5, {"kind": "cut", "probability": 0.33}):
        leader_dies_meanwhile(run)


@fault("api-lost-answer", needs=(PROXY,), workloads=("single", "wide"))
def api_lost_answer(run: Run) -> None:
    """Half of the writes are carried out and never answered: every compare-and-swap may be ambiguous."""
    with bad_api(run, "API writes without answer", 5, {"kind": "lost-answer", "probability": 0.5}):
        leader_dies_meanwhile(run)


@fault("api-late-write", needs=(PROXY,), workloads=("single", "wide"))
def api_late_write(run: Run) -> None:
    """A third of the writes break, and are carried out up to four seconds later, behind what was done meanwhile."""
    rule = {"kind": "late-write", "probability": 0.33, "low_s": 0.2, "high_s": 4.0}
    with bad_api(run, "API writes carried out late", 3, rule):
        leader_dies_meanwhile(run)
    run.sleep(4, 5)


@fault("api-duplicate", needs=(PROXY,), workloads=("single", "churn"))
def api_duplicate(run: Run) -> None:
    """Every write is delivered twice and answered as the second time, and the leader is killed."""
    with bad_api(run, "API writes delivered twice", 5, {"kind": "duplicate"}):
        leader_dies_meanwhile(run)


@fault("api-slow-watch", needs=(PROXY,), workloads=("steady", "wide"))
def api_slow_watch(run: Run) -> None:
    """Watches deliver up to 1.5 s late, each client in its own time, and the leader is killed."""
    rule = {"kind": "slow-watch", "low_s": 0.1, "high_s": 1.5}
    with bad_api(run, "API watches are late", 5, rule):
        leader_dies_meanwhile(run)


@fault("api-gone", needs=(PROXY,), workloads=("steady", "churn"))
def api_gone(run: Run) -> None:
    """Watches break, and what they resume from is gone: everybody lists anew, while the leader is killed."""
    run.harm("API watches broken", [], did(run, "reset"))
    proxy(run).set({"kind": "reset"})
    with bad_api(run, "API watches are told 410", 2, {"kind": "gone", "probability": 0.7}):
        leader_dies_meanwhile(run)


@fault("api-stall", needs=(PROXY,), workloads=("steady", "group"))
def api_stall(run: Run) -> None:
    """The API server falls silent without closing anything, for longer than a lease; then the leader is killed."""
    before = run.traffic.acked
    with bad_api(run, "API silent", 4, {"kind": "stall"}):
        run.sleep(LEASE_S + 2, LEASE_S + 6)
        went_on = run.traffic.acked - before
        leader_dies_meanwhile(run)
    if went_on < run.traffic.workload.rate:
        raise NotHealedError(f"only {went_on} acknowledged while the API server was silent")


@fault("api-cut-off-leader", needs=(PROXY,), workloads=("steady", "single", "wide"), allowed=STALE_END)
def api_cut_off_leader(run: Run) -> None:
    """The leader alone cannot reach the API server: it is fenced while it runs, and must not acknowledge on its own."""
    broker = run.leader()
    rule = {"kind": "stall", "clients": [f"broker-{broker}"]}
    left = run.leaves_isr(broker)
    run.harm(f"broker {broker} without API", [broker], left, run.election(), did(run, f"stall/broker-{broker}"))
    with proxy(run).rules(rule):
        run.wait(left, FENCED_LIMIT_S)
        run.sleep(1, 5)


@fault("api-cut-off-operator", needs=(PROXY,), workloads=("steady",))
def api_cut_off_operator(run: Run) -> None:
    """The operator alone cannot reach the API server while the leader is killed."""
    rule = {"kind": "reset", "clients": [OPERATOR]}
    with bad_api(run, "operator without API", 1, rule):
        leader_dies_meanwhile(run)


@fault("api-flaky", needs=(PROXY,), workloads=("group", "churn"), rounds=2)
def api_flaky(run: Run) -> None:
    """A bit of everything at once, while two brokers are killed one after the other."""
    rules = [
        {"kind": "lost-answer", "probability": 0.1},
        {"kind": "duplicate", "probability": 0.1},
        {"kind": "500", "probability": 0.1},
        {"kind": "429", "probability": 0.1},
        {"kind": "cut", "probability": 0.1},
        {"kind": "slow-watch", "low_s": 0.0, "high_s": 0.5},
        {"kind": "latency", "low_s": 0.0, "high_s": 0.7},
    ]
    run.random.shuffle(rules)
    before = sum(proxy(run).counters().values())
    bite = Bite("20 requests were ill-treated", lambda: sum(proxy(run).counters().values()) - before >= 20)
    run.harm("API flaky", [], bite)
    with proxy(run).rules(*rules):
        leader_dies_meanwhile(run)
        leader_dies_meanwhile(run)

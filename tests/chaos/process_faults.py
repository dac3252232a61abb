"""More faults of processes: orderly ends of the control plane, members of the group, a second broker on the same disk."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

from kafkalite_local.pytest_plugin import free_ports
from kafkalite_runtime.home import API_SERVER, KUBELET, SUPERVISOR
from tests.chaos.cluster import BROKERS, DOWN_LIMIT_S, NotHealedError, PromiseError
from tests.chaos.disk_faults import wait_ended
from tests.chaos.faults import Bite, Run, fault
from tests.chaos.signal_faults import LEASE_S, frozen, kill, undone

TWIN_LIMIT_S = 60.0
REBALANCE_LIMIT_S = 45.0  # several times the members' session time-out


def term(run: Run, target: str) -> None:
    """SIGTERM a process of the control plane; another one in its place proves the bite."""
    run.harm(f"SIGTERM {target}", [], run.replaced(target))
    run.cluster.signal(target, signal.SIGTERM)


@fault("term-operator", workloads=("churn", "steady"))
def term_operator(run: Run) -> None:
    """SIGTERM the operator, and SIGKILL the leader while its successor starts."""
    term(run, "operator")
    run.sleep(0.1, 1)
    kill(run, run.leader(), "leader", run.election())


@fault("term-apiserver", workloads=("churn",))
def term_apiserver(run: Run) -> None:
    """SIGTERM the API server, which the supervisor starts again."""
    term(run, API_SERVER)
    run.sleep(1, 3)


@fault("term-kubelet", workloads=("steady", "single"))
def term_kubelet(run: Run) -> None:
    """SIGTERM the kubelet: the brokers go on, and the next kubelet adopts them and starts the one that is killed."""
    term(run, KUBELET)
    run.sleep(0, 1)
    kill(run, run.leader(), "leader", run.election())


@fault("stop-supervisor-kill-apiserver", workloads=("steady", "group"), rounds=2)
def stop_supervisor_kill_apiserver(run: Run) -> None:
    """SIGKILL the API server while the supervisor is frozen: nobody starts it again for longer than a lease."""
    again = run.replaced(API_SERVER)
    with frozen(run, SUPERVISOR, undone("nobody started the API server", again)):
        run.harm("SIGKILL API server", [], again)
        before = run.traffic.acked
        run.cluster.signal(API_SERVER, signal.SIGKILL)
        run.sleep(LEASE_S + 2, LEASE_S + 5)
        if (acked := run.traffic.acked - before) < run.traffic.workload.rate:
            raise NotHealedError(f"only {acked} acknowledged while there was no API server")


@fault("term-supervisor", workloads=("steady", "group"), rounds=2)
def term_supervisor(run: Run) -> None:
    """SIGTERM the supervisor: pods, kubelet and API server end in order, and `kafkalite up` starts everything again."""
    parts = [run.replaced(target) for target in (SUPERVISOR, KUBELET, API_SERVER, "operator")]
    again = [run.incarnation(broker) for broker in range(BROKERS)]
    down: list[bool] = []
    ended = Bite("nothing of it ran any more", lambda: any(down))
    run.harm("SIGTERM supervisor", range(BROKERS), *parts, *again, ended)
    records = [run.cluster.record(target) for target in (*range(BROKERS), "operator", KUBELET, API_SERVER, SUPERVISOR)]
    run.cluster.signal(SUPERVISOR, signal.SIGTERM)
    for record in reversed(records):
        wait_ended(record, DOWN_LIMIT_S)
    down.append(not any(record.alive() for record in records))
    run.sleep(0, 2)
    run.cluster.up()


@fault("term-member", workloads=("group",))
def term_member(run: Run) -> None:
    """SIGTERM a member of the consumer group, which leaves in order; another member takes the place."""
    gone: list[bool] = []
    run.harm("SIGTERM a member of the group", [], Bite("the group goes on without it", lambda: any(gone)))
    run.traffic.term_member()
    gone.append(run.traffic.wait_without_member(REBALANCE_LIMIT_S))
    run.traffic.start_member()


@fault("stop-member", workloads=("group",))
def stop_member(run: Run) -> None:
    """SIGSTOP a member of the group until the others have its partitions; it goes on with commits that are void."""
    gone: list[bool] = []
    run.harm("SIGSTOP a member of the group", [], Bite("the group goes on without it", lambda: any(gone)))
    with run.traffic.frozen_member():
        gone.append(run.traffic.wait_without_member(REBALANCE_LIMIT_S))
        run.sleep(1, 3)


@fault("kill-member-and-leader", workloads=("group",))
def kill_member_and_leader(run: Run) -> None:
    """SIGKILL a member of the consumer group and the leader; another member takes the place."""
    started: list[int] = []
    run.harm("SIGKILL a member of the group", [], Bite("it was killed and replaced", lambda: bool(started)))
    kill(run, run.leader(), "leader", run.election())
    started.append(run.traffic.replace_member())


def on_other_ports(config: Path, run: Run) -> Path:
    """A broker's configuration with ports that nobody has: it is to fail for its disk, not for its ports."""
    document, ports = json.loads(config.read_bytes()), free_ports()
    for listener in document["listeners"]:
        listener["port"] = ports.base
    document["metrics"]["port"] = ports.broker_metrics(0)
    changed = run.cluster.home.root / "twin-broker.json"
    changed.write_text(json.dumps(document), encoding="utf-8")
    return changed


@fault("twin", workloads=("steady", "single"))
def twin(run: Run) -> None:
    """A second process of a broker starts on the same disk: it must end by itself and change nothing."""
    broker = run.leader()
    fenced, again = run.more(f"fencings/{broker}"), run.incarnation(broker)
    proc = Path("/proc") / str(run.cluster.record(broker).pid)
    words = (proc / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    environment = dict(entry.split(b"=", 1) for entry in (proc / "environ").read_bytes().split(b"\0") if b"=" in entry)
    environment[b"KAFKALITE_TERMINATION_LOG"] = bytes(run.cluster.home.root / "twin-termination-log")
    environment[b"KAFKALITE_CONFIG"] = bytes(on_other_ports(Path(environment[b"KAFKALITE_CONFIG"].decode()), run))
    codes: list[int] = []
    path = run.cluster.home.log("twin")
    told = Bite("the twin says that its disk is in use", lambda: b"in use by another process" in path.read_bytes())
    run.harm(f"twin of broker {broker}", [], Bite("the twin ended with an error", lambda: sum(codes) > 0), told)
    with path.open("wb") as log:
        process = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        codes.append(process.wait(TWIN_LIMIT_S))
    except subprocess.TimeoutExpired:
        raise PromiseError(f"two processes of broker {broker} run on one disk") from None
    finally:
        process.kill()
        process.wait()
    time.sleep(1)
    if fenced.seen() or again.seen():
        raise PromiseError(f"broker {broker} was disturbed by its twin")

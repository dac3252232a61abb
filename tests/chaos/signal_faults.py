"""Faults by signals: every process of the cluster is killed, stopped, frozen, alone and together with others."""

from __future__ import annotations

import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kafkalite_runtime.home import API_SERVER, KUBELET, SUPERVISOR
from tests.chaos.cluster import BROKERS, NotHealedError, PromiseError
from tests.chaos.faults import STALE_COORDINATOR, STALE_END, Bite, Run, fault
from tests.chaos.launcher import broker_pod

if TYPE_CHECKING:
    from collections.abc import Iterator

LEASE_S = 5.0  # of a broker; what is silent for longer is fenced
FENCED_LIMIT_S = 45.0


def kill(run: Run, broker: int, what: str, *more: Bite) -> None:
    """SIGKILL a broker; a new incarnation of it proves the bite."""
    bites = (run.incarnation(broker), run.replaced(broker), *more)
    run.harm(f"SIGKILL {what} (broker {broker})", [broker], *bites)
    run.cluster.signal(broker, signal.SIGKILL)


@fault("kill-leader", workloads=("steady", "single", "wide", "rolling", "packed", "group", "churn"), rounds=4)
def kill_leader(run: Run) -> None:
    """SIGKILL the broker that leads most."""
    kill(run, run.leader(), "leader", run.election())


@fault("kill-follower", workloads=("single", "rolling"), rounds=4)
def kill_follower(run: Run) -> None:
    """SIGKILL a broker that leads the least."""
    kill(run, run.follower(), "follower")


@fault("kill-coordinator", workloads=("group",), rounds=4)
def kill_coordinator(run: Run) -> None:
    """SIGKILL the broker that coordinates the consumer group."""
    kill(run, run.traffic.coordinator(), "coordinator", run.more("elections/consumer-offsets-"))


@fault("term-coordinator", workloads=("group",), rounds=4)
def term_coordinator(run: Run) -> None:
    """SIGTERM the broker that coordinates the consumer group: it hands the group over before it ends."""
    broker = run.traffic.coordinator()
    moved = run.more("elections/consumer-offsets-")
    run.harm(f"SIGTERM coordinator (broker {broker})", [broker], moved, run.incarnation(broker))
    run.cluster.signal(broker, signal.SIGTERM)


@fault("stop-coordinator", workloads=("group",), allowed=STALE_COORDINATOR)
def stop_coordinator(run: Run) -> None:
    """SIGSTOP the broker that coordinates the group until another one does: it wakes as a coordinator of the past."""
    broker = run.traffic.coordinator()
    moved: list[bool] = []
    left, another = run.leaves_isr(broker), Bite("another one coordinates the group", lambda: any(moved))
    run.harm(f"SIGSTOP coordinator (broker {broker})", [broker], left, another)
    with run.cluster.frozen(broker):
        run.wait(left, FENCED_LIMIT_S)
        moved.append(run.traffic.wait_coordinator(broker, FENCED_LIMIT_S))
        run.sleep(0.5, 4)


@fault("kill-two", workloads=("steady", "single", "group"))
def kill_two(run: Run) -> None:
    """SIGKILL two brokers at the same time: what is left is below the minimum ISR."""
    leader = run.leader()
    kill(run, leader, "leader", run.election())
    kill(run, run.random.choice(run.others(leader)), "another")


@fault("kill-all", workloads=("steady", "single", "rolling"))
def kill_all(run: Run) -> None:
    """SIGKILL every broker at the same time."""
    for broker in range(BROKERS):
        kill(run, broker, "one of all")


@fault("kill-again", workloads=("steady", "packed"))
def kill_again(run: Run) -> None:
    """SIGKILL a broker, and its successor while that recovers."""
    broker = run.leader()
    record = run.cluster.record(broker)
    kill(run, broker, "leader", run.election())
    if not run.cluster.wait_replaced(broker, record):
        raise NotHealedError(f"broker {broker} was not started again")
    run.sleep(0.2, 1.0)
    run.harm(f"SIGKILL successor (broker {broker})", [], run.replaced(broker))
    run.cluster.signal(broker, signal.SIGKILL)


@fault("kill-long", workloads=("steady", "single"))
def kill_long(run: Run) -> None:
    """SIGKILL the leader and keep it down until the others go on without it."""
    broker = run.leader()
    with run.cluster.launcher.held(broker_pod(broker)):
        left = run.leaves_isr(broker)
        kill(run, broker, "leader, kept down", run.election(), left)
        run.wait(left, FENCED_LIMIT_S)
        run.sleep(1, 4)


@fault("kill-last-two", workloads=("steady",), rounds=2)
def kill_last_two(run: Run) -> None:
    """One broker is kept down until the others go on without it, then one of those two is killed as well."""
    first = run.leader()
    with run.cluster.launcher.held(broker_pod(first)):
        left = run.leaves_isr(first)
        kill(run, first, "leader, kept down", run.election(), left)
        if not run.wait(left, FENCED_LIMIT_S):
            return
        second = run.random.choice(run.others(first))
        kill(run, second, "one of the two that are left")
        run.sleep(0.5, 2)


@fault("term-leader", workloads=("steady", "single", "wide", "packed"), rounds=4)
def term_leader(run: Run) -> None:
    """SIGTERM the broker that leads most: it hands over before it ends."""
    broker = run.leader()
    run.harm(f"SIGTERM leader (broker {broker})", [broker], run.election(), run.incarnation(broker))
    run.cluster.signal(broker, signal.SIGTERM)


@fault("term-follower", workloads=("single", "rolling"), rounds=4)
def term_follower(run: Run) -> None:
    """SIGTERM a broker that leads the least."""
    broker = run.follower()
    run.harm(f"SIGTERM follower (broker {broker})", [broker], run.leaves_isr(broker), run.incarnation(broker))
    run.cluster.signal(broker, signal.SIGTERM)


@fault("term-two", workloads=("steady", "single", "group"))
def term_two(run: Run) -> None:
    """SIGTERM two brokers at the same time: both hand over, to one that is below the minimum ISR without them."""
    leader = run.leader()
    other = run.random.choice(run.others(leader))
    run.harm(f"SIGTERM leader (broker {leader})", [leader], run.election(), run.incarnation(leader))
    run.harm(f"SIGTERM another (broker {other})", [other], run.incarnation(other))
    for broker in (leader, other):
        run.cluster.signal(broker, signal.SIGTERM)


@fault("term-all", workloads=("steady",), rounds=2)
def term_all(run: Run) -> None:
    """SIGTERM every broker at the same time."""
    for broker in range(BROKERS):
        run.harm(f"SIGTERM one of all (broker {broker})", [broker], run.incarnation(broker))
        run.cluster.signal(broker, signal.SIGTERM)


@fault("term-rolling", workloads=("steady", "group"), rounds=1)
def term_rolling(run: Run) -> None:
    """SIGTERM one broker after another, each when everything is in sync again."""
    for broker in run.random.sample(range(BROKERS), BROKERS):
        back = run.incarnation(broker)
        run.harm(f"SIGTERM in turn (broker {broker})", [broker], back)
        run.cluster.signal(broker, signal.SIGTERM)
        run.wait(back, FENCED_LIMIT_S)
        run.cluster.wait_whole(120)


@contextmanager
def frozen(run: Run, target: str, effect: Bite) -> Iterator[None]:
    """SIGSTOP a process of the control plane for the body. What it left undone until the end of it proves the bite."""
    seen: list[bool] = []
    run.harm(f"SIGSTOP {target}", [], Bite(effect.text, lambda: any(seen)))
    with run.cluster.frozen(target):
        yield
        seen.append(effect.seen())


def undone(text: str, done: Bite) -> Bite:
    """What the process that is frozen would do otherwise has not been done."""
    return Bite(text, lambda: not done.seen())


def silent(run: Run) -> Bite:
    """The API server does not answer."""
    return Bite("no answer from the API server", lambda: not run.cluster.api.answers(1.0))


def freeze(run: Run, broker: int, what: str, low_s: float, high_s: float) -> None:
    """SIGSTOP a broker until it is out of an ISR and some time more, then SIGCONT."""
    left = run.leaves_isr(broker)
    run.harm(f"SIGSTOP {what} (broker {broker})", [broker], left)
    with run.cluster.frozen(broker):
        run.wait(left, FENCED_LIMIT_S)
        run.sleep(low_s, high_s)


@fault("stop-leader", workloads=("steady", "single", "wide", "group"), allowed=STALE_END)
def stop_leader(run: Run) -> None:
    """SIGSTOP the leader until others lead, then let it go on with what it had queued."""
    freeze(run, run.leader(), "leader", 0.5, 4)


@fault("stop-follower", workloads=("single", "rolling"), allowed=STALE_END)
def stop_follower(run: Run) -> None:
    """SIGSTOP a follower until it is out of the ISR."""
    freeze(run, run.follower(), "follower", 0.5, 4)


@fault("stop-all", workloads=("steady", "packed"), allowed=STALE_END)
def stop_all(run: Run) -> None:
    """SIGSTOP every broker for longer than a lease."""
    acked = [0, -1]
    stalled = Bite("nothing acknowledged meanwhile", lambda: acked[0] == acked[1])
    run.harm("SIGSTOP all brokers", range(BROKERS), stalled)
    with run.cluster.frozen(*range(BROKERS)):
        time.sleep(1)  # answers that were under way
        acked[0] = run.traffic.acked
        run.sleep(LEASE_S + 1, LEASE_S + 4)
        acked[1] = run.traffic.acked


@fault("stop-two", workloads=("steady", "single", "group"), allowed=STALE_COORDINATOR)
def stop_two(run: Run) -> None:
    """SIGSTOP two brokers until both are out of the ISR: the third is below the minimum, so nothing is acknowledged."""
    leader = run.leader()
    other = run.random.choice(run.others(leader))
    left = [run.leaves_isr(broker) for broker in (leader, other)]
    for broker, bite in zip((leader, other), left, strict=True):
        run.harm(f"SIGSTOP one of two (broker {broker})", [broker], bite)
    with run.cluster.frozen(leader, other):
        for bite in left:
            run.wait(bite, FENCED_LIMIT_S)
        run.sleep(1, 2)  # answers that were under way
        before = run.traffic.acked
        run.sleep(2, 4)
        if (acked := run.traffic.acked - before) > 0:
            raise PromiseError(f"{acked} acknowledged below the minimum ISR")


@fault("pause-blips", workloads=("single", "wide"), rounds=2)
def pause_blips(run: Run) -> None:
    """SIGSTOP random brokers for moments that are shorter than a lease, again and again.

    Every broker has a replica of every partition: as long as one that is in sync is silent, nothing is acknowledged.
    """
    for _ in range(8):
        broker = run.random.randrange(BROKERS)
        acked: list[int] = []
        stalled = Bite("nothing acknowledged meanwhile", lambda a=acked: len(a) == 2 and a[0] == a[1])
        run.harm(f"SIGSTOP for a moment (broker {broker})", [broker], stalled)
        with run.cluster.frozen(broker):
            time.sleep(0.3)  # answers that were under way
            acked.append(run.traffic.acked)
            run.sleep(0.3, 1.2)
            acked.append(run.traffic.acked)
        run.sleep(0.1, 0.8)


@fault("kill-operator", workloads=("steady", "churn"), rounds=4)
def kill_operator(run: Run) -> None:
    """SIGKILL the operator."""
    run.harm("SIGKILL operator", [], run.replaced("operator"))
    run.cluster.signal("operator", signal.SIGKILL)
    run.sleep(0.5, 3)


@fault("kill-operator-and-leader", workloads=("steady", "single", "group"))
def kill_operator_and_leader(run: Run) -> None:
    """SIGKILL the operator and the leader at the same moment."""
    run.harm("SIGKILL operator", [], run.replaced("operator"))
    run.cluster.signal("operator", signal.SIGKILL)
    kill(run, run.leader(), "leader", run.election())


@fault("stop-operator-kill-leader", workloads=("steady",))
def stop_operator_kill_leader(run: Run) -> None:
    """SIGSTOP the operator, SIGKILL the leader: nobody elects until the operator goes on or is replaced."""
    elected = run.election()
    with frozen(run, "operator", undone("nobody was elected meanwhile", elected)):
        kill(run, run.leader(), "leader", elected)
        run.sleep(3, 8)


@fault("kill-apiserver", workloads=("steady", "churn"), rounds=4)
def kill_apiserver(run: Run) -> None:
    """SIGKILL the API server, which the supervisor starts again."""
    run.harm("SIGKILL API server", [], run.replaced(API_SERVER))
    run.cluster.signal(API_SERVER, signal.SIGKILL)
    run.sleep(1, 3)


@fault("kill-apiserver-and-leader", workloads=("steady", "single"))
def kill_apiserver_and_leader(run: Run) -> None:
    """SIGKILL the API server and the leader at the same moment."""
    run.harm("SIGKILL API server", [], run.replaced(API_SERVER))
    run.cluster.signal(API_SERVER, signal.SIGKILL)
    kill(run, run.leader(), "leader", run.election())


@fault("stop-apiserver", workloads=("steady", "group"), rounds=2)
def stop_apiserver(run: Run) -> None:
    """SIGSTOP the API server for more than two leases: the data goes on, nobody is elected when it is back."""
    elections = run.election()
    with frozen(run, API_SERVER, silent(run)):
        before = run.traffic.acked
        run.sleep(2 * LEASE_S + 1, 2 * LEASE_S + 6)
        acked = run.traffic.acked - before
    run.sleep(2, 4)
    if elections.seen():
        raise PromiseError("somebody was elected because the API server had been away")
    if acked < run.traffic.workload.rate:
        raise NotHealedError(f"only {acked} acknowledged while the API server was away")


@fault("stop-apiserver-kill-follower", workloads=("steady", "single"))
def stop_apiserver_kill_follower(run: Run) -> None:
    """SIGKILL a follower while the API server is frozen: the ISR cannot shrink, so nothing may be acknowledged."""
    with frozen(run, API_SERVER, silent(run)):
        run.sleep(0.3, 1)
        kill(run, run.follower(), "follower")
        run.sleep(1, 2)  # answers that were under way
        before = run.traffic.acked
        run.sleep(2, 5)
        if (acked := run.traffic.acked - before) > 0:
            raise PromiseError(f"{acked} acknowledged without a member of the ISR")


@fault("kill-kubelet-and-leader", workloads=("steady",), rounds=4)
def kill_kubelet_and_leader(run: Run) -> None:
    """SIGKILL the kubelet and the leader: the next kubelet learns of the end that it did not see."""
    run.harm("SIGKILL kubelet", [], run.replaced(KUBELET))
    run.cluster.signal(KUBELET, signal.SIGKILL)
    kill(run, run.leader(), "leader", run.election())


@fault("stop-kubelet-kill-leader", workloads=("steady", "single"))
def stop_kubelet_kill_leader(run: Run) -> None:
    """SIGKILL the leader while the kubelet is frozen: nobody reports the end, only the lease tells of it."""
    broker = run.leader()
    with frozen(run, KUBELET, undone("nobody started the broker again", run.replaced(broker))):
        fenced = run.more(f"fencings/{broker}")
        kill(run, broker, "leader, unreported", run.election(), fenced)
        run.wait(fenced, FENCED_LIMIT_S)
        run.sleep(0, 2)


@fault("kill-supervisor", workloads=("steady",), rounds=2)
def kill_supervisor(run: Run) -> None:
    """SIGKILL supervisor, kubelet, API server and leader; `kafkalite up` puts it together again."""
    broker = run.leader()
    run.harm(
        f"SIGKILL supervisor, kubelet, API server and leader (broker {broker})",
        [broker],
        *(run.replaced(target) for target in (SUPERVISOR, KUBELET, API_SERVER)),
        run.incarnation(broker),
    )
    for target in (SUPERVISOR, KUBELET, API_SERVER, broker):
        run.cluster.signal(target, signal.SIGKILL)
    run.sleep(0.5, 3)
    run.cluster.up()


@fault("kill-control-plane", workloads=("steady", "group"), rounds=2)
def kill_control_plane(run: Run) -> None:
    """SIGKILL operator, kubelet and API server at the same moment, and the leader a moment later."""
    targets = ("operator", KUBELET, API_SERVER)
    run.harm("SIGKILL operator, kubelet and API server", [], *(run.replaced(target) for target in targets))
    for target in targets:
        run.cluster.signal(target, signal.SIGKILL)
    run.sleep(0, 1)
    kill(run, run.leader(), "leader", run.election())


@fault("flap", workloads=("single", "packed"), rounds=1)
def flap(run: Run) -> None:
    """SIGKILL brokers at random moments without waiting for anything to heal."""
    for _ in range(6):
        broker = run.random.randrange(BROKERS)
        record = run.cluster.record(broker)
        if record.alive():
            run.harm(f"SIGKILL at random (broker {broker})", [broker], run.replaced(broker))
            record.signal(signal.SIGKILL)
        run.sleep(0.3, 3)

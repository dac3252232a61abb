"""The kinds of faults on the kind cluster. Each does its harm, lasts until it shows, and takes it back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.chaos.faults import Bite
from tests.chaos.kind.site import CLUSTER, OPERATOR
from tests.e2e.cluster import BROKER_PODS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.chaos.kind.site import Site, Victim

GONE_LIMIT_S = 180
DRAIN_LIMIT_S = 240
ROLL_LIMIT_S = 900
LASTS_S = (0.0, 8.0)  # beyond the moment at which it shows
API_AWAY_S = (8.0, 30.0)


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of fault.

    Attributes:
        name: In lines of the ledger.
        text: What is done, for people.
        inject: Does it once.
        group: It needs a load with a consumer group.
        alone: It needs a cluster that is whole before, and mends until it is whole.
    """

    name: str
    text: str
    inject: Callable[[Site], None]
    group: bool
    alone: bool


FAULTS: dict[str, Fault] = {}


def fault(
    name: str, *, group: bool = False, alone: bool = False
) -> Callable[[Callable[[Site], None]], Callable[[Site], None]]:
    """Register a fault; its text is the function's docstring."""

    def register(function: Callable[[Site], None]) -> Callable[[Site], None]:
        assert name not in FAULTS, f"two faults called {name}"
        FAULTS[name] = Fault(name, (function.__doc__ or "").strip(), function, group, alone)
        return function

    return register


# --- processes


def killed(site: Site, victim: Victim, whom: str) -> None:
    """SIGKILL, through the node."""
    site.harm(f"SIGKILL of a {whom}", victim,
              site.restarted(victim.pod), site.incarnation(victim), *site.moved(victim))  # fmt: skip
    site.hit(victim, "KILL")


@fault("kill-leader")
def kill_leader(site: Site) -> None:
    """SIGKILL of the broker that leads most"""
    killed(site, site.leader(), "leader")


@fault("kill-follower")
def kill_follower(site: Site) -> None:
    """SIGKILL of the broker that leads least"""
    killed(site, site.follower(), "follower")


@fault("kill-coordinator", group=True)
def kill_coordinator(site: Site) -> None:
    """SIGKILL of the coordinator of the load's group"""
    killed(site, site.coordinator(), "coordinator")


@fault("stop-leader")
def stop_leader(site: Site) -> None:
    """SIGSTOP of a leader, until others lead; then SIGCONT"""
    victim = site.leader()
    shown = site.cut_off(victim)
    site.harm("SIGSTOP", victim, *shown, site.incarnation(victim), hangs=True)
    site.hit(victim, "STOP")
    try:
        site.wait(shown)
        site.sleep(*LASTS_S)
    finally:
        site.signal(victim, "CONT")  # the kubelet may have ended it meanwhile


@fault("kill-operator")
def kill_operator(site: Site) -> None:
    """SIGKILL of the operator that acts"""
    acting = site.cluster.acting_operator()
    operators(site, [pod for pod in site.operators() if pod["metadata"]["name"] == acting], "the operator that acts")


@fault("kill-operators")
def kill_operators(site: Site) -> None:
    """SIGKILL of every operator"""
    operators(site, site.operators(), "all operators")


def operators(site: Site, pods: list[dict], whom: str) -> None:
    """SIGKILL of these."""
    assert pods, "no operator runs"
    restarts = [site.restarted(pod["metadata"]["name"]) for pod in pods]
    site.harm(f"SIGKILL of {whom}", None, *restarts, site.another_controller())
    for pod in pods:
        site.hands.signal(pod["spec"]["nodeName"], pod["metadata"]["uid"], OPERATOR, "KILL")


# --- pods


@fault("delete-pod")
def delete_pod(site: Site) -> None:
    """The pod of a leader is deleted, with its grace period"""
    deleted(site, "deletion of the pod")


@fault("delete-pod-force")
def delete_pod_force(site: Site) -> None:
    """The pod of a leader is deleted without one: its successor may start while it still runs"""
    deleted(site, "forced deletion of the pod", "--force", "--grace-period=0")


def deleted(site: Site, what: str, *options: str) -> None:
    """The pod of a leader."""
    victim = site.leader()
    site.harm(what, victim,
              site.another_pod(victim.pod, victim.uid), site.incarnation(victim), *site.moved(victim))  # fmt: skip
    site.cluster.kubectl("delete", f"pod/{victim.pod}", *options, limit_s=GONE_LIMIT_S)


@fault("roll")
def roll(site: Site) -> None:
    """Every broker is restarted by the operator, for a change of the configuration"""
    uids = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in site.cluster.items("pods", BROKER_PODS)}
    others = [site.another_pod(pod, uid) for pod, uid in uids.items()]
    site.harm("roll of every broker", None, *others)
    config = site.cluster.get(f"klc/{CLUSTER}")["spec"].get("config") or {}
    connections = site.random.choice([each for each in range(4000, 4100) if str(each) != config.get("max.connections")])
    site.cluster.patch(f"klc/{CLUSTER}", {"spec": {"config": {"max.connections": str(connections)}}})

    def over() -> bool:
        status = site.log.objects("kafkaliteclusters")[CLUSTER]["status"]
        return (status.get("rolling") or {}).get("inProgress") is False

    site.wait((*others, Bite("the roll is over", over)), ROLL_LIMIT_S)


# --- nodes


@fault("pause-node")
def pause_node(site: Site) -> None:
    """The node of a leader stands still (docker pause), until others lead"""
    victim = site.leader()
    shown = site.cut_off(victim)
    site.harm("pause of the node", victim, *shown, site.incarnation(victim), hangs=True)
    with site.hands.paused(victim.node):
        site.wait(shown)
        site.sleep(*LASTS_S)


@fault("stop-node")
def stop_node(site: Site) -> None:
    """The node of a leader is shut down (docker stop), and started when others lead"""
    victim = site.leader()
    shown = site.moved(victim)
    site.harm("stop of the node", victim, *shown, site.incarnation(victim))
    with site.hands.stopped(victim.node):
        site.wait(shown)
        site.sleep(*LASTS_S)


@fault("drain", alone=True)
def drain(site: Site) -> None:
    """The node of a leader is drained, and uncordoned when the broker waits for it"""
    victim = site.leader()
    waited: list[bool] = []
    site.harm("drain of the node", victim, site.another_pod(victim.pod, victim.uid),
              Bite("the pod waits for its node", lambda: bool(waited)),
              site.incarnation(victim), *site.moved(victim))  # fmt: skip
    words = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", f"--timeout={DRAIN_LIMIT_S}s")
    try:
        site.cluster.kubectl("drain", victim.node, *words, limit_s=DRAIN_LIMIT_S + 30)
        away(site, victim)
        waited.append(True)
    finally:
        site.cluster.kubectl("uncordon", victim.node)


@fault("net-one-way")
def net_one_way(site: Site) -> None:
    """What a leader sends, or what is sent to it, is dropped in its node, until others lead"""
    victim, way = site.leader(), site.random.choice(["in", "out"])
    shown = site.cut_off(victim)
    dropped: list[int] = []
    packets = Bite("dropped packets", lambda: sum(dropped) > 0)
    site.harm(f"packets {way} dropped", victim, packets, *shown, site.incarnation(victim), hangs=True)
    with site.hands.dropped(victim.node, victim.address, way):
        site.wait(shown)
        site.sleep(*LASTS_S)
        dropped.append(site.hands.packets_dropped(victim.node))


@fault("wipe", alone=True)
def wipe(site: Site) -> None:
    """The pod of a broker is deleted, and its volume is empty when the next one starts"""
    victim = site.random.choice([site.leader, site.follower])()
    volume = site.cluster.get(f"pvc/data-{victim.pod}")["spec"]["volumeName"]
    site.harm("wiped volume", victim, site.another_pod(victim.pod, victim.uid), site.another_disk(victim),
              site.incarnation(victim), *site.moved(victim))  # fmt: skip
    site.cluster.kubectl("cordon", victim.node)
    try:
        site.cluster.kubectl("delete", f"pod/{victim.pod}", limit_s=GONE_LIMIT_S)
        away(site, victim)
        site.hands.wipe(victim.node, volume)
    finally:
        site.cluster.kubectl("uncordon", victim.node)


def away(site: Site, victim: Victim) -> None:
    """Wait until the victim's pod is gone, and its successor has no node."""

    def waits() -> bool:
        pod = site.cluster.get(f"pod/{victim.pod}")
        return pod["metadata"]["uid"] != victim.uid and not pod["spec"].get("nodeName")

    site.cluster.until(waits, f"{victim.pod} waits for its node", GONE_LIMIT_S)


# --- control plane


@fault("api-away")
def api_away(site: Site) -> None:
    """The API server is away: ended in order, ended without a word, or hung"""
    how = site.random.choice(["stopped", "killed", "hung"])
    ways = {
        "stopped": site.hands.api_server_stopped,
        "killed": site.hands.api_server_killed,
        "hung": site.hands.api_server_hung,
    }
    silent: list[bool] = []
    site.harm(f"API server {how}", None, Bite("no answer", lambda: any(silent)))
    with ways[how]():
        site.sleep(*API_AWAY_S)
        silent.append(site.unanswered())


@fault("api-and-broker")
def api_and_broker(site: Site) -> None:
    """SIGKILL of a leader while the API server is away"""
    victim, silent, servers = site.leader(), [], [site.hands.api_server()]
    site.harm("API server stopped, and SIGKILL", victim, Bite("no answer", lambda: any(silent)),
              Bite("another API server", lambda: len(set(servers)) > 1),
              site.restarted(victim.pod), site.incarnation(victim), *site.moved(victim))  # fmt: skip
    way = site.random.choice([site.hands.api_server_stopped, site.hands.api_server_killed])
    with way():
        site.sleep(0.0, 5.0)
        site.hit(victim, "KILL")
        site.sleep(*API_AWAY_S)
        silent.append(site.unanswered())
    servers.append(site.hands.api_server())

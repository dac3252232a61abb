"""Faults of the network between the brokers' hosts, the control plane and the clients."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.chaos.cluster import BROKERS, NotHealedError, PromiseError
from tests.chaos.faults import NETWORK, STALE_END, Bite, Run, fault
from tests.chaos.network import EVERYBODY, Drop, address, between
from tests.chaos.signal_faults import FENCED_LIMIT_S, kill

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.chaos.network import Network

FEW = 5  # one packet that is lost is sent again after 0.2, 0.4, 0.8 s …
LAG_S = 30.0  # replica.lag.time.max.ms: a follower that is silent for longer leaves the ISR


def network(run: Run) -> Network:
    """The run's network."""
    assert run.network is not None
    return run.network


@contextmanager
def dropping(run: Run, name: str, brokers: Sequence[int], drops: Sequence[Drop], *bites: Bite) -> Iterator[None]:
    """The packets are dropped for the body; that there were some, and the other proofs, show the bite."""
    seen: list[int] = []
    run.harm(name, brokers, Bite(f"{FEW} packets dropped", lambda: sum(seen) >= FEW), *bites)
    with network(run).drops(drops) as dropped:
        yield
    seen.append(dropped.packets)


@fault("net-isolate-leader", needs=(NETWORK,), workloads=("steady", "single", "wide", "group"), allowed=STALE_END)
def net_isolate_leader(run: Run) -> None:
    """The leader's host is cut off from everything until others lead."""
    broker = run.leader()
    left = run.leaves_isr(broker)
    others = [EVERYBODY, *(address(other) for other in run.others(broker))]
    name = f"broker {broker} isolated"
    with dropping(run, name, [broker], between([address(broker)], others), left, run.election()):
        run.wait(left, FENCED_LIMIT_S)
        run.sleep(0, 4)


@fault("net-isolate-follower", needs=(NETWORK,), workloads=("single", "rolling"), allowed=STALE_END)
def net_isolate_follower(run: Run) -> None:
    """A follower's host is cut off from everything."""
    broker = run.follower()
    left = run.leaves_isr(broker)
    others = [EVERYBODY, *(address(other) for other in run.others(broker))]
    with dropping(run, f"broker {broker} isolated", [broker], between([address(broker)], others), left):
        run.wait(left, FENCED_LIMIT_S)
        run.sleep(0, 4)


def standing_still(run: Run, name: str, brokers: Sequence[int], drops: Sequence[Drop]) -> None:
    """The packets are dropped for less than the lag limit: what these brokers lead cannot be acknowledged meanwhile."""
    moved: list[int] = []
    led = run.led(brokers)
    bite = Bite("their partitions stand still", lambda: moved == [0])
    with dropping(run, name, brokers, drops, bite):
        run.sleep(2, 2.5)  # what was under way has been answered
        moved.append(run.moved(led, 1.0))
        run.sleep(2, 10)


@fault("net-one-way-out", needs=(NETWORK,), workloads=("steady", "single"))
def net_one_way_out(run: Run) -> None:
    """What the leader sends to the other brokers is lost; they still reach it, and it reaches API and clients."""
    broker = run.leader()
    drops = [Drop(address(broker), address(other)) for other in run.others(broker)]
    standing_still(run, f"nothing from broker {broker} to other brokers", [broker], drops)


@fault("net-one-way-in", needs=(NETWORK,), workloads=("steady", "single"))
def net_one_way_in(run: Run) -> None:
    """What the other brokers send to the leader is lost."""
    broker = run.leader()
    drops = [Drop(address(other), address(broker)) for other in run.others(broker)]
    standing_still(run, f"nothing from other brokers to broker {broker}", [broker], drops)


@fault("net-no-control-plane", needs=(NETWORK,), workloads=("steady",), allowed=STALE_END)
def net_no_control_plane(run: Run) -> None:
    """Answers to the leader from control plane and clients are lost, those of the other brokers are not."""
    broker = run.leader()
    left = run.leaves_isr(broker)
    drops = [Drop(EVERYBODY, address(broker))]
    with dropping(run, f"nothing from API and clients to broker {broker}", [broker], drops, left, run.election()):
        run.wait(left, FENCED_LIMIT_S)
        run.sleep(0, 4)


@fault("net-brokers-apart", needs=(NETWORK,), workloads=("steady", "single"))
def net_brokers_apart(run: Run) -> None:
    """No broker reaches another one, all reach control plane and clients."""
    hosts = [address(broker) for broker in range(BROKERS)]
    drops = [Drop(one, other) for one in hosts for other in hosts if one != other]
    standing_still(run, "brokers apart", range(BROKERS), drops)


@fault("net-brokers-apart-long", needs=(NETWORK,), workloads=("steady", "single"), rounds=1)
def net_brokers_apart_long(run: Run) -> None:
    """No broker reaches another one for longer than the lag limit: every leader drops the others, none acknowledges."""
    hosts = [address(broker) for broker in range(BROKERS)]
    drops = [Drop(one, other) for one in hosts for other in hosts if one != other]
    shrunk = run.shrink()
    with dropping(run, "brokers apart for long", range(BROKERS), drops, shrunk):
        run.wait(shrunk, 2 * LAG_S)
        run.sleep(3, 5)
        if (moved := run.moved(run.led(range(BROKERS)), 3.0)) > 0:
            raise PromiseError(f"{moved} acknowledged by leaders that nobody follows")


@fault("net-not-transitive", needs=(NETWORK,), workloads=("single", "wide"))
def net_not_transitive(run: Run) -> None:
    """The leader and one of the others do not reach each other, the third reaches both."""
    one = run.leader()
    other = run.random.choice(run.others(one))
    standing_still(run, f"brokers {one} and {other} apart", [one], between([address(one)], [address(other)]))


@fault("net-not-transitive-long", needs=(NETWORK,), workloads=("steady", "packed"), rounds=1)
def net_not_transitive_long(run: Run) -> None:
    """The same for longer than the lag limit: the leader drops the other one and goes on with the third."""
    one = run.leader()
    other = run.random.choice(run.others(one))
    left = run.leaves_isr(other)
    drops = between([address(one)], [address(other)])
    with dropping(run, f"brokers {one} and {other} apart for long", [one, other], drops, left):
        run.wait(left, 2 * LAG_S)
        run.sleep(3, 5)
        if run.moved(run.led([one]), 3.0) == 0:
            raise NotHealedError(f"broker {one} does not go on without broker {other}")


@fault("net-loss", needs=(NETWORK,), workloads=("steady", "single", "packed"), rounds=2, allowed=STALE_END)
def net_loss(run: Run) -> None:
    """A fifth of all packets between brokers is lost, a tenth of the others, and the leader is killed."""
    hosts = [address(broker) for broker in range(BROKERS)]
    drops = [Drop(one, other, 20) for one in hosts for other in hosts if one != other]
    drops += [drop for host in hosts for drop in (Drop(host, EVERYBODY, 10), Drop(EVERYBODY, host, 10))]
    with dropping(run, "packets lost", range(BROKERS), drops):
        run.sleep(4, 8)
        kill(run, run.leader(), "leader", run.election())
        run.sleep(4, 8)


@fault("net-narrow", needs=(NETWORK,), workloads=("steady",), rounds=2)
def net_narrow(run: Run) -> None:
    """The leader's link carries one megabit per second."""
    broker = run.leader()
    waited: list[int] = []
    run.harm(f"narrow link (broker {broker})", [broker], Bite("packets had to wait", lambda: sum(waited) >= FEW))
    with network(run).narrow(broker, "1mbit") as dropped:
        run.sleep(6, 12)
    waited.append(dropped.packets)


@fault("net-flap", needs=(NETWORK,), workloads=("steady", "single", "wide"), rounds=2, allowed=STALE_END)
def net_flap(run: Run) -> None:
    """Random directions are cut for moments, again and again."""
    hosts = [EVERYBODY, *(address(broker) for broker in range(BROKERS))]
    seen: list[int] = []
    run.harm("directions cut at random", range(BROKERS), Bite(f"{FEW} packets dropped", lambda: sum(seen) >= FEW))
    for _ in range(10):
        pairs = [(one, other) for one in hosts for other in hosts if one != other]
        drops = [Drop(*pair) for pair in run.random.sample(pairs, run.random.randrange(1, 5))]
        with network(run).drops(drops) as dropped:
            run.sleep(0.3, 2.5)
        seen.append(dropped.packets)
        run.sleep(0.1, 1)


@fault("net-isolate-and-kill", needs=(NETWORK,), workloads=("single", "steady"), allowed=STALE_END)
def net_isolate_and_kill(run: Run) -> None:
    """While one broker is isolated another one is killed: below the minimum ISR nothing may be acknowledged."""
    first = run.leader()
    left = run.leaves_isr(first)
    others = [EVERYBODY, *(address(other) for other in run.others(first))]
    drops = between([address(first)], others)
    with dropping(run, f"broker {first} isolated", [first], drops, left, run.election()):
        run.wait(left, FENCED_LIMIT_S)
        kill(run, run.random.choice(run.others(first)), "one of the two that are left")
        run.sleep(0.5, 3)

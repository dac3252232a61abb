"""What a fault is: a function that harms a running cluster and heals it again, and what proves that it bit."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.chaos.cluster import BROKERS, ChaosError
from tests.chaos.workloads import TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from random import Random

    from tests.chaos.api_faults import ApiProxy
    from tests.chaos.clock_faults import Clocks
    from tests.chaos.cluster import Cluster
    from tests.chaos.disks import Disks
    from tests.chaos.network import Network
    from tests.chaos.workloads import Traffic

PROXY, NETWORK, DISKS, CLOCKS = "proxy", "network", "disks", "clocks"
PROGRAMS = {
    NETWORK: {"nft": "nftables", "ip": "iproute2"},
    DISKS: {"mkfs.ext4": "e2fsprogs", "losetup": "util-linux"},
    CLOCKS: {"cc": "gcc libc6-dev"},
}
"""What faults need of the machine: programs, and the Debian packages that have them."""


STALE_END = ("watermark-regressed",)
"""For faults under which a leader hangs or is cut off while another one is elected: until it learns of its successor it
tells clients the end that it knows (docs/verify.md). Everywhere else an end that goes back is a broken promise."""
STALE_COORDINATOR = (*STALE_END, "offset-regressed")
"""The same of a coordinator that hangs for certain: it tells the offsets that it knows, and takes no commit."""


@dataclass(frozen=True, slots=True)
class Bite:
    """A proof that a fault bit: what should be seen, and whether it is."""

    text: str
    seen: Callable[[], bool]


@dataclass(slots=True)
class Harm:
    """One thing that was done to the cluster. It bit when all its proofs are seen."""

    name: str
    bites: tuple[Bite, ...]
    bit: bool = False
    unseen: list[str] = field(default_factory=list)

    def look(self) -> bool:
        """Whether it is shown to have bitten by now; `unseen` says what is not seen."""
        self.unseen = [bite.text for bite in self.bites if not bite.seen()]
        self.bit = not self.unseen
        return self.bit


@dataclass(slots=True, kw_only=True)
class Run:
    """What a fault works with. Network, proxy and disks are there when the fault asked for them."""

    cluster: Cluster
    traffic: Traffic
    random: Random
    network: Network | None = None
    proxy: ApiProxy | None = None
    disks: Disks | None = None
    clocks: Clocks | None = None
    pod_lines: dict[str, list[str]] = field(default_factory=dict)
    say: Callable[[str], None] = print
    harms: list[Harm] = field(default_factory=list)
    extra_traffic: list[Traffic] = field(default_factory=list)

    # --- whom

    def leader(self) -> int:
        """The broker that leads most partitions of the topic."""
        led = {broker: len(self.cluster.led_by(TOPIC, broker)) for broker in range(BROKERS)}
        most = max(led.values())
        if not most:
            raise ChaosError("nobody leads")
        return self.random.choice([broker for broker, count in led.items() if count == most])

    def follower(self) -> int:
        """The broker that leads the fewest partitions of the topic."""
        led = {broker: len(self.cluster.led_by(TOPIC, broker)) for broker in range(BROKERS)}
        return self.random.choice([broker for broker, count in led.items() if count == min(led.values())])

    def others(self, broker: int) -> list[int]:
        """All brokers but this one."""
        return [other for other in range(BROKERS) if other != broker]

    # --- harm and proof

    def harm(self, name: str, brokers: Iterable[int], *bites: Bite) -> Harm:
        """Note that this is done now to the leaders that these brokers are; the proofs are asked for later."""
        partitions = sorted({number for broker in brokers for number in self.cluster.led_by(TOPIC, broker)})
        harm = Harm(name, bites)
        self.harms.append(harm)
        self.traffic.fault(name, partitions)
        self.say(f"{name}, leads {partitions}" if partitions else name)
        return harm

    def more(self, key: str, count: int = 1) -> Bite:
        """Counters of the metadata log whose names begin with `key` grow by so much from now on."""

        def counted() -> int:
            return sum(number for name, number in self.cluster.log.counts().items() if name.startswith(key))

        before = counted()
        return Bite(f"{key} + {count}", lambda: counted() - before >= count)

    def election(self) -> Bite:
        """A leader of the topic is elected."""
        return self.more(f"elections/{TOPIC}")

    def shrink(self) -> Bite:
        """An ISR of the topic loses a member."""
        return self.more(f"isr_shrinks/{TOPIC}")

    def incarnation(self, broker: int) -> Bite:
        """The broker registers anew: its process is another one."""
        return self.more(f"incarnations/{broker}")

    def leaves_isr(self, broker: int) -> Bite:
        """The broker is taken out of an ISR."""
        return self.more(f"left_isr/{broker}")

    def empty(self, broker: int) -> Bite:
        """The broker registers with another disk than the one it has now, or one that lost what it had."""
        before = self.cluster.disk_of(broker)
        return Bite(f"broker {broker} says that its disk is new", lambda: self.cluster.disk_of(broker) != before)

    def replaced(self, target: int | str) -> Bite:
        """Another process has taken the place of the present one."""
        record = self.cluster.record(target)
        return Bite(
            f"{target} replaced",
            lambda: (now := self.cluster.record(target)).start_time != record.start_time and now.alive(),
        )

    def grows(self, text: str, counter: Callable[[], float], by: float = 1) -> Bite:
        """Any number grows by so much from now on."""
        before = counter()
        return Bite(text, lambda: counter() - before >= by)

    def led(self, brokers: Iterable[int]) -> list[int]:
        """The topic's partitions that these brokers lead. Raises ChaosError when there are none."""
        found = [number for broker in brokers for number in self.cluster.led_by(TOPIC, broker)]
        if not found:
            raise ChaosError(f"brokers {list(brokers)} lead nothing")
        return found

    def moved(self, numbers: Iterable[int], over_s: float) -> int:
        """How many offsets are acknowledged on these partitions of the topic in the next seconds."""
        partitions, highest = list(numbers), self.traffic.load.acks.highest
        before = sum(highest.get(number, -1) for number in partitions)
        time.sleep(over_s)
        return sum(highest.get(number, -1) for number in partitions) - before

    def sleep(self, low_s: float, high_s: float) -> None:
        """A random time, in which the fault lasts or the cluster works on."""
        time.sleep(self.random.uniform(low_s, high_s))

    def wait(self, bite: Bite, timeout_s: float) -> bool:
        """Wait for a proof, because the fault is to last until then."""
        limit = time.monotonic() + timeout_s
        while not bite.seen():
            if time.monotonic() > limit:
                return False
            time.sleep(0.1)
        return True


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of fault. `inject` does one round of it: harm, and whatever heals it.

    `allowed`: kinds of anomaly in the clients' histories that nobody promises to spare them meanwhile.
    """

    name: str
    text: str
    inject: Callable[[Run], None]
    needs: frozenset[str]
    rounds: int
    workloads: tuple[str, ...]
    allowed: tuple[str, ...] = ()


FAULTS: dict[str, Fault] = {}


def fault(
    name: str,
    *,
    workloads: Sequence[str],
    needs: Sequence[str] = (),
    rounds: int = 3,
    allowed: Sequence[str] = (),
) -> Callable[[Callable[[Run], None]], Callable[[Run], None]]:
    """Register a fault; its text is the function's docstring."""

    def register(function: Callable[[Run], None]) -> Callable[[Run], None]:
        assert name not in FAULTS, f"two faults called {name}"
        text = (function.__doc__ or "").strip().splitlines()[0]
        FAULTS[name] = Fault(name, text, function, frozenset(needs), rounds, tuple(workloads), tuple(allowed))
        return function

    return register

"""What a fault works with on the kind cluster: whom it harms, what it does it with, and what proves that it bit."""

from __future__ import annotations

import http.client
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.chaos.api import ApiRefusedError
from tests.chaos.faults import Bite, Harm
from tests.e2e.cluster import OPERATOR_PODS, broker_pod
from tests.e2e.load import BROKERS

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from tests.chaos.kind.api import KindApi
    from tests.chaos.kind.hands import Hands
    from tests.chaos.kind.traffic import PodTraffic
    from tests.chaos.metadata_log import MetadataLog
    from tests.e2e.cluster import Cluster

BITE_LIMIT_S = 180.0
FOUND_LIMIT_S = 120
BROKER, OPERATOR = "kafkalite-broker", "kafkalite-operator"
"""Programs, by what is in their command lines."""
CLUSTER = "kafkalite"
AWAY = (OSError, http.client.HTTPException, ApiRefusedError)


@dataclass(frozen=True, slots=True)
class Victim:
    """A broker right before it is harmed. `led`: what it leads of the topic, with the epochs."""

    broker: int
    node: str
    uid: str
    address: str
    led: dict[int, int]

    @property
    def pod(self) -> str:
        """Its name, which the next one has as well."""
        return broker_pod(self.broker)


@dataclass(slots=True, kw_only=True)
class Site:
    """One round's."""

    cluster: Cluster
    hands: Hands
    api: KindApi
    log: MetadataLog
    load: PodTraffic
    random: Random
    say: Callable[[str], None] = print
    harms: list[Harm] = field(default_factory=list)

    # --- whom

    def victim(self, broker: int) -> Victim:
        """As it is now."""
        pod = self.cluster.get(f"pod/{broker_pod(broker)}")
        entries = self.cluster.partitions(self.load.topic)
        led = {number: entry["leaderEpoch"] for number, entry in entries.items() if entry["leader"] == broker}
        address = pod["status"].get("podIP", "")
        return Victim(broker, pod["spec"]["nodeName"], pod["metadata"]["uid"], address, led)

    def leader(self) -> Victim:
        """The broker that leads most partitions of the topic."""
        return self._extreme(max)

    def follower(self) -> Victim:
        """The broker that leads the fewest."""
        return self._extreme(min)

    def coordinator(self) -> Victim:
        """Of the load's group."""
        return self.victim(self.load.tell("coordinator"))

    def _extreme(self, which: Callable[[Any], int]) -> Victim:
        """Of the brokers that are there: one may still be on its way back from the fault before."""
        found: list[Victim] = []

        def chosen() -> bool:
            there = [each for each in range(BROKERS) if self.running(broker_pod(each))]
            leaders = [entry["leader"] for entry in self.cluster.partitions(self.load.topic).values()]
            counts = {each: leaders.count(each) for each in there}
            able = [each for each in there if counts[each] == which(counts.values())]
            found.extend(self.victim(each) for each in self.random.sample(able, min(1, len(able))))
            return bool(found)

        self.cluster.until(chosen, "a broker runs", FOUND_LIMIT_S)
        return found[0]

    def running(self, pod: str) -> bool:
        """Whether it has a node, and a container that runs."""
        statuses = self._pod(pod).get("status", {}).get("containerStatuses") or []
        return any("running" in status.get("state", {}) for status in statuses)

    def operators(self) -> list[dict[str, Any]]:
        """Pods of all operators, which run."""
        found: list[dict[str, Any]] = []

        def all_run() -> bool:
            found[:] = self.cluster.items("pods", OPERATOR_PODS)
            return bool(found) and all(self.running(pod["metadata"]["name"]) for pod in found)

        self.cluster.until(all_run, "all operators run", FOUND_LIMIT_S)
        return found

    # --- harm and proof

    def harm(self, what: str, victim: Victim | None, *bites: Bite, hangs: bool = False) -> Harm:
        """Note that this is done now; the proofs are asked for until the harm is over and some time beyond.

        `hangs`: the victim lives on, and does not hear what becomes of its leaderships.
        """
        name = what if victim is None else f"{what}, broker {victim.broker}"
        led = sorted(victim.led) if victim else []
        harm = Harm(name, bites)
        if hangs:
            self.load.tell("hung")
        self.load.fault(name, led)
        self.harms.append(harm)
        self.say(f"{name}, leads {led}" if led else name)
        return harm

    def signal(self, victim: Victim, name: str) -> int:
        """Send a signal to the broker that it was; how many processes got it."""
        return self.hands.signal(victim.node, victim.uid, BROKER, name)

    def hit(self, victim: Victim, name: str) -> None:
        """As above, when it runs: of a node that has just come back nobody knows yet what does."""
        self.cluster.until(lambda: self.signal(victim, name) > 0, f"SIG{name} hits {victim.pod}", FOUND_LIMIT_S)

    def more(self, key: str, count: int = 1) -> Bite:
        """A counter of the metadata log grows by so much from now on."""
        before = self.log.counts()[key]
        return Bite(f"{key} + {count}", lambda: self.log.counts()[key] - before >= count)

    def incarnation(self, victim: Victim) -> Bite:
        """The broker registers anew."""
        return self.more(f"incarnations/{victim.broker}")

    def restarted(self, pod: str) -> Bite:
        """Its container is started again."""
        return self.more(f"restarts/{pod}")

    def moved(self, victim: Victim) -> tuple[Bite, ...]:
        """Everything that it led has leaders anew; nothing to show where it led nothing."""
        if not victim.led:
            return ()
        return (Bite(f"elections of {sorted(victim.led)}", lambda: self._elected(victim)),)

    def _elected(self, victim: Victim) -> bool:
        topic = self.log.objects("kafkalitetopics").get(self.load.topic, {})
        entries = topic.get("status", {}).get("partitions", {})
        return all(
            (entry := entries.get(str(number))) is not None and entry["leaderEpoch"] > epoch and entry["leader"] >= 0
            for number, epoch in victim.led.items()
        )

    def cut_off(self, victim: Victim) -> tuple[Bite, ...]:
        """Its Lease runs out: it is fenced, and what it led is led by others."""
        return (self.more(f"fencings/{victim.broker}"), *self.moved(victim))

    def another_pod(self, pod: str, uid: str) -> Bite:
        """Another pod has the name."""
        return Bite(f"another pod {pod}", lambda: self._pod(pod).get("metadata", {}).get("uid", uid) != uid)

    def another_controller(self) -> Bite:
        """An operator process has taken over: the epoch of the controller has risen."""
        before = self._controller()
        return Bite("another controller", lambda: self._controller() > before)

    def another_disk(self, victim: Victim) -> Bite:
        """The broker is registered with a data directory of its own making."""
        before = self._disk(victim)
        return Bite(f"another disk of broker {victim.broker}", lambda: self._disk(victim) not in {before, ""})

    def unanswered(self) -> bool:
        """Whether the API server is away."""
        try:
            self.api.list("kafkaliteclusters")
        except AWAY:
            return True
        return False

    def wait(self, bites: tuple[Bite, ...], limit_s: float = BITE_LIMIT_S) -> bool:
        """Wait for proofs, because the fault is to last until then."""
        return self.log.wait(lambda: all(bite.seen() for bite in bites), limit_s)

    def sleep(self, low_s: float, high_s: float) -> None:
        """A random time in which the fault lasts."""
        time.sleep(self.random.uniform(low_s, high_s))

    def _pod(self, pod: str) -> dict[str, Any]:
        return self.log.objects("pods").get(pod, {})

    def _controller(self) -> int:
        status = self.log.objects("kafkaliteclusters").get(CLUSTER, {}).get("status") or {}
        return int((status.get("controller") or {}).get("epoch", -1))

    def _disk(self, victim: Victim) -> str:
        status = self.log.objects("kafkalitebrokers").get(victim.pod, {}).get("status") or {}
        return str((status.get("registration") or {}).get("directoryId", ""))

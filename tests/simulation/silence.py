"""Patches of one broker that nobody answers, while its watch lags: its leaders do not know which of their changes landed.

Neither another attempt nor what the watch tells settles such a change for a while (R6): none of the attempts is heard.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation.patching import pointer
from tests.simulation.strikes import Strikes
from tests.simulation.swarm import SILENCES

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from tests.simulation.api import ApiServer
    from tests.simulation.cluster import SimCluster
    from tests.simulation.host import Host
    from tests.simulation.patching import Json

WAITS_MS = 12_000.0
"""For how long a silence waits for the patch that it begins with."""


class Length(NamedTuple):
    """How long a silence lasts. With `broken` connections break where an answer would come, and the caller knows at once
    that there will be none; else it waits for as long as it has patience, and gives up after three times that.
    """

    broken: bool
    lasts_ms: float
    lag_ms: float


LENGTHS = (Length(True, 2_000.0, 4_000.0), Length(True, 8_000.0, 10_000.0), Length(False, 9_000.0, 12_000.0))


class Silence:
    """What the API server does to the patches of topics of one host. It begins with the first one that it `takes`.

    Args:
        length: How long it lasts from then on.
        chance: Says which patches are applied: two of three.
        joins: It begins with a patch that lets a replica into an ISR, or its next incarnation, not with any one.
        on_begin: Called then.
    """

    def __init__(self, host: str, length: Length, chance: Random, *, joins: bool, on_begin: Callable[[], None]) -> None:
        self.host = host
        self._on_begin = on_begin
        self.broken = length.broken
        self._length = length
        self._joins = joins
        self._chance = chance
        self._until_ms = -1.0

    def takes(self, api: ApiServer, now_ms: float, kind: str, name: str, operations: list[Json]) -> bool:
        """Whether a patch that has arrived is answered by nobody."""
        if kind != "topics":
            return False
        if self._until_ms < 0.0:
            if self._joins and not _lets_join(api.objects[kind].get(name), operations):
                return False
            self._until_ms = now_ms + self._length.lasts_ms
            for watch in self.watches(api):
                watch.lag_ms = max(watch.lag_ms, self._length.lag_ms)
            self._on_begin()
        return now_ms < self._until_ms

    def applies(self) -> bool:
        """Whether the next patch is applied."""
        return self._chance.random() >= 1.0 / 3.0

    def watches(self, api: ApiServer) -> list[Any]:
        """Those that lag meanwhile."""
        return [watch for watch in api.watches if watch.host == self.host and watch.kind == "topics"]


def _lets_join(found: Json | None, operations: list[Json]) -> bool:
    """Whether a patch names an incarnation in the ISR of a partition that is not there."""
    entries = ((found or {}).get("status") or {}).get("partitions") or {}
    for operation in operations:
        parts = pointer(operation["path"])
        replaces = operation["op"] == "replace" and parts[:2] == ["status", "partitions"]
        if replaces and _incarnations(operation["value"]) - _incarnations(entries.get(parts[2])):
            return True
    return False


def _incarnations(entry: Json | None) -> set[tuple[int, int]]:
    """Broker id and broker epoch of each member of the ISR."""
    return set(zip(entry["isr"], entry["isrBrokerEpochs"], strict=True)) if entry else set()


class Silences(Strikes):
    """Draws from a stream of its own, at times of its own, as `EdgeFaults` does."""

    def __init__(self, cluster: SimCluster, every_ms: float) -> None:
        super().__init__(cluster, SILENCES, "silences", every_ms)

    def _unanswered(self) -> None:
        """Every answer to the next patches of one broker is lost: of one that leads where a replica is not in sync.

        Where all are in sync a replica dies, to join again, as a rule. So does another broker in the middle:
        brokers are watched as ever, so that the leader is shown the entry that it knows once more.
        """
        api, chance = self._cluster.api, self._chance.random
        led = [ledger.entry for ledger in self._cluster.oracles.ledgers.values() if ledger.entry is not None]
        led = [entry for entry in led if entry.leader in self._cluster.hosts and len(entry.replicas) > 1]
        led = [entry for entry in led if self._cluster.hosts[entry.leader].name not in api.silences]
        led = [entry for entry in led if entry.under_replicated] or led
        if not led:
            return
        entry = self._chance.choice(led)
        host = self._cluster.hosts[entry.leader]
        self._world.arm("unanswered")
        length, joins = self._chance.choice(LENGTHS), chance() < 0.7
        others = [other for other in self._cluster.host_list if other is not host]
        dies = self._chance.choice(others) if chance() < 0.8 else None

        def begun() -> None:
            if dies is not None:
                self._world.at(chance() * length.lasts_ms / 2.0, None, self._crash, dies)

        silence = Silence(host.name, length, self._chance, joins=joins, on_begin=begun)
        api.silences[host.name] = silence
        self._world.at(WAITS_MS + length.lasts_ms, None, self._speaks, silence)
        followers = [member for member in entry.isr_ids() if member != entry.leader]
        if followers and not entry.under_replicated and chance() < 0.8:
            self._crash(self._cluster.hosts[self._chance.choice(followers)])

    def _crash(self, host: Host) -> None:
        broker = host.broker
        if broker is not None and not broker.process.paused and not self._healed:
            if broker.serving:
                self._world.bite("crash")
            self._world.bury_now(broker.process, "crash")

    def _speaks(self, silence: Silence) -> None:
        api = self._cluster.api
        if api.silences.get(silence.host) is silence:
            del api.silences[silence.host]
            self._keep_up(silence.watches(api))

    def heal(self) -> None:
        """No new faults; all that last are ended."""
        self._healed = True
        self._cluster.api.silences.clear()

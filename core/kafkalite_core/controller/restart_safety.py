"""May brokers be stopped for a while, all at once? The one rule for everybody who restarts a broker.

Let living(p) be the members of p's ISR that count (S2) and whose brokers are alive. Stopping the set B is safe iff for
every partition p of which a replica is in B

    |living(p) - B| >= need(p)        so acks=all goes on, and the next failure loses no leader
    need(p) = max(1, min ISR of p), but no more than the replicas of p less one

and nobody in B is on the way back into the ISR of a partition that has fewer than need(p) living members: it may be the
first to end the shortage.

A partition with no more replicas than its min ISR can never spare one, whatever one waits for. Its objection is
*lasting*: a person is told so and decides; a rolling restart, which would else never end, goes on when all the others
of its replicas are in sync, and never takes two of them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalite_core.controller.election import describe_broker
from kafkalite_core.model.cluster import entry_counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from kafkalite_core.model.cluster import Broker
    from kafkalite_core.model.partition import Partition

Key = tuple[str, int]
"""Topic name and partition number."""


@dataclass(frozen=True, slots=True)
class Guarded:
    """A partition that brokers must not be taken from. `relaxed`: acknowledgements did not wait for the disk (S2)."""

    key: Key
    entry: Partition
    relaxed: bool = False

    def __str__(self) -> str:
        return f"{self.key[0]}-{self.key[1]}"


@dataclass(frozen=True, slots=True)
class Objection:
    """A partition that speaks against stopping a broker. `lasting`: it has too few replicas for it ever to be safe."""

    key: Key
    why: str
    lasting: bool

    def __str__(self) -> str:
        return f"{self.key[0]}-{self.key[1]} {self.why}"


def living(guarded: Guarded, brokers: Mapping[int, Broker]) -> set[int]:
    """Members of the ISR that count and run."""
    return {
        member.id
        for member in guarded.entry.isr
        if entry_counts(member, brokers, relaxed_flush=guarded.relaxed) and brokers[member.id].alive
    }


def not_back(entry: Partition, broker: Broker) -> bool:
    """The broker is not in the ISR with its present epoch, though it should be; what moves there counts not."""
    return (
        broker.id in entry.replicas
        and broker.id not in (*entry.adding, *entry.removing)
        and entry.isr_epoch_of(broker.id) != broker.epoch
    )


class Safety:
    """The rule, asked about many sets of brokers of one cluster."""

    def __init__(self, partitions: Iterable[Guarded], brokers: Mapping[int, Broker]) -> None:
        self._brokers = brokers
        self._of_broker: dict[int, list[Guarded]] = defaultdict(list)
        self._living: dict[Key, set[int]] = {}
        for guarded in sorted(partitions, key=lambda each: each.key):
            self._living[guarded.key] = living(guarded, brokers)
            for broker_id in {*guarded.entry.replicas, *guarded.entry.isr_ids()}:
                self._of_broker[broker_id].append(guarded)

    def of(self, broker_id: int) -> list[Guarded]:
        """Partitions with a replica on the broker, by name."""
        return self._of_broker.get(broker_id, [])

    def living(self, key: Key) -> set[int]:
        """As the function of that name."""
        return self._living[key]

    def objections(self, broker_id: int, others: AbstractSet[int] = frozenset()) -> list[Objection]:
        """What speaks against stopping a broker now, along with `others`. Lasting ones are among them."""
        found: list[Objection] = []
        for guarded in self.of(broker_id):
            objection = self._objection(guarded, broker_id, others)
            if objection is not None:
                found.append(objection)
        return found

    def blocks(self, broker_id: int, others: AbstractSet[int] = frozenset()) -> list[Objection]:
        """As `objections`, without those that no waiting will ever remove."""
        return [each for each in self.objections(broker_id, others) if not each.lasting]

    def _objection(self, guarded: Guarded, broker_id: int, others: AbstractSet[int]) -> Objection | None:
        entry = guarded.entry
        members = self._living[guarded.key]
        leaving = {broker_id, *others}
        left = members - leaving
        asked = max(1, entry.min_isr)
        possible = len(set(entry.replicas) - {broker_id})
        broker = self._brokers.get(broker_id)
        if broker_id not in members:
            # Nobody misses what is down; but who is catching up may be the first to end a shortage.
            if broker is None or not broker.alive or len(left) >= min(asked, possible):
                return None
            return Objection(guarded.key, f"has {self._have(left, entry)}, and waits for broker {broker_id}", False)
        if len(left) >= asked:
            return None
        have = f"would keep {self._have(left, entry)} in sync"
        if len(left) >= min(asked, possible):
            count = len(entry.replicas)
            why = f"{have}, and never more with {count} replica{'s' if count != 1 else ''}"
            return Objection(guarded.key, why, True)
        away = [self._describe(i, leaving) for i in entry.replicas if i != broker_id and i not in left]
        return Objection(guarded.key, f"{have}: {', '.join(away)}", False)

    def _have(self, left: set[int], entry: Partition) -> str:
        return f"{len(left)} of min.insync.replicas {entry.min_isr}"

    def _describe(self, broker_id: int, leaving: AbstractSet[int]) -> str:
        broker = self._brokers.get(broker_id)
        if broker is None or not broker.alive:
            return describe_broker(broker_id, self._brokers)
        return f"broker {broker_id} is {'restarted as well' if broker_id in leaving else 'catching up'}"

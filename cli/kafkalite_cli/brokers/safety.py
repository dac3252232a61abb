"""May a broker go for a while? Pure: a cluster in, sentences out.

    a restart of b is safe  <=>  for every partition with b in its ISR: |C(isr) - b| >= minIsr

C(isr) are the members that count and live: so acks=all goes on, and a second failure loses no leader.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalite_core.model.cluster import entry_counts

if TYPE_CHECKING:
    from kafkalite_cli.brokers.view import ClusterView, Key
    from kafkalite_core.model.partition import Partition

LISTED_MAX = 5


@dataclass(frozen=True, slots=True)
class Objection:
    """A partition that would drop below its min ISR. `lasting`: it has too few replicas for it ever to be safe."""

    key: Key
    why: str
    lasting: bool

    def __str__(self) -> str:
        return f"{self.key[0]}-{self.key[1]} {self.why}"


def living(view: ClusterView, entry: Partition) -> set[int]:
    """Members of the ISR that count and run."""
    return {
        member.id
        for member in entry.isr
        if entry_counts(member, view.brokers, relaxed_flush=False) and view.brokers[member.id].alive
    }


def objections(view: ClusterView, broker_id: int) -> list[Objection]:
    """Every partition that speaks against stopping the broker now."""
    found: list[Objection] = []
    for key, entry in sorted(view.partitions.items()):
        if broker_id not in entry.isr_ids():
            continue
        left = living(view, entry) - {broker_id}
        if len(left) >= max(1, entry.min_isr):
            continue
        possible = len(set(entry.replicas) - {broker_id})
        lasting = possible < max(1, entry.min_isr)
        away = [view.state_of(i) for i in entry.replicas if i != broker_id and i not in left]
        have = f"would keep {len(left)} of min.insync.replicas {entry.min_isr} in sync"
        if lasting:
            why = f"{have}, and never more with {len(entry.replicas)} replica{'s' if len(entry.replicas) != 1 else ''}"
        else:
            why = f"{have}: {', '.join(_behind(text) for text in away)}"
        found.append(Objection(key, why, lasting))
    return found


def _behind(state: str) -> str:
    return f"{state.split(' runs with epoch', maxsplit=1)[0]} is catching up" if " runs with epoch" in state else state


def sentence(found: list[Objection]) -> str:
    """All of them, bounded."""
    more = f"; and {len(found) - LISTED_MAX} more" if len(found) > LISTED_MAX else ""
    return "; ".join(map(str, found[:LISTED_MAX])) + more


def not_back(view: ClusterView, broker_id: int) -> list[Key]:
    """Partitions of the broker in whose ISR it does not stand with its present epoch; what moves there counts not."""
    epoch = view.brokers[broker_id].epoch
    return [
        key
        for key, entry in sorted(view.partitions.items())
        if broker_id in entry.replicas
        and broker_id not in (*entry.adding, *entry.removing)
        and entry.isr_epoch_of(broker_id) != epoch
    ]

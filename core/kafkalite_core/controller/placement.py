"""Where replicas go: evenly, never twice on a broker, over as many racks as there are, leaders spread.

The first replica of a partition is its preferred leader; the others follow in an order that spreads the leaderships
of a lost broker over the rest. More partitions go where the load is least, and existing replicas do not move for them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(slots=True)
class Load:
    """How many replicas each broker has, in total and by place in the replica list."""

    replicas: Counter[int] = field(default_factory=Counter)
    places: Counter[tuple[int, int]] = field(default_factory=Counter)

    def add(self, replicas: Iterable[int]) -> None:
        """Count one partition."""
        for place, broker_id in enumerate(replicas):
            self.replicas[broker_id] += 1
            self.places[place, broker_id] += 1

    def add_all(self, other: Load) -> None:
        """Count what another has counted."""
        for broker_id, count in other.replicas.items():
            self.replicas[broker_id] += count
        for place, count in other.places.items():
            self.places[place] += count

    def replace(self, before: Iterable[int], after: Iterable[int]) -> None:
        """Count one partition anew whose replicas change."""
        for place, broker_id in enumerate(before):
            self.replicas[broker_id] -= 1
            self.places[place, broker_id] -= 1
        self.add(after)


def place(
    racks: Mapping[int, str], load: Load, *, first_number: int, partitions: int, replicas: int
) -> dict[int, tuple[int, ...]]:
    """Replica lists for partitions `first_number` and on; `load` is counted up.

    Args:
        racks: Rack (or the empty string) of every broker that takes replicas.
        load: Replicas that are there already.
        first_number: Number of the first partition to be placed.
        partitions: How many to place.
        replicas: Replication factor.

    Raises:
        ValueError: there are fewer brokers than `replicas`.
    """
    if replicas > len(racks):
        raise ValueError(f"{replicas} replicas need {replicas} brokers, but only {len(racks)} can take any")
    result: dict[int, tuple[int, ...]] = {}
    for number in range(first_number, first_number + partitions):
        leader = _least(racks, load, number)
        result[number] = _follow(leader, racks, load, number, replicas)
        load.add(result[number])
    return result


def _least(racks: Mapping[int, str], load: Load, number: int) -> int:
    """The broker that leads least; among those the one with the fewest replicas."""
    ids = sorted(racks)
    return min(ids, key=lambda i: (load.places[0, i], load.replicas[i], _turn(i, ids, number)))


def _turn(broker_id: int, ids: list[int], number: int) -> int:
    """Ties are broken by turns, so that equal brokers take turns in every place."""
    return (ids.index(broker_id) - number) % len(ids)


def _follow(leader: int, racks: Mapping[int, str], load: Load, number: int, replicas: int) -> tuple[int, ...]:
    """The whole replica list: after the leader, brokers of racks not used yet, the least loaded first."""
    ids = sorted(racks)
    chosen = [leader]
    used: Counter[str] = Counter([racks[leader]])
    for place in range(1, replicas):
        free = [broker_id for broker_id in ids if broker_id not in chosen]
        ranked = {i: (used[racks[i]], load.replicas[i], load.places[place, i], _turn(i, ids, number)) for i in free}
        best = min(free, key=ranked.__getitem__)
        chosen.append(best)
        used[racks[best]] += 1
    return tuple(_spread(chosen, load, ids, number))


def _spread(chosen: list[int], load: Load, ids: list[int], number: int) -> list[int]:
    """The followers in an order that evens out who comes second, third and so on."""
    ordered, rest = chosen[:1], chosen[1:]
    while rest:
        ranked = {i: (load.places[len(ordered), i], _turn(i, ids, number)) for i in rest}
        best = min(rest, key=ranked.__getitem__)
        ordered.append(best)
        rest.remove(best)
    return ordered

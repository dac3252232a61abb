"""A proposal where the replicas of some topics should be, on given brokers: even, rack-aware, with little movement.

In this order: replicas on brokers that are not to be used go to the least loaded ones; the number of replicas becomes
the one that is wanted; while one broker has at least two more than another, one of its replicas moves there, if the
partition does not lose a rack by it; then first places (preferred leaders) are evened out within the replica lists.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

Key = TypeVar("Key")
Assignment = dict[Key, tuple[int, ...]]
MOVES_MAX = 100_000
"""A bound on the rounds of each stage; every one makes the load more even, so far fewer are needed."""


def propose(
    current: Mapping[Key, tuple[int, ...]], racks: Mapping[int, str], *, replicas: int | None = None
) -> Assignment[Key]:
    """The proposed replicas of every partition.

    Args:
        current: Present replicas, the preferred leader first.
        racks: Rack (or the empty string) by id of every broker that may be used.
        replicas: Replication factor; None keeps that of each partition.

    Raises:
        ValueError: there are fewer brokers than replicas.
    """
    needed = max([replicas or 0, *(0 if replicas else len(ids) for ids in current.values())], default=0)
    if needed > len(racks):
        raise ValueError(f"{needed} replicas need {needed} brokers, and {len(racks)} are given")
    load = Counter(broker_id for ids in current.values() for broker_id in ids if broker_id in racks)
    proposed: Assignment[Key] = {}
    for key, ids in current.items():
        kept = [broker_id for broker_id in ids if broker_id in racks]
        proposed[key] = _resized(kept, replicas or len(ids), racks, load)
    _even_replicas(proposed, racks, load)
    _even_leaders(proposed)
    return proposed


def _resized(kept: list[int], wanted: int, racks: Mapping[int, str], load: Counter[int]) -> tuple[int, ...]:
    while len(kept) > wanted:
        used = Counter(racks[i] for i in kept)
        # The preferred leader stays; of the others one that shares its rack, then the one with the most to carry.
        gone = max(kept[1:], key=lambda i: (used[racks[i]], load[i], i))
        kept.remove(gone)
        load[gone] -= 1
    while len(kept) < wanted:
        used = Counter(racks[i] for i in kept)
        best = min((i for i in racks if i not in kept), key=lambda i: (used[racks[i]], load[i], i))
        kept.append(best)
        load[best] += 1
    return tuple(kept)


def _even_replicas(proposed: Assignment[Key], racks: Mapping[int, str], load: Counter[int]) -> None:
    for _ in range(MOVES_MAX):
        order = sorted(racks, key=lambda i: (load[i], i))
        if not any(_move_one(proposed, racks, load, full, free) for full in reversed(order) for free in order):
            return


def _move_one(proposed: Assignment[Key], racks: Mapping[int, str], load: Counter[int], full: int, free: int) -> bool:
    """Move one replica from `full` to `free`, if that is worth it and some partition allows it."""
    if load[full] - load[free] < 2:
        return False
    for key, ids in proposed.items():
        if full not in ids or free in ids:
            continue
        others = {racks[i] for i in ids if i != full}
        if racks[free] in others and racks[full] not in others:
            continue
        proposed[key] = tuple(free if i == full else i for i in ids)
        load[full] -= 1
        load[free] += 1
        return True
    return False


def _even_leaders(proposed: Assignment[Key]) -> None:
    """Swap first places: a swap copies nothing."""
    firsts = Counter({i: 0 for ids in proposed.values() for i in ids})
    firsts.update(ids[0] for ids in proposed.values() if ids)
    for _ in range(MOVES_MAX):
        swap = next(
            ((key, other) for key, ids in proposed.items() for other in ids[1:] if firsts[ids[0]] - firsts[other] >= 2),
            None,
        )
        if swap is None:
            return
        key, other = swap
        ids = proposed[key]
        firsts[ids[0]] -= 1
        firsts[other] += 1
        proposed[key] = (other, *(i for i in ids if i != other))

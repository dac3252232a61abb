"""The one planner of moves over many partitions: `rebalance`, `reassign plan` and `decommission` ask it.

`rebalanced` leaves replicas on brokers that are down or cordoned where they are: one comes back, and the other one is
the business of `evacuated`, which moves what is on one broker and nothing else. `propose` places anew whatever is on a
broker that it is not given, and changes the number of replicas. In this order:

1. replicas that have to go somewhere, and those that are added, go to a rack that the partition does not use yet, then
   to the broker with the least load, then to that with the fewest of the topic;
2. a partition with two replicas in one rack gives one of them to a rack that it does not use yet (`rebalanced`);
3. while one broker has at least two replicas more than another, one moves, if its partition loses no rack by it; of
   the partitions that may move one of the topic that the two share most unevenly;
4. first places (preferred leaders) are evened out within the replica lists, over several partitions if need be: the
   greatest and the smallest number differ by at most one, where the lists allow it. That copies nothing.

What the operator does by itself it does partition by partition, with `reassignment_targets`.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

Key = tuple[str, int]
"""Topic and partition number."""

Assignment = dict[Key, tuple[int, ...]]


class NoRoom(ValueError):
    """There is no broker that could take the replicas of these partitions."""

    def __init__(self, keys: Sequence[Key]) -> None:
        super().__init__(f"there is no broker left for {len(keys)} partitions")
        self.keys = tuple(keys)


class Layout:
    """Replica lists that can be changed, with the counts that follow from them."""

    def __init__(self, lists: Mapping[Key, tuple[int, ...]]) -> None:
        self.lists = dict(lists)
        self._held: dict[int, dict[str, set[Key]]] = {}
        self._load: Counter[int] = Counter()
        for key, ids in self.lists.items():
            for broker_id in ids:
                self._add(broker_id, key)

    def _add(self, broker_id: int, key: Key) -> None:
        self._held.setdefault(broker_id, {}).setdefault(key[0], set()).add(key)
        self._load[broker_id] += 1

    def load(self, broker_id: int) -> int:
        """How many replicas it has."""
        return self._load[broker_id]

    def on(self, broker_id: int) -> dict[str, set[Key]]:
        """Its partitions, by topic."""
        return self._held.get(broker_id, {})

    def of_topic(self, broker_id: int, topic: str) -> int:
        """How many replicas of a topic it has."""
        return len(self.on(broker_id).get(topic, ()))

    def put(self, key: Key, ids: tuple[int, ...]) -> None:
        """Another list."""
        for broker_id in self.lists[key]:
            self._held[broker_id][key[0]].discard(key)
            self._load[broker_id] -= 1
        self.lists[key] = ids
        for broker_id in ids:
            self._add(broker_id, key)

    def taker(self, key: Key, others: Collection[int], racks: Mapping[int, str]) -> int | None:
        """The best broker for one more replica of a partition beside `others`; None when there is none."""
        free = [i for i in racks if i not in others]
        used = Counter(racks[i] for i in others if i in racks)
        return min(free, key=lambda i: (used[racks[i]], self._load[i], self.of_topic(i, key[0]), i), default=None)

    def move(self, key: Key, source: int, target: int) -> None:
        """Another broker in the same place of the list."""
        self.lists[key] = tuple(target if i == source else i for i in self.lists[key])
        self._held[source][key[0]].discard(key)
        self._load[source] -= 1
        self._add(target, key)


def rebalanced(
    current: Mapping[Key, tuple[int, ...]],
    racks: Mapping[int, str],
    *,
    fixed: Collection[Key] = (),
    leaders_only: bool = False,
) -> Assignment:
    """The replica lists that differ from the present ones.

    Args:
        current: Replicas of every partition of the cluster, the preferred leader first.
        racks: Rack (or the empty string) of every broker that may give and take replicas.
        fixed: Partitions that stay as they are: they move already.
        leaders_only: Only the order of each list may change.
    """
    layout = Layout(current)
    kept = set(fixed)
    free = [key for key in sorted(current) if key not in kept]
    if len(racks) > 1:
        if not leaders_only:
            _spread_racks(layout, free, racks)
            _even_replicas(layout, set(free), racks)
        _even_leaders(layout, free, racks)
    return {key: ids for key, ids in layout.lists.items() if ids != tuple(current[key])}


def evacuated(current: Mapping[Key, tuple[int, ...]], racks: Mapping[int, str], gone: int) -> Assignment:
    """Other replica lists for every partition that has one on `gone`: it goes to the best of `racks`, the rest stays.

    Raises `NoRoom` with the partitions for which there is no broker left.
    """
    layout = Layout(current)
    stuck: list[Key] = []
    for key in sorted(key for keys in layout.on(gone).values() for key in keys):
        ids = layout.lists[key]
        best = layout.taker(key, [i for i in ids if i != gone], {i: rack for i, rack in racks.items() if i != gone})
        if best is None:
            stuck.append(key)
        else:
            layout.move(key, gone, best)
    if stuck:
        raise NoRoom(stuck)
    return {key: ids for key, ids in layout.lists.items() if ids != tuple(current[key])}


def propose(
    current: Mapping[Key, tuple[int, ...]], racks: Mapping[int, str], *, replicas: int | None = None
) -> Assignment:
    """The replicas of every partition, on given brokers only.

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
    layout = Layout(current)
    for key, ids in current.items():
        kept = [i for i in ids if i in racks]
        wanted = replicas or len(ids)
        while len(kept) > wanted:
            used = Counter(racks[i] for i in kept)
            # The preferred leader stays; of the others one that shares its rack, then the one with the most to carry.
            kept.remove(max(kept[1:], key=lambda i: (used[racks[i]], layout.load(i), i)))
        layout.put(key, tuple(kept))
        while len(kept) < wanted:
            best = layout.taker(key, kept, racks)
            assert best is not None, "there are at least as many brokers as replicas"
            kept.append(best)
            layout.put(key, tuple(kept))
    _even_replicas(layout, set(current), racks)
    _even_leaders(layout, current, racks)
    return layout.lists


def _spread_racks(layout: Layout, free: Iterable[Key], racks: Mapping[int, str]) -> None:
    if len(set(racks.values())) < 2:
        return
    for key in free:
        while step := _rack_step(layout, key, racks):
            layout.move(key, *step)


def _rack_step(layout: Layout, key: Key, racks: Mapping[int, str]) -> tuple[int, int] | None:
    """A replica that shares its rack, and a broker in a rack without one; the preferred leader stays if it can."""
    ids = layout.lists[key]
    used = Counter(racks[i] for i in ids if i in racks)
    sharing = [i for i in ids if i in racks and used[racks[i]] > 1]
    targets = [i for i in racks if i not in ids and not used[racks[i]]]
    if not sharing or not targets or any(i not in racks for i in ids):
        return None
    source = max(sharing, key=lambda i: (i != ids[0], layout.load(i), i))
    return source, min(targets, key=lambda i: (layout.load(i), i))


def _even_replicas(layout: Layout, movable: set[Key], racks: Mapping[int, str]) -> None:
    while True:
        order = sorted(racks, key=lambda i: (layout.load(i), i))
        pairs = (
            (full, free) for full in reversed(order) for free in order if layout.load(full) - layout.load(free) > 1
        )
        step = next((found for pair in pairs if (found := _replica_step(layout, movable, racks, *pair))), None)
        if step is None:
            return
        layout.move(*step)


def _replica_step(
    layout: Layout, movable: set[Key], racks: Mapping[int, str], full: int, free: int
) -> tuple[Key, int, int] | None:
    """A move of one replica, if some partition allows it: of the topic that the two share most unevenly."""

    def allowed(key: Key) -> bool:
        ids = layout.lists[key]
        if free in ids or key not in movable:
            return False
        others = {racks.get(i, "") for i in ids if i != full}
        return racks[free] not in others or racks[full] in others

    held, there = layout.on(full), layout.on(free)
    ranked = [(len(there.get(name, ())) - len(keys), name) for name, keys in held.items() if keys]
    heapq.heapify(ranked)  # the first one fits as a rule: no need to sort them all
    while ranked:
        topic = heapq.heappop(ranked)[1]
        # A leader that stays costs its clients nothing.
        for key in sorted(held[topic], key=lambda key: (layout.lists[key][0] == full, key)):
            if allowed(key):
                return key, full, free
    return None


def _even_leaders(layout: Layout, free: Iterable[Key], racks: Mapping[int, str]) -> None:
    firsts: Counter[int] = Counter(ids[0] for ids in layout.lists.values() if ids)
    led: dict[int, dict[int, set[Key]]] = {}
    movable = set(free)

    def link(key: Key, present: bool) -> None:
        first, *others = layout.lists[key]
        for other in others:
            if first in racks and other in racks:
                keys = led.setdefault(first, {}).setdefault(other, set())
                (keys.add if present else keys.discard)(key)

    for key in movable:
        if layout.lists[key]:
            link(key, True)
    while path := _path(firsts, led, racks):
        for source, target in pairwise(path):
            key = min(led[source][target])
            link(key, False)
            ids = layout.lists[key]
            layout.lists[key] = (target, *(i for i in ids if i != target))
            link(key, True)
        firsts[path[0]] -= 1
        firsts[path[-1]] += 1


def _path(
    firsts: Mapping[int, int], led: Mapping[int, Mapping[int, set[Key]]], racks: Mapping[int, str]
) -> list[int] | None:
    """The shortest chain of swaps from a broker that leads too much to one that leads at least two less."""
    for start in sorted(racks, key=lambda i: (-firsts[i], i)):
        came: dict[int, int] = {start: start}
        queue = deque([start])
        while queue:
            at = queue.popleft()
            if firsts[start] - firsts[at] > 1:
                path = [at]
                while path[-1] != start:
                    path.append(came[path[-1]])
                return path[::-1]
            for other in sorted(led.get(at, {})):
                if led[at][other] and other not in came:
                    came[other] = at
                    queue.append(other)
    return None

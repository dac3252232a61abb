"""Where replicas of a partition that exists go when their number changes or brokers leave, with as little movement as
can be.

Replicas that stay keep their places, so nothing is copied that need not be. A replica that comes goes to a rack that
the partition does not use yet, then where the load is least; one that leaves is, in this order: one whose copying has
not ended, one that is not in sync, one on a broker that leaves the cluster, one on a cordoned broker, one that shares
its rack, one that does not lead, one that is not the preferred leader, and one where the load is greatest.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kafkalite_core.controller.reassignment import target_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kafkalite_core.controller.placement import Load
    from kafkalite_core.model.cluster import Broker
    from kafkalite_core.model.partition import Partition


def rack_of(broker_id: int, brokers: Mapping[int, Broker]) -> str:
    """Rack of a broker as last registered, or the empty string."""
    broker = brokers.get(broker_id)
    return broker.registration.rack if broker is not None and broker.registration is not None else ""


def takes_replicas(broker: Broker) -> bool:
    """Whether replicas are placed there by themselves."""
    return broker.alive and not broker.cordoned and not broker.leaving


def grown(
    entry: Partition,
    replicas: int,
    brokers: Mapping[int, Broker],
    load: Load,
    number: int,
    *,
    begin: tuple[int, ...] | None = None,
) -> tuple[int, ...] | None:
    """`begin` (the present target) and as many more as it takes to be `replicas`; None when too few brokers can take
    one.
    """
    chosen = list(target_of(entry) if begin is None else begin)
    while len(chosen) < replicas:
        best = _best(entry, chosen, len(chosen), brokers, load, number)
        if best is None:
            return None
        chosen.append(best)
    return tuple(chosen)


def _best(
    entry: Partition, others: list[int], place: int, brokers: Mapping[int, Broker], load: Load, number: int
) -> int | None:
    """The best broker for a place in the list, beside `others`; None when nobody can take it."""
    ids = sorted(brokers)
    free = [i for i in ids if i not in others and takes_replicas(brokers[i])]
    if not free:
        return None
    used = Counter(rack_of(broker_id, brokers) for broker_id in others)
    return min(
        free,
        key=lambda i: (
            i not in entry.replicas,
            used[rack_of(i, brokers)],
            load.replicas[i],
            load.places[place, i],
            (ids.index(i) - number) % len(ids),
        ),
    )


def stood_in(
    entry: Partition,
    wished: tuple[int, ...],
    leaving: Collection[int],
    brokers: Mapping[int, Broker],
    load: Load,
    number: int,
) -> tuple[int, ...] | None:
    """The list that is wished for with another broker in the place of each one that leaves.

    Whoever stands in already goes on doing so, so that the answer stays the same while the replicas move and after.
    None when too few brokers can take one.
    """
    ready = [i for i in target_of(entry) if i not in wished and i not in leaving]
    chosen = list(wished)
    for place, broker_id in enumerate(wished):
        if broker_id not in leaving:
            continue
        others = [i for i in chosen if i not in leaving]
        best = ready.pop(0) if ready else _best(entry, others, place, brokers, load, number)
        if best is None:
            return None
        chosen[place] = best
    return tuple(chosen)


def led_by_least(target: tuple[int, ...], load: Load) -> tuple[int, ...]:
    """The same replicas with the one first that is the preferred leader of the fewest partitions: copies nothing."""
    first = min(target, key=lambda i: (load.places[0, i], target.index(i)))
    return (first, *(i for i in target if i != first))


def shrunk(entry: Partition, replicas: int, brokers: Mapping[int, Broker], load: Load) -> tuple[int, ...]:
    """The present target without those that have to leave for it to be `replicas`, in its order."""
    kept = list(target_of(entry))
    in_sync = {member.id for member in entry.isr}
    while len(kept) > replicas:
        used = Counter(rack_of(broker_id, brokers) for broker_id in kept)

        def reluctance(broker_id: int, used: Counter[str] = used) -> tuple[int, ...]:
            broker = brokers.get(broker_id)
            place = kept.index(broker_id)
            return (
                broker_id not in entry.adding,
                broker_id in in_sync,
                broker is not None and not broker.leaving,
                broker is not None and not broker.cordoned,
                used[rack_of(broker_id, brokers)] == 1,
                broker_id == entry.leader,
                place == 0,
                -load.replicas[broker_id],
                -place,
            )

        kept.remove(min(kept, key=reluctance))
    return tuple(kept)

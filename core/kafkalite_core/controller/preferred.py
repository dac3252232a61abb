"""Preferred-leader balancing with Kafka's three settings.

`auto.leader.rebalance.enable`, `leader.imbalance.check.interval.seconds` (the shell sets `balance_due`) and
`leader.imbalance.per.broker.percentage`: a broker gets its partitions back when more than that share of the
partitions that it should lead is led by others.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kafkalite_core.controller.actions import ChangePartitions, Fence, ReadBrokers, ReadClusters
from kafkalite_core.controller.election import Verdict, prefer
from kafkalite_core.controller.fencing import silent
from kafkalite_core.model.config import BROKER_KEYS
from kafkalite_core.model.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkalite_core.controller.actions import Action
    from kafkalite_core.controller.snapshot import Snapshot


def setting(config: Mapping[str, str], name: str) -> object:
    """A broker key's value in force; a value that does not parse is passed over (a condition says so)."""
    key = BROKER_KEYS[name]
    try:
        return key.parse(name, config.get(name, key.default))
    except ConfigError:
        return key.parse(name, key.default)


def imbalanced(snapshot: Snapshot) -> dict[int, tuple[int, int]]:
    """By broker id: how many partitions it should lead but does not, and how many it should lead."""
    wanted: Counter[int] = Counter()
    missing: Counter[int] = Counter()
    for view in snapshot.placed_topics():
        for broker_id, (not_led, total) in view.facts.preferred.items():
            wanted[broker_id] += total
            missing[broker_id] += not_led
    return {broker_id: (missing[broker_id], total) for broker_id, total in wanted.items()}


def balance(snapshot: Snapshot) -> dict[tuple[str, int], Verdict]:
    """Elections of preferred leaders by (topic uid, partition number); empty unless `balance_due`."""
    config = snapshot.cluster.config
    if not snapshot.balance_due or setting(config, "auto.leader.rebalance.enable") is not True:
        return {}
    percentage = setting(config, "leader.imbalance.per.broker.percentage")
    assert isinstance(percentage, int)
    over = {broker for broker, (missing, total) in imbalanced(snapshot).items() if missing * 100 > percentage * total}
    verdicts: dict[tuple[str, int], Verdict] = {}
    for view in snapshot.placed_topics():
        for number, entry in view.topic.partitions.items():
            if not entry.replicas or entry.replicas[0] not in over:
                continue
            verdict = prefer(entry, snapshot.brokers)
            if verdict.change is not None:
                verdicts[view.topic.ref.uid, number] = verdict
    return verdicts


def balanced(snapshot: Snapshot, actions: Iterable[Action], now: float) -> bool:
    """Whether a plan with `balance_due` leaves nothing of it to do: only then the next interval begins.

    One that asks for the brokers first proposes its elections to nobody, of many elections not all begin at once, and
    who is not heard gets its partitions back when it is.
    """
    return not silent(snapshot, now) and not any(
        isinstance(action, Fence | ReadBrokers | ReadClusters)
        or (isinstance(action, ChangePartitions) and bool(action.elected))
        for action in actions
    )

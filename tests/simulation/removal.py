"""What an operator does to take the last broker away, call by call; see the operator's module of that name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite_core.controller.adoption import taking_over
from kafkalite_core.controller.snapshot import Snapshot
from tests.simulation.api import Outcome
from tests.simulation.parsed import cluster_of, topic_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite_core.model.cluster import Broker
    from tests.simulation.operator import Operator
    from tests.simulation.patching import Json


def is_empty(operator: Operator, topics: list[Json], broker_id: int) -> bool:
    """Whether a broker still leaves, no topic of that list has a replica there, and none is about to."""
    store = operator.store
    obj = store.cluster_object()
    if obj is None or cluster_of(obj).replicas > broker_id:
        return False
    entries = [entry for item in topics for entry in topic_of(item).partitions.values()]
    snapshot = Snapshot(cluster=cluster_of(obj), topics=store.topic_views(), brokers=store.brokers())
    return not any(broker_id in entry.replicas for entry in entries) and not taking_over(snapshot, broker_id)


def shrink(operator: Operator, wanted: int, done: Callable[[Outcome], None]) -> None:
    """Give the StatefulSet so many pods, and no fewer than a consistent look finds in use."""
    asked_s = operator.now_s()

    def listed(outcome: Outcome, result: Any) -> None:
        if outcome is Outcome.OK:
            items, version = result
            operator.store.relist("topics", items, version, asked_s=asked_s)
            cluster = operator.host.cluster
            count = cluster.pods()
            while count > wanted and is_empty(operator, items, count - 1):
                count -= 1
            cluster.run_brokers(count, looked_at=version.era)
        done(outcome)

    operator.call("list", "topics", answer=listed)


class Removal:
    """One attempt; `done` is told how it ended."""

    def __init__(self, operator: Operator, broker: Broker, done: Callable[[Outcome], None]) -> None:
        self._operator = operator
        self._broker = broker
        self._done = done
        self._ended = False
        self._looked_at = 0

    def look(self) -> None:
        """List the topics: if nothing is on the broker its pod ends, and when it has ended the object is deleted."""
        asked_s = self._operator.now_s()

        def listed(outcome: Outcome, result: Any) -> None:
            if outcome is not Outcome.OK:
                self._done(outcome)
                return
            items, version = result
            self._looked_at = version.era
            self._operator.store.relist("topics", items, version, asked_s=asked_s)
            if is_empty(self._operator, items, self._broker.id):
                self._go_on()
            else:
                self._done(Outcome.OK)

        self._operator.call("list", "topics", answer=listed)

    def _go_on(self) -> None:
        operator = self._operator
        cluster = operator.host.cluster
        known = operator.store.raw("brokers", self._broker.uid)
        cluster.run_brokers(self._broker.id, looked_at=self._looked_at)
        fenced = operator.store.brokers().get(self._broker.id, self._broker).fenced
        if known is None or cluster.hosts[self._broker.id].broker is not None or not fenced:
            self._done(Outcome.OK)
            return
        if not self._ended:
            self._ended = True
            self.look()
            return
        operator.trace(f"removes broker {self._broker.id}")

        def deleted(outcome: Outcome, _result: Any) -> None:
            if outcome in {Outcome.OK, Outcome.NOT_FOUND}:
                operator.store.forget("brokers", self._broker.uid)
                operator.world.bite("broker_removed")
            self._done(Outcome.OK if outcome is Outcome.NOT_FOUND else outcome)

        metadata = known["metadata"]
        operator.call("delete", "brokers", metadata["name"], metadata["resourceVersion"], answer=deleted)

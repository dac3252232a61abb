"""How long elections take, and failovers: from the sight of a failure until the status is written with a leader."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite_core.controller.actions import ChangePartitions
    from kafkalite_operator.metrics import OperatorMetrics

FAILOVER_LIMIT_S = 60.0
"""An election later than this after the fence has other reasons than the failure, unless nobody led in between."""


class Failovers:
    """What is known of failures whose elections are still to come. Times are monotonic, in seconds."""

    def __init__(self, metrics: OperatorMetrics) -> None:
        self._metrics = metrics
        self._failed_at: dict[str, dict[int, float]] = {}
        """By uid of the cluster and broker id."""
        self._leaderless: dict[str, dict[int, float]] = {}
        """When the last leader failed, by uid of the topic and partition, where nobody could be elected."""

    def clear(self) -> None:
        """A term begins: what happened before it, and meanwhile, another operator has measured."""
        self._failed_at.clear()
        self._leaderless.clear()

    def forget(self, uid: str) -> None:
        """A cluster or a topic is gone."""
        self._failed_at.pop(uid, None)
        self._leaderless.pop(uid, None)

    def failed(self, cluster_uid: str, broker_id: int, seen_at: float) -> None:
        """A broker was fenced; its failure was seen at that time."""
        self._failed_at.setdefault(cluster_uid, {})[broker_id] = seen_at

    def measure(
        self, cluster_uid: str, action: ChangePartitions, numbers: Iterable[int], *, started: float, now: float
    ) -> None:
        """These partitions were written with another leader or without one, `now`; it was begun at `started`.

        Whoever has no leader now was not elected: that is measured when there is one.
        """
        leaderless = self._leaderless.setdefault(action.topic.uid, {})
        failed: list[float] = []
        elected: set[int] = set()
        for number in numbers:
            change = action.changes[number]
            before = leaderless.pop(number, None)
            seen_at = self._seen_at(cluster_uid, change.expected.leader, now) if change.expected.has_leader else before
            if change.proposed.has_leader:
                elected.add(number)
                failed += [] if seen_at is None else [seen_at]
            elif seen_at is not None:
                leaderless[number] = seen_at
        if not leaderless:
            del self._leaderless[action.topic.uid]
        if elected:
            self._metrics.election_ms.observe((now - started) * 1000)
            self._metrics.elections.inc(len(elected))
            self._metrics.unclean_elections.inc(len(action.unclean & elected))
        if failed:
            self._metrics.failover_s.observe(now - min(failed))

    def _seen_at(self, cluster_uid: str, leader: int, now: float) -> float | None:
        """When that leader failed, if it was just now."""
        seen_at = self._failed_at.get(cluster_uid, {}).get(leader)
        return seen_at if seen_at is not None and now - seen_at < FAILOVER_LIMIT_S else None

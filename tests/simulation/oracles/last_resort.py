"""Nobody is elected uncleanly while the operator that decides it knows of a clean candidate that lives (R10, R14)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.controller.actions import ChangePartitions
from kafkalite_core.controller.configs import relaxed_flush
from kafkalite_core.controller.store_recovery import StoreRecovery
from tests.simulation.oracles.safety import counting_ids
from tests.simulation.world import Violation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite_core.controller.actions import Action
    from kafkalite_core.controller.snapshot import Snapshot

NAME = "an unclean election is the last resort"


def decided(snapshot: Snapshot, actions: Iterable[Action]) -> None:
    """What an operator has decided on a snapshot. Raises `Violation`.

    It is judged by what that operator knew: a candidate may come back while the patch is on its way. A recovery (S11)
    goes by what brokers report.
    """
    for action in actions:
        if not isinstance(action, ChangePartitions):
            continue
        view = next(view for view in snapshot.topics.values() if view.topic.ref == action.topic)
        relaxed = relaxed_flush(snapshot, view)
        for number, change in action.changes.items():
            old, new = change.expected, change.proposed
            if new.leader == old.leader or not new.has_leader:
                continue
            clean = counting_ids(old, snapshot.brokers, relaxed=relaxed)
            living = sorted(i for i in clean if snapshot.brokers[i].alive)
            if new.leader in clean or not living:
                continue
            if StoreRecovery(snapshot).decide(view, number, old, min_isr=old.min_isr) is not None:
                continue
            raise Violation(NAME, f"{view.topic.ref.name}-{number}: {old} is to become {new}, but {living} could lead")

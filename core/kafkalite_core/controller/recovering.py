"""Brokers that recover their logs: telling them from those that hang, and what is said of them.

A broker registers once its disk is open, and until then its pod looks like one that never becomes ready. Whoever
restarts it then has it begin anew. So

    its container runs, and the broker itself says that it recovers, and has said something new of that within
    `RECOVERY_SILENT_S`     =>  it recovers

A process that ends meanwhile takes none of that back. Its container does not run then, or the next process says
something new, or registers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kafkalite_core.model.cluster import Broker

if TYPE_CHECKING:
    from kafkalite_core.controller.snapshot import Snapshot

RECOVERY_SILENT_S = 3600.0
"""A recovery without progress for so long hangs: a segment of any size is read in much less, even while the disk is
busy with something else.
"""


def observed(broker: Broker, before: object, now: float) -> Broker:
    """The broker with the time at which the observer, who has seen it as `before`, first saw its recovery so far."""
    if broker.recovery is None:
        return broker
    known = before.recovery if isinstance(before, Broker) else None
    seen_at = known.seen_at if known is not None and known == broker.recovery else now
    return replace(broker, recovery=replace(broker.recovery, seen_at=seen_at))


def recovers(snapshot: Snapshot, broker_id: int, now: float) -> bool:
    """See the module."""
    broker, pod = snapshot.brokers.get(broker_id), snapshot.pods.get(broker_id)
    if broker is None or broker.recovery is None or not broker.recovering or pod is None:
        return False
    return pod.running and now - broker.recovery.seen_at < RECOVERY_SILENT_S


def describe_recovery(broker: Broker) -> str:
    """How far it is, in a few words."""
    assert broker.recovery is not None, "it recovers nothing"
    left, segments = broker.recovery.remaining_logs, broker.recovery.remaining_segments
    return f"broker {broker.id} recovers its logs: {left} left, and {segments} segments of those under way"

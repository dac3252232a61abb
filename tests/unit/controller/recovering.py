"""Brokers that report what they hold, and what the operator makes of it (S11)."""

from kafkalite_core.controller.actions import ChangePartitions
from kafkalite_core.controller.plan import plan
from kafkalite_core.model.partition import IsrEntry
from kafkalite_core.model.topic import Holding
from tests.unit.controller.builders import NOW, apply, brokers, entry, make_broker, snapshot, topic_view


def holding(leader_epoch=7, partition_epoch=30, log_epoch=7, end=100, partition=0, topic_id="id"):
    return Holding(
        topic="orders",
        topic_id=topic_id,
        partition=partition,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        log_epoch=log_epoch,
        end_offset=end,
    )


def nameless(*broker_ids):
    """An ISR as earlier versions noted it: nobody knows which incarnations were meant."""
    return tuple(IsrEntry(i, -1) for i in broker_ids)


def reporting(first=None, second=None, third=None):
    """Three live brokers and what they report; None for nothing."""
    reports = (first, second, third)
    return brokers(*(make_broker(i, holdings=() if held is None else (held,)) for i, held in enumerate(reports)))


def run(view_of_brokers, *, partition=None, recovery_request="", seen=None, **more):
    view = topic_view(
        partitions={0: partition or entry()}, recovery_request=recovery_request, epochs_seen=seen or {}, **more
    )
    state = snapshot(view, brokers=view_of_brokers)
    changes = [action for action in plan(state, NOW) if isinstance(action, ChangePartitions)]
    return (changes[0] if changes else None), state


def ready(state):
    after = apply(state, plan(state, NOW))
    return next(c for c in after.topics["uid-orders"].conditions if c.type == "Ready")


def emptied(*lost):
    """Three live brokers that have reported; some with a disk that is newer than their entries."""
    return brokers(
        *(make_broker(i, 20 + i, trusted=20 + i if i in lost else 1, holdings=(holding(),)) for i in range(3))
    )

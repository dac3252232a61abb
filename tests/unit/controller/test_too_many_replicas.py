"""A move whose old and new replicas do not fit into one entry: it is not begun, and the way around is told."""

from dataclasses import replace

import pytest

from kafkalite_core.controller.actions import ChangePartitions
from kafkalite_core.controller.plan import plan
from kafkalite_core.model.limits import REPLICAS_PER_PARTITION_MAX
from tests.unit.controller.builders import NOW, apply, entry, make_broker, snapshot, topic_view


def state_of(replicas, *, wanted=None, listed=None, brokers=24, stay=None):
    isr = [(i, 10 + i) for i in replicas]
    spec = {"partitions": 1, "replicas": len(replicas) if wanted is None else wanted}
    if listed is not None:
        spec["replica_assignment"] = {0: listed}
    view = topic_view(partitions={0: entry(leader=replicas[0], isr=isr, replicas=replicas)}, spec=spec)
    known = {i: make_broker(i) for i in range(brokers)}
    return snapshot(view, brokers=known, cluster={"replicas": brokers if stay is None else stay})


def settled(state, rounds=12):
    """Whoever is added is in sync at once."""
    for _ in range(rounds):
        actions = plan(state, NOW)
        for change in (c for a in actions if isinstance(a, ChangePartitions) for c in a.changes.values()):
            assert len(change.proposed.replicas) <= REPLICAS_PER_PARTITION_MAX, "the API server refuses it"
        state = apply(state, actions)
        view = state.topics["uid-orders"]
        part = view.topic.partitions[0]
        every = entry(isr=[(i, 10 + i) for i in part.replicas]).isr
        part = replace(part, isr=every, partition_epoch=part.partition_epoch + 1)
        topic = replace(view.topic, partitions={0: part})
        state = replace(state, topics={"uid-orders": replace(view, topic=topic)})
    return state


def told(state):
    return next(c for c in state.topics["uid-orders"].conditions if c.type == "Progressing")


def replicas_of(state):
    return set(state.topics["uid-orders"].topic.partitions[0].replicas)


@pytest.mark.parametrize(
    ("case", "remedy"),
    [
        ({"replicas": tuple(range(1, 17)), "brokers": 17, "stay": 16}, "lower spec.replicas, or shorten its list"),
        ({"replicas": tuple(range(16)), "listed": (16, *range(1, 16))}, "in spec.replicaAssignment, by 1 until"),
        ({"replicas": tuple(range(10)), "listed": tuple(range(10, 20))}, "let at most 6 of them leave at a time"),
    ],
    ids=["a broker leaves", "a list", "a list of others"],
)
def test_it_is_not_begun_and_the_way_around_is_told(case, remedy):
    before = state_of(**case)
    after = settled(before)
    assert replicas_of(after) == set(case["replicas"])
    assert (told(after).status, told(after).reason) == ("False", "TooManyReplicas")
    assert remedy in told(after).message


def test_the_way_around_is_one():
    state = settled(state_of(tuple(range(1, 17)), wanted=15, brokers=17, stay=16))
    assert replicas_of(state) == set(range(1, 16)), "the one that leaves the cluster goes first"
    view = state.topics["uid-orders"]
    state = replace(state, topics={"uid-orders": replace(view, spec=replace(view.spec, replicas=16))})
    assert replicas_of(settled(state)) == set(range(16))
    steps = state_of(tuple(range(10)), listed=(*range(6, 10), *range(10, 16)))
    assert replicas_of(settled(steps)) == set(range(6, 16))


def test_as_many_as_fit_move_at_once():
    assert replicas_of(settled(state_of(tuple(range(8)), listed=tuple(range(8, 16))))) == set(range(8, 16))

"""How many pods go on while brokers leave: those that ran or hold something, and nobody to fill gaps."""

from dataclasses import replace

from kafkalite_core.controller.actions import CreateBroker, RemoveBroker
from kafkalite_core.controller.plan import plan
from kafkalite_core.controller.scale_down import wanted_brokers
from tests.unit.controller.builders import NOW
from tests.unit.controller.test_scale_down import FIVE, cluster, of, settle


def test_nobody_is_made_to_fill_the_ids_below_one_that_somebody_made_by_hand():
    known = {i: FIVE[i] for i in range(3)} | {40: replace(FIVE[4], id=40, registration=None)}
    state = cluster((0, 1, 2), known=known)
    assert wanted_brokers(state) == [0, 1, 2]
    actions = plan(state, NOW)
    assert not of(actions, CreateBroker)
    (action,) = of(actions, RemoveBroker)
    assert (action.broker.id, action.remaining) == (40, 3)
    assert sorted(settle(state).brokers) == [0, 1, 2]
    known[41] = replace(known[40], id=41)
    state = cluster((0, 1, 2), known=known)
    assert wanted_brokers(state) == [0, 1, 2]
    assert wanted_brokers(replace(state, cluster=replace(state.cluster, paused=True))) == [0, 1, 2]
    known[40] = FIVE[4]  # it runs, so it needs the ids below: a StatefulSet has no gaps
    assert wanted_brokers(cluster((0, 1, 2), known=known)) == list(range(41))


def test_pods_below_one_that_ran_or_holds_something_go_on():
    assert wanted_brokers(cluster((0, 1, 2), (1, 2, 4))) == [0, 1, 2, 3, 4]
    (action,) = of(plan(cluster((0, 1, 2)), NOW), RemoveBroker)
    assert (action.broker.id, action.remaining) == (4, 4), "broker 3 ran, and is removed after it"

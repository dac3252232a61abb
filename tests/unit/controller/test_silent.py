"""Brokers that live but are not heard, as after an outage of the API server: they may not hear of an election either."""

from dataclasses import replace

import pytest

from kafkalite_core.controller.actions import ChangePartitions, CompleteElections
from kafkalite_core.controller.at_rest import AtRest
from kafkalite_core.controller.fencing import silent
from kafkalite_core.controller.plan import plan
from kafkalite_core.controller.snapshot import LeaseView
from kafkalite_core.model.partition import IsrEntry
from tests.unit.controller.builders import NOW, entry, make_broker, snapshot, three, topic_view

BACK = NOW - 2
"""Leases are read again since; whoever was not heard since then was heard before the outage."""


def after_outage(*views, heard, brokers=None, **more):
    known = three() if brokers is None else brokers
    leases = {
        i: LeaseView(holder=broker.registration.incarnation, changed_at=NOW if i in heard else BACK - 50)
        for i, broker in known.items()
    }
    return snapshot(*views, brokers=known, leases=leases, observing_since=BACK, unheard_until=BACK + 60, **more)


def leaders(actions):
    changes = [action for action in actions if isinstance(action, ChangePartitions)]
    return {number: change.proposed.leader for action in changes for number, change in action.changes.items()}


def test_silent_are_those_that_live_and_are_not_heard():
    dead = three() | {0: make_broker(0, fenced=10)}
    assert silent(after_outage(heard={1}), NOW) == {0, 2}
    assert silent(after_outage(heard={1}, brokers=dead), NOW) == {2}
    assert silent(after_outage(heard={0, 1, 2}), NOW) == set()
    assert silent(after_outage(heard={0, 1, 2}), NOW + 6) == {0, 1, 2}


def test_a_registration_is_heard():
    """At the end of a restart leaders go back to a broker whose first renewal nobody has seen yet."""
    state = after_outage(heard={1})
    state = replace(state, registered_at={**state.registered_at, 0: NOW - 5, 2: NOW - 5.1})
    assert silent(state, NOW) == {2}


def test_a_lease_says_how_long_its_holder_is_heard():
    state = after_outage(heard=set())
    asleep = LeaseView(holder=state.leases[1].holder, changed_at=NOW - 1, duration_s=60)
    state = replace(state, leases={**state.leases, 1: asleep, 2: replace(state.leases[2], duration_s=60)})
    state = replace(state, registered_at=dict.fromkeys(state.brokers, NOW - 2))
    assert silent(state, NOW + 10) == {0}
    assert silent(state, NOW + 58.5) == {0, 2}


@pytest.mark.parametrize(("heard", "leader"), [({0, 1, 2}, 1), ({0, 2}, 2), ({0}, 1)])
def test_who_is_heard_is_elected_before_who_is_not(heard, leader):
    """Broker 0, which led, is fenced. When nobody is heard the order of the replicas decides."""
    dead = three() | {0: make_broker(0, fenced=10)}
    state = after_outage(topic_view(partitions={0: entry()}), heard=heard, brokers=dead)
    assert leaders(plan(state, NOW)) == {0: leader}
    said = " (not heard at present: 1)" if leader == 2 else ""
    assert f"broker {leader} is the first live member of the ISR{said}'" in str(plan(state, NOW))


def test_of_eligible_replicas_as_well():
    dead = three() | {0: make_broker(0, fenced=10)}
    last = replace(entry(isr=((0, 10),), min_isr=2), elr=(IsrEntry(1, 11), IsrEntry(2, 12)))
    assert leaders(plan(after_outage(topic_view(partitions={0: last}), heard={2}, brokers=dead), NOW)) == {0: 2}


@pytest.mark.parametrize(("heard", "leader"), [({1, 2}, 1), ({2}, 2), (set(), 1)])
@pytest.mark.parametrize(
    "consent",
    [
        {"elections": {"elect-u": "0"}, "elect_unclean": frozenset({0}), "unclean_request": "0"},
        {"spec": {"config": {"unclean.leader.election.enable": "true"}}},
    ],
)
def test_unclean_elections_as_well(consent, heard, leader):
    """Only broker 0 was in sync, and it is gone: any other one may lack records."""
    dead = three() | {0: make_broker(0, fenced=10)}
    view = topic_view(partitions={0: entry(leader=-1, isr=((0, 10),))}, **consent)
    assert leaders(plan(after_outage(view, heard=heard, brokers=dead), NOW)) == {0: leader}


def test_who_leads_and_is_not_heard_stays():
    view = topic_view(partitions={0: entry(), 1: entry(leader=1)})
    assert leaders(plan(after_outage(view, heard={2}), NOW)) == {}


@pytest.mark.parametrize("heard", [{1, 2}, set()])
def test_balancing_gives_nothing_to_who_is_not_heard(heard):
    view = topic_view(partitions={0: entry(leader=1), 1: entry(leader=2)})
    state = after_outage(view, heard=heard, balance_due=True)
    assert leaders(plan(state, NOW)) == {}
    back = after_outage(view, heard={0, 1, 2}, balance_due=True)
    assert leaders(plan(back, NOW)) == {0: 0, 1: 0}


@pytest.mark.parametrize(("heard", "leader"), [({0, 1, 2, 3}, 0), ({1, 2, 3}, 1), ({2, 3}, 3)])
def test_a_leader_that_leaves_gives_way_to_who_is_heard(heard, leader):
    four = three() | {3: make_broker(3)}
    leaving = entry(leader=3, replicas=(3, 0, 1), isr=((3, 13), (0, 10), (1, 11)))
    state = after_outage(topic_view(partitions={0: leaving}), heard=heard, brokers=four, cluster={"replicas": 3})
    assert leaders(plan(state, NOW)) == {0: leader}, "with the first step of its move it stays leader"


@pytest.mark.parametrize(("heard", "led"), [({0, 1, 2}, {0: 1}), ({0, 2}, {0: 2}), ({0}, {})])
def test_a_move_is_over_when_who_is_heard_can_lead(heard, led):
    moving = replace(entry(replicas=(1, 2, 0)), removing=(0,))
    view = topic_view(partitions={0: moving}, spec={"replicas": 2})
    assert leaders(plan(after_outage(view, heard=heard), NOW)) == led


@pytest.mark.parametrize("heard", [{1, 2}, set()])
def test_a_wish_for_the_preferred_leader_waits_until_that_is_heard(heard):
    """Of two partitions one has its first replica as leader already: the wish is kept for the other one."""
    view = topic_view(
        partitions={0: entry(leader=1), 1: entry()}, elections={"elect-p": "all"}, elect_preferred=frozenset({0, 1})
    )
    state, rest = after_outage(view, heard=heard), AtRest()
    waiting = plan(state, NOW, rest)
    assert leaders(waiting) == {}
    assert not [action for action in waiting if isinstance(action, CompleteElections)]
    back = replace(state, leases=after_outage(heard={0, 1, 2}).leases)
    assert leaders(plan(back, NOW, rest)) == {0: 0}, "what was remembered while nobody was heard is forgotten, too"


def test_consent_to_an_unclean_election_does_not_wait_for_who_is_not_heard():
    """It is for what is without leader now, not for what loses its leader while another wish waits."""
    view = topic_view(
        partitions={0: entry(leader=1)},
        elections={"elect-p": "0", "elect-u": "0"},
        elect_preferred=frozenset({0}),
        elect_unclean=frozenset({0}),
        unclean_request="0",
    )
    (done,) = [a for a in plan(after_outage(view, heard={1, 2}), NOW) if isinstance(a, CompleteElections)]
    assert (done.possible, "the preferred leader 0 is not heard at present" in done.reason) == (False, True)


def test_a_wish_ends_when_who_was_not_heard_is_fenced():
    view = topic_view(
        partitions={0: entry(leader=1, isr=((1, 11), (2, 12)))},
        elections={"elect-p": "0"},
        elect_preferred=frozenset({0}),
    )
    state = after_outage(view, heard={1, 2}, brokers=three() | {0: make_broker(0, fenced=10)})
    (done,) = [action for action in plan(state, NOW) if isinstance(action, CompleteElections)]
    assert (done.possible, "not in sync" in done.reason) == (False, True)


def test_what_was_planned_is_planned_anew_when_others_are_heard():
    dead = three() | {0: make_broker(0, fenced=10)}
    first = after_outage(topic_view(partitions={0: entry()}), heard={2}, brokers=dead)
    rest = AtRest()
    assert leaders(plan(first, NOW, rest)) == {0: 2}
    now_heard = after_outage(heard={1, 2}, brokers=dead).leases
    assert leaders(plan(replace(first, leases=now_heard), NOW, rest)) == {0: 1}

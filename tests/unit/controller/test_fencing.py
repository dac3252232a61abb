from dataclasses import replace

import pytest

from kafkalite_core.controller.fencing import heard, judge
from kafkalite_core.controller.snapshot import LeaseView
from tests.unit.controller.builders import NOW, brokers, entry, make_broker, snapshot, three, topic_view


def leases(**changed):
    return {int(key[1:]): LeaseView(holder="x", changed_at=value) for key, value in changed.items()}


def fenced(state, now=NOW):
    return [fence.broker.id for fence in judge(state, now)]


def test_a_container_exit_fences_the_incarnation_it_names():  # S7
    fences = judge(snapshot(exits={(1, "inc-1-11"): "exit code 137"}), NOW)
    assert [(f.broker.id, f.reason, f.by_expiry) for f in fences] == [(1, "ContainerExited", False)]
    assert fenced(snapshot(exits={(1, "inc-1-10"): "late"})) == []
    assert fenced(snapshot(exits={(0, "inc-1-11"): "killed"})) == [], "another broker's pod says so"


def test_exits_need_no_leases_and_know_no_cap():
    exits = {(i, f"inc-{i}-{10 + i}"): "killed" for i in range(3)}
    assert fenced(snapshot(exits=exits, observing_since=None, leases={})) == [0, 1, 2]


def test_expiry_is_judged_since_the_last_change():
    state = snapshot(leases=leases(b0=NOW, b1=NOW - 5.1, b2=NOW - 4.9))
    assert fenced(state) == [1]


def test_a_lowered_lease_duration_holds_for_a_broker_once_its_lease_says_so():
    """All renew at the interval of the former one, of 60 s, until they hear of it; broker 1 has, 2 says nothing."""
    silence = {0: (59.0, 60), 1: (5.1, 5), 2: (5.1, 0)}
    state = snapshot(
        leases={
            i: LeaseView(holder=f"inc-{i}-{10 + i}", changed_at=NOW - silence_s, duration_s=duration_s)
            for i, (silence_s, duration_s) in silence.items()
        }
    )
    assert fenced(state) == [1, 2]
    assert [heard(state, broker, NOW) for broker in state.brokers.values()] == [True, False, False]
    later = replace(state, leases=state.leases | {1: replace(state.leases[1], changed_at=NOW + 2)})
    fences = judge(later, NOW + 2)
    assert [fence.broker.id for fence in fences] == [0, 2]
    assert "(lease duration 60 s)" in fences[0].message
    assert "(lease duration 5 s)" in fences[1].message


def test_what_a_former_process_went_by_says_nothing_of_its_successor():
    """It hangs before its first renewal; the Lease is still that of the process before, of a longer duration."""
    former = {i: LeaseView(holder=f"inc-{i}-{10 + i}", changed_at=NOW) for i in range(3)}
    former[1] = LeaseView(holder="former", changed_at=NOW - 5.1, duration_s=600)
    state = snapshot(leases=former)
    assert fenced(state) == [1]
    assert not heard(state, state.brokers[1], NOW)


def test_while_a_lease_is_judged_by_a_former_duration_the_cap_holds_for_that_long():
    view = topic_view(partitions={0: entry(min_isr=2)})
    state = snapshot(
        view,
        leases={
            i: LeaseView(holder=f"inc-{i}-{10 + i}", changed_at=NOW - 61 * (i > 0), duration_s=60) for i in range(3)
        },
    )
    assert fenced(replace(state, expiry_fences=(NOW - 59,))) == []
    assert fenced(replace(state, expiry_fences=(NOW - 60,))) == [1]


def test_a_raised_lease_duration_holds_at_once():
    state = snapshot(
        cluster={"lease_duration_s": 60.0},
        leases={i: LeaseView(holder="x", changed_at=NOW - 59 * (i > 0), duration_s=5) for i in range(3)},
    )
    assert fenced(state) == []


def test_nobody_is_fenced_twice():
    state = snapshot(brokers=three() | {1: make_broker(1, fenced=11)}, leases=leases(b0=NOW, b1=0.0, b2=NOW))
    assert fenced(state) == []


def test_every_lease_is_fresh_from_the_first_observation():  # R16
    old = leases(b0=NOW, b1=NOW - 100, b2=NOW - 100)
    assert fenced(snapshot(leases=old, observing_since=NOW - 4.0)) == []
    assert fenced(snapshot(leases=old, observing_since=None)) == []


def test_after_a_gap_who_was_not_heard_since_gets_time_to_be_heard():  # R16
    """Broker 0 was heard since the gap, broker 1 was and fell silent, broker 2 was not."""
    back = NOW - 6
    state = snapshot(leases=leases(b0=NOW, b1=back + 0.5, b2=back - 50), observing_since=back, unheard_until=back + 30)
    assert fenced(state) == [1]
    assert fenced(replace(state, leases=leases(b0=NOW + 34, b1=NOW + 34, b2=back - 50)), back + 35) == []
    assert fenced(replace(state, leases=leases(b0=NOW + 34, b1=NOW + 34, b2=back - 50)), back + 35.1) == [2]
    gone = {0: state.leases[0], 1: LeaseView(holder="x", changed_at=NOW)}
    assert fenced(replace(state, leases=gone)) == [], "nor who has no Lease"


def test_a_new_registration_has_time_to_renew():
    state = snapshot(leases=leases(b0=NOW, b1=NOW - 100, b2=NOW), registered_at={1: NOW - 1})
    assert fenced(state) == []
    assert fenced(replace(state, registered_at={1: NOW - 6})) == [1]


def test_nobody_is_fenced_while_nobody_renews():  # threat 7
    assert fenced(snapshot(leases=leases(b0=NOW - 50, b1=NOW - 50, b2=NOW - 50))) == []


def test_the_cap_is_n_minus_min_isr_within_a_lease_duration():
    view = topic_view(partitions={0: entry(min_isr=2)})
    state = snapshot(view, leases=leases(b0=NOW, b1=NOW - 50, b2=NOW - 60))
    assert fenced(state) == [2], "the longest silence first"
    assert fenced(replace(state, expiry_fences=(NOW - 1,))) == []
    assert fenced(replace(state, expiry_fences=(NOW - 6,))) == [2]
    assert fenced(snapshot(leases=state.leases)) == [2, 1]


def test_two_brokers_can_still_lose_one():
    state = snapshot(
        topic_view(partitions={0: entry(min_isr=2, replicas=(0, 1), isr=((0, 10), (1, 11)))}),
        brokers=brokers(make_broker(0), make_broker(1)),
        leases=leases(b0=NOW, b1=NOW - 9),
    )
    assert fenced(state) == [1]


@pytest.mark.parametrize("outage_s", [1, 10, 10_000])
def test_an_outage_fences_nobody_whatever_its_length(outage_s):
    back = NOW + outage_s
    state = snapshot(leases=leases(b0=NOW, b1=NOW, b2=NOW), observing_since=back)
    for later in (0.0, 2.5, 5.0):
        assert fenced(state, back + later) == []

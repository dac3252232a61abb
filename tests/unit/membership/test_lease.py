"""R16 and threats 7, 10, 29: who counts as silent, and who may claim to be alive."""

from dataclasses import replace

import pytest

from kafkalite_core.membership.lease import LeaseObserver, may_take, plan_renewal
from kafkalite_core.model.cluster import Broker, Registration

DURATION_S = 5.0
GAP_S = 2.5


def watch(readings, observer=None):
    """(time, signature) readings of one lease; the silence after each."""
    observer = observer or LeaseObserver(gap_s=GAP_S)
    silences = []
    for now_s, signature in readings:
        observer.read({"b": signature}, now_s=now_s)
        silences.append(now_s - max(observer.since_s(now_s=now_s), observer.changed_s("b")))
    return silences


def test_before_the_first_read_nothing_is_known():
    observer = LeaseObserver(gap_s=GAP_S)
    assert observer.since_s(now_s=7.0) is None
    assert observer.changed_s("b") is None


def test_the_first_sight_is_a_sign_of_life():
    assert watch([(7, "x")]) == [0]


def test_silence_grows_while_nothing_changes():
    assert watch([(t, "x") for t in range(8)]) == list(range(8))


def test_a_renewal_makes_it_fresh():
    readings = [(t, "x") for t in range(6)] + [(6, "y"), (7, "y"), (9, "z")]
    assert watch(readings)[-4:] == [5, 0, 1, 0]


def test_a_renewal_that_writes_an_earlier_time_is_still_a_renewal():
    readings = [(0, "2026-01-01T10:00"), (2, "2026-01-01T10:00"), (4, "2020-01-01T00:00"), (6, "2020-01-01T00:00")]
    assert watch(readings) == [0, 2, 0, 2]


def test_a_time_in_which_nobody_could_read_counts_for_nobody():
    assert watch([(0, "x"), (1, "x"), (60, "x"), (62, "x"), (64, "x")]) == [0, 1, 0, 2, 4]


def test_after_a_gap_holders_may_still_be_cut_off_for_twice_as_long_as_that_was_but_not_for_ever():
    observer = LeaseObserver(gap_s=GAP_S, grace_s=60.0)
    watch([(7, "x")], observer)
    assert observer.unheard_until_s == 7, "nothing at the start"
    watch([(9, "x"), (13, "x"), (15, "x")], observer)
    assert observer.unheard_until_s == 13 + 2 * 4
    watch([(100, "x"), (102, "x")], observer)
    assert observer.unheard_until_s == 100 + 60


def test_an_api_server_that_falters_when_it_is_back_takes_no_time_from_those_who_do_not_reach_it_yet():
    observer = LeaseObserver(gap_s=GAP_S, grace_s=60.0)
    watch([(0, "x"), (40, "x"), (44, "x"), (48, "x")], observer)
    assert observer.since_s(now_s=48) == 48
    assert observer.unheard_until_s == 40 + 60
    watch([(90, "x")], observer)
    assert observer.unheard_until_s == 90 + 60, "a later outage gives more"


def test_a_slow_read_does_not_hide_silence():
    assert watch([(0, "x"), (2.4, "x"), (4.8, "x"), (7.2, "x")])[-1] == 7.2


def test_the_observer_says_when_it_is_blind():
    observer = LeaseObserver(gap_s=GAP_S)
    watch([(1, "x"), (3, "x")], observer)
    assert observer.since_s(now_s=5.5) == 1
    assert observer.since_s(now_s=5.6) is None


def test_a_lease_that_was_gone_begins_anew():
    observer = LeaseObserver(gap_s=GAP_S)
    watch([(t, "x") for t in range(5)], observer)
    observer.read({}, now_s=5)
    assert observer.changed_s("b") is None
    assert watch([(6, "x")], observer) == [0]


def test_only_who_is_registered_may_take_the_lease_of_another():
    registration = Registration(
        broker_epoch=3, incarnation="b", directory_id="d", trusted_since=3, clean_since=3, host="h", port=1
    )
    registered = Broker(id=0, object_name="b-0", uid="u", registration=registration, fenced_epoch=-1)
    assert may_take(registered, "b")
    assert not may_take(registered, "a")
    assert not may_take(replace(registered, registration=None), "a")
    assert not may_take(None, "a")


@pytest.mark.parametrize(
    ("epoch", "loop_s", "flush_s", "renew", "word"),
    [
        (3, 0.1, 0.0, True, "registered"),
        (-1, 0.1, 0.0, False, "not registered"),
        (3, 5.1, 0.0, False, "main loop"),
        (3, 0.1, 5.1, False, "flush"),
        (3, 5.0, 5.0, True, "registered"),
    ],
)
def test_who_may_renew(epoch, loop_s, flush_s, renew, word):
    verdict = plan_renewal(
        broker_epoch=epoch, lease_duration_s=DURATION_S, main_loop_age_s=loop_s, oldest_flush_age_s=flush_s
    )
    assert verdict.renew is renew
    assert word in verdict.reason

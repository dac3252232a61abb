"""R16 and threats 7, 10, 29: who counts as silent, and who may claim to be alive."""

import pytest

from kafkalite_core.membership.lease import LeaseObserver, plan_renewal

DURATION_S = 5.0


def watch(observer, readings):
    """(time, signature) readings of one lease; the verdict after each."""
    verdicts = []
    for now_s, signature in readings:
        observer.observe("b", signature, now_s=now_s, duration_s=DURATION_S)
        verdicts.append(observer.judge("b", duration_s=DURATION_S).expired)
    return verdicts


def test_never_observed_is_not_expired():
    verdict = LeaseObserver().judge("b", duration_s=DURATION_S)
    assert not verdict.expired
    assert "never observed" in verdict.reason


def test_expires_when_silent_for_longer_than_its_duration():
    assert watch(LeaseObserver(), [(t, "x") for t in range(8)]) == [False] * 6 + [True] * 2


def test_a_renewal_makes_it_fresh():
    readings = [(t, "x") for t in range(6)] + [(6, "y"), (7, "y"), (11, "z")]
    assert not any(watch(LeaseObserver(), readings))


def test_a_renewal_that_writes_an_earlier_time_is_still_a_renewal():
    readings = [(0, "2026-01-01T10:00"), (2, "2026-01-01T10:00"), (4, "2020-01-01T00:00"), (6, "2020-01-01T00:00")]
    assert not any(watch(LeaseObserver(), readings))


def test_after_a_blind_time_every_lease_has_a_whole_duration_again():
    observer = LeaseObserver()
    assert watch(observer, [(0, "x"), (1, "x"), (60, "x"), (62, "x"), (64, "x"), (65, "x")]) == [False] * 6
    assert watch(observer, [(65.1, "x")]) == [True]


def test_a_slow_read_does_not_hide_silence():
    assert watch(LeaseObserver(), [(0, "x"), (2.4, "x"), (4.8, "x"), (7.2, "x")])[-1] is True


def test_forgotten_leases_begin_anew():
    observer = LeaseObserver()
    watch(observer, [(t, "x") for t in range(7)])
    observer.retain(["other"])
    assert not observer.judge("b", duration_s=DURATION_S).expired


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

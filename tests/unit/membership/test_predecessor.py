"""S6: when a broker with another disk stops waiting for a fence."""

from kafkalite_core.membership.predecessor import GAP_S, PREDECESSOR_LEASES, Predecessor

LEASE_S = 5.0
ENOUGH_S = int(PREDECESSOR_LEASES * LEASE_S)


def overdue_at(readings):
    """The first of the (time, epoch, signature) readings after which the holder is overdue; None for never."""
    predecessor = Predecessor()
    for now_s, epoch, signature in readings:
        predecessor.read(epoch, signature, asked_s=now_s, now_s=now_s)
        if predecessor.is_overdue(epoch, lease_duration_s=LEASE_S, now_s=now_s):
            return now_s
    return None


def test_nobody_is_overdue_before_the_first_read():
    assert not Predecessor().is_overdue(3, lease_duration_s=0.0, now_s=1e9)
    assert not Predecessor().is_overdue(-1, lease_duration_s=0.0, now_s=1e9)


def test_silence_of_three_lease_durations_from_the_first_sight():
    assert overdue_at([(t, 3, "x") for t in range(7, 60)]) == 7 + ENOUGH_S + 1


def test_a_lease_that_does_not_exist_is_silent():
    assert overdue_at([(t, 3, ("", "", "")) for t in range(60)]) == ENOUGH_S + 1


def test_a_renewal_begins_the_wait_anew():
    assert overdue_at([(t, 3, "x" if t < 10 else "y") for t in range(60)]) == 10 + ENOUGH_S + 1
    assert overdue_at([(t, 3, f"renewal {t // 12}") for t in range(60)]) is None


def test_a_gap_in_the_reads_counts_for_nobody():
    assert overdue_at([(t, 3, "x") for t in range(0, 60, 2)]) == ENOUGH_S + 1, "two seconds are none"
    seen = [t for t in range(60) if not 10 < t < 13]
    assert overdue_at([(t, 3, "x") for t in seen]) == 13 + ENOUGH_S + 1


def overdue_with(*, took_s, pause_s):
    """When a silent holder is overdue for one whose reads take so long, with such pauses between; None for never."""
    predecessor, asked_s = Predecessor(), 0.0
    while asked_s < 100.0:
        now_s = asked_s + took_s
        predecessor.read(3, "x", asked_s=asked_s, now_s=now_s)
        if predecessor.is_overdue(3, lease_duration_s=LEASE_S, now_s=now_s):
            return now_s
        asked_s = now_s + pause_s
    return None


def test_the_time_that_an_answer_took_is_no_gap_but_an_answer_may_be_as_old_as_the_question():
    """First seen at 4.5 s; still the same in the answer to what was asked at 22 s, the first after more than 15 s."""
    assert overdue_with(took_s=4.5, pause_s=1.0) == 26.5
    assert overdue_with(took_s=0.1, pause_s=GAP_S + 0.1) is None


def test_a_new_registration_begins_the_wait_anew():
    assert overdue_at([(t, 3 if t < 10 else 4, "x") for t in range(60)]) == 10 + ENOUGH_S + 1


def test_what_was_read_long_ago_says_nothing():
    predecessor = Predecessor()
    for now_s in range(60):
        predecessor.read(3, "x", asked_s=now_s, now_s=now_s)
    assert predecessor.is_overdue(3, lease_duration_s=LEASE_S, now_s=59.0)
    assert not predecessor.is_overdue(4, lease_duration_s=LEASE_S, now_s=59.0)
    assert not predecessor.is_overdue(3, lease_duration_s=LEASE_S, now_s=60.0 + GAP_S)

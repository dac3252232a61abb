"""Threat 10: no clock of another host, however wild, makes an observer call a renewing holder dead."""

from hypothesis import given
from hypothesis import strategies as st

from kafkalite_core.membership.lease import LeaseObserver

DURATION_S = 5.0
GAPS = st.floats(0.01, 30.0, allow_nan=False)


@given(
    polls=st.lists(st.tuples(GAPS, st.datetimes()), min_size=1, max_size=60),
    start=st.floats(0, 1e6, allow_nan=False),
)
def test_whatever_the_holders_wall_clock_shows_a_renewal_is_a_renewal(polls, start):
    """The holder writes wild times, but another one each time that it is looked at."""
    observer, now_s = LeaseObserver(), start
    for count, (gap_s, wall) in enumerate(polls):
        now_s += gap_s
        observer.observe("b", (count, wall.isoformat()), now_s=now_s, duration_s=DURATION_S)
        assert not observer.judge("b", duration_s=DURATION_S).expired


@given(gaps=st.lists(GAPS, min_size=1, max_size=60), start=st.floats(0, 1e6, allow_nan=False))
def test_silence_is_called_only_after_a_whole_duration_of_looking(gaps, start):
    """Against a naive model: time counts only between two looks that are close enough together."""
    observer, now_s = LeaseObserver(), start
    watched_s = 0.0
    observer.observe("b", "same", now_s=now_s, duration_s=DURATION_S)
    for gap_s in gaps:
        now_s += gap_s
        observer.observe("b", "same", now_s=now_s, duration_s=DURATION_S)
        watched_s = 0.0 if gap_s > DURATION_S / 2 else watched_s + gap_s
        verdict = observer.judge("b", duration_s=DURATION_S)
        if abs(watched_s - DURATION_S) > 1e-3 and abs(gap_s - DURATION_S / 2) > 1e-3:
            assert verdict.expired is (watched_s > DURATION_S)

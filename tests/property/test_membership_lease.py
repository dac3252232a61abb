"""Threat 10: no clock of another host, however wild, makes an observer call a renewing holder silent."""

from hypothesis import given
from hypothesis import strategies as st

from kafkalite_core.membership.lease import LeaseObserver

GAP_S = 2.5
GAPS = st.floats(0.01, 30.0, allow_nan=False)


def silence_s(observer, now_s):
    return now_s - max(observer.since_s(now_s=now_s), observer.changed_s("b"))


@given(
    polls=st.lists(st.tuples(GAPS, st.datetimes()), min_size=1, max_size=60),
    start=st.floats(0, 1e6, allow_nan=False),
)
def test_whatever_the_holders_wall_clock_shows_a_renewal_is_a_renewal(polls, start):
    """The holder writes wild times, but another one each time that it is looked at."""
    observer, now_s = LeaseObserver(gap_s=GAP_S), start
    for count, (gap_s, wall) in enumerate(polls):
        now_s += gap_s
        observer.read({"b": (count, wall.isoformat())}, now_s=now_s)
        assert silence_s(observer, now_s) == 0.0


@given(gaps=st.lists(GAPS, min_size=1, max_size=60), start=st.floats(0, 1e6, allow_nan=False))
def test_silence_is_only_what_was_looked_at(gaps, start):
    """Against a naive model: time counts only between two looks that are close enough together."""
    observer, now_s = LeaseObserver(gap_s=GAP_S), start
    watched_s = 0.0
    observer.read({"b": "same"}, now_s=now_s)
    for gap_s in gaps:
        now_s += gap_s
        observer.read({"b": "same"}, now_s=now_s)
        watched_s = 0.0 if gap_s > GAP_S else watched_s + gap_s
        if abs(gap_s - GAP_S) <= 1e-3:
            return  # rounding decides
        assert abs(silence_s(observer, now_s) - watched_s) < 1e-3

"""How much a follower asks of its leader, by the rate at which records come."""

import pytest

from kafkalite_core.replica.fetch_gathering import MEMORY, RATE_MIN_BYTES_PER_MS, REQUEST_BYTES_MAX, FetchGathering

IDLE_MS = 500
FAST = 2 * RATE_MIN_BYTES_PER_MS


def after(gathering, rate, *, rounds=20, every_ms=10, start_ms=0.0):
    """Answers that come at this rate, in bytes per millisecond; returns when the last request went out."""
    for n in range(rounds + 1):
        gathering.asked(start_ms + n * every_ms, rate * every_ms if n else 0)
    return start_ms + rounds * every_ms


def test_a_slow_leader_answers_every_fetch_at_once():
    gathering = FetchGathering(12)
    after(gathering, RATE_MIN_BYTES_PER_MS - 1)
    assert gathering.min_bytes == 1
    assert gathering.max_wait_ms(IDLE_MS) == IDLE_MS


def test_a_fast_one_gathers_what_comes_in_the_time_and_not_for_long():
    gathering = FetchGathering(12)
    after(gathering, FAST)
    assert gathering.min_bytes == pytest.approx(12 * FAST, rel=0.05)
    assert gathering.max_wait_ms(IDLE_MS) == 24
    assert gathering.max_wait_ms(10) == 10, "never longer than replica.fetch.wait.max.ms"


def test_nobody_waits_for_more_than_the_largest_request():
    gathering = FetchGathering(100)
    after(gathering, 1e6)
    assert gathering.min_bytes == REQUEST_BYTES_MAX


@pytest.mark.parametrize("rest_ms", [MEMORY * 12, 500])
def test_after_a_rest_the_next_record_does_not_wait(rest_ms):
    gathering = FetchGathering(12)
    now = after(gathering, FAST)
    gathering.asked(now + rest_ms, 100)
    assert gathering.min_bytes == 1


def test_one_large_answer_alone_is_no_load():
    gathering = FetchGathering(12)
    gathering.asked(0, 0)
    gathering.asked(10, 3 * RATE_MIN_BYTES_PER_MS * 10)
    assert gathering.min_bytes == 1


def test_zero_turns_it_off():
    gathering = FetchGathering(0)
    after(gathering, 1e6)
    assert gathering.min_bytes == 1
    assert gathering.max_wait_ms(IDLE_MS) == IDLE_MS

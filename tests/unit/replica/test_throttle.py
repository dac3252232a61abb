"""The throttle of replication: how much, and for whom (KIP-73)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite_core.model.config import check_topic_config, resolve_topic_config
from kafkalite_core.model.errors import ConfigError
from kafkalite_core.model.throttled import ThrottledReplicas, throttled_replicas
from kafkalite_core.replica.throttle import IN_SYNC_DEBT_S, UNLIMITED, WAIT_MAX_MS, Throttle, held_back

KEY = "leader.replication.throttled.replicas"


def test_a_rate_is_used_up_and_comes_back():
    throttle = Throttle(1000)
    assert not throttle.exceeded(0)
    throttle.use(0, 1000)
    assert throttle.exceeded(0)
    assert throttle.wait_ms(0) == 1.0
    assert not throttle.exceeded(1)
    throttle.use(1, 1500)
    assert throttle.exceeded(1000)
    assert throttle.wait_ms(1000) == pytest.approx(501)
    assert throttle.wait_ms(1502) == 0


def test_a_long_rest_saves_no_more_than_a_burst():
    throttle = Throttle(1000)
    throttle.use(3_600_000, 1000)
    assert throttle.exceeded(3_600_000)


def test_no_rate_and_the_rate_zero():
    unlimited = Throttle()
    unlimited.use(0, 10**18)
    assert not unlimited.exceeded(0)
    nothing = Throttle(0)
    assert nothing.exceeded(10**9)
    assert nothing.wait_ms(10**9) == WAIT_MAX_MS


def test_another_rate_counts_at_once_and_the_same_one_changes_nothing():
    throttle = Throttle(10)
    throttle.use(0, 10_000)
    assert throttle.wait_ms(0) == WAIT_MAX_MS
    throttle.change(10)
    assert throttle.exceeded(0)
    throttle.change(UNLIMITED)
    assert not throttle.exceeded(0)
    throttle.change(5000)
    assert not throttle.exceeded(0)


@given(st.integers(1, 10_000), st.lists(st.tuples(st.integers(0, 500), st.integers(1, 3000)), max_size=60))
def test_over_any_time_no_more_than_the_rate_a_burst_and_one_use(rate, uses):
    throttle, now, used, largest = Throttle(rate), 0.0, 0, 0
    for pause, size in uses:
        now += pause
        if not throttle.exceeded(now):
            throttle.use(now, size)
            used, largest = used + size, max(largest, size)
        assert 1000 * used <= rate * (1000 + now) + 1000 * largest  # whole numbers: rounding decides nothing


def test_what_replicas_in_sync_overdraw_holds_the_others_back_for_seconds():
    throttle, now = Throttle(1000), 0.0
    for _ in range(3600):
        now += 1000
        throttle.use(now, 5000, in_sync=True)
        assert throttle.exceeded(now)
    assert throttle.exceeded(now + 1000 * IN_SYNC_DEBT_S - 1)
    assert not throttle.exceeded(now + 1000 * IN_SYNC_DEBT_S + 1)


def test_what_others_overdrew_is_not_forgiven_because_of_replicas_in_sync():
    throttle = Throttle(1000)
    throttle.use(0, 61_000)
    throttle.use(0, 5000, in_sync=True)
    assert throttle.exceeded(59_999)
    assert not throttle.exceeded(60_001)


@pytest.mark.parametrize("in_sync", [True, False])
def test_a_replica_in_sync_is_never_held_back(in_sync):
    throttle = Throttle(10)
    listed = ThrottledReplicas(pairs=frozenset({(0, 1)}))
    where = {"partition": 0, "broker_id": 1, "in_sync": in_sync, "now_ms": 0.0}
    assert not held_back(throttle, listed, **where)
    throttle.use(0, 1000)
    assert held_back(throttle, listed, **where) is not in_sync
    assert not held_back(throttle, listed, **{**where, "partition": 1})
    assert not held_back(throttle, listed, **{**where, "broker_id": 2})
    assert held_back(throttle, ThrottledReplicas(every=True), **{**where, "partition": 7}) is not in_sync


def test_lists_are_kafkas():
    assert throttled_replicas(KEY, "*").names(5, 5)
    for text in ("", "none", " "):
        assert not throttled_replicas(KEY, text).names(0, 0)
    listed = throttled_replicas(KEY, "0:1, 12:3,")
    assert listed.names(0, 1)
    assert listed.names(12, 3)
    assert not listed.names(1, 0)
    for text in ("0", "0:", ":1", "0:1:2", "a:b", "*,0:1", "-1:0", "0:1;1:2", "0:9999999999"):
        with pytest.raises(ConfigError, match="pairs like"):
            throttled_replicas(KEY, text)
        assert check_topic_config({KEY: text})
    assert resolve_topic_config({KEY: "3:4"}).leader_replication_throttled_replicas.names(3, 4)
    assert not resolve_topic_config({}).follower_replication_throttled_replicas.names(0, 0)

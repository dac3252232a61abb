"""The heap of deadlines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkalite_core.groups.subscription import subscribed_topics
from kafkalite_core.groups.timers import Timer, Timers
from tests.unit.groups.driver import Driver, subscription


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from(["schedule", "cancel", "fire"]), st.integers(0, 30)), max_size=60
    )
)
def test_timers_fire_when_and_only_when_they_are_due(steps):
    timers, made, expected = Timers(), [Timer(lambda: None) for _ in range(6)], {}
    for index, action, at in steps:
        if action == "schedule":
            timers.schedule(made[index], at)
            expected[index] = at
        elif action == "cancel":
            timers.cancel(made[index])
            expected.pop(index, None)
        else:
            fired = []
            while (timer := timers.pop_due(at)) is not None:
                fired.append(made.index(timer))
            due = {each for each, deadline in expected.items() if deadline <= at}
            assert sorted(fired) == sorted(due)
            assert [expected[each] for each in fired] == sorted(expected[each] for each in fired)
            for each in due:
                del expected[each]
        assert timers.next_deadline_ms() == min(expected.values(), default=None)


def test_heartbeats_do_not_let_the_heap_grow():
    driver = Driver()
    members, generation = driver.stable(3)
    timers = driver.coordinator._context.timers
    before = len(timers)
    for _ in range(1_000):
        driver.advance(1)
        for member in members:
            assert driver.heartbeat(member, generation) == 0
    assert len(timers) <= before


@given(st.binary(max_size=40))
def test_any_bytes_may_stand_for_a_subscription(data):
    topics = subscribed_topics(data)
    assert topics is None or all(isinstance(topic, str) for topic in topics)


@given(st.lists(st.text(max_size=5), max_size=5), st.binary(max_size=8))
def test_topics_are_read_whatever_follows_them(topics, more):
    assert subscribed_topics(subscription(*topics) + more) == frozenset(topics)


def test_a_subscription_that_promises_too_much():
    assert subscribed_topics(subscription("topic")[:-6]) is None
    assert subscribed_topics(b"\x00\x00\x7f\xff\xff\xff") is None
    assert subscribed_topics(b"\xff\xff\x00\x00\x00\x00") is None

"""The heap of deadlines."""

from __future__ import annotations

import gc
import random
from collections import Counter
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite_core.groups import timers as timers_module
from kafkalite_core.groups.group import Group
from kafkalite_core.groups.member import Member
from kafkalite_core.groups.subscription import subscribed_topics
from kafkalite_core.groups.timers import DEAD_MIN, Timer, Timers
from tests.unit.groups.driver import Driver, subscription


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from(["schedule", "cancel", "discard", "fire"]), st.integers(0, 30)),
        max_size=60,
    ),
    st.sampled_from([0, 3, DEAD_MIN]),
)
def test_timers_fire_when_and_only_when_they_are_due(steps, dead_min):
    with patch.object(timers_module, "DEAD_MIN", dead_min):
        _fire_when_due(steps, dead_min)


def _fire_when_due(steps, dead_min):
    timers, made, expected = Timers(), [Timer(lambda: None) for _ in range(6)], {}
    for index, action, at in steps:
        if action == "schedule":
            timers.schedule(made[index], at)
            expected[index] = at
        elif action in {"cancel", "discard"}:
            getattr(timers, action)(made[index])
            if expected.pop(index, None) is not None:  # who was off already has nothing tidied up
                assert len(timers) <= 2 * len(expected) + dead_min
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


def test_building_the_heap_anew_is_seldom():
    """Each time costs as much as there is, so it may not come with each member that leaves."""
    dice, timers, built = random.Random(7), Timers(), Counter()
    plain = timers_module.heapify
    with patch.object(timers_module, "heapify", lambda heap: (built.update(entries=len(heap), times=1), plain(heap))):
        kept = [Timer(lambda: None) for _ in range(1_000)]
        for timer in kept:
            timers.schedule(timer, dice.randrange(10**6))
        for _ in range(10_000):
            timer = Timer(lambda: None)
            timers.schedule(timer, dice.randrange(10**6))
            timers.discard(timer)
            assert len(timers) <= 2 * len(kept) + DEAD_MIN + 1
    assert built["times"] > 5
    assert built["entries"] <= 10_000


@pytest.mark.parametrize("instance", [None, "one"])
def test_who_left_and_groups_that_are_gone_are_kept_by_no_timer(instance):
    driver = Driver()
    driver.stable(group="other")  # its timers stay in the heap
    who = {"group": f"gone {instance}", "client_id": f"gone {instance}", "session": 1_800_000}
    for number in range(20):
        if instance:
            driver.join(instance=instance, **who)
        else:
            driver.join(**who)
            driver.enter(**who)
        group = driver.coordinator._groups.get(who["group"])
        leaving = [*((each, instance) for each in group.members), *((each, None) for each in group.pending_members)]
        assert len(leaving) == (1 if instance else 2)
        del group
        driver.leave(*leaving, group=who["group"])
        driver.advance(number % 2)
        driver.delete_groups(who["group"])
    gc.collect()
    held = [each for each in gc.get_objects() if isinstance(each, Member | Group)]
    names = [getattr(each, "client_id", None) or getattr(each, "group_id", None) for each in held]
    assert "other" in names, "nothing was looked at"
    assert who["group"] not in names


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

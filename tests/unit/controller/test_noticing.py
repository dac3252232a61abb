"""Adoption waits for brokers that are heard and may hear late: how long they have been heard tells nothing (S10)."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from kafkalite_core.controller.actions import CreateTopicStatus, ReadBrokers
from kafkalite_core.controller.noticing import ADOPTION_GRACE_S
from kafkalite_core.controller.plan import plan
from kafkalite_core.controller.snapshot import LeaseView
from kafkalite_core.model.limits import NOTICED_MAX
from tests.unit.controller.builders import NOW, brokers, make_broker, snapshot, topic_view
from tests.unit.controller.test_plan import of, stray, with_strays

UID = "uid-orders"
LONG_AGO = NOW - 10 * ADOPTION_GRACE_S
ALL_BUT_FIRST = brokers(make_broker(0), *(make_broker(i, strays=(stray(i, 4, 90),)) for i in (1, 2)))


def leases_of(*noticed, noticed_at=NOW - 2.0, changed_at=NOW):
    """Of brokers 0, 1, …: what each has noticed; None: it does not say."""
    return {
        i: LeaseView(
            holder=f"inc-{i}-{10 + i}",
            changed_at=changed_at,
            noticed=None if uids is None else frozenset(uids),
            noticed_at=noticed_at,
        )
        for i, uids in enumerate(noticed)
    }


def waiting(held, leases, *, first_seen=LONG_AGO, age_s=0.5, **view):
    """(whether it is taken over, what is said instead)"""
    state = snapshot(topic_view(first_seen=first_seen, **view), brokers=held, leases=leases, brokers_age_s=age_s)
    actions = plan(state, NOW)
    return bool(of(actions, CreateTopicStatus)), str(actions)


def test_a_broker_that_is_heard_and_has_not_seen_the_new_object_is_waited_for_however_long_it_takes():
    """It leads the lost topic, perhaps alone, and acknowledges: nothing of that is to be missing."""
    adopted, said = waiting(ALL_BUT_FIRST, leases_of([], [UID], [UID]))
    assert not adopted
    assert "brokers [0] are alive, have not noticed this object yet, and may still serve the lost topic" in said
    assert "adopt-strays" in said
    assert waiting(ALL_BUT_FIRST, leases_of([UID], [UID], [UID]))[0]


def test_who_lists_some_of_it_has_not_noticed_either():
    """What it lists may be of a partition that was moved away from it before, while it leads another one."""
    adopted, said = waiting(with_strays(), leases_of([UID], ["another"], [UID]))
    assert not adopted
    assert "brokers [1] are alive, have not noticed" in said


def test_who_has_noticed_and_lists_nothing_has_nothing_and_is_not_waited_for():
    assert waiting(ALL_BUT_FIRST, leases_of([UID], [UID], [UID]), first_seen=NOW - 3.0)[0]


def test_brokers_of_an_earlier_version_have_some_time():
    early = waiting(ALL_BUT_FIRST, leases_of(None, [UID], [UID]), first_seen=NOW - ADOPTION_GRACE_S + 0.1)
    assert not early[0]
    assert "brokers [0] list none, and have up to 15 s" in early[1]
    assert waiting(ALL_BUT_FIRST, leases_of(None, [UID], [UID]), first_seen=NOW - ADOPTION_GRACE_S)[0]
    assert waiting(with_strays(), leases_of(None, None, None), first_seen=NOW - 1.0)[0], "who lists it knows"


def test_a_full_list_says_nothing_of_others():
    full = [f"uid-{number}" for number in range(NOTICED_MAX)]
    assert not waiting(ALL_BUT_FIRST, leases_of(full[1:], [UID], [UID]))[0]
    assert waiting(ALL_BUT_FIRST, leases_of(full, [UID], [UID]))[0]
    assert not waiting(ALL_BUT_FIRST, leases_of(full, [UID], [UID]), first_seen=NOW - 3.0)[0]


def test_what_another_incarnation_has_noticed_counts_for_nothing():
    leases = leases_of([UID], [UID], [UID])
    leases[0] = replace(leases[0], holder="another")
    adopted, said = waiting(ALL_BUT_FIRST, leases)
    assert not adopted
    assert "waiting for brokers [0], which may hold more" in said


def test_brokers_are_listed_after_all_of_them_have_noticed():
    """What a broker lists is in its status before it says that it has noticed: an older list may lack it."""
    leases = leases_of([UID], [UID], [UID], noticed_at=NOW - 2.0)
    state = snapshot(topic_view(first_seen=LONG_AGO), brokers=with_strays(), leases=leases, brokers_age_s=2.1)
    assert of(plan(state, NOW), CreateTopicStatus) == []
    assert ReadBrokers() in plan(state, NOW)
    assert of(plan(replace(state, brokers_age_s=1.9), NOW), CreateTopicStatus)


@pytest.mark.parametrize(
    ("view", "waits"),
    [
        pytest.param({}, False, id="a new topic"),
        pytest.param({"left_by": frozenset({0, 2})}, True, id="made again in the moment of its deletion"),
        pytest.param({"left_by": frozenset({1})}, False, id="who had it has noticed"),
        pytest.param({"adopt_strays": True}, True, id="data are asked for"),
        pytest.param({"adopt_strays": False, "left_by": frozenset({0})}, False, id="no data are wanted"),
    ],
)
def test_where_nobody_lists_anything(view, waits):
    held = brokers(*(make_broker(number) for number in range(3)))
    assert waiting(held, leases_of([], [UID], []), **view)[0] is not waits


def told(noticed):
    return SimpleNamespace(holder="a", noticed=noticed, flushed=None, duration_s=5.0)


def test_the_time_of_a_notice_is_that_of_the_read_that_showed_it_first():
    first = LeaseView(holder="", changed_at=0.0)
    nothing, something = told(frozenset()), told(frozenset({UID}))
    one = first.followed_by(nothing, changed_at=1.0, now=1.0)
    two = one.followed_by(nothing, changed_at=2.0, now=2.0)
    three = two.followed_by(something, changed_at=3.0, now=3.0)
    assert [view.noticed_at for view in (one, two, three)] == [1.0, 1.0, 3.0]

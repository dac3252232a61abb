"""The order of the log counts, whatever order the ends of appends are reported in, and whatever fails between."""

from __future__ import annotations

from itertools import permutations

import pytest

from kafkalite_core.groups import events
from kafkalite_core.protocol.errors import ErrorCode
from tests.unit.groups.driver import Driver

P0 = ("t", 0)


@pytest.mark.parametrize("order", list(permutations([1, 2, 3])))
def test_the_later_commit_wins_in_any_order_of_completion(order):
    driver = Driver(commits=False)
    tokens = [driver.commit_offsets({P0: offset}) for offset in (30, 20, 10)]
    seen = []
    for append_id in order:
        driver.commit(append_id)
        seen.append(driver.offsets().get(P0))
    assert driver.offsets() == {P0: 10}
    values = [each for each in seen if each is not None]
    assert values == sorted(values, reverse=True), "an earlier commit came up again"
    assert all(driver.commit_codes(token) == {P0: 0} for token in tokens)


def test_an_answered_commit_is_visible_at_once():
    driver = Driver(commits=False)
    first, second = driver.commit_offsets({P0: 1}), driver.commit_offsets({P0: 2})
    driver.commit(2)
    assert driver.answer(second) is None
    driver.commit(1)
    assert driver.answer(first) is not None
    assert driver.answer(second) is not None
    assert driver.offsets() == {P0: 2}


@pytest.mark.parametrize("code", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND])
def test_a_record_in_doubt_is_committed_with_the_next_one(code):
    driver = Driver(commits=False)
    driver.commit_offsets({P0: 1})
    driver.commit()
    driver.commit_offsets({P0: 2, ("t", 1): 2})
    driver.fail(code)
    assert driver.offsets() == {P0: 1}
    driver.commit_offsets({("u", 0): 3})
    driver.commit()
    assert driver.offsets() == {P0: 2, ("t", 1): 2, ("u", 0): 3}
    driver.commit_offsets({P0: 1})
    driver.commit()
    driver.commit_offsets({("u", 0): 4})
    driver.commit()
    assert driver.offsets() == {P0: 1, ("t", 1): 2, ("u", 0): 4}


def test_records_in_doubt_keep_their_order():
    driver = Driver(commits=False)
    for offset in (1, 2, 3):
        driver.commit_offsets({P0: offset})
        driver.fail(ErrorCode.REQUEST_TIMED_OUT)
    driver.commit_offsets({("u", 0): 1})
    driver.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert driver.offsets() == {}
    driver.commit_offsets({("u", 0): 2})
    driver.commit()
    assert driver.offsets() == {P0: 3, ("u", 0): 2}


def test_a_record_in_doubt_does_not_come_up_over_a_later_one():
    driver = Driver(commits=False)
    driver.commit_offsets({P0: 2})
    driver.fail(ErrorCode.REQUEST_TIMED_OUT)
    driver.commit_offsets({P0: 1})
    driver.commit()
    assert driver.offsets() == {P0: 1}


def test_a_refused_record_is_never_committed():
    driver = Driver(commits=False)
    driver.commit_offsets({P0: 2})
    driver.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    driver.commit_offsets({("u", 0): 1})
    driver.commit()
    assert driver.offsets() == {("u", 0): 1}


def test_an_append_ends_once():
    driver = Driver(commits=False)
    driver.commit_offsets({P0: 2})
    driver.commit(1)
    with pytest.raises(AssertionError):
        driver.step(events.Appended(append_id=1))
    with pytest.raises(AssertionError):
        driver.step(events.Appended(append_id=7))


# ---------------------------------------------------------------------------------------------------- resignation


def test_everyone_who_waits_is_told_that_the_coordinator_moved():
    driver = Driver(commits=False, initial_rebalance_delay_ms=0)
    commit = driver.commit_offsets({P0: 1}, group="simple")
    driver.commit()
    deletes = driver.delete_groups("simple")
    commit = driver.commit_offsets({P0: 1}, group="other")
    (member, token) = driver.enter(group="a")
    syncs = driver.sync(member, driver.answer(token).generation_id, {}, group="a")
    (leader, token) = driver.enter(group="b")
    joins = driver.enter(group="b")[1]
    assert driver.answer(joins) is None
    driver.resign()
    assert driver.answer(joins).error_code == ErrorCode.NOT_COORDINATOR
    assert driver.answer(syncs).error_code == ErrorCode.NOT_COORDINATOR
    assert driver.commit_codes(commit) == {P0: ErrorCode.NOT_COORDINATOR}
    assert [each.error_code for each in driver.answer(deletes).results] == [ErrorCode.NOT_COORDINATOR]
    assert set(driver.answers) == set(driver.requests)
    assert driver.coordinator.next_deadline_ms() is None
    assert driver.heartbeat(leader, 1, group="b") == ErrorCode.NOT_COORDINATOR


def test_after_resignation_nothing_happens_any_more():
    driver = Driver(commits=False)
    driver.commit_offsets({P0: 1})
    driver.resign()
    driver.step(events.Appended(append_id=1))
    driver.step(events.Tick(wall_ms=driver.wall + 10**9))
    driver.step(events.TopicsDeleted(topics=frozenset({"t"}), wall_ms=driver.wall))
    driver.step(events.AppendFailed(append_id=1, error_code=7))
    assert list(driver.appends) == [1]

"""Static membership (KIP-345): a member that restarts keeps its place; a second one of the same name is fenced."""

from __future__ import annotations

import pytest

from kafkalite_core.groups.rebalancing import STATIC_WAIT_MIN_MS
from kafkalite_core.groups.records import decode_group
from kafkalite_core.protocol.errors import ErrorCode
from tests.unit.groups.driver import SESSION_MS, Driver, subscription


def static_group(driver: Driver, *instances: str, **more) -> tuple[dict[str, str], int]:
    """A stable group of static members: their ids by instance, the first one leads; and the generation."""
    driver.config = driver.coordinator.config
    ids: dict[str, str] = {}
    for instance in instances:
        token = driver.join(instance=instance, **more)
        tokens = {each: driver.join(ids[each], instance=each, **more) for each in ids}
        tokens[instance] = token
        ids[instance] = driver.answer(token).member_id
        generation = driver.answer(token).generation_id
    for instance in reversed(instances):
        leads = instance == instances[0]
        driver.sync(
            ids[instance],
            generation,
            {member: name.encode() for name, member in ids.items()} if leads else None,
            instance=instance,
        )
    while driver.appends:
        driver.commit()
    assert driver.state() == "Stable"
    return ids, generation


def test_a_static_member_needs_no_second_request():
    driver = Driver()
    answer = driver.answer(driver.join(instance="one"))
    assert (answer.error_code, answer.member_id, answer.members[0].group_instance_id) == (0, "one-id1", "one")


@pytest.mark.parametrize("version", [5, 8, 9])
def test_a_member_that_comes_back_takes_its_place_without_a_rebalance(version):
    driver = Driver(commits=False)
    ids, generation = static_group(driver, "one", "two")
    token = driver.join(instance="two", version=version, host="/10.9.9.9")
    assert driver.answer(token) is None, "the new id is not committed yet"
    driver.commit()
    answer = driver.answer(token)
    assert (answer.error_code, answer.generation_id, answer.leader) == (0, generation, ids["one"])
    assert answer.member_id not in ids.values()
    assert (answer.members, answer.skip_assignment) == ([], False)
    assert driver.answer(driver.sync(answer.member_id, generation, instance="two")).assignment == b"two"
    assert driver.heartbeat(ids["one"], generation, instance="one") == 0
    stored = {each.group_instance_id: each for each in decode_group(driver.log[-1][1]).members}
    assert (stored["two"].member_id, stored["two"].client_host) == (answer.member_id, "/10.9.9.9")
    assert driver.describe().members[1].client_host == "/10.9.9.9"


def test_the_old_id_is_fenced_everywhere():
    driver = Driver()
    ids, generation = static_group(driver, "one", "two")
    driver.join(instance="two")
    old = ids["two"]
    assert driver.heartbeat(old, generation, instance="two") == ErrorCode.FENCED_INSTANCE_ID
    assert driver.answer(driver.sync(old, generation, instance="two")).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert driver.answer(driver.join(old, instance="two")).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert [each.error_code for each in driver.leave((old, "two")).members] == [ErrorCode.FENCED_INSTANCE_ID]
    token = driver.commit_offsets({("t", 0): 1}, member=old, generation=generation, instance="two")
    assert set(driver.commit_codes(token).values()) == {ErrorCode.FENCED_INSTANCE_ID}
    assert driver.heartbeat(old, generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_leader_that_comes_back_is_told_not_to_assign():
    driver = Driver()
    ids, generation = static_group(driver, "one", "two")
    answer = driver.answer(driver.join(instance="one", version=9))
    assert (answer.leader, answer.skip_assignment) == (answer.member_id, True)
    assert {each.group_instance_id for each in answer.members} == {"one", "two"}
    again = driver.answer(driver.join(instance="one", version=8))
    assert (again.leader, again.members, again.skip_assignment) == (answer.member_id, [], False)
    assert driver.answer(driver.sync(again.member_id, generation, instance="one")).assignment == b"one"
    assert ids["one"] not in {answer.member_id, again.member_id}


def test_a_member_that_comes_back_with_another_protocol_starts_a_rebalance():
    driver = Driver()
    static_group(driver, "one")
    answer = driver.answer(driver.join(instance="one", protocols=[("range", b"x"), ("sticky", b"x")]))
    assert answer.generation_id == 1
    answer = driver.answer(driver.join(instance="one", protocols=[("sticky", b"x"), ("range", b"x")]))
    assert (answer.generation_id, answer.protocol_name) == (2, "sticky")


def test_a_member_that_comes_back_before_the_assignment_starts_a_rebalance():
    driver = Driver()
    first = driver.answer(driver.join(instance="one"))
    waits = driver.sync("stranger", 1)
    assert driver.answer(waits).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    second = driver.answer(driver.join(instance="one"))
    assert (second.generation_id, second.leader) == (2, second.member_id)
    assert driver.heartbeat(first.member_id, 2, instance="one") == ErrorCode.FENCED_INSTANCE_ID


def test_two_instances_with_one_name_the_one_that_waits_is_fenced():
    driver = Driver()
    ids, generation = static_group(driver, "one", "two")
    waits = driver.join(ids["two"], instance="two", protocols=[("range", b"changed")])
    token = driver.join(instance="two")
    assert driver.answer(waits).error_code == ErrorCode.FENCED_INSTANCE_ID
    driver.join(ids["one"], instance="one")
    assert driver.answer(token).generation_id == generation + 1
    new = driver.answer(token).member_id
    syncs = driver.sync(new, generation + 1, instance="two")
    driver.join(instance="two")
    assert driver.answer(syncs).error_code == ErrorCode.FENCED_INSTANCE_ID


def test_a_new_id_that_cannot_be_stored_is_taken_back():
    driver = Driver(commits=False)
    ids, generation = static_group(driver, "one", "two")
    token = driver.join(instance="two", protocols=[("range", subscription("u"))])
    driver.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    answer = driver.answer(token)
    assert (answer.error_code, answer.member_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
    assert driver.heartbeat(ids["two"], generation, instance="two") == 0
    assert driver.state() == "Stable"
    assert driver.describe().members[1].member_metadata == subscription("t")


def test_who_waited_for_longer_than_its_session_for_a_new_id_that_cannot_be_stored_is_turned_out_when_it_stays_away():
    driver = Driver(commits=False)
    static_group(driver, "one")
    token = driver.join(instance="one")
    driver.advance(SESSION_MS + 1)
    assert driver.answer(token) is None
    driver.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert driver.answer(token).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.advance(SESSION_MS - 1)
    assert driver.state() == "Stable"
    driver.advance(1)
    driver.commit()
    assert driver.state() == "Empty"


def test_a_rebalance_answers_the_member_whose_new_id_is_not_stored_yet():
    driver = Driver(commits=False)
    ids, generation = static_group(driver, "one", "two")
    token = driver.join(instance="two")
    driver.join(ids["one"], instance="one")  # the leader wants to assign anew
    answer = driver.answer(token)
    assert answer.generation_id == generation + 1
    driver.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert driver.heartbeat(answer.member_id, generation + 1, instance="two") == 0


def test_of_two_restarts_the_second_one_is_not_taken_back_with_the_first():
    driver = Driver(commits=False)
    _, generation = static_group(driver, "one", "two")
    first, second = driver.join(instance="two"), driver.join(instance="two")
    assert driver.answer(first).error_code == ErrorCode.FENCED_INSTANCE_ID
    driver.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert driver.answer(second) is None
    driver.commit()
    assert driver.answer(second).error_code == 0
    assert driver.heartbeat(driver.answer(second).member_id, generation, instance="two") == 0


def test_a_rebalance_timeout_of_0_does_not_hang_the_coordinator():
    driver = Driver()
    ids, _ = static_group(driver, "one", "two", rebalance=0)
    driver.leave(("", "one"))
    driver.advance(5)
    assert driver.state() == "PreparingRebalance"
    before = driver.ticks
    driver.advance(SESSION_MS)
    assert driver.state() == "Empty"
    assert driver.ticks - before <= 1 + SESSION_MS // STATIC_WAIT_MIN_MS, "it looks all the time who is back"
    assert len(ids) == 2


def test_a_static_member_is_waited_for_until_its_session_ends():
    driver = Driver()
    ids, generation = static_group(driver, "one", "two", rebalance=3_000)
    driver.advance(1)
    token = driver.join(ids["one"], instance="one", rebalance=3_000)
    driver.advance(3_000)
    answer = driver.answer(token)
    assert len(answer.members) == 2, "it keeps its place"
    driver.sync(ids["one"], generation + 1, {ids["two"]: b"kept"}, instance="one")
    assert driver.answer(driver.sync(ids["two"], generation + 1, instance="two")).assignment == b"kept"
    driver.advance(SESSION_MS)
    assert driver.state() == "Empty"


def test_a_group_whose_static_members_are_all_away_waits_for_their_sessions():
    driver = Driver()
    ids, generation = static_group(driver, "one", "two", rebalance=3_000)
    token = driver.join(ids["one"], instance="one", rebalance=3_000)
    driver.leave(("", "one"))
    assert driver.answer(token).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    driver.advance(SESSION_MS - 1)
    assert driver.heartbeat(ids["two"], generation, instance="two") == ErrorCode.REBALANCE_IN_PROGRESS
    driver.advance(SESSION_MS)
    assert driver.state() == "Empty"


def test_an_administrator_removes_static_members_by_their_names():
    driver = Driver()
    ids, _ = static_group(driver, "one", "two")
    response = driver.leave(("", "two"), ("", "nobody"), ("", None), (ids["one"], "two"))
    assert [each.error_code for each in response.members] == [
        0,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert [each.group_instance_id for each in response.members] == ["two", "nobody", None, "two"]
    answer = driver.answer(driver.join(ids["two"], instance="two"))
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_dynamic_id_with_an_instance_is_unknown():
    driver = Driver()
    pending = driver.answer(driver.join()).member_id
    assert driver.answer(driver.join(pending, instance="x")).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_static_members_keep_their_names_over_a_failover():
    driver = Driver()
    ids, generation = static_group(driver, "one", "two")
    after = driver.reload()
    answer = after.answer(after.join(instance="two"))
    assert (answer.error_code, answer.generation_id, answer.leader) == (0, generation, ids["one"])
    assert after.heartbeat(ids["two"], generation, instance="two") == ErrorCode.FENCED_INSTANCE_ID


def test_a_replaced_member_that_has_not_synced_is_still_waited_for_under_its_new_id():
    driver = Driver()
    first = driver.answer(driver.join(instance="one", session=100_000)).member_id
    token = driver.join(instance="two", session=100_000)
    driver.join(first, instance="one", session=100_000)
    generation = driver.answer(token).generation_id
    driver.sync(first, generation, {}, instance="one")
    driver.join(instance="two", session=100_000)
    driver.advance(60_000)
    assert driver.heartbeat(first, generation, instance="one") == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_that_comes_back_in_its_first_rebalance_may_wait_longer_than_its_session():
    driver = Driver()
    first = driver.answer(driver.join(instance="one", session=100_000)).member_id
    killed = driver.join(instance="two")
    again = driver.join(instance="two")
    assert driver.answer(killed).error_code == ErrorCode.FENCED_INSTANCE_ID
    driver.advance(2 * SESSION_MS)
    assert driver.answer(again) is None
    driver.join(first, instance="one", session=100_000)
    assert (driver.answer(again).error_code, driver.answer(again).generation_id) == (0, 2)

"""Who may join, under which id, and which protocol a group takes."""

from __future__ import annotations

import pytest

from kafkalite_core.groups.metadata_budget import said_bytes
from kafkalite_core.protocol.errors import ErrorCode
from tests.unit.groups.driver import SESSION_MS, Driver, subscription


def test_a_dynamic_member_is_told_its_id_first_and_joins_with_it():
    driver = Driver()
    first = driver.answer(driver.join(client_id="app"))
    assert (first.error_code, first.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "app-id1")
    second = driver.answer(driver.join("app-id1", client_id="app"))
    assert (second.error_code, second.generation_id, second.leader) == (0, 1, "app-id1")
    assert (second.protocol_type, second.protocol_name) == ("consumer", "range")
    assert [(each.member_id, each.metadata) for each in second.members] == [("app-id1", subscription("t"))]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_before_version_4_a_member_joins_at_once(version):
    driver = Driver()
    answer = driver.answer(driver.join(version=version))
    assert (answer.error_code, answer.member_id, answer.leader) == (0, "c-id1", "c-id1")


@pytest.mark.parametrize("version", range(10))
def test_every_version_of_an_error_can_be_encoded(version):
    driver = Driver()
    assert driver.answer(driver.join(version=version, session=1)).error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert driver.answer(driver.join("nobody", version=version)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(("session", "valid"), [(5_999, False), (6_000, True), (1_800_000, True), (1_800_001, False)])
def test_the_session_timeout_has_bounds(session, valid):
    driver = Driver()
    answer = driver.answer(driver.join(session=session))
    assert answer.error_code == (ErrorCode.MEMBER_ID_REQUIRED if valid else ErrorCode.INVALID_SESSION_TIMEOUT)


def test_a_group_needs_a_name():
    driver = Driver()
    assert driver.answer(driver.join(group="")).error_code == ErrorCode.INVALID_GROUP_ID
    assert driver.answer(driver.join(group="x" * 8193)).error_code == ErrorCode.INVALID_GROUP_ID


def test_an_unknown_member_id_is_refused_in_a_new_group_and_in_an_old_one():
    driver = Driver()
    assert driver.answer(driver.join("stranger")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.listed() == {}
    driver.stable()
    assert driver.answer(driver.join("stranger")).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_that_is_not_used_expires_with_the_session_and_leaves_nothing():
    driver = Driver()
    member = driver.answer(driver.join()).member_id
    assert driver.listed() == {"g": "Empty"}
    driver.advance(SESSION_MS)
    assert driver.listed() == {}
    assert driver.answer(driver.join(member)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.log == []


def test_a_rebalance_waits_for_an_id_that_was_given_out():
    driver = Driver()
    (leader,), _ = driver.stable()
    pending = driver.answer(driver.join()).member_id
    again = driver.join(leader)
    assert driver.answer(again) is None
    driver.join(pending)
    assert driver.answer(again).generation_id == 2
    other = driver.answer(driver.join()).member_id
    driver.join(pending, protocols=[("range", b"new")])
    third = driver.join(leader)
    assert driver.answer(third) is None
    driver.advance(SESSION_MS)
    assert driver.answer(third).error_code == 0
    assert driver.answer(driver.join(other)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


# ---------------------------------------------------------------------------------------------------- protocols


def test_the_protocol_with_the_most_votes_among_the_common_ones_wins():
    driver = Driver(initial_rebalance_delay_ms=100)
    tokens = []
    for names in (("a", "b", "c"), ("b", "a"), ("x", "b", "a")):
        tokens.append(driver.enter(protocols=[(name, name.encode()) for name in names])[1])
    driver.advance(1_000)
    assert {driver.answer(token).protocol_name for token in tokens} == {"b"}
    leader = next(driver.answer(token) for token in tokens if driver.answer(token).members)
    assert [member.metadata for member in leader.members] == [b"b"] * 3


def test_a_member_without_a_common_protocol_is_refused():
    driver = Driver()
    driver.stable()
    assert driver.answer(driver.join(protocols=[("other", b"")])).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.answer(driver.join(protocol_type="connect")).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.answer(driver.join(protocols=[])).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("bad", [{"protocols": []}, {"protocol_type": ""}])
def test_a_new_group_needs_a_protocol(bad):
    driver = Driver()
    assert driver.answer(driver.join(**bad)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.listed() == {}


def test_an_empty_group_may_change_its_protocol_type():
    driver = Driver()
    (member,), _ = driver.stable()
    driver.leave((member, None))
    _, generation = driver.stable(protocol_type="connect", protocols=[("v1", b"")])
    assert generation == 3
    assert driver.describe().protocol_type == "connect"


# ---------------------------------------------------------------------------------------------------- rebalances


def test_the_first_rebalance_waits_for_more_members_and_longer_while_they_come():
    driver = Driver(initial_rebalance_delay_ms=3_000)
    _, first = driver.enter()
    driver.advance(2_000)
    _, second = driver.enter()
    driver.advance(1_000)  # the first 3 s are over; a member came meanwhile, so 3 s more
    assert driver.answer(first) is None
    driver.advance(2_999)
    assert driver.answer(first) is None
    driver.advance(1)
    assert driver.answer(first).generation_id == driver.answer(second).generation_id == 1


def test_the_first_rebalance_waits_no_longer_than_the_rebalance_timeout():
    driver = Driver(initial_rebalance_delay_ms=3_000)
    tokens = []
    for _ in range(9):
        tokens.append(driver.enter(rebalance=7_000)[1])
        driver.advance(1_000)
    assert all(driver.answer(token) is not None for token in tokens[:7])


def test_a_new_member_starts_a_rebalance_that_members_learn_by_heartbeat():
    driver = Driver()
    (leader,), generation = driver.stable()
    assert driver.heartbeat(leader, generation) == 0
    _, token = driver.enter()
    assert driver.heartbeat(leader, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.answer(token) is None
    again = driver.answer(driver.join(leader))
    assert (again.generation_id, len(again.members), again.leader) == (generation + 1, 2, leader)
    assert driver.answer(token).members == []


def test_members_that_do_not_rejoin_in_time_are_left_behind():
    driver = Driver()
    members, generation = driver.stable(2, rebalance=20_000, session=30_000)
    token = driver.join(members[0], rebalance=20_000, session=30_000)
    driver.advance(19_999)
    assert driver.answer(token) is None
    driver.advance(1)
    assert [each.member_id for each in driver.answer(token).members] == [members[0]]
    assert driver.heartbeat(members[1], generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_leader_that_does_not_rejoin_is_replaced():
    driver = Driver()
    (leader, other), _ = driver.stable(2, session=30_000)
    token = driver.join(other, protocols=[("range", b"changed")], session=30_000)
    driver.advance(30_000)
    assert driver.answer(token).leader == other
    assert driver.heartbeat(leader, 3) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_follower_that_rejoins_unchanged_gets_the_present_generation():
    driver = Driver()
    (_, follower), generation = driver.stable(2)
    answer = driver.answer(driver.join(follower))
    assert (answer.error_code, answer.generation_id, answer.members) == (0, generation, [])
    assert driver.state() == "Stable"


def test_a_follower_that_rejoins_changed_and_a_leader_that_rejoins_start_a_rebalance():
    for index in (0, 1):
        driver = Driver()
        members, _ = driver.stable(2)
        protocols = [("range", subscription("t", "u"))] if index else [("range", subscription("t"))]
        driver.join(members[index], protocols=protocols)
        assert driver.state() == "PreparingRebalance"


def test_a_repeated_join_in_completing_rebalance_is_answered_again():
    driver = Driver()
    member, token = driver.enter()
    first = driver.answer(token)
    assert driver.answer(driver.join(member)) == first
    changed = driver.answer(driver.join(member, protocols=[("range", b"changed")]))
    assert changed.generation_id == 2


def test_a_second_join_of_a_member_takes_the_place_of_the_first():
    driver = Driver()
    (leader, other), _ = driver.stable(2)
    lost, token = driver.join(leader), driver.join(leader)
    assert driver.answer(lost).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    driver.join(other)
    assert driver.answer(token).error_code == 0


def test_a_new_member_whose_join_waits_for_too_long_is_given_up():
    driver = Driver()
    (leader,), _ = driver.stable(rebalance=1_000_000)
    member, token = driver.enter()
    for _ in range(60):
        driver.advance(5_000)
        driver.heartbeat(leader, 1)
        assert (driver.answer(token) is None) == (driver.now < 300_000)
    assert driver.answer(token).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.answer(driver.join(member)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS


# ---------------------------------------------------------------------------------------------------- bounds


def test_group_max_size_refuses_the_members_that_are_too_many():
    driver = Driver(max_size=2)
    members, _ = driver.stable(2)
    refused = driver.answer(driver.join())
    assert (refused.error_code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert driver.answer(driver.join(members[1])).error_code == 0


def test_a_loaded_group_that_is_too_large_sheds_those_that_rejoin_last():
    driver = Driver()
    members, _ = driver.stable(3)
    small = driver.reload(max_size=2)
    assert small.state() == "PreparingRebalance"
    tokens = [small.join(each) for each in members]
    answers = [small.answer(token) for token in tokens]
    assert [each.error_code for each in answers] == [0, 0, ErrorCode.GROUP_MAX_SIZE_REACHED]


def test_groups_members_and_names_are_bounded():
    driver = Driver(groups_max=1, members_max=2)
    driver.join(group="a")
    assert driver.answer(driver.join(group="b")).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.answer(driver.join(group="a")).error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert driver.answer(driver.join(group="a")).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    driver = Driver()
    assert driver.answer(driver.join(instance="i" * 9_000)).error_code == ErrorCode.INVALID_REQUEST


def test_what_the_members_of_a_group_say_about_themselves_is_bounded():
    each = said_bytes([("range", b"")])
    driver = Driver(metadata_bytes_max=100 + 2 * each)
    members, _ = driver.stable(protocols=[("range", b"x" * 60)])
    refused = driver.answer(driver.join(protocols=[("range", b"x" * 41)]))
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.answer(driver.join(protocols=[("range", b"x" * 40)])).error_code == ErrorCode.MEMBER_ID_REQUIRED
    driver.leave((members[0], None))
    assert driver.answer(driver.join(protocols=[("range", b"x" * 100)])).error_code == ErrorCode.MEMBER_ID_REQUIRED


def test_a_member_that_says_most_of_it_may_say_it_again():
    most = [("range", b"x" * 60)]
    driver = Driver(metadata_bytes_max=said_bytes(most))
    (member,), generation = driver.stable(protocols=most)
    assert driver.answer(driver.join(member, protocols=most)).generation_id == generation + 1
    more = driver.answer(driver.join(member, protocols=[("range", b"x" * 61)]))
    assert more.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_in_version_0_the_session_timeout_is_the_rebalance_timeout():
    driver = Driver()
    first = driver.answer(driver.join(version=0, session=6_000)).member_id
    second = driver.join(version=0, session=6_000)
    waits = driver.join(first, version=0, session=6_000)
    driver.sync(first, 2, version=0)
    other = driver.answer(second).member_id
    driver.sync(other, 2, version=0)
    waits = driver.join(first, version=0, session=6_000)
    for _ in range(5):
        driver.advance(1_000)
        assert driver.heartbeat(other, 2) == ErrorCode.REBALANCE_IN_PROGRESS
    driver.advance(999)
    assert driver.answer(waits) is None
    driver.advance(1)
    assert driver.answer(waits).generation_id == 3

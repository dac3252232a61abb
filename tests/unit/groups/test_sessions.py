"""Heartbeats, sessions and LeaveGroup."""

from __future__ import annotations

import pytest

from kafkalite_core.groups.records import decode_group
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.heartbeat import HeartbeatRequest
from kafkalite_core.protocol.leave_group import LeaveGroupRequest, MemberIdentity
from tests.unit.groups.driver import SESSION_MS, Driver


def test_a_member_that_heartbeats_in_time_stays():
    driver = Driver()
    (member,), generation = driver.stable()
    for _ in range(100):
        driver.advance(SESSION_MS - 1)
        assert driver.heartbeat(member, generation) == 0
    assert driver.state() == "Stable"


def test_a_silent_member_is_turned_out_and_the_others_rebalance():
    driver = Driver()
    (leader, silent), generation = driver.stable(2)
    driver.advance(SESSION_MS - 1)
    assert driver.heartbeat(leader, generation) == 0
    driver.advance(1)
    assert driver.heartbeat(leader, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.heartbeat(silent, generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert len(driver.answer(driver.join(leader)).members) == 1


def test_the_last_member_that_dies_leaves_an_empty_group_in_the_log():
    driver = Driver()
    driver.stable()
    driver.advance(SESSION_MS)
    assert driver.state() == "Empty"
    value = decode_group(driver.log[-1][1])
    assert (value.generation, value.protocol_type, value.protocol, value.leader) == (2, "consumer", None, None)
    assert driver.reload().state() == "Empty"


def test_a_heartbeat_that_waits_in_a_queue_counts_if_no_tick_came_before_it():
    driver = Driver()
    (member,), generation = driver.stable()
    driver.now += SESSION_MS + 5
    assert driver.heartbeat(member, generation) == 0
    driver.advance(1)
    assert driver.state() == "Stable"


def test_a_member_that_waits_for_an_answer_is_not_silent():
    driver = Driver()
    (leader, other), generation = driver.stable(2)
    token = driver.join(leader)
    for _ in range(5):
        driver.advance(SESSION_MS - 1)
        assert driver.heartbeat(other, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.answer(token) is None
    driver.join(other)
    assert len(driver.answer(token).members) == 2


def test_sessions_begin_anew_with_the_answer_to_join_and_sync():
    driver = Driver()
    (leader,), _ = driver.stable()
    driver.advance(SESSION_MS - 1)
    token = driver.join(leader)
    driver.advance(SESSION_MS - 1)
    driver.sync(leader, driver.answer(token).generation_id, {})
    driver.advance(SESSION_MS - 1)
    assert driver.state() == "Stable"
    driver.advance(1)
    assert driver.state() == "Empty"


def test_a_commit_of_offsets_keeps_the_session():
    driver = Driver()
    (member,), generation = driver.stable()
    for _ in range(3):
        driver.advance(SESSION_MS - 1)
        driver.commit_offsets({("t", 0): 1}, member=member, generation=generation)
    assert driver.state() == "Stable"


def test_heartbeat_errors_in_their_order():
    driver = Driver()
    (member,), generation = driver.stable()
    assert driver.heartbeat(member, generation, group="") == ErrorCode.INVALID_GROUP_ID
    assert driver.heartbeat(member, generation, group="other") == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.heartbeat("stranger", 99) == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.heartbeat(member, generation - 1) == ErrorCode.ILLEGAL_GENERATION
    assert driver.heartbeat(member, generation + 1) == ErrorCode.ILLEGAL_GENERATION
    driver.leave((member, None))
    assert driver.heartbeat(member, generation) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_heartbeat(version):
    driver = Driver()
    (member,), generation = driver.stable()
    request = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member)
    assert driver.ask(request, version).error_code == 0


# ---------------------------------------------------------------------------------------------------- LeaveGroup


def codes(response) -> list[int]:
    return [each.error_code for each in response.members]


def test_a_member_that_leaves_is_gone_at_once():
    driver = Driver()
    (leader, other), generation = driver.stable(2)
    assert codes(driver.leave((other, None))) == [0]
    assert driver.heartbeat(leader, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.answer(driver.join(leader)).generation_id == generation + 1


def test_several_leave_at_once_and_each_has_its_answer():
    driver = Driver()
    members, _ = driver.stable(3)
    response = driver.leave((members[0], None), ("stranger", None), (members[1], None), (members[2], None))
    assert response.error_code == 0
    assert codes(response) == [0, ErrorCode.UNKNOWN_MEMBER_ID, 0, 0]
    assert driver.state() == "Empty"


@pytest.mark.parametrize("version", [0, 1, 2])
def test_before_version_3_one_member_leaves(version):
    driver = Driver()
    (member,), _ = driver.stable()
    request = LeaveGroupRequest(group_id="g", member_id=member)
    assert driver.ask(request, version).error_code == 0
    assert driver.ask(request, version).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_leaving_an_unknown_group():
    driver = Driver()
    assert codes(driver.leave(("m", None), ("", "i"), group="other")) == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    assert driver.leave(("m", None), group="").error_code == ErrorCode.INVALID_GROUP_ID


def test_an_id_that_was_not_used_can_be_given_back():
    driver = Driver()
    pending = driver.answer(driver.join()).member_id
    assert codes(driver.leave((pending, None))) == [0]
    assert driver.listed() == {}


def test_an_unused_id_that_is_given_back_disturbs_nobody_and_ends_a_wait():
    driver = Driver()
    (leader,), generation = driver.stable()
    pending = driver.answer(driver.join()).member_id
    driver.leave((pending, None))
    assert driver.heartbeat(leader, generation) == 0
    pending = driver.answer(driver.join()).member_id
    token = driver.join(leader)
    assert driver.answer(token) is None
    driver.leave((pending, None))
    assert driver.answer(token).error_code == 0


def test_a_member_that_is_turned_out_while_it_waits_is_answered():
    driver = Driver()
    (leader, other), generation = driver.stable(2)
    token = driver.join(other, protocols=[("range", b"changed")])
    driver.leave((other, None))
    assert driver.answer(token).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    token = driver.join(leader)
    assert driver.answer(token).generation_id == generation + 1
    again = driver.enter()[1]
    driver.join(leader)
    follower = driver.answer(again).member_id
    waits = driver.sync(follower, generation + 2)
    driver.leave((follower, None))
    assert driver.answer(waits).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_number_of_leaving_members_is_bounded():
    driver = Driver()
    request = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m")] * 10_001)
    assert driver.ask(request, 5).error_code == ErrorCode.INVALID_REQUEST

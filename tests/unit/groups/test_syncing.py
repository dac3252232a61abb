"""SyncGroup: the assignment is the leader's, and nobody has it before it is committed."""

from __future__ import annotations

import pytest

from kafkalite_core.groups.records import decode_group
from kafkalite_core.protocol.errors import ErrorCode
from tests.unit.groups.driver import REBALANCE_MS, SESSION_MS, Driver


def joined(count: int = 2, *, commits: bool = True, **more) -> tuple[Driver, list[str]]:
    """A driver, and members in CompletingRebalance, the leader first."""
    driver = Driver(initial_rebalance_delay_ms=10, commits=commits)
    entered = [driver.enter(**more) for _ in range(count)]
    driver.advance(20)
    leader = driver.answer(entered[0][1]).leader
    assert driver.state() == "CompletingRebalance"
    return driver, sorted((member for member, _ in entered), key=lambda each: each != leader)


def test_followers_wait_for_the_leader_and_all_wait_for_the_log():
    driver, (leader, follower) = joined(commits=False)
    waits = driver.sync(follower, 1)
    assert driver.answer(waits) is None
    leads = driver.sync(leader, 1, {leader: b"L", follower: b"F"})
    assert driver.answer(waits) is driver.answer(leads) is None
    assert driver.state() == "CompletingRebalance"
    driver.commit()
    assert (driver.answer(waits).assignment, driver.answer(leads).assignment) == (b"F", b"L")
    assert (driver.answer(waits).protocol_type, driver.answer(waits).protocol_name) == ("consumer", "range")
    assert driver.state() == "Stable"
    assert driver.coordinator.statistics.rebalances_completed == 1


@pytest.mark.parametrize("version", range(6))
def test_every_version(version):
    driver, (leader,) = joined(1)
    assert driver.answer(driver.sync(leader, 1, {leader: b"x"}, version=version)).assignment == b"x"
    assert driver.answer(driver.sync(leader, 9, version=version)).error_code == ErrorCode.ILLEGAL_GENERATION


def test_the_record_has_the_members_with_subscriptions_and_assignments():
    driver, (leader, follower) = joined()
    driver.sync(follower, 1)
    driver.sync(leader, 1, {leader: b"L", "stranger": b"X"})
    value = decode_group(driver.log[-1][1])
    assert (value.protocol_type, value.protocol, value.generation, value.leader) == ("consumer", "range", 1, leader)
    assert {each.member_id: each.assignment for each in value.members} == {leader: b"L", follower: b""}
    assert {each.client_host for each in value.members} == {"/10.0.0.1"}
    assert {(each.session_timeout_ms, each.rebalance_timeout_ms) for each in value.members} == {
        (SESSION_MS, REBALANCE_MS)
    }


def test_in_a_stable_group_the_assignment_can_be_asked_for_again():
    driver = Driver()
    (member,), generation = driver.stable()
    assert driver.answer(driver.sync(member, generation)).assignment == member.encode()


def test_errors_in_their_order():
    driver, (leader, follower) = joined()

    def code(*arguments, **more) -> int:
        return driver.answer(driver.sync(*arguments, **more)).error_code

    assert code(leader, 1, group="other") == ErrorCode.UNKNOWN_MEMBER_ID
    assert code(leader, 1, group="") == ErrorCode.INVALID_GROUP_ID
    assert code("stranger", 7) == ErrorCode.UNKNOWN_MEMBER_ID
    assert code(leader, 1, instance="nobody") == ErrorCode.UNKNOWN_MEMBER_ID
    assert code(leader, 7, protocol="other") == ErrorCode.ILLEGAL_GENERATION
    assert code(leader, 1, protocol="other") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert code(leader, 1, protocol_type="other") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    driver.join(follower, protocols=[("range", b"changed")])
    assert code(leader, 1, protocol="range", protocol_type="consumer") == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_that_comes_while_others_wait_makes_them_join_again():
    driver, (leader, follower) = joined(commits=False)
    waits = driver.sync(follower, 1)
    driver.enter()
    assert driver.answer(waits).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.answer(driver.sync(leader, 1, {})).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_an_assignment_that_is_committed_too_late_is_void():
    driver, (leader, follower) = joined(commits=False)
    waits = [driver.sync(follower, 1), driver.sync(leader, 1, {leader: b"old"})]
    _, third = driver.enter()
    assert {driver.answer(each).error_code for each in waits} == {ErrorCode.REBALANCE_IN_PROGRESS}
    tokens = [driver.join(leader), driver.join(follower), third]
    assert {driver.answer(token).generation_id for token in tokens} == {2}
    driver.commit()  # of generation 1
    assert driver.state() == "CompletingRebalance"
    token = driver.sync(leader, 2, {leader: b"new"})
    driver.commit()
    assert driver.answer(token).assignment == b"new"


def test_the_leaders_second_sync_does_not_write_a_second_assignment():
    driver, (leader,) = joined(1, commits=False)
    lost = driver.sync(leader, 1, {leader: b"one"})
    token = driver.sync(leader, 1, {leader: b"two"})
    assert len(driver.appends) == 1
    assert driver.answer(lost).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    driver.commit()
    assert driver.answer(token).assignment == b"one"


def test_an_assignment_that_is_committed_amid_the_next_rebalance_is_void():
    driver, (leader, follower) = joined(commits=False)
    driver.sync(leader, 1, {leader: b"old"})
    driver.enter()
    driver.commit()
    assert driver.state() == "PreparingRebalance"
    assert driver.heartbeat(follower, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.coordinator.statistics.rebalances_completed == 0


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_RECORD, ErrorCode.INVALID_RECORD),
    ],
)
def test_an_assignment_that_cannot_be_stored_is_taken_back_and_all_rejoin(failure, told):
    driver, (leader, follower) = joined(commits=False)
    tokens = [driver.sync(follower, 1), driver.sync(leader, 1, {leader: b"L", follower: b"F"})]
    driver.fail(failure)
    assert [driver.answer(token).error_code for token in tokens] == [told, told]
    assert driver.answer(tokens[0]).assignment == b""
    assert driver.state() == "PreparingRebalance"
    assert driver.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    tokens = [driver.join(leader), driver.join(follower)]
    assert [driver.answer(token).generation_id for token in tokens] == [2, 2]


def test_members_that_never_sync_are_turned_out_after_the_rebalance_timeout():
    driver, (leader, lazy) = joined(session=200_000)
    token = driver.sync(leader, 1, {leader: b"L"})
    assert driver.answer(token).error_code == 0
    driver.advance(REBALANCE_MS - 1)
    assert driver.heartbeat(leader, 1) == 0
    driver.advance(1)
    assert driver.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.heartbeat(lazy, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_followers_do_not_wait_for_ever_for_a_leader_that_heartbeats_but_never_syncs():
    driver, (leader, follower) = joined()
    token = driver.sync(follower, 1)
    for _ in range(REBALANCE_MS // 5_000):
        assert driver.answer(token) is None
        assert driver.heartbeat(leader, 1) == 0
        driver.advance(5_000)
    assert driver.answer(token).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.answer(driver.join(follower)).leader == follower


def test_once_all_have_synced_nobody_is_turned_out():
    driver, (leader, follower) = joined(session=200_000)
    driver.sync(follower, 1)
    driver.sync(leader, 1, {})
    driver.advance(REBALANCE_MS + 1)
    assert driver.heartbeat(follower, 1) == 0

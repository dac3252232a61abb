"""OffsetCommit, OffsetFetch and OffsetDelete."""

from __future__ import annotations

import pytest

from kafkalite_core.groups.records import OffsetKey, decode_key, decode_offset
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kafkalite_core.protocol.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic
from tests.unit.groups.driver import Driver, subscription

P0, P1 = ("t", 0), ("t", 1)


def one(driver: Driver, token: int) -> int:
    """The one error code of a commit."""
    (code,) = set(driver.commit_codes(token).values())
    return code


# ---------------------------------------------------------------------------------------------------- OffsetCommit


def test_a_commit_is_answered_and_seen_when_it_is_in_the_log():
    driver = Driver(commits=False)
    token = driver.commit_offsets({P0: 5, ("u", 2): 7})
    assert driver.answer(token) is None
    assert driver.offsets() == {}
    driver.commit()
    assert driver.commit_codes(token) == {P0: 0, ("u", 2): 0}
    assert driver.offsets() == {P0: 5, ("u", 2): 7}
    assert driver.coordinator.statistics.offset_commits == 2
    assert driver.coordinator.offset_count() == 2


@pytest.mark.parametrize("version", range(2, 10))
def test_every_version_of_commit(version):
    driver = Driver()
    assert one(driver, driver.commit_offsets({P0: 5}, version=version)) == 0


def test_the_record_of_an_offset():
    driver = Driver()
    driver.commit_offsets({P0: 5}, metadata=None)
    (key, value) = driver.log[0]
    assert decode_key(key) == OffsetKey("g", "t", 0)
    read = decode_offset(value)
    assert (read.offset, read.leader_epoch, read.metadata, read.commit_timestamp_ms) == (5, -1, "", driver.wall)
    assert read.expire_timestamp_ms == -1


def test_simple_consumers_share_a_group_that_has_no_members():
    driver = Driver()
    assert one(driver, driver.commit_offsets({P0: 5}, group="")) == 0
    assert driver.offsets("") == {P0: 5}
    assert one(driver, driver.commit_offsets({P0: 5})) == 0
    group = driver.describe()
    assert (group.group_state, group.protocol_type) == ("Empty", "")
    driver.stable()
    assert one(driver, driver.commit_offsets({P0: 6})) == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.offsets() == {P0: 5}


def test_a_member_that_never_came_leaves_a_simple_group_as_it_was():
    driver = Driver()
    driver.commit_offsets({P0: 5})
    pending = driver.answer(driver.join()).member_id
    driver.leave((pending, None))
    assert driver.listed() == {"g": "Empty"}
    driver.join()
    driver.advance(20_000)
    assert driver.listed() == {"g": "Empty"}


def test_a_tool_resets_the_offsets_of_a_group_whose_members_left():
    driver = Driver()
    (member,), generation = driver.stable()
    driver.commit_offsets({P0: 9}, member=member, generation=generation)
    driver.leave((member, None))
    assert one(driver, driver.commit_offsets({P0: 0})) == 0
    assert driver.offsets() == {P0: 0}


def test_commit_errors_in_their_order():
    driver = Driver()
    commit = driver.commit_offsets
    assert one(driver, commit({P0: 1}, member="m", generation=1)) == ErrorCode.GROUP_ID_NOT_FOUND
    assert one(driver, commit({P0: 1}, member="m", generation=1, version=8)) == ErrorCode.ILLEGAL_GENERATION
    (member,), generation = driver.stable()
    assert one(driver, commit({P0: 1}, member="x", generation=99)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert one(driver, commit({P0: 1}, member="x")) == ErrorCode.UNKNOWN_MEMBER_ID
    assert one(driver, commit({P0: 1}, instance="x")) == ErrorCode.UNKNOWN_MEMBER_ID
    assert one(driver, commit({P0: 1}, member=member, generation=generation + 1)) == ErrorCode.ILLEGAL_GENERATION
    assert one(driver, commit({P0: 1}, member=member)) == ErrorCode.ILLEGAL_GENERATION
    driver.enter()
    assert driver.state() == "PreparingRebalance"
    assert one(driver, commit({P0: 1}, member=member, generation=generation)) == 0
    again = driver.answer(driver.join(member)).generation_id
    assert driver.state() == "CompletingRebalance"
    assert one(driver, commit({P0: 1}, member=member, generation=again)) == ErrorCode.REBALANCE_IN_PROGRESS
    assert one(driver, commit({P0: 1}, member=member, generation=generation)) == ErrorCode.ILLEGAL_GENERATION


def test_metadata_is_bounded_partition_by_partition():
    driver = Driver(offset_metadata_max_bytes=3)
    assert one(driver, driver.commit_offsets({P0: 1}, metadata="abc")) == 0
    assert one(driver, driver.commit_offsets({P1: 1}, metadata="äö")) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert driver.fetch(("t", [0])).groups[0].topics[0].partitions[0].metadata == "abc"
    assert driver.offsets() == {P0: 1}


def test_the_number_of_offsets_of_a_group_is_bounded():
    driver = Driver(offsets_max=2)
    codes = driver.commit_codes(driver.commit_offsets({("t", index): 1 for index in range(3)}))
    assert list(codes.values()) == [0, 0, ErrorCode.INVALID_COMMIT_OFFSET_SIZE]
    assert one(driver, driver.commit_offsets({P0: 2})) == 0
    assert one(driver, driver.commit_offsets({("x" * 250, 0): 2})) == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_groups_and_appends_under_way_are_bounded():
    driver = Driver(groups_max=1, appends_max=1, commits=False)
    driver.commit_offsets({P0: 1}, group="a")
    assert one(driver, driver.commit_offsets({P0: 1}, group="a")) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.commit()
    assert one(driver, driver.commit_offsets({P0: 1}, group="b")) == ErrorCode.POLICY_VIOLATION


def test_a_commit_of_nothing_is_answered_at_once():
    driver = Driver(commits=False)
    assert driver.answer(driver.commit_offsets({})).topics == []


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_a_commit_that_fails_leaves_no_trace(failure, told):
    driver = Driver(commits=False, offset_metadata_max_bytes=1)
    token = driver.commit_offsets({P0: 1})
    driver.fail(failure)
    assert one(driver, token) == told
    assert (driver.offsets(), driver.listed()) == ({}, {})
    assert driver.coordinator.statistics.offset_commits == 0


# ---------------------------------------------------------------------------------------------------- OffsetFetch


@pytest.mark.parametrize("version", range(1, 8))
def test_a_fetch_for_one_group(version):
    driver = Driver()
    driver.commit_offsets({P0: 5, ("u", 1): 6}, metadata="m")
    request = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0, 9])])
    response = driver.ask(request, version)
    assert response.error_code == 0
    found = [(each.partition_index, each.committed_offset, each.metadata) for each in response.topics[0].partitions]
    assert found == [(0, 5, "m"), (9, -1, "")]
    if version >= 2:
        everything = driver.ask(OffsetFetchRequest(group_id="g", topics=None), version)
        assert {topic.name for topic in everything.topics} == {"t", "u"}


@pytest.mark.parametrize("version", [8, 9])
def test_a_fetch_for_several_groups(version):
    driver = Driver()
    driver.commit_offsets({P0: 5}, group="a")
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("a", "nobody")], require_stable=True
    )
    first, second = driver.ask(request, version).groups
    assert (first.group_id, first.topics[0].partitions[0].committed_offset) == ("a", 5)
    assert (second.group_id, second.topics, second.error_code) == ("nobody", [], 0)


def test_a_group_that_is_named_again_is_not_answered_again():
    driver = Driver()
    driver.commit_offsets({P0: 5})
    groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("x", "g", "g", "x", "g")]
    response = driver.ask(OffsetFetchRequest(groups=groups), 9)
    assert [each.group_id for each in response.groups] == ["x", "g"]


def test_a_fetch_shows_what_is_committed_whoever_asks():
    driver = Driver(commits=False)
    driver.commit_offsets({P0: 5})
    driver.commit()
    driver.commit_offsets({P0: 6})
    (partition,) = driver.fetch(("t", [0])).groups[0].topics[0].partitions
    assert (partition.committed_offset, partition.committed_leader_epoch, partition.error_code) == (5, -1, 0)


# ---------------------------------------------------------------------------------------------------- OffsetDelete


def delete(driver: Driver, *places: tuple[str, int], group: str = "g") -> int:
    topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
    for topic, index in places:
        topics.setdefault(topic, []).append(OffsetDeleteRequestPartition(partition_index=index))
    request = OffsetDeleteRequest(
        group_id=group,
        topics=[OffsetDeleteRequestTopic(name=name, partitions=parts) for name, parts in topics.items()],
    )
    return driver.send(request, 0)


def deleted(driver: Driver, token: int) -> list[int]:
    return [each.error_code for topic in driver.answer(token).topics for each in topic.partitions]


def test_offsets_of_an_empty_group_are_deleted_when_the_tombstone_is_committed():
    driver = Driver(commits=False)
    driver.commit_offsets({P0: 5, P1: 6})
    driver.commit()
    token = delete(driver, P0, ("t", 7))
    assert driver.answer(token) is None
    assert driver.offsets() == {P0: 5, P1: 6}
    driver.commit()
    assert deleted(driver, token) == [0, 0]
    assert driver.offsets() == {P1: 6}
    assert driver.reload().offsets() == {P1: 6}


def test_topics_to_which_the_group_subscribes_keep_their_offsets():
    driver = Driver()
    (member,), generation = driver.stable()
    driver.commit_offsets({P0: 5, ("u", 0): 6}, member=member, generation=generation)
    token = delete(driver, P0, ("u", 0))
    assert deleted(driver, token) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, 0]
    assert driver.offsets() == {P0: 5}


def test_a_consumer_group_whose_subscriptions_cannot_be_read_keeps_all():
    driver = Driver()
    (member,), generation = driver.stable(protocols=[("range", b"?")])
    driver.commit_offsets({P0: 5}, member=member, generation=generation)
    assert deleted(driver, delete(driver, P0)) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


def test_offset_delete_errors():
    driver = Driver()
    assert driver.answer(delete(driver, P0)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    driver.stable(protocol_type="connect", protocols=[("v", b"")])
    assert driver.answer(delete(driver, P0)).error_code == ErrorCode.NON_EMPTY_GROUP
    driver = Driver(commits=False)
    driver.commit_offsets({P0: 5})
    driver.commit()
    token = delete(driver, P0)
    driver.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert driver.answer(token).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.offsets() == {P0: 5}


def test_a_commit_under_way_is_deleted_too():
    driver = Driver(commits=False)
    driver.commit_offsets({P1: 1})
    driver.commit()
    driver.commit_offsets({P0: 5})
    token = delete(driver, P0)
    driver.commit()
    driver.commit()
    assert deleted(driver, token) == [0]
    assert driver.offsets() == {P1: 1}


def test_subscriptions_of_all_members_count():
    driver = Driver(initial_rebalance_delay_ms=10)
    tokens = [driver.enter(protocols=[("range", subscription(topic))]) for topic in ("t", "u")]
    driver.advance(20)
    driver.commit_offsets({P0: 1})
    leader = next(member for member, token in tokens if driver.answer(token).members)
    driver.sync(leader, 1, {})
    driver.commit_offsets({P0: 1, ("u", 0): 1, ("v", 0): 1}, member=leader, generation=1)
    codes = deleted(driver, delete(driver, P0, ("u", 0), ("v", 0)))
    assert codes == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC] * 2 + [0]

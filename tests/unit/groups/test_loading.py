"""What a new coordinator knows, and what it answers before it knows it."""

from __future__ import annotations

import pytest

from kafkalite_core.groups import coordinator, events
from kafkalite_core.groups.records import (
    GroupKey,
    GroupValue,
    MemberValue,
    OffsetKey,
    OffsetValue,
    encode_group,
    encode_key,
    encode_offset,
)
from kafkalite_core.protocol.delete_groups import DeleteGroupsRequest
from kafkalite_core.protocol.describe_groups import DescribeGroupsRequest
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.list_groups import ListGroupsRequest
from kafkalite_core.protocol.offset_delete import OffsetDeleteRequest
from kafkalite_core.protocol.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic
from tests.unit.groups.driver import SESSION_MS, WALL_MS, Driver

P0 = ("t", 0)
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_requests_are_put_off_while_the_log_is_read():
    driver = Driver(loaded=False)
    assert driver.answer(driver.join()).error_code == LOADING
    assert driver.commit_codes(driver.commit_offsets({P0: 1})) == {P0: LOADING}
    assert driver.fetch(("t", [0])).groups[0].error_code == LOADING
    assert driver.describe().error_code == LOADING
    assert driver.ask(ListGroupsRequest(), 5).error_code == LOADING
    assert driver.leave(("m", None)).error_code == LOADING
    assert [each.error_code for each in driver.ask(DeleteGroupsRequest(groups_names=["g"]), 2).results] == [LOADING]
    assert driver.ask(OffsetDeleteRequest(group_id="g"), 0).error_code == LOADING
    assert driver.coordinator.next_deadline_ms() is None


def test_members_are_not_disturbed_by_an_error_that_they_do_not_know():
    driver = Driver(loaded=False)
    assert driver.heartbeat("m", 1) == 0
    assert driver.answer(driver.sync("m", 1)).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.heartbeat("m", 1, group="") == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("version", range(1, 10))
def test_the_error_of_a_fetch_stands_where_the_version_has_it(version):
    driver = Driver(loaded=False)
    if version >= 8:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
        code = driver.ask(request, version).groups[0].error_code
    else:
        request = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[3])])
        response = driver.ask(request, version)
        code = response.error_code if version >= 2 else response.topics[0].partitions[0].error_code
        assert version >= 2 or response.topics[0].partitions[0].committed_offset == -1
    assert code == LOADING


def test_a_stable_group_goes_on_after_a_failover_with_new_sessions():
    driver = Driver()
    (leader, follower), generation = driver.stable(2)
    driver.commit_offsets({P0: 5}, member=leader, generation=generation)
    driver.advance(SESSION_MS - 1)
    after = driver.reload()
    assert (after.state(), after.offsets()) == ("Stable", {P0: 5})
    after.advance(SESSION_MS - 1)
    assert after.heartbeat(leader, generation) == 0
    assert after.answer(after.sync(follower, generation)).assignment == follower.encode()
    assert after.answer(after.join(follower)).leader == leader
    after.advance(SESSION_MS)
    assert after.state() == "Empty"


def test_a_group_amid_a_rebalance_falls_back_to_the_last_generation_that_was_stored():
    driver = Driver()
    (leader,), generation = driver.stable()
    _, token = driver.enter()
    assert driver.answer(driver.join(leader)).generation_id == generation + 1
    after = driver.reload()
    assert after.state() == "Stable"
    assert after.heartbeat(leader, generation + 1) == ErrorCode.ILLEGAL_GENERATION
    newcomer = driver.answer(token).member_id
    assert after.heartbeat(newcomer, generation + 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert after.answer(after.join(leader)).generation_id == generation + 1


def test_the_description_is_the_same_after_a_failover():
    driver = Driver()
    driver.stable(3)
    assert driver.reload().describe() == driver.describe()


def test_tombstones_and_later_records_count():
    offset = encode_offset(OffsetValue(offset=1, leader_epoch=2, metadata="m", commit_timestamp_ms=3))
    empty = encode_group(GroupValue("consumer", 4, None, None, 5, ()))
    records = [
        (encode_key(GroupKey("gone")), empty),
        (encode_key(OffsetKey("gone", "t", 0)), offset),
        (encode_key(OffsetKey("simple", "t", 0)), offset),
        (encode_key(OffsetKey("simple", "t", 1)), offset),
        (encode_key(OffsetKey("simple", "t", 1)), None),
        (encode_key(GroupKey("left")), empty),
        (encode_key(OffsetKey("left", "t", 0)), offset),
        (encode_key(OffsetKey("gone", "t", 0)), None),
        (encode_key(GroupKey("gone")), None),
        (encode_key(GroupKey("left")), None),
    ]
    driver = Driver(records=records)
    assert driver.listed() == {"simple": "Empty", "left": "Empty"}
    assert driver.describe("left").protocol_type == ""
    assert driver.offsets("simple") == {P0: 1}
    (partition,) = driver.fetch(("t", [0]), group="simple").groups[0].topics[0].partitions
    assert (partition.committed_leader_epoch, partition.metadata) == (2, "m")


def test_records_that_cannot_be_read_are_skipped_and_counted():
    good = encode_offset(OffsetValue(offset=1, leader_epoch=2, metadata="m", commit_timestamp_ms=3))
    records = [
        (b"", b""),
        (b"\x00\x63", b"future"),
        (encode_key(OffsetKey("g", "t", 0)), b"garbage"),
        (encode_key(GroupKey("g")), b""),
        (encode_key(OffsetKey("g", "t", 1)), good),
    ]
    driver = Driver(records=records)
    assert driver.offsets() == {("t", 1): 1}
    assert driver.coordinator.statistics.records_skipped == 3


def test_an_old_record_of_a_group():
    member = MemberValue("m", None, "c", "/h", -1, 7_000, b"S", b"A")
    value = GroupValue("consumer", 4, "range", "not there", -1, (member,))
    driver = Driver(records=[(encode_key(GroupKey("g")), encode_group(value))])
    assert driver.describe().members[0].member_assignment == b"A"
    answer = driver.answer(driver.join("m", protocols=[("range", b"S")]))
    assert (answer.leader, answer.generation_id) == ("m", 5)
    silent = Driver(records=driver.log)
    silent.advance(7_000)
    assert silent.describe().members == []


def test_records_come_in_any_pieces_and_only_before_the_end():
    driver = Driver()
    driver.commit_offsets({P0: 1})
    driver.commit_offsets({P0: 2})
    pieces = Driver(loaded=False)
    for record in driver.log:
        pieces.step(events.RecordsLoaded(records=[record]))
    pieces.load()
    assert pieces.offsets() == {P0: 2}
    with pytest.raises(AssertionError):
        pieces.step(events.RecordsLoaded(records=[]))
    with pytest.raises(AssertionError):
        pieces.load()


def many_groups(count):
    """Records of groups with one member each, and of as many simple ones."""
    records = []
    for number in range(count):
        member = MemberValue(f"m{number}", None, "c", "/h", SESSION_MS, SESSION_MS, b"S", b"A")
        value = GroupValue("consumer", number, "range", member.member_id, 3, (member,))
        records.append((encode_key(GroupKey(f"g{number}")), encode_group(value)))
        offset = encode_offset(OffsetValue(offset=number, leader_epoch=2, metadata="", commit_timestamp_ms=WALL_MS))
        records += [(encode_key(OffsetKey(f"{kind}{number}", "t", 0)), offset) for kind in "gs"]
    return records


def test_groups_are_made_in_any_slices():
    records = many_groups(10)
    at_once, sliced = Driver(records=records), Driver(records=records, loaded=False)
    assert sliced.coordinator.unrestored
    steps = 0
    while sliced.coordinator.unrestored:
        sliced.step(events.Restoring(groups=3))
        steps += 1
        assert sum(sliced.coordinator.counts().values()) == min(3 * steps, 20)
        assert sliced.heartbeat("m0", 0, group="g0") == 0
        assert sliced.fetch(("t", [0]), group="g0").groups[0].error_code == LOADING
    with pytest.raises(AssertionError):
        sliced.step(events.RecordsLoaded(records=[]))
    sliced.load()
    assert not sliced.coordinator.unrestored
    for number in range(10):
        assert sliced.describe(f"g{number}") == at_once.describe(f"g{number}")
        assert sliced.offsets(f"s{number}") == at_once.offsets(f"s{number}") == {P0: number}
    assert sliced.listed() == at_once.listed()
    assert list(sliced.listed()) == list(at_once.listed())
    assert len(sliced.listed()) == 20


def test_sessions_of_many_groups_begin_in_several_steps(monkeypatch):
    monkeypatch.setattr(coordinator, "WATCHED_AT_ONCE", 3)
    driver = Driver(records=many_groups(10))
    assert driver.heartbeat("m9", 9, group="g9") == 0, "served before its session has begun"
    driver.advance(SESSION_MS - 1)
    assert driver.listed("Stable").keys() == {f"g{number}" for number in range(10)}
    assert driver.heartbeat("m8", 8, group="g8") == 0
    driver.advance(8)
    assert driver.listed("Stable").keys() == {"g8"}, "sessions began at once, and a later step did not put them off"
    driver.advance(SESSION_MS)
    assert driver.listed("Stable") == {}


@pytest.mark.parametrize("version", range(7))
def test_describe_of_an_unknown_group(version):
    response = Driver().ask(DescribeGroupsRequest(groups=["g"]), version).groups[0]
    assert response.group_state == "Dead"
    assert response.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)

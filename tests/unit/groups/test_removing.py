"""DeleteGroups, expiry, and topics that are gone."""

from __future__ import annotations

import pytest

from kafkalite_core.groups import events, removing
from kafkalite_core.groups.records import GroupKey, encode_key
from kafkalite_core.protocol.errors import ErrorCode
from tests.unit.groups.driver import Driver, subscription

P0, P1 = ("t", 0), ("t", 1)
DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS


def results(driver: Driver, token: int) -> dict[str, int]:
    return {each.group_id: each.error_code for each in driver.answer(token).results}


# ---------------------------------------------------------------------------------------------------- DeleteGroups


def test_an_empty_group_is_deleted_with_its_offsets_when_the_tombstones_are_committed():
    driver = Driver()
    (member,), generation = driver.stable()
    driver.commit_offsets({P0: 5}, member=member, generation=generation)
    driver.leave((member, None))
    driver.commits = False
    token = driver.delete_groups("g", "g", "nobody")
    assert driver.answer(token) is None
    assert driver.listed() == {"g": "Dead"}
    driver.commit()
    assert results(driver, token) == {"g": 0, "nobody": ErrorCode.GROUP_ID_NOT_FOUND}
    assert (driver.listed(), driver.offsets()) == ({}, {})
    after = driver.reload()
    assert (after.listed(), after.offsets()) == ({}, {})


@pytest.mark.parametrize("version", range(3))
def test_a_group_with_members_is_not_deleted(version):
    driver = Driver()
    (member,), _ = driver.stable()
    assert results(driver, driver.delete_groups("g")) == {"g": ErrorCode.NON_EMPTY_GROUP}
    driver.join(member)
    assert results(driver, driver.delete_groups("g")) == {"g": ErrorCode.NON_EMPTY_GROUP}


def test_while_a_group_is_being_deleted_members_and_commits_are_put_off():
    driver = Driver(commits=False)
    driver.commit_offsets({P0: 5})
    driver.commit()
    pending = driver.answer(driver.join()).member_id
    token = driver.delete_groups("g")
    assert driver.answer(driver.join()).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.answer(driver.join(pending)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.heartbeat("m", 1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.answer(driver.sync("m", 1)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.leave(("m", None)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.commit_codes(driver.commit_offsets({P0: 1})) == {P0: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert results(driver, driver.delete_groups("g")) == {"g": ErrorCode.GROUP_ID_NOT_FOUND}
    assert driver.describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    driver.commit()
    assert results(driver, token) == {"g": 0}
    assert driver.answer(driver.join()).error_code == ErrorCode.MEMBER_ID_REQUIRED


def test_a_deletion_that_fails_leaves_the_group_as_it_was():
    driver = Driver(commits=False)
    driver.commit_offsets({P0: 5})
    driver.commit()
    token = driver.delete_groups("g")
    driver.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert results(driver, token) == {"g": ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert (driver.state(), driver.offsets()) == ("Empty", {P0: 5})


def test_many_offsets_are_deleted_in_several_batches_and_the_group_last():
    driver = Driver(commits=False)
    topics = [f"{number:0>200}" for number in range(2_000)]
    driver.commit_offsets({(topic, 0): 1 for topic in topics})
    driver.commit()
    token = driver.delete_groups("g")
    assert len(driver.appends) == 2
    assert driver.appends[3][-1] == (encode_key(GroupKey("g")), None)
    assert all(sum(len(key) for key, _ in records) <= 262_200 for records in driver.appends.values())
    driver.commit()
    assert driver.answer(token) is None
    driver.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert results(driver, token) == {"g": ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert 0 < len(driver.offsets()) < 2_000
    assert driver.state() == "Empty"


class Counted(str):
    """A name that counts how often it is looked for."""

    __slots__ = ()
    looks = 0

    def __hash__(self) -> int:
        Counted.looks += 1
        return super().__hash__()


def test_the_work_for_many_groups_of_one_request_grows_with_their_number_alone():
    looks = []
    for count in (100, 400):
        driver = Driver(commits=False)
        names = [Counted(f"g{number}") for number in range(count)]
        for name in names:
            driver.commit_offsets({P0: 5}, group=name)
            driver.commit()
        token = driver.delete_groups(*names)
        Counted.looks = 0
        while driver.appends:
            driver.commit()
        assert set(results(driver, token).values()) == {0}
        looks.append(Counted.looks)
    assert looks[1] < 6 * looks[0]


def test_a_commit_under_way_does_not_survive_the_deletion():
    driver = Driver(commits=False)
    driver.commit_offsets({P0: 5})
    driver.commit()
    driver.commit_offsets({P1: 5})
    driver.commit_offsets({("t", 2): 5})
    driver.fail(ErrorCode.REQUEST_TIMED_OUT, 3)
    token = driver.delete_groups("g")
    driver.commit(2)
    driver.commit(4)
    assert results(driver, token) == {"g": 0}
    assert driver.offsets() == {}


# ---------------------------------------------------------------------------------------------------- expiry


def test_a_simple_groups_offsets_expire_a_week_after_their_commit():
    driver = Driver()
    driver.commit_offsets({P0: 5})
    driver.advance(DAY_MS)
    driver.commit_offsets({P1: 6})
    driver.advance(WEEK_MS - DAY_MS - 600_000)
    assert driver.offsets() == {P0: 5, P1: 6}
    driver.advance(1_200_000)
    assert driver.offsets() == {P1: 6}
    driver.advance(DAY_MS)
    assert (driver.offsets(), driver.listed()) == ({}, {})
    assert driver.coordinator.statistics.offsets_expired == 2
    assert driver.reload().listed() == {}


def test_a_group_with_members_keeps_its_offsets_and_the_week_begins_when_it_is_empty():
    driver = Driver()
    (member,), generation = driver.stable(session=1_800_000)
    driver.commit_offsets({P0: 5}, member=member, generation=generation)
    for _ in range(10 * 24 * 2):
        driver.advance(1_800_000 - 1)
        assert driver.heartbeat(member, generation) == 0
    assert driver.offsets() == {P0: 5}
    driver.leave((member, None))
    driver.advance(WEEK_MS - 600_000)
    assert driver.offsets() == {P0: 5}
    driver.advance(1_200_000)
    assert (driver.offsets(), driver.listed()) == ({}, {})


def test_what_is_committed_to_an_empty_group_that_had_members_stays_a_week_from_then_on():
    driver = Driver()
    (member,), generation = driver.stable()
    driver.commit_offsets({P0: 5, P1: 5}, member=member, generation=generation)
    driver.leave((member, None))
    driver.advance(WEEK_MS - 600_000)
    assert driver.commit_codes(driver.commit_offsets({P0: 6})) == {P0: 0}
    driver.advance(1_200_000)
    assert driver.offsets() == {P0: 6}
    driver = driver.reload()
    driver.advance(WEEK_MS - 2_400_000)
    assert driver.offsets() == {P0: 6}
    driver.advance(2_400_000)
    assert (driver.offsets(), driver.listed()) == ({}, {})


def test_topics_that_nobody_reads_any_longer_expire_by_their_commit_in_a_stable_group():
    driver = Driver(offsets_retention_ms=DAY_MS)
    (member,), generation = driver.stable(protocols=[("range", subscription("t"))], session=1_800_000)
    driver.commit_offsets({P0: 5, ("u", 0): 6}, member=member, generation=generation)
    for _ in range(60):
        driver.advance(1_500_000)
        driver.heartbeat(member, generation)
    assert driver.offsets() == {P0: 5}
    assert driver.state() == "Stable"


def test_offsets_of_other_groups_than_consumers_stay_while_there_are_members():
    driver = Driver(offsets_retention_ms=1_000)
    (member,), generation = driver.stable(protocol_type="connect", protocols=[("v", b"")], session=1_800_000)
    driver.commit_offsets({P0: 5}, member=member, generation=generation)
    driver.advance(1_500_000)
    assert driver.offsets() == {P0: 5}


def test_an_expiry_of_its_own_counts_instead_of_the_groups():
    driver = Driver()
    driver.commit_offsets({P0: 5}, version=4, retention=DAY_MS)
    driver.advance(DAY_MS - 600_001)
    assert driver.offsets() == {P0: 5}
    driver = driver.reload()
    driver.advance(1_200_000)
    assert driver.offsets() == {}


def test_an_expiry_beyond_the_end_of_time_is_its_end():
    driver = Driver()
    assert driver.commit_codes(driver.commit_offsets({P0: 5}, version=2, retention=2**63 - 1)) == {P0: 0}
    after = driver.reload()
    after.advance(2 * WEEK_MS)
    assert after.offsets() == {P0: 5}


def test_an_empty_group_without_offsets_goes_at_the_next_look():
    driver = Driver()
    (member,), _ = driver.stable()
    driver.leave((member, None))
    driver.advance(599_000)
    assert driver.listed() == {"g": "Empty"}
    driver.advance(600_000)
    assert driver.listed() == {}
    assert driver.reload().listed() == {}


def test_many_groups_are_looked_at_in_several_steps(monkeypatch):
    monkeypatch.setattr(removing, "SWEPT_AT_ONCE", 5)
    driver = Driver(offsets_retention_ms=1_000, retention_check_interval_ms=10_000)
    for number in range(10):
        driver.commit_offsets({P0: 1}, group=f"g{number}")
    driver.advance(10_000)
    left = len(driver.listed())
    assert 0 < left < 10
    driver.commit_offsets({P0: 1}, group="late")
    driver.advance(10)
    assert driver.listed() == {"late": "Empty"}
    driver.advance(10_000)
    assert driver.listed() == {}


def test_an_offset_whose_commit_is_under_way_does_not_expire():
    driver = Driver(offsets_retention_ms=1_000, commits=False)
    driver.commit_offsets({P0: 5})
    driver.commit()
    driver.advance(599_000)
    driver.commit_offsets({P0: 6})
    driver.advance(2_000)
    assert list(driver.appends) == [2]
    driver.commit()
    assert driver.offsets() == {P0: 6}


def test_an_expiry_that_cannot_be_written_is_tried_again():
    driver = Driver(offsets_retention_ms=1_000, commits=False)
    driver.commit_offsets({P0: 5})
    driver.commit()
    driver.advance(700_000)
    driver.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert (driver.state(), driver.offsets()) == ("Empty", {P0: 5})
    driver.advance(600_000)
    driver.commit()
    assert driver.listed() == {}


def test_retention_goes_on_over_a_failover():
    driver = Driver()
    driver.commit_offsets({P0: 5})
    (member,), generation = driver.stable(group="h")
    driver.commit_offsets({P0: 5}, member=member, generation=generation, group="h")
    driver.leave((member, None), group="h")
    driver.advance(WEEK_MS - 700_000)
    after = driver.reload()
    assert (after.offsets(), after.offsets("h")) == ({P0: 5}, {P0: 5})
    after.advance(1_300_000)
    assert (after.offsets(), after.offsets("h"), after.listed()) == ({}, {}, {})


# ---------------------------------------------------------------------------------------------------- topics


def test_offsets_of_deleted_topics_go_from_every_group():
    driver = Driver()
    (member,), generation = driver.stable()
    driver.commit_offsets({P0: 5, ("u", 0): 6}, member=member, generation=generation)
    driver.commit_offsets({P1: 5}, group="simple")
    driver.step(events.TopicsDeleted(topics=frozenset({"t", "x"}), wall_ms=driver.wall))
    assert (driver.offsets(), driver.offsets("simple")) == ({("u", 0): 6}, {})
    assert driver.reload().offsets() == {("u", 0): 6}
    assert driver.state() == "Stable"


def test_offsets_of_a_deleted_topic_that_could_not_be_removed_go_later():
    driver = Driver(commits=False)
    driver.commit_offsets({P0: 5, P1: 6, ("u", 0): 7})
    driver.commit()
    driver.step(events.TopicsDeleted(topics=frozenset({"t"}), wall_ms=driver.wall))
    driver.fail(ErrorCode.KAFKA_STORAGE_ERROR)
    driver.advance(removing.AGAIN_MS)
    driver.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert driver.offsets() == {P0: 5, P1: 6, ("u", 0): 7}
    driver.advance(removing.AGAIN_MS)
    driver.commit()
    assert driver.offsets() == {("u", 0): 7}
    assert driver.reload().offsets() == {("u", 0): 7}
    driver.advance(10 * removing.AGAIN_MS)
    assert driver.appends == {}


def test_what_is_committed_after_the_deletion_of_a_topic_stays():
    driver = Driver(commits=False)
    driver.commit_offsets({P0: 5, P1: 5, ("t", 2): 5})
    driver.commit()
    driver.step(events.TopicsDeleted(topics=frozenset({"t"}), wall_ms=driver.wall))
    driver.commit_offsets({P0: 5})
    driver.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    driver.commit()
    driver.commit_offsets({P1: 1})
    driver.advance(removing.AGAIN_MS)
    assert list(driver.appends) == [4, 5]
    driver.commit()
    driver.commit()
    assert driver.offsets() == {P0: 5, P1: 1}
    driver.advance(10 * removing.AGAIN_MS)
    assert driver.appends == {}
    assert driver.reload().offsets() == {P0: 5, P1: 1}


def test_tombstones_of_a_deleted_topic_that_are_in_doubt_are_settled_by_others():
    """Nobody may commit anything for days, and whoever assigns partitions by itself would begin there."""
    driver = Driver(commits=False)
    driver.commit_offsets({P0: 5})
    driver.commit()
    driver.step(events.TopicsDeleted(topics=frozenset({"t"}), wall_ms=driver.wall))
    driver.fail(ErrorCode.REQUEST_TIMED_OUT)
    driver.advance(removing.AGAIN_MS)
    driver.fail(ErrorCode.REQUEST_TIMED_OUT)
    assert driver.offsets() == {P0: 5}
    driver.advance(removing.AGAIN_MS)
    driver.commit()
    assert driver.offsets() == {}
    assert driver.reload().offsets() == {}
    driver.advance(3 * removing.AGAIN_MS)
    assert driver.appends == {}


@pytest.mark.parametrize("in_doubt", [False, True], ids=["under way", "in doubt"])
def test_a_commit_behind_tombstones_in_doubt_is_waited_for(in_doubt):
    driver = Driver(commits=False)
    driver.commit_offsets({P0: 5})
    driver.commit()
    driver.step(events.TopicsDeleted(topics=frozenset({"t"}), wall_ms=driver.wall))
    driver.fail(ErrorCode.REQUEST_TIMED_OUT)
    driver.commit_offsets({P0: 1})
    if in_doubt:
        driver.fail(ErrorCode.REQUEST_TIMED_OUT)
    driver.advance(3 * removing.AGAIN_MS)
    assert list(driver.appends) == ([] if in_doubt else [3])
    if in_doubt:
        driver.commit_offsets({("u", 0): 7})
    driver.commit()
    assert driver.offsets()[P0] == 1
    driver.advance(3 * removing.AGAIN_MS)
    assert driver.appends == {}

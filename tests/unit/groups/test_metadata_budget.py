"""What the members of all groups of a broker say about themselves, over its coordinators."""

from __future__ import annotations

import pytest

from kafkalite_core.groups.metadata_budget import MetadataBudget, said_bytes
from kafkalite_core.protocol.errors import ErrorCode
from tests.unit.groups.driver import SESSION_MS, Driver

SAID = [("range", b"x" * 1_000)]
MORE = [("range", b"x" * 1_001)]
SIZE = said_bytes(SAID)


def coordinators(count: int, **config) -> tuple[MetadataBudget, list[Driver]]:
    budget = MetadataBudget()
    return budget, [Driver(metadata=budget, **config) for _ in range(count)]


def test_a_member_that_finds_no_room_is_to_come_again():
    budget, (one, other) = coordinators(2, metadata_bytes_all_max=2 * SIZE)
    (member,), generation = one.stable(group="a", protocols=SAID)
    one.stable(group="b", protocols=SAID)
    for driver, group in ((one, "a"), (one, "c"), (other, "d")):
        for version in (3, 9):
            refused = driver.answer(driver.join(group=group, protocols=[("range", b"")], version=version))
            assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert one.listed().keys() == {"a", "b"}
    assert other.listed() == {}
    assert one.answer(one.join(member, group="a", protocols=SAID)).generation_id == generation + 1, "it needs no more"
    assert one.answer(one.join(member, group="a", protocols=MORE)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert budget.used_bytes == 2 * SIZE
    one.leave((member, None), group="a")
    other.stable(group="d", protocols=SAID)
    assert budget.used_bytes == 2 * SIZE


def test_what_would_never_find_room_is_told_so():
    _, (driver,) = coordinators(1, metadata_bytes_all_max=SIZE)
    assert driver.answer(driver.join(protocols=MORE)).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_static_member_that_comes_back_takes_no_room():
    budget, (driver,) = coordinators(1, metadata_bytes_all_max=SIZE)
    driver.sync(driver.answer(driver.join(instance="one", protocols=SAID)).member_id, 1, {}, instance="one")
    assert driver.answer(driver.join(instance="one", protocols=SAID)).error_code == 0
    refused = driver.answer(driver.join(instance="two", protocols=[("range", b"")]))
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert budget.used_bytes == SIZE


def test_many_protocols_count_although_they_say_nothing():
    names = [(str(number), b"") for number in range(1_000)]
    _, (driver,) = coordinators(1, metadata_bytes_all_max=100_000)
    assert driver.answer(driver.join(protocols=names)).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_the_bound_may_change():
    _, (driver,) = coordinators(1, metadata_bytes_all_max=SIZE)
    driver.stable(group="a", protocols=SAID)
    driver.coordinator.config = Driver(metadata_bytes_all_max=2 * SIZE).config
    driver.stable(group="b", protocols=SAID)


@pytest.mark.parametrize("end", ["leave", "session", "close"])
def test_nothing_is_counted_of_who_is_gone(end):
    budget = MetadataBudget()
    driver = Driver(metadata=budget)
    (leader, member), _ = driver.stable(2, protocols=SAID)
    driver.reload(metadata=budget)
    assert budget.used_bytes == 4 * SIZE
    if end == "leave":
        driver.leave((leader, None), (member, None))
    elif end == "session":
        driver.advance(2 * SESSION_MS)
    else:
        driver.resign()
        driver.coordinator.close()
    assert budget.used_bytes == 2 * SIZE
    driver.coordinator.close()
    assert budget.used_bytes == 2 * SIZE

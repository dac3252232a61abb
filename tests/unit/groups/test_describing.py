"""DescribeGroups, ListGroups, and the counts for the metrics."""

from __future__ import annotations

import pytest

from kafkalite_core.groups.config import GroupConfig
from kafkalite_core.protocol.describe_groups import DescribeGroupsRequest
from kafkalite_core.protocol.list_groups import ListGroupsRequest
from tests.unit.groups.driver import Driver, subscription


def several() -> Driver:
    """One group in each state."""
    driver = Driver()
    driver.commit_offsets({("t", 0): 1}, group="simple")
    driver.stable(group="stable")
    driver.stable(group="preparing")
    driver.enter(group="preparing")
    driver.enter(group="completing")
    return driver


def test_groups_by_state_and_type():
    driver = several()
    everything = {
        "simple": "Empty",
        "stable": "Stable",
        "preparing": "PreparingRebalance",
        "completing": "CompletingRebalance",
    }
    assert driver.listed() == everything
    assert driver.listed("Stable", "empty") == {"simple": "Empty", "stable": "Stable"}
    assert driver.listed("Nonsense") == {}
    assert driver.listed(types=["Classic"]) == everything
    assert driver.listed(types=["consumer"]) == {}
    assert driver.coordinator.counts() == dict.fromkeys(everything.values(), 1)


@pytest.mark.parametrize("version", range(6))
def test_every_version_of_list(version):
    response = several().ask(ListGroupsRequest(), version)
    assert {each.group_id: each.protocol_type for each in response.groups} == {
        "simple": "",
        "stable": "consumer",
        "preparing": "consumer",
        "completing": "consumer",
    }
    assert {each.group_type for each in response.groups} == {"classic"}


@pytest.mark.parametrize("version", range(7))
def test_a_description_has_subscriptions_and_assignments_only_while_the_group_is_stable(version):
    driver = several()
    response = driver.ask(DescribeGroupsRequest(groups=["stable", "preparing", "simple"]), version)
    stable, preparing, simple = response.groups
    (member,) = stable.members
    assert (stable.protocol_type, stable.protocol_data) == ("consumer", "range")
    assert (member.member_metadata, member.member_assignment) == (subscription("t"), member.member_id.encode())
    assert (member.client_id, member.client_host) == ("c", "/10.0.0.1")
    assert [(each.member_metadata, each.member_assignment) for each in preparing.members] == [(b"", b"")] * 2
    assert preparing.protocol_data == ""
    assert (simple.group_state, simple.members, simple.protocol_type) == ("Empty", [], "")


def test_a_group_that_is_named_again_is_not_described_again():
    driver = several()
    response = driver.ask(DescribeGroupsRequest(groups=["stable", "nobody", "stable"]), 6)
    assert [each.group_id for each in response.groups] == ["stable", "nobody"]


def test_the_longest_name_can_be_answered():
    (group,) = Driver().ask(DescribeGroupsRequest(groups=["x" * 32_767]), 6).groups
    assert group.error_message.endswith("xx not found.")


def test_the_configuration_may_change_at_any_time():
    driver = Driver()
    driver.coordinator.config = GroupConfig(min_session_timeout_ms=1)
    assert driver.answer(driver.join(session=1)).error_code == 79
    assert driver.coordinator.config.min_session_timeout_ms == 1

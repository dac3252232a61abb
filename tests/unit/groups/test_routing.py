"""Partitions of groups, and requests that are split and merged."""

from __future__ import annotations

import pytest

from kafkalite_core.groups.refusals import refusal
from kafkalite_core.groups.routing import merge, partition_for, split
from kafkalite_core.protocol.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from kafkalite_core.protocol.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafkalite_core.protocol.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from kafkalite_core.protocol.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)

NAMES = ["group-1", "group-2", "my-group", "zażółć", "😀", ""]


@pytest.mark.parametrize(
    ("group", "absolute_hash"),
    # String.hashCode of Java; "zzzzzz" overflows to -685785664, "polygenelubricants" is the smallest int.
    [("", 0), ("a", 97), ("ab", 3105), ("é", 233), ("polygenelubricants", 0), ("😀", 1772899), ("zzzzzz", 685785664)],
)
def test_the_partition_is_that_of_javas_hash(group, absolute_hash):
    for partitions in (1, 16, 50):
        assert partition_for(group, partitions) == absolute_hash % partitions


@pytest.mark.parametrize("kind", ["describe", "delete", "fetch"])
def test_a_request_for_several_groups_is_split_and_merged_in_its_order(kind):
    request = {
        "describe": DescribeGroupsRequest(groups=NAMES, include_authorized_operations=True),
        "delete": DeleteGroupsRequest(groups_names=NAMES),
        "fetch": OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in NAMES], require_stable=True
        ),
    }[kind]
    parts = split(request, 16)
    assert len(parts) > 1
    responses = []
    for partition, part in reversed(parts.items()):
        if isinstance(part, DescribeGroupsRequest):
            assert part.include_authorized_operations
            names = part.groups
            responses.append(DescribeGroupsResponse(groups=[DescribedGroup(group_id=name) for name in names]))
        elif isinstance(part, DeleteGroupsRequest):
            names = part.groups_names
            responses.append(DeleteGroupsResponse(results=[DeletableGroupResult(group_id=name) for name in names]))
        else:
            assert part.require_stable
            names = [group.group_id for group in part.groups]
            responses.append(OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id=name) for name in names]))
        assert {partition_for(name, 16) for name in names} == {partition}
    merged = merge(request, responses)
    parts = merged.results if kind == "delete" else merged.groups
    assert [each.group_id for each in parts] == NAMES


def test_a_request_for_one_group_is_one_part():
    request = HeartbeatRequest(group_id="g")
    assert split(request, 16) == {partition_for("g", 16): request}
    response = HeartbeatResponse()
    assert merge(request, [response]) is response
    fetch = OffsetFetchRequest(group_id="g", topics=None)
    assert split(fetch, 16) == {partition_for("g", 16): fetch}


def test_requests_for_no_groups():
    for request in (DescribeGroupsRequest(), DeleteGroupsRequest()):
        assert split(request, 16) == {}
        assert merge(request, []) is not None


def test_lists_of_all_partitions_are_joined():
    request = ListGroupsRequest()
    assert split(request, 3) == {0: request, 1: request, 2: request}
    groups = [ListedGroup(group_id=name) for name in "ab"]
    moved = refusal(request, 5, ErrorCode.NOT_COORDINATOR)
    merged = merge(request, [ListGroupsResponse(groups=groups[:1]), moved, ListGroupsResponse(groups=groups[1:])])
    assert (merged.error_code, merged.groups) == (0, groups)
    loading = refusal(request, 5, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    failed = merge(request, [ListGroupsResponse(groups=groups), loading])
    assert (failed.error_code, failed.groups) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])

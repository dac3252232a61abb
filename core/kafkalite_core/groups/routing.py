"""Which partition of `__consumer_offsets` a group belongs to, and requests for several groups."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from kafkalite_core.protocol.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from kafkalite_core.protocol.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from kafkalite_core.protocol.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kafkalite_core.groups.events import GroupRequest, GroupResponse

T = TypeVar("T")


def partition_for(group_id: str, partitions: int) -> int:
    """The partition of a group, as Kafka has it.

    That is the absolute value of the hash of a Java string, modulo the partitions; the smallest int, which has no
    absolute value, counts as 0.
    """
    units = group_id.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    signed = value - 2**32 if value >= 2**31 else value
    return 0 if signed == -(2**31) else abs(signed) % partitions


def split(request: GroupRequest, partitions: int) -> dict[int, GroupRequest]:
    """The request's parts by partition. ListGroups goes to all partitions; a request for one group is one part."""
    if isinstance(request, ListGroupsRequest):
        everywhere: dict[int, GroupRequest] = dict.fromkeys(range(partitions), request)
        return everywhere
    if isinstance(request, DescribeGroupsRequest):
        names = _by_partition(request.groups, str, partitions)
        return {partition: replace(request, groups=part) for partition, part in names.items()}
    if isinstance(request, DeleteGroupsRequest):
        names = _by_partition(request.groups_names, str, partitions)
        return {partition: replace(request, groups_names=part) for partition, part in names.items()}
    if isinstance(request, OffsetFetchRequest) and request.groups:
        groups = _by_partition(request.groups, lambda group: group.group_id, partitions)
        return {partition: replace(request, groups=part) for partition, part in groups.items()}
    return {partition_for(request.group_id, partitions): request}


def merge(request: GroupRequest, responses: Sequence[GroupResponse]) -> GroupResponse:
    """One response from those to the parts of `split`, in the order of the request, with each group once.

    In ListGroups NOT_COORDINATOR counts as no groups, because another broker lists them; any other error is the answer.
    """
    if isinstance(request, ListGroupsRequest):
        return _merge_lists([part for part in responses if isinstance(part, ListGroupsResponse)])
    if isinstance(request, DescribeGroupsRequest):
        described = [each for part in responses if isinstance(part, DescribeGroupsResponse) for each in part.groups]
        return DescribeGroupsResponse(groups=_in_order(request.groups, described, lambda each: each.group_id))
    if isinstance(request, DeleteGroupsRequest):
        results = [each for part in responses if isinstance(part, DeleteGroupsResponse) for each in part.results]
        return DeleteGroupsResponse(results=_in_order(request.groups_names, results, lambda each: each.group_id))
    if isinstance(request, OffsetFetchRequest) and request.groups:
        fetched = [each for part in responses if isinstance(part, OffsetFetchResponse) for each in part.groups]
        names = [group.group_id for group in request.groups]
        return OffsetFetchResponse(groups=_in_order(names, fetched, lambda each: each.group_id))
    assert len(responses) == 1, "a request for one group has one part, and a request for no groups none"
    return responses[0]


def _by_partition(items: Iterable[T], name: Callable[[T], str], partitions: int) -> dict[int, list[T]]:
    parts: dict[int, list[T]] = {}
    for item in items:
        parts.setdefault(partition_for(name(item), partitions), []).append(item)
    return parts


def _in_order(names: Iterable[str], parts: Iterable[T], name: Callable[[T], str]) -> list[T]:
    by_name = {name(part): part for part in parts}
    return [by_name[each] for each in dict.fromkeys(names)]


def _merge_lists(responses: Iterable[ListGroupsResponse]) -> ListGroupsResponse:
    groups: list[ListedGroup] = []
    for response in responses:
        if response.error_code not in {ErrorCode.NONE, ErrorCode.NOT_COORDINATOR}:
            return ListGroupsResponse(error_code=response.error_code)
        groups.extend(response.groups)
    return ListGroupsResponse(groups=groups)

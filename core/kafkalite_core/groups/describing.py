"""DescribeGroups and ListGroups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.groups.group import GroupState
from kafkalite_core.protocol.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsResponse
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.list_groups import ListedGroup, ListGroupsResponse

if TYPE_CHECKING:
    from kafkalite_core.groups.events import Requested
    from kafkalite_core.groups.table import GroupTable
    from kafkalite_core.protocol.describe_groups import DescribeGroupsRequest
    from kafkalite_core.protocol.list_groups import ListGroupsRequest

DESCRIBE_NOT_FOUND = 6
"""The first version of DescribeGroups that answers GROUP_ID_NOT_FOUND; before, such a group is Dead."""
GROUP_TYPE = "classic"
NAME_SHOWN_MAX = 249
"""Characters of a group's name that a sentence repeats: a string of the protocol has a bound."""


class Describing:
    """See the module."""

    __slots__ = ("_groups",)

    def __init__(self, groups: GroupTable) -> None:
        self._groups = groups

    def describe(self, event: Requested, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
        """Each group, once; the members' subscriptions and assignments only while it is stable."""
        return DescribeGroupsResponse(
            groups=[self._describe(name, event.api_version) for name in dict.fromkeys(request.groups)]
        )

    def _describe(self, name: str, api_version: int) -> DescribedGroup:
        group = self._groups.get(name)
        if group is None or group.state is GroupState.DEAD:
            described = DescribedGroup(group_id=name, group_state=GroupState.DEAD.value)
            if api_version >= DESCRIBE_NOT_FOUND:
                described.error_code = int(ErrorCode.GROUP_ID_NOT_FOUND)
                described.error_message = f"Group {name[:NAME_SHOWN_MAX]} not found."
            return described
        stable = group.state is GroupState.STABLE
        return DescribedGroup(
            group_id=name,
            group_state=group.state.value,
            protocol_type=group.protocol_type,
            protocol_data=(group.protocol or "") if stable else "",
            members=[
                DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.metadata(group.protocol) if stable else b"",
                    member_assignment=member.assignment if stable else b"",
                )
                for member in group.members.values()
            ],
        )

    def list(self, _event: Requested, request: ListGroupsRequest) -> ListGroupsResponse:
        """The groups in the states, and of the types, that are asked for; the case of letters does not matter."""
        states = {state.lower() for state in request.states_filter}
        types = {each.lower() for each in request.types_filter}
        if types and GROUP_TYPE not in types:
            return ListGroupsResponse()
        return ListGroupsResponse(
            groups=[
                ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type,
                    group_state=group.state.value,
                    group_type=GROUP_TYPE,
                )
                for group in self._groups
                if not states or group.state.value.lower() in states
            ]
        )

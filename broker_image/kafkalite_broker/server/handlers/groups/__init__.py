"""The group APIs. Rules of groups are the coordinator's; here are bounds, and what the metadata know better."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_broker.server.handlers.groups.delete_groups import DeleteGroupsHandler
from kafkalite_broker.server.handlers.groups.describe_groups import DescribeGroupsHandler
from kafkalite_broker.server.handlers.groups.heartbeat import HeartbeatHandler
from kafkalite_broker.server.handlers.groups.join_group import JoinGroupHandler
from kafkalite_broker.server.handlers.groups.leave_group import LeaveGroupHandler
from kafkalite_broker.server.handlers.groups.list_groups import ListGroupsHandler
from kafkalite_broker.server.handlers.groups.offset_commit import OffsetCommitHandler
from kafkalite_broker.server.handlers.groups.offset_delete import OffsetDeleteHandler
from kafkalite_broker.server.handlers.groups.offset_fetch import OffsetFetchHandler
from kafkalite_broker.server.handlers.groups.sync_group import SyncGroupHandler

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.services import Services


def group_handlers(services: Services) -> dict[int, Callable[[Request], None]]:
    """Handler by API key."""
    return {
        8: OffsetCommitHandler(services),
        9: OffsetFetchHandler(services),
        11: JoinGroupHandler(services),
        12: HeartbeatHandler(services),
        13: LeaveGroupHandler(services),
        14: SyncGroupHandler(services),
        15: DescribeGroupsHandler(services),
        16: ListGroupsHandler(services),
        42: DeleteGroupsHandler(services),
        47: OffsetDeleteHandler(services),
    }

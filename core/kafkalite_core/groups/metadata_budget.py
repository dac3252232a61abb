"""What the members of all groups of a broker say about themselves, bounded together.

Each group is bounded, but a client can make as many groups as it likes, and has hours before a session ends.

    used bytes of the budget = sum over its shares = sum over their groups of `Group.metadata_bytes`
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalite_core.groups.member import Protocols

PROTOCOL_OVERHEAD_BYTES = 128
"""Roughly what Python spends on a name and its metadata; without it a flood of empty ones would pass the bounds."""


def said_bytes(protocols: Protocols) -> int:
    """What counts of a member."""
    return sum(len(name) + len(metadata) + PROTOCOL_OVERHEAD_BYTES for name, metadata in protocols)


class MetadataBudget:
    """Bytes in use by all coordinators of one broker. The bound is in `GroupConfig`, since it may change."""

    __slots__ = ("used_bytes",)

    def __init__(self) -> None:
        self.used_bytes = 0


class MetadataShare:
    """What one coordinator uses of the budget."""

    __slots__ = ("_budget", "_used_bytes")

    def __init__(self, budget: MetadataBudget) -> None:
        self._budget = budget
        self._used_bytes = 0

    def charge(self, change_bytes: int) -> None:
        """A group of the coordinator has more, or less, than before."""
        self._used_bytes += change_bytes
        self._budget.used_bytes += change_bytes

    def has_room(self, change_bytes: int, max_bytes: int) -> bool:
        """Whether a member may say so much more. One that says no more than before is no trouble, however full it is:
        groups that are there must be able to rebalance.
        """
        return change_bytes <= 0 or self._budget.used_bytes + change_bytes <= max_bytes

    def give_back(self) -> None:
        """The coordinator is gone, with all its groups."""
        self._budget.used_bytes -= self._used_bytes
        self._used_bytes = 0

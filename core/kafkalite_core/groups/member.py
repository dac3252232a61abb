"""A member of a group."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kafkalite_core.groups.records import MemberValue
from kafkalite_core.groups.timers import Timer, nothing

if TYPE_CHECKING:
    from collections.abc import Container

    from kafkalite_core.protocol.join_group import JoinGroupRequest

Protocols = tuple[tuple[str, bytes], ...]
"""Name and metadata of each assignment protocol that a member supports, the preferred one first."""


class Waiting(NamedTuple):
    """A request that is answered later.

    Attributes:
        token: The driver's.
        api_version: Decides what the answer may say.
    """

    token: object
    api_version: int


@dataclass(slots=True, eq=False, kw_only=True)
class Member:
    """One consumer, by its member id.

    Attributes:
        member_id: Given by the coordinator.
        group_instance_id: The name of a static member (KIP-345), or None.
        client_id: As the client called itself.
        client_host: Its address as tools show it.
        rebalance_timeout_ms: How long the group waits for its JoinGroup and SyncGroup in a rebalance.
        session_timeout_ms: How long it may be silent.
        protocols: What it supports; the metadata is its subscription.
        assignment: What the leader gave it in the present generation.
        is_new: It has not been answered a JoinGroup yet, so it cannot send heartbeats.
        awaiting_join: Its JoinGroup, while the group waits for the other members.
        awaiting_sync: Its SyncGroup, while the group waits for the leader's assignment to be committed.
        session: Runs out when the member has been silent for too long.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    awaiting_join: Waiting | None = None
    awaiting_sync: Waiting | None = None
    session: Timer = field(default_factory=lambda: Timer(nothing))

    @property
    def is_static(self) -> bool:
        """Whether it keeps its place over a restart (KIP-345)."""
        return self.group_instance_id is not None

    @property
    def is_waiting(self) -> bool:
        """Whether the coordinator owes it an answer, so that silence is no sign of death."""
        return self.awaiting_join is not None or self.awaiting_sync is not None

    def metadata(self, protocol: str | None) -> bytes:
        """Its metadata for a protocol; empty if it does not support it."""
        return next((data for name, data in self.protocols if name == protocol), b"")

    def vote(self, candidates: Container[str]) -> str:
        """The candidate that it prefers. There always is one, because a candidate is supported by all."""
        return next(name for name, _ in self.protocols if name in candidates)

    def to_value(self, protocol: str | None, assignment: bytes) -> MemberValue:
        """The member as it stands in the log."""
        return MemberValue(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            subscription=self.metadata(protocol),
            assignment=assignment,
        )

    @classmethod
    def from_value(cls, value: MemberValue, protocol: str | None) -> Member:
        """The member of a loaded group. A time-out of -1 for the rebalance means the session's (version 0)."""
        timeout = value.rebalance_timeout_ms
        return cls(
            member_id=value.member_id,
            group_instance_id=value.group_instance_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.session_timeout_ms if timeout < 0 else timeout,
            session_timeout_ms=value.session_timeout_ms,
            protocols=((protocol or "", value.subscription),),
            assignment=value.assignment,
        )


def protocols_of(request: JoinGroupRequest) -> Protocols:
    """The protocols of a request; a name that comes twice counts once."""
    seen: dict[str, bytes] = {}
    for protocol in request.protocols:
        seen.setdefault(protocol.name, bytes(protocol.metadata))
    return tuple(seen.items())


def rebalance_timeout_of(request: JoinGroupRequest) -> int:
    """JoinGroup 0 has no rebalance time-out: the session time-out stands for it."""
    timeout = request.rebalance_timeout_ms
    return request.session_timeout_ms if timeout < 0 else timeout

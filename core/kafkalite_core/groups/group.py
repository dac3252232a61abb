"""The state of one group, without timers and without answers."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from kafkalite_core.groups.member import Member, Protocols, Waiting
from kafkalite_core.groups.metadata_budget import said_bytes
from kafkalite_core.groups.records import GroupValue
from kafkalite_core.groups.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from kafkalite_core.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite_core.groups.metadata_budget import MetadataShare
    from kafkalite_core.groups.timers import Timer


class GroupState(StrEnum):
    """Kafka's names, as its tools show them."""

    EMPTY = "Empty"
    """No members; there may be offsets."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Waiting for the members' JoinGroup."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """Waiting for the leader's assignment, or for its record to be committed."""
    STABLE = "Stable"
    DEAD = "Dead"
    """Its tombstones are on their way into the log."""


class Group:
    """A group. Its offsets are kept in `OffsetStore`.

    Attributes:
        state_timestamp_ms: Wall clock of the last change of state; -1 if it is not known.
        generation: Grows with each rebalance.
        protocol_type: "consumer" for consumers; "" for a simple group, which only commits offsets.
        protocol: The assignment protocol of this generation; None without members.
        leader_id: The member that assigns; None without members.
        members: By member id, in the order in which they came.
        static_members: Member ids of the static members by group instance id.
        pending_members: Ids that were given out with MEMBER_ID_REQUIRED and not used yet, with their expiry.
        pending_sync: Members of this generation that have not sent SyncGroup yet.
        is_initial: The rebalance going on is the first one of an empty group, which waits for more members.
        new_member_added: A member came since that wait was last extended.
        initial_delay_ms: How long that wait was extended last.
        initial_remaining_ms: How much longer it may become.
        is_storing: The assignment of this generation is on its way into the log.
        is_persisted: There may be a record of the group in the log, so that a tombstone is needed.
        metadata_bytes: Size of all that the members say about themselves.
        topics: What the members of a consumer group subscribe to; None if that is not known.
    """

    __slots__ = (
        "_metadata",
        "_supported",
        "awaiting_join_count",
        "generation",
        "group_id",
        "initial_delay_ms",
        "initial_remaining_ms",
        "is_initial",
        "is_persisted",
        "is_storing",
        "join_timer",
        "leader_id",
        "members",
        "metadata_bytes",
        "new_member_added",
        "pending_members",
        "pending_sync",
        "protocol",
        "protocol_type",
        "state",
        "state_timestamp_ms",
        "static_members",
        "sync_timer",
        "topics",
    )

    def __init__(self, group_id: str, join_timer: Timer, sync_timer: Timer, metadata: MetadataShare) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_timestamp_ms = -1
        self.generation = 0
        self.protocol_type = ""
        self.protocol: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.pending_members: dict[str, Timer] = {}
        self.pending_sync: set[str] = set()
        self.is_initial = False
        self.new_member_added = False
        self.initial_delay_ms = 0
        self.initial_remaining_ms = 0
        self.is_storing = False
        self.is_persisted = False
        self.topics: frozenset[str] | None = None
        self.awaiting_join_count = 0
        self.metadata_bytes = 0
        self.join_timer = join_timer
        self.sync_timer = sync_timer
        self._metadata = metadata
        self._supported: dict[str, int] = {}

    # ---------------------------------------------------------------- questions

    def validate_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Whether this id belongs to the group: NONE, UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID (KIP-345)."""
        if group_instance_id is not None:
            known = self.static_members.get(group_instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols can be in the group (else INCONSISTENT_GROUP_PROTOCOL)."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        if self.protocol_type != protocol_type:
            return False
        if not self.members:
            return bool(protocols)
        return any(self._supported.get(name, 0) == len(self.members) for name, _ in protocols)

    def said_before(self, member_id: str, group_instance_id: str | None) -> int:
        """Bytes that a JoinGroup of this member takes the place of; 0 for a new one."""
        if not member_id and group_instance_id is not None:
            member_id = self.static_members.get(group_instance_id, "")
        member = self.members.get(member_id)
        return 0 if member is None else said_bytes(member.protocols)

    def is_leader(self, member_id: str) -> bool:
        """Whether this member assigns."""
        return self.leader_id == member_id

    @property
    def all_joined(self) -> bool:
        """Whether a rebalance has nobody to wait for."""
        return self.awaiting_join_count >= len(self.members) and not self.pending_members

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of the members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance can begin; in PreparingRebalance it has begun already."""
        return self.state not in {GroupState.PREPARING_REBALANCE, GroupState.DEAD}

    @property
    def uses_consumer_protocol(self) -> bool:
        """Whether its members are consumers, whose subscriptions can be read."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member reads this topic; to be safe, yes in a consumer group whose subscriptions are unknown."""
        return topic in self.topics if self.topics is not None else self.uses_consumer_protocol

    # ---------------------------------------------------------------- members

    def add(self, member: Member, protocol_type: str) -> None:
        """Take a member in. The first one gives the group its protocol type and leads it."""
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        self._count(member, 1)

    def remove(self, member: Member) -> None:
        """Take a member out; if it led, the eldest member leads."""
        del self.members[member.member_id]
        if member.group_instance_id is not None:
            self.static_members.pop(member.group_instance_id, None)
        self.pending_sync.discard(member.member_id)
        self._count(member, -1)
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.members), None)

    def update(self, member: Member, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int) -> None:
        """What a member says about itself in a new JoinGroup."""
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member another id, in its place and with its role (KIP-345)."""
        old_id = member.member_id
        member.member_id = member_id
        self.members = {each.member_id: each for each in self.members.values()}
        assert member.group_instance_id is not None, "only static members change their ids"
        self.static_members[member.group_instance_id] = member_id
        if self.leader_id == old_id:
            self.leader_id = member_id
        if old_id in self.pending_sync:
            self.pending_sync.discard(old_id)
            self.pending_sync.add(member_id)

    def _count(self, member: Member, change: int) -> None:
        size = change * said_bytes(member.protocols)
        self.metadata_bytes += size
        self._metadata.charge(size)
        for name, _ in member.protocols:
            count = self._supported.get(name, 0) + change
            if count:
                self._supported[name] = count
            else:
                self._supported.pop(name, None)
        if member.awaiting_join is not None:
            # Called before and after a change, so a member that waits is taken out and put in again.
            self.awaiting_join_count += change

    def await_join(self, member: Member, waiting: Waiting | None) -> Waiting | None:
        """Set the JoinGroup that the member waits for, and return the one before."""
        before = member.awaiting_join
        self.awaiting_join_count += (waiting is not None) - (before is not None)
        member.awaiting_join = waiting
        return before

    # ---------------------------------------------------------------- generations

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader is a member that has rejoined; False if nobody has."""
        leader = self.members.get(self.leader_id) if self.leader_id is not None else None
        if leader is None or leader.awaiting_join is None:
            leader = next((each for each in self.members.values() if each.awaiting_join is not None), None)
        if leader is None:
            return False
        self.leader_id = leader.member_id
        return True

    def select_protocol(self) -> str:
        """The protocol with the most votes among those that all support; the elder member's choice on a tie."""
        candidates = {name for name, count in self._supported.items() if count == len(self.members)}
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=votes.__getitem__)

    def begin_generation(self, wall_ms: int) -> None:
        """The next generation with the members that are there; Empty without any."""
        self.generation += 1
        self.is_initial = False
        self.is_storing = False
        self.pending_sync = set(self.members)
        self.protocol = self.select_protocol() if self.members else None
        self.set_state(GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY, wall_ms)
        self.read_subscriptions()

    def set_state(self, state: GroupState, wall_ms: int) -> None:
        """Change the state, and remember when."""
        self.state = state
        self.state_timestamp_ms = wall_ms

    def read_subscriptions(self) -> None:
        """Find out which topics the members of a consumer group read."""
        if not self.uses_consumer_protocol:
            self.topics = None
            return
        topics: set[str] = set()
        for member in self.members.values():
            subscribed = subscribed_topics(member.metadata(self.protocol))
            if subscribed is None:
                self.topics = None
                return
            topics |= subscribed
        self.topics = frozenset(topics)

    # ---------------------------------------------------------------- the log

    def to_value(self, assignments: Mapping[str, bytes]) -> GroupValue:
        """The group as it is written; a member that is not in `assignments` has none."""
        return GroupValue(
            protocol_type=self.protocol_type,
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader_id,
            current_state_timestamp_ms=self.state_timestamp_ms,
            members=tuple(
                member.to_value(self.protocol, assignments.get(member.member_id, b""))
                for member in self.members.values()
            ),
        )

    def restore(self, value: GroupValue) -> None:
        """Become the group that a record tells of: Stable with members, Empty without."""
        self.protocol_type = value.protocol_type
        self.generation = value.generation
        self.protocol = value.protocol
        for each in value.members:
            self.add(Member.from_value(each, value.protocol), value.protocol_type)
        if self.members:
            self.leader_id = value.leader if value.leader in self.members else next(iter(self.members))
        self.state = GroupState.STABLE if self.members else GroupState.EMPTY
        self.state_timestamp_ms = value.current_state_timestamp_ms
        self.is_persisted = True
        self.read_subscriptions()

"""Drives a coordinator as a broker would: a clock, a log, and answers that must come at most once and be encodable."""

from __future__ import annotations

from importlib import import_module
from struct import pack

from kafkalite_core.groups import events
from kafkalite_core.groups.config import GroupConfig
from kafkalite_core.groups.coordinator import Coordinator
from kafkalite_core.protocol.delete_groups import DeleteGroupsRequest
from kafkalite_core.protocol.describe_groups import DescribeGroupsRequest
from kafkalite_core.protocol.heartbeat import HeartbeatRequest
from kafkalite_core.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kafkalite_core.protocol.leave_group import LeaveGroupRequest, MemberIdentity
from kafkalite_core.protocol.list_groups import ListGroupsRequest
from kafkalite_core.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkalite_core.protocol.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kafkalite_core.protocol.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

WALL_MS = 1_700_000_000_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000


def subscription(*topics: str) -> bytes:
    """A `ConsumerProtocolSubscription` of version 0."""
    body = b"".join(pack(">h", len(topic.encode())) + topic.encode() for topic in topics)
    return pack(">hi", 0, len(topics)) + body + pack(">i", -1)


RANGE = (("range", subscription("t")),)


class Driver:
    """`commits=False`: the test says itself how each append ends (`commit`, `fail`)."""

    def __init__(
        self, *, commits: bool = True, records=(), loaded: bool = True, now: float = 0.0, metadata=None, **config
    ) -> None:
        config.setdefault("initial_rebalance_delay_ms", 0)
        self.config = GroupConfig(**config)
        self.coordinator = Coordinator(self.config, metadata)
        self.commits = commits
        self.now = now
        self.tokens = 0
        self.ticks = 0
        self.requests: dict[int, tuple[object, int]] = {}
        self.answers: dict[int, object] = {}
        self.appends: dict[int, list[tuple[bytes, bytes | None]]] = {}
        self.log: list[tuple[bytes, bytes | None]] = list(records)
        self.step(events.RecordsLoaded(records=self.log[:]))
        if loaded:
            self.load()

    @property
    def wall(self) -> int:
        return WALL_MS + int(self.now)

    def load(self) -> None:
        self.step(events.Loaded(wall_ms=self.wall))

    def reload(self, **config) -> Driver:
        """The next coordinator of the same log, with what was committed."""
        return Driver(records=self.log, commits=self.commits, now=self.now, **config)

    # ---------------------------------------------------------------- steps

    def step(self, event) -> None:
        for effect in self.coordinator.step(self.now, event):
            if isinstance(effect, events.Answered):
                self._answered(effect)
            else:
                self.appends[effect.append_id] = effect.records
        while self.commits and self.appends:
            self.commit(min(self.appends))

    def _answered(self, effect: events.Answered) -> None:
        assert effect.token in self.requests, "an answer without a request"
        assert effect.token not in self.answers, "two answers"
        request, version = self.requests[effect.token]
        module = import_module(type(request).__module__)
        encoded = b"".join(bytes(part) for part in module.encode_response(effect.response, version))
        module.decode_response(memoryview(encoded), version)
        self.answers[effect.token] = effect.response

    def commit(self, append_id: int | None = None) -> None:
        append_id = min(self.appends) if append_id is None else append_id
        self.log += self.appends.pop(append_id)
        self.step(events.Appended(append_id=append_id))

    def fail(self, error_code: int, append_id: int | None = None) -> None:
        append_id = min(self.appends) if append_id is None else append_id
        del self.appends[append_id]
        self.step(events.AppendFailed(append_id=append_id, error_code=int(error_code)))

    def advance(self, ms: float) -> None:
        """Let time pass; every timer fires when it is due."""
        end = self.now + ms
        while (deadline := self.coordinator.next_deadline_ms()) is not None and deadline <= end:
            assert deadline >= self.now
            self.now = deadline
            self.ticks += 1
            self.step(events.Tick(wall_ms=self.wall))
        self.now = end

    def resign(self) -> None:
        self.commits = False
        self.step(events.Resigned())

    # ---------------------------------------------------------------- requests

    def send(self, request, version: int, *, client_id: str = "c", host: str = "/10.0.0.1") -> int:
        self.tokens += 1
        token = self.tokens
        self.requests[token] = (request, version)
        self.step(
            events.Requested(
                token=token,
                api_version=version,
                request=request,
                client_id=client_id,
                client_host=host,
                wall_ms=self.wall,
                fresh_member_id=f"id{token}",
            )
        )
        return token

    def ask(self, request, version: int, **more):
        """The response, or None while it is not there."""
        return self.answers.get(self.send(request, version, **more))

    def answer(self, token: int):
        return self.answers.get(token)

    def join(
        self,
        member_id: str = "",
        *,
        group: str = "g",
        protocols=RANGE,
        version: int = 9,
        instance: str | None = None,
        session: int = SESSION_MS,
        rebalance: int = REBALANCE_MS,
        protocol_type: str = "consumer",
        **more,
    ) -> int:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session,
            rebalance_timeout_ms=rebalance if version else -1,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols],
        )
        return self.send(request, version, **more)

    def enter(self, **more) -> tuple[str, int]:
        """Ask for a member id and join with it: the id, and the token of the second request."""
        first = self.answer(self.join(**more))
        assert first.error_code == 79, first
        return first.member_id, self.join(first.member_id, **more)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments=None,
        *,
        group: str = "g",
        version: int = 5,
        instance: str | None = None,
        protocol: str | None = None,
        protocol_type: str | None = None,
    ) -> int:
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=each, assignment=data)
                for each, data in (assignments or {}).items()
            ],
        )
        return self.send(request, version)

    def heartbeat(self, member_id: str, generation: int, *, group: str = "g", instance: str | None = None) -> int:
        request = HeartbeatRequest(
            group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance
        )
        return self.ask(request, 4).error_code

    def leave(self, *members: tuple[str, str | None], group: str = "g"):
        identities = [MemberIdentity(member_id=each, group_instance_id=instance) for each, instance in members]
        return self.ask(LeaveGroupRequest(group_id=group, members=identities), 5)

    def commit_offsets(
        self,
        offsets: dict[tuple[str, int], int],
        *,
        group: str = "g",
        member: str = "",
        generation: int = -1,
        instance: str | None = None,
        version: int = 9,
        metadata: str | None = "",
        retention: int = -1,
    ) -> int:
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, partition), offset in offsets.items():
            topics.setdefault(topic, []).append(
                OffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=offset, committed_metadata=metadata
                )
            )
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member,
            group_instance_id=instance,
            retention_time_ms=retention,
            topics=[OffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()],
        )
        return self.send(request, version)

    def commit_codes(self, token: int) -> dict[tuple[str, int], int]:
        response = self.answer(token)
        return {
            (topic.name, each.partition_index): each.error_code
            for topic in response.topics
            for each in topic.partitions
        }

    def offsets(self, group: str = "g") -> dict[tuple[str, int], int]:
        """Every committed offset."""
        response = self.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)]), 9)
        topics = response.groups[0].topics
        return {
            (topic.name, each.partition_index): each.committed_offset for topic in topics for each in topic.partitions
        }

    def fetch(self, *wanted: tuple[str, list[int]], group: str = "g", version: int = 9):
        topics = [OffsetFetchRequestTopics(name=name, partition_indexes=indexes) for name, indexes in wanted]
        return self.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)]), version)

    def describe(self, group: str = "g", version: int = 6):
        return self.ask(DescribeGroupsRequest(groups=[group]), version).groups[0]

    def state(self, group: str = "g") -> str:
        return self.describe(group).group_state

    def listed(self, *states: str, types=()) -> dict[str, str]:
        response = self.ask(ListGroupsRequest(states_filter=list(states), types_filter=list(types)), 5)
        return {group.group_id: group.group_state for group in response.groups}

    def delete_groups(self, *groups: str) -> int:
        return self.send(DeleteGroupsRequest(groups_names=list(groups)), 2)

    # ---------------------------------------------------------------- whole rebalances

    def stable(self, count: int = 1, **more) -> tuple[list[str], int]:
        """A stable group of so many dynamic members, the leader first: their ids and the generation."""
        members: list[str] = []
        for _ in range(count):
            member, token = self.enter(**more)
            tokens = [token] + [self.join(each, **more) for each in members]
            members.append(member)
            assert all(self.answer(each) is not None for each in tokens), "a join hangs"
        generation = self.answer(tokens[0]).generation_id
        leader = self.answer(tokens[0]).leader
        members.sort(key=lambda each: each != leader)
        group = more.get("group", "g")
        syncs = [
            self.sync(each, generation, {m: m.encode() for m in members} if each == leader else None, group=group)
            for each in members
        ]
        assert all(self.answer(token).error_code == 0 for token in syncs)
        return members, generation

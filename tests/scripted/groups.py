"""Group coordinators on the replicated partition of `cluster.Cluster`, and script commands for their members.

The partition stands for one of `__consumer_offsets`. Whoever leads it, or thinks so, runs a coordinator: loaded from its
log at the election, serving once all that it loaded is committed, answering when the high watermark passes, told to
resign when the broker learns of its successor. A broker that does not learn of it runs a zombie.

Commands beside those of `harness` (members are words; a broker is asked, and its answers appear when they come):
    join B MEMBER [instance=I]             JoinGroup; with the id that it was told, if any
    sync B MEMBER                          SyncGroup; the leader deals four partitions out among the members
    heartbeat B MEMBER, leave B MEMBER
    commit B MEMBER PARTITION=OFFSET...    OffsetCommit; `-` is a consumer without membership
    committed B                            OffsetFetch
    group B                                state, generation and members
    pass MS B...                           time passes for the replicas and coordinators of these brokers
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections import deque
from dataclasses import dataclass, field

from kafkalite_core.groups import events as group_events
from kafkalite_core.groups.config import GroupConfig
from kafkalite_core.groups.coordinator import Coordinator
from kafkalite_core.protocol.describe_groups import DescribeGroupsRequest
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.heartbeat import HeartbeatRequest
from kafkalite_core.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kafkalite_core.protocol.leave_group import LeaveGroupRequest, MemberIdentity
from kafkalite_core.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkalite_core.protocol.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kafkalite_core.protocol.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kafkalite_core.replica import events
from tests.scripted.cluster import Cluster, Node, header
from tests.scripted.harness import Script

PARTITIONS = 4
SESSION_MS = 10_000
REBALANCE_MS = 20_000
APPEND_TIMEOUT_MS = 5_000
WALL_MS = 1_700_000_000_000

Records = list[tuple[bytes, bytes | None]]


def pack_records(records: Records) -> str:
    """Records as the text of one entry of a `ListLog`."""
    return json.dumps([[b64encode(part).decode() if part is not None else None for part in each] for each in records])


def unpack_records(value: str) -> Records:
    """The reverse; a record of another kind holds none."""
    if not value.startswith("["):
        return []
    return [(b64decode(key), None if part is None else b64decode(part)) for key, part in json.loads(value)]


@dataclass(eq=False)
class Led:
    """A coordinator of one broker in one leader epoch."""

    node: Node
    epoch: int
    end: int
    coordinator: Coordinator
    loaded: bool = False
    inbox: deque = field(default_factory=deque)
    appends: dict[object, int] = field(default_factory=dict)
    open: set = field(default_factory=set)
    draining: bool = False


class GroupCluster(Cluster):
    """A cluster whose leaders coordinate groups.

    Attributes:
        coordinators: By broker.
        answers: By token; a request whose broker crashed is never answered.
        lost: Tokens of such requests.
    """

    def __init__(self, size: int = 3, *, initial_delay_ms: int = 0, **more) -> None:
        self.coordinators: dict[int, Led] = {}
        self.answers: dict[int, object] = {}
        self.new_answers: list[tuple[int, int]] = []
        self.requests: dict[int, tuple[int, object, int]] = {}
        self.lost: set[int] = set()
        self.asked = 0
        self.delay_ms = initial_delay_ms
        super().__init__(size, **more)

    # ---------------------------------------------------------------- the shell

    def step(self, number: int, event: events.Event) -> list[events.Effect]:
        effects = super().step(number, event)
        node = self.nodes[number]
        led = self.coordinators.get(number)
        for effect in effects:
            if isinstance(effect, events.ProduceAnswered) and led is not None and effect.token in led.appends:
                led.inbox.append(self._end_of(led, effect))
        leads, epoch = node.replica.is_leader, node.replica.leader_epoch
        if led is not None and (not leads or led.epoch != epoch or led.node is not node):
            led.inbox.append(group_events.Resigned())
            self._drain(number, led)
            del self.coordinators[number]
            led = None
        if leads and led is None:
            config = GroupConfig(initial_rebalance_delay_ms=self.delay_ms, retention_check_interval_ms=10**12)
            led = self.coordinators[number] = Led(node, epoch, node.log.end_offset, Coordinator(config))
            for _, entry in node.log.records():
                led.inbox.append(group_events.RecordsLoaded(records=unpack_records(entry.value)))
        if led is not None:
            if not led.loaded and node.replica.high_watermark >= led.end:
                led.loaded = True
                led.inbox.append(group_events.Loaded(wall_ms=self.wall))
            self._drain(number, led)
        return effects

    @property
    def wall(self) -> int:
        return WALL_MS + int(self.now)

    @staticmethod
    def _end_of(led: Led, answer: events.ProduceAnswered) -> group_events.Event:
        append_id = led.appends.pop(answer.token)
        if answer.error_code:
            return group_events.AppendFailed(append_id=append_id, error_code=answer.error_code)
        return group_events.Appended(append_id=append_id)

    def _drain(self, number: int, led: Led) -> None:
        if led.draining:
            return
        led.draining = True
        while led.inbox:
            for effect in led.coordinator.step(self.now, led.inbox.popleft()):
                if isinstance(effect, group_events.Answered):
                    assert effect.token not in self.answers, "two answers"
                    self.answers[effect.token] = effect.response
                    self.new_answers.append((number, effect.token))
                    led.open.discard(effect.token)
                elif led.node.replica.is_leader:
                    self._append(number, led, effect)
        led.draining = False

    def _append(self, number: int, led: Led, effect: group_events.Append) -> None:
        self.tokens += 1
        led.appends[self.tokens] = effect.append_id
        self.step(
            number,
            events.ProduceRequested(
                token=self.tokens, acks=-1, batch=bytearray(pack_records(effect.records).encode()), header=header(),
                received_ms=self.now, deadline_ms=self.now + APPEND_TIMEOUT_MS, wall_ms=0,
            ),
        )  # fmt: skip

    # ---------------------------------------------------------------- for tests

    def crash(self, number: int) -> None:
        super().crash(number)
        led = self.coordinators.pop(number, None)
        if led is not None:
            self.lost |= led.open

    def ask_group(self, number: int, request, version: int, *, client_id: str = "c") -> int:
        """A request reaches a broker; NOT_COORDINATOR if it does not lead. Returns the token."""
        self.asked += 1
        token = self.asked
        self.requests[token] = (number, request, version)
        led = self.coordinators.get(number)
        if led is None:
            self.answers[token] = None
            self.new_answers.append((number, token))
            return token
        led.open.add(token)
        led.inbox.append(
            group_events.Requested(
                token=token,
                api_version=version,
                request=request,
                client_id=client_id,
                client_host="/h",
                wall_ms=self.wall,
                fresh_member_id=str(token),
            )
        )
        self._drain(number, led)
        return token

    def tick_groups(self, number: int) -> None:
        led = self.coordinators.get(number)
        if led is not None:
            led.inbox.append(group_events.Tick(wall_ms=self.wall))
            self._drain(number, led)


# ---------------------------------------------------------------------------------------------------- requests


def join_request(member_id: str, instance: str | None = None) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=REBALANCE_MS,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def sync_request(member_id: str, generation: int, members: list[str], instance: str | None = None) -> SyncGroupRequest:
    """The leader (who knows the members) deals out the partitions."""
    plan = {each: bytes(range(index, PARTITIONS, len(members))) for index, each in enumerate(members)}
    return SyncGroupRequest(
        group_id="g",
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance,
        assignments=[SyncGroupRequestAssignment(member_id=each, assignment=data) for each, data in plan.items()],
    )


def commit_request(offsets: dict[int, int], member_id: str = "", generation: int = -1) -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
        for index, offset in offsets.items()
    ]
    return OffsetCommitRequest(
        group_id="g",
        member_id=member_id,
        generation_id_or_member_epoch=generation,
        topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)],
    )


def fetch_request() -> OffsetFetchRequest:
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])


def fetched(response) -> dict[int, int]:
    """Offsets by partition."""
    return {
        each.partition_index: each.committed_offset for topic in response.groups[0].topics for each in topic.partitions
    }


# ---------------------------------------------------------------------------------------------------- scripts


@dataclass
class Member:
    name: str
    instance: str | None = None
    member_id: str = ""
    generation: int = -1
    members: list[str] = field(default_factory=list)


class GroupScript(Script):
    """Runs one file of commands; see the module."""

    cluster_type = GroupCluster
    cluster: GroupCluster

    def __init__(self) -> None:
        super().__init__()
        self.members: dict[str, Member] = {}
        self.pending: dict[int, tuple[str, str]] = {}

    def run(self, line: str) -> None:
        super().run(line)
        self._report()

    def _report(self) -> None:
        for number, token in self.cluster.new_answers:
            verb, name = self.pending.pop(token)
            response = self.cluster.answers[token]
            text = "NOT_COORDINATOR" if response is None else getattr(self, f"_tell_{verb}")(response, name)
            self.out.append(f"{number}: {name} {verb}: {text}")
        self.cluster.new_answers.clear()

    def _ask(self, number: str, verb: str, name: str, request, version: int) -> None:
        # The answer may come at once, so that its place has to be there before.
        self.pending[self.cluster.asked + 1] = (verb, name)
        self.cluster.ask_group(int(number), request, version, client_id=name)

    def _named(self, member_id: str) -> str:
        return member_id.rpartition("-")[0]

    # ---------------------------------------------------------------- commands

    def do_join(self, number, name, instance=None):
        member = self.members.setdefault(name, Member(name, instance))
        self._ask(number, "join", name, join_request(member.member_id, member.instance), 9)

    def _tell_join(self, response, name) -> str:
        member = self.members[name]
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            member.member_id = response.member_id
        if response.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            member.member_id = ""
        if response.error_code:
            return ErrorCode(response.error_code).name
        member.member_id, member.generation = response.member_id, response.generation_id
        member.members = [each.member_id for each in response.members]
        crowd = ", members " + " ".join(map(self._named, member.members)) if member.members else ""
        return f"generation {response.generation_id}, leader {self._named(response.leader)}{crowd}"

    def do_sync(self, number, name):
        member = self.members[name]
        request = sync_request(member.member_id, member.generation, member.members, member.instance)
        self._ask(number, "sync", name, request, 5)

    def _tell_sync(self, response, _name) -> str:
        if response.error_code:
            return ErrorCode(response.error_code).name
        return "partitions " + (" ".join(map(str, response.assignment)) or "none")

    def do_heartbeat(self, number, name):
        member = self.members[name]
        request = HeartbeatRequest(
            group_id="g",
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance,
        )
        self._ask(number, "heartbeat", name, request, 4)

    def _tell_heartbeat(self, response, _name) -> str:
        return ErrorCode(response.error_code).name

    def do_leave(self, number, name):
        member = self.members[name]
        identity = MemberIdentity(member_id=member.member_id, group_instance_id=member.instance)
        self._ask(number, "leave", name, LeaveGroupRequest(group_id="g", members=[identity]), 5)

    def _tell_leave(self, response, _name) -> str:
        return ErrorCode(response.error_code or response.members[0].error_code).name

    def do_commit(self, number, name, **offsets):
        member = self.members.get(name, Member(name))
        request = commit_request(
            {int(index): int(offset) for index, offset in offsets.items()}, member.member_id, member.generation
        )
        self._ask(number, "commit", name, request, 9)

    def _tell_commit(self, response, _name) -> str:
        codes = {ErrorCode(each.error_code).name for topic in response.topics for each in topic.partitions}
        return " ".join(sorted(codes))

    def do_committed(self, number):
        self._ask(number, "committed", "-", fetch_request(), 9)

    def _tell_committed(self, response, _name) -> str:
        if response.groups[0].error_code:
            return ErrorCode(response.groups[0].error_code).name
        return " ".join(f"{index}={offset}" for index, offset in sorted(fetched(response).items())) or "nothing"

    def do_group(self, number):
        self._ask(number, "group", "-", DescribeGroupsRequest(groups=["g"]), 6)

    def _tell_group(self, response, _name) -> str:
        (group,) = response.groups
        if group.error_code:
            return ErrorCode(group.error_code).name
        crowd = [
            f"{self._named(each.member_id)}({' '.join(map(str, each.member_assignment))})" for each in group.members
        ]
        return " ".join([group.group_state, *crowd])

    def do_pass(self, ms, *names):
        end = self.cluster.now + float(ms)
        while self.cluster.now < end:
            self.cluster.now = min(self.cluster.now + 1_000.0, end)
            for number in self.brokers(names):
                self.note(number, self.cluster.step(number, events.Tick()))
                self.cluster.tick_groups(number)

"""Members of a consumer group: they join, share the partitions out, commit offsets, leave, and fall silent."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from kafkalite_core.groups.routing import partition_for
from kafkalite_core.model.topic import OFFSETS_TOPIC
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.heartbeat import HeartbeatRequest
from kafkalite_core.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kafkalite_core.protocol.leave_group import LeaveGroupRequest, MemberIdentity
from kafkalite_core.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkalite_core.protocol.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kafkalite_core.protocol.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.simulation.clients import Client
from tests.simulation.swarm import GROUP_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.broker import Broker
    from tests.simulation.cluster import SimCluster

GROUP: Final = "g0"
SESSION_MS: Final = 6_000
REBALANCE_MS: Final = 8_000
PATIENCE_MS: Final = 10_000.0
RETRY_MS: Final = 200.0
HEARTBEAT_MS: Final = 1_500.0
COMMIT_MS: Final = 500.0
BEGIN_ANEW: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.GROUP_ID_NOT_FOUND})
_HEAD = Struct(">hih")
_SUBSCRIPTION: Final = _HEAD.pack(0, 1, len(GROUP_TOPIC)) + GROUP_TOPIC.encode() + b"\xff\xff\xff\xff"


class Member(Client):
    """One consumer of the group. `owned` is what it was given in `generation`."""

    def __init__(self, cluster: SimCluster, number: int) -> None:
        super().__init__(cluster, f"m{number}")
        self.member_id = ""
        self.generation = -1
        self.owned: tuple[int, ...] = ()
        self.stable = False
        self.steady = False
        self._turn = 0
        self._under_way: dict[Callable[[], None], str] = {}
        self.partitions = next(t.partitions for t in cluster.shape.topics if t.name == GROUP_TOPIC)

    def begin(self) -> None:
        """Join for the first time."""
        self.refresh()
        self.world.at(300.0 + self.chance() * 500.0, self.process, self._join, self._turn)

    # ------------------------------------------------------------ requests

    def _ask(
        self,
        request: Any,
        version: int,
        turn: int,
        answered: Callable[[Any], None],
        *,
        again: bool,
        deposed: Callable[[], object] = lambda: None,
    ) -> None:
        """Ask the coordinator; without it, or without its answer, ask again or join anew.

        `deposed` is called before the answer of one that the store has deposed, and that has not heard of it.
        """
        count = sum(name == OFFSETS_TOPIC for name, _ in self.leaders)
        coordinator = self.leader(OFFSETS_TOPIC, partition_for(GROUP, count)) if count else None
        if coordinator is None:
            self.refresh()
            self.world.at(RETRY_MS, self.process, self._nobody, turn, again)
            return
        done: list[bool] = []

        def heard(response: Any) -> None:
            self._under_way.pop(overdue, None)
            if not done and turn == self._turn:
                done.append(True)
                answered(response)

        def overdue() -> None:
            self._under_way.pop(overdue, None)
            if not done and turn == self._turn:
                done.append(True)
                self.refresh()
                self._nobody(turn, again)
            else:
                self.world.events -= 1

        name = coordinator.host.name

        def arrived(broker: Broker) -> None:
            if broker.serving:
                broker.groups.ask(
                    GROUP, request, version,
                    lambda response: self._reply(broker, heard, response, deposed),
                )  # fmt: skip

        self._under_way[overdue] = name
        self.network.send_once(self.name, name, coordinator.process, arrived, coordinator)
        self.world.at(PATIENCE_MS, self.process, overdue)

    def connection_lost(self, host: str) -> None:
        """What was under way there has no answer; it may have been done all the same."""
        super().connection_lost(host)
        for overdue, name in list(self._under_way.items()):
            if name == host:
                self.world.bite("client_reset")
                self.world.at(0.0, self.process, overdue)

    def _reply(
        self, broker: Broker, heard: Callable[[Any], None], response: Any, deposed: Callable[[], object]
    ) -> None:
        count = sum(name == OFFSETS_TOPIC for name, _ in self.leaders)
        driver = broker.driver(OFFSETS_TOPIC, partition_for(GROUP, count)) if count else None
        entry = None if driver is None else driver.ledger.entry
        if driver is None or entry is None or entry.leader_epoch > driver.replica.leader_epoch:
            deposed()
        self.network.send_once(broker.host.name, self.name, self.process, heard, response)

    def _nobody(self, turn: int, again: bool) -> None:
        if turn == self._turn and again:
            self._join_anew(0.0)

    def _join_anew(self, delay_ms: float, *, forget: bool = False) -> None:
        self._turn += 1
        self.stable = False
        if forget:
            self.member_id = ""
        self.refresh()
        self.world.at(delay_ms + RETRY_MS * self.chance(), self.process, self._join, self._turn)

    def _failed(self, error_code: int) -> None:
        """Some request was refused."""
        if error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._join_anew(0.0)
        else:
            self._join_anew(RETRY_MS, forget=error_code in BEGIN_ANEW)

    # ------------------------------------------------------------ the life of a member

    def _join(self, turn: int) -> None:
        if turn != self._turn:
            return
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=_SUBSCRIPTION)],
        )
        self._ask(request, 5, turn, self._joined, again=True)

    def _joined(self, response: Any) -> None:
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            self._join(self._turn)
            return
        if response.error_code:
            self._failed(response.error_code)
            return
        self.member_id, self.generation = response.member_id, response.generation_id
        shares: list[SyncGroupRequestAssignment] = []
        if response.leader == self.member_id:
            names = sorted(member.member_id for member in response.members)
            shares = [
                SyncGroupRequestAssignment(member_id=name, assignment=bytes(range(place, self.partitions, len(names))))
                for place, name in enumerate(names)
            ]
        request = SyncGroupRequest(
            group_id=GROUP, generation_id=self.generation, member_id=self.member_id, assignments=shares
        )
        self._ask(request, 3, self._turn, self._synced, again=True)

    def _synced(self, response: Any) -> None:
        if response.error_code:
            self._failed(response.error_code)
            return
        self.owned = tuple(response.assignment)
        self.cluster.oracles.groups.assigned(GROUP, self.generation, self.member_id, self.owned)
        self.stable = True
        turn = self._turn
        self._fetch_offsets(turn)
        self.world.at(HEARTBEAT_MS * (0.5 + 0.5 * self.chance()), self.process, self._heartbeat, turn)
        if self.owned:
            self.world.at(COMMIT_MS * self.chance(), self.process, self._commit, turn)

    def _fetch_offsets(self, turn: int) -> None:
        floors = self.cluster.oracles.groups.floors(GROUP, self.owned)
        topics = [OffsetFetchRequestTopics(name=GROUP_TOPIC, partition_indexes=list(self.owned))]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=topics)])

        def fetched(response: Any) -> None:
            (group,) = response.groups
            if group.error_code:
                self._failed(group.error_code)
                return
            for topic in group.topics:
                for partition in topic.partitions:
                    self.cluster.oracles.groups.fetched(
                        GROUP, partition.partition_index, partition.committed_offset, floors
                    )

        if self.owned:
            # Nobody asks the followers before a read: who has not heard of its successor shows what was, as in Kafka.
            self._ask(request, 8, turn, fetched, again=False, deposed=floors.clear)

    def _heartbeat(self, turn: int) -> None:
        if turn != self._turn:
            return
        if not self.steady and self.chance() < 0.02:
            self._leave()
            return
        request = HeartbeatRequest(group_id=GROUP, generation_id=self.generation, member_id=self.member_id)

        def heard(response: Any) -> None:
            if response.error_code:
                self._failed(response.error_code)

        self._ask(request, 3, turn, heard, again=True)
        self.world.at(HEARTBEAT_MS, self.process, self._heartbeat, turn)

    def _commit(self, turn: int) -> None:
        if turn != self._turn:
            return
        number = self.owned[int(self.chance() * len(self.owned))]
        value = self.cluster.oracles.groups.next_value()
        partition = OffsetCommitRequestPartition(partition_index=number, committed_offset=value)
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            topics=[OffsetCommitRequestTopic(name=GROUP_TOPIC, partitions=[partition])],
        )

        def committed(response: Any) -> None:
            code = response.topics[0].partitions[0].error_code
            if code:
                self._failed(code)
                return
            self.cluster.oracles.groups.committed(GROUP, number, value)
            self.world.at(COMMIT_MS * (0.5 + self.chance()), self.process, self._commit, turn)

        self._ask(request, 8, turn, committed, again=True)

    def _leave(self) -> None:
        """Go, with a word or without, and come back later."""
        if self.chance() < 0.5:
            identity = MemberIdentity(member_id=self.member_id)
            request = LeaveGroupRequest(group_id=GROUP, members=[identity])
            self._ask(request, 3, self._turn, lambda _response: None, again=False)
        self._join_anew(SESSION_MS * 2 * self.chance(), forget=True)

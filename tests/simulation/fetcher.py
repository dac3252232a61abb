"""Fetching from one leader: all partitions that this broker follows there, one request after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.replica.events import FetchAnswered, FetchRequested, FetchResponded
from tests.simulation.driver import Asked, Driver, Given
from tests.simulation.sessions import Connection, SessionFetch

if TYPE_CHECKING:
    from tests.simulation.broker import Broker

ANSWER_DEADLINE_MS = 5_000.0
BACK_OFF_MIN_MS = 20.0
BACK_OFF_MAX_MS = 500.0


class Fetcher:
    """Sends, waits, applies. Answers that come late or twice are handed to the replicas all the same: they judge."""

    __slots__ = ("_back_off_ms", "_broker", "_connection", "_deadline_ms", "_not_before_ms", "_number", "_sent", "drivers", "leader",
                 "stopped")  # fmt: skip

    def __init__(self, broker: Broker, leader: int) -> None:
        self._broker = broker
        self.leader = leader
        self.drivers: dict[Driver, None] = {}
        self.stopped = False
        self._connection: Connection | None = None
        self._number = 0
        self._sent: dict[tuple[str, int], Driver] | None = None
        self._deadline_ms = 0.0
        self._back_off_ms = BACK_OFF_MIN_MS
        self._not_before_ms = 0.0

    def kick(self) -> None:
        """Positions changed; a request that waits at the leader is given up, with its connection."""
        if self._sent is not None:
            self.close()
        self._sent = None
        self.turn()

    @property
    def waits(self) -> bool:
        """Whether a request is under way."""
        return self._sent is not None

    def close(self) -> None:
        """The connection is given up."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def flushed(self, driver: Driver) -> None:
        """A position moved. When it has no part in the request under way, that one would keep it waiting."""
        if self._sent is None:
            self.turn()
        elif (driver.ref.topic_id, driver.number) not in self._sent:
            self.kick()

    def tick(self) -> None:
        """Time went by: the answer may be overdue, a back-off may be over."""
        if self._sent is None:
            self.turn()
        elif self._broker.world.now >= self._deadline_ms:
            self._failed()

    def turn(self) -> None:
        """Send the next request, if there is anything to ask."""
        broker = self._broker
        world = broker.world
        if self._sent is not None or self.stopped or world.now < self._not_before_ms:
            return
        now_ms = broker.mono_ms()
        asked: list[Asked] = []
        sent: dict[tuple[str, int], Driver] = {}
        for driver in self.drivers:
            log = driver.log
            if log.flushed_end < log.end_offset:
                continue
            position = driver.replica.fetch_position()
            if position is None or position.leader != self.leader or position.not_before_ms > now_ms:
                continue
            asked.append(Asked(driver.ref.topic_id, driver.ref.name, driver.number, position))
            sent[driver.ref.topic_id, driver.number] = driver
        if not asked:
            return
        leader = broker.peer(self.leader)
        self._number += 1
        if leader is None or not leader.serving:
            self._failed()
            return
        self._sent = sent
        self._deadline_ms = world.now + broker.shape.fetch_wait_ms + ANSWER_DEADLINE_MS
        if broker.shape.sessions:
            self._ask_in_session(leader, sent, asked)
            return
        request = FollowerFetch(self, broker, leader, self._number, broker.broker_epoch, asked)
        if not broker.network.send(broker.host.name, leader.host.name, leader.process, request.arrived):
            self._failed()

    def _ask_in_session(self, leader: Broker, sent: dict[tuple[str, int], Driver], asked: list[Asked]) -> None:
        broker, connection = self._broker, self._connection
        if connection is None or connection.leader is not leader or connection.epoch != broker.broker_epoch:
            self.close()
            connection = self._connection = Connection(leader, broker.broker_epoch)
        connection.drivers.update(sent)
        positions = {(one.topic_id, one.number): one.position for one in asked}
        request = SessionFetch(self, broker, connection, self._number, positions)
        if not broker.network.send_once(broker.host.name, leader.host.name, leader.process, request.arrived):
            self._failed()

    def session_answered(
        self, connection: Connection, number: int, error_code: int, session_id: int, given: list[Given]
    ) -> None:
        """The leader's answer on the connection; on one that was given up nobody listens."""
        if connection is not self._connection or not connection.open or number != self._number or self.stopped:
            return
        if error_code:
            self._failed()
            return
        connection.session.answered(session_id)
        self.answered(number, given)

    def _failed(self) -> None:
        self.close()
        broker = self._broker
        self._sent = None
        self._not_before_ms = broker.world.now + self._back_off_ms
        broker.world.at(self._back_off_ms, broker.process, self.turn)
        self._back_off_ms = min(self._back_off_ms * 2, BACK_OFF_MAX_MS)

    def lost(self) -> None:
        """The connection ended."""
        if self._sent is not None:
            self._failed()

    def answered(self, number: int, given: list[Given]) -> None:
        """The leader's answer, or an old one."""
        if self.stopped:
            return
        broker = self._broker
        current = number == self._number and self._sent is not None
        if current:
            self._sent = None
            self._back_off_ms = BACK_OFF_MIN_MS
        wall_ms = broker.wall_ms()
        for asked, answer, records in given:
            driver = broker.partitions.drivers.get((asked.topic, asked.number))
            if driver is None or driver.ref.topic_id != asked.topic_id:
                continue
            driver.step(
                FetchResponded(
                    leader_id=self.leader,
                    leader_epoch=asked.position.current_leader_epoch,
                    fetch_offset=asked.position.fetch_offset,
                    last_fetched_epoch=asked.position.last_fetched_epoch,
                    error_code=answer.error_code,
                    high_watermark=answer.high_watermark,
                    log_start_offset=answer.log_start_offset,
                    diverging=answer.diverging,
                    records=memoryview(records),
                    wall_ms=wall_ms,
                )
            )
        if current:
            self.turn()


class FollowerFetch:
    """One request as the leader has it: answered at once, or when there is something to tell, or when time is up."""

    __slots__ = ("_answered", "_asked", "_fetcher", "_follower", "_follower_epoch", "_leader", "_number")

    def __init__(
        self, fetcher: Fetcher, follower: Broker, leader: Broker, number: int, epoch: int, asked: list[Asked]
    ) -> None:
        self._fetcher = fetcher
        self._follower = follower
        self._leader = leader
        self._number = number
        self._follower_epoch = epoch
        self._asked = asked
        self._answered = False

    def arrived(self) -> None:
        """At the leader, once or twice."""
        self._answered = False
        if not self._look(reread=False, final=False):
            self._leader.world.at(self._leader.shape.fetch_wait_ms, self._leader.process, self._time_is_up)

    def _time_is_up(self) -> None:
        if self._answered:
            self._leader.world.events -= 1  # nothing happens
        else:
            self._look(reread=True, final=True)

    def _look_again(self) -> None:
        if self._answered:
            self._leader.world.events -= 1
        else:
            self._look(reread=True, final=False)

    def _look(self, *, reread: bool, final: bool) -> bool:
        """Answer if there is something to say; else wait at every partition."""
        leader = self._leader
        given: list[Given] = []
        drivers: list[Driver] = []
        room = leader.shape.fetch_max_bytes
        telling = final
        for asked in self._asked:
            driver = leader.partitions.drivers.get((asked.topic, asked.number))
            if driver is None or driver.ref.topic_id != asked.topic_id:
                code = int(ErrorCode.UNKNOWN_TOPIC_ID if driver is None else ErrorCode.INCONSISTENT_TOPIC_ID)
                given.append(Given(asked, FetchAnswered(token=None, error_code=code), b""))
                telling = True
                continue
            position = asked.position
            answer = driver.fetch(
                FetchRequested(
                    token=None,
                    replica_id=self._follower.host.id,
                    replica_epoch=self._follower_epoch,
                    current_leader_epoch=position.current_leader_epoch,
                    fetch_offset=position.fetch_offset,
                    last_fetched_epoch=position.last_fetched_epoch,
                    log_start_offset=position.log_start_offset,
                    reread=reread,
                )
            )
            records = driver.read(answer, min(leader.shape.partition_max_bytes, room)) if room > 0 else b""
            room -= len(records)
            telling = telling or bool(records or answer.error_code or answer.diverging)
            given.append(Given(asked, answer, records))
            drivers.append(driver)
        if not telling:
            for driver in drivers:
                driver.waiting.append(self._look_again)
            return False
        self._answered = True
        leader.network.send(
            leader.host.name,
            self._follower.host.name,
            self._follower.process,
            self._fetcher.answered,
            self._number,
            given,
        )
        return True

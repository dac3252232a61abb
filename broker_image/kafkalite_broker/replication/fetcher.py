"""Fetching from one leader: all partitions that this broker follows there, in one request after the other.

The fetch offset is the flushed log end (S8), so the next request goes out after the flush of what the last one brought.
A connection carries one fetch session (KIP-227): requests name only the partitions whose position moved.
"""

from __future__ import annotations

import asyncio
from math import ceil
from typing import TYPE_CHECKING

from kafkalite_broker.background import watch
from kafkalite_broker.clock import now_ms, wall_ms
from kafkalite_broker.replication.peer import PeerError, close_quietly
from kafkalite_broker.replication.peer_address import PeerAddress
from kafkalite_core.model.limits import SOCKET_REQUEST_BYTES_MAX
from kafkalite_core.protocol.apis import API
from kafkalite_core.protocol.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from kafkalite_core.protocol.header import decode_response_header, encode_request_frame
from kafkalite_core.replica.events import FetchResponded
from kafkalite_core.replica.fetch_session import FollowerSession
from kafkalite_core.storage.errors import DiskFailure
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from kafkalite_broker.replication.driver import PartitionDriver
    from kafkalite_broker.replication.peer import PeerConnection
    from kafkalite_broker.replication.throttles import ReplicationThrottles
    from kafkalite_core.protocol.fetch import FetchResponse
    from kafkalite_core.replica.events import FetchPosition

FETCH = API[1]
FETCH_VERSION = 16
ANSWER_DEADLINE_S = 5.0
"""How long a leader may be silent beyond the wait that was asked for; then it is taken for unreachable."""
BACK_OFF_MIN_S = 0.02
BACK_OFF_MAX_S = 0.5

log = get_logger(__name__)


class FetchSettings:
    """What to ask for: `replica.fetch.wait.max.ms` and the like.

    An answer may be larger than what was asked for by one batch, which came in a request of `socket.request.max.bytes`
    at most.
    """

    __slots__ = ("answer_bytes_max", "max_bytes", "partition_max_bytes", "wait_max_ms")

    def __init__(
        self, *, wait_max_ms: int, max_bytes: int, partition_max_bytes: int, request_bytes_max: int = 0
    ) -> None:
        self.wait_max_ms = wait_max_ms
        self.max_bytes = max_bytes
        self.partition_max_bytes = partition_max_bytes
        self.answer_bytes_max = max(request_bytes_max, SOCKET_REQUEST_BYTES_MAX) + max_bytes


class Fetcher:
    """A task that follows one leader.

    Args:
        broker_id: This broker's id.
        leader_id: The leader's id.
        broker_epoch: Tells this broker's registered epoch (KIP-903).
        endpoint: Tells the leader's host and port, or None while it is not registered.
        settings: Sizes and waits.
        throttles: Which replicas that catch up have to wait.
        on_unreachable: Told when the leader stops answering: its clients are about to ask who leads now.
        on_fatal: Told a `DiskFailure` (R12), or a defect that ended the task; the process must end after it.
    """

    def __init__(
        self,
        *,
        broker_id: int,
        leader_id: int,
        broker_epoch: Callable[[], int],
        endpoint: Callable[[], tuple[str, int] | None],
        settings: FetchSettings,
        throttles: ReplicationThrottles,
        on_unreachable: Callable[[int], None],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self.leader_id = leader_id
        self.drivers: set[PartitionDriver] = set()
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._endpoint = endpoint
        self._settings = settings
        self._throttles = throttles
        self._on_unreachable = on_unreachable
        self._on_fatal = on_fatal
        self._address = PeerAddress()
        self._connection: PeerConnection | None = None
        self._connected_to: tuple[str, int] | None = None
        self._session: FollowerSession[PartitionDriver] = FollowerSession()
        self._session_epoch = -1
        """The broker epoch of the session: another incarnation is another follower."""
        self._in_session: dict[tuple[UUID, int], PartitionDriver] = {}
        self._changed = asyncio.Event()
        self._in_flight: frozenset[PartitionDriver] | None = None
        self._abandoned = False
        self._wait_max_ms = settings.wait_max_ms
        """How long the next request may wait at the leader: not beyond the pause of a partition that it leaves out."""
        self._back_off_s = BACK_OFF_MIN_S
        self._unreachable = False
        self._correlation_id = 0
        self._task = asyncio.create_task(self._run(), name=f"fetcher of leader {leader_id}")
        watch(self._task, on_fatal)

    def kick(self) -> None:
        """Positions changed. A request that only waits at the leader is given up, so that the new ones go out now."""
        self._changed.set()
        connection = self._connection
        if self._in_flight is not None and connection is not None and not connection.answering:
            self._abandoned = True
            connection.close()

    def position_changed(self) -> None:
        """A position moved with the last answer, or a pause after a refusal is over: it is for the next request.

        One that is under way reckons with the pause, so the connection is kept: others may wait on it.
        """
        self._changed.set()

    def flushed(self, driver: PartitionDriver) -> None:
        """A flush of this partition is complete: its position may have moved.

        When it could not take part in the request that is under way, that request would keep it waiting (a partition
        whose log was cut, or that has a new leader).
        """
        self._changed.set()
        if self._in_flight is not None and driver in self.drivers and driver not in self._in_flight:
            self.kick()

    async def stop(self) -> None:
        """End the task and close the connection."""
        await close_quietly(self._task)
        if self._connection is not None:
            self._connection.close()

    # ------------------------------------------------------------ loop

    async def _run(self) -> None:
        """Whatever goes wrong with one answer, the next one is asked for: a fetcher never ends by itself."""
        while True:
            try:
                await self._turn()
            except DiskFailure as error:
                self._on_fatal(error)
                return
            except Exception as error:
                await self._failed(error)

    async def _turn(self) -> None:
        positions, wait_s = self._positions()
        if not positions:
            await self._wait(wait_s)
            return
        connection = await self._connected()
        if self._changed.is_set():
            # Positions moved while the connection was made.
            return
        answer = await self._exchange(connection, positions)
        if self._unreachable:
            self._unreachable = False
            log.info("leader answers again", leader=self.leader_id)
        failure = self._apply(answer, positions)
        if failure is not None:
            raise failure
        self._back_off_s = BACK_OFF_MIN_S
        await self._until_flushed(positions)

    def _positions(self) -> tuple[dict[PartitionDriver, FetchPosition], float | None]:
        """What to fetch now, and otherwise after how long to look again (None: when something changes)."""
        now = now_ms()
        self._changed.clear()
        positions: dict[PartitionDriver, FetchPosition] = {}
        wait_ms: float | None = None
        self._wait_max_ms = self._settings.wait_max_ms
        for driver in self.drivers:
            position = driver.replica.fetch_position()
            if position is None or position.leader != self.leader_id:
                continue
            pause_ms = position.not_before_ms - now
            if pause_ms > 0:
                self._wait_max_ms = min(self._wait_max_ms, ceil(pause_ms))
            delay_ms = max(pause_ms, self._throttles.wait_ms(driver))
            if delay_ms > 0:
                wait_ms = min(delay_ms, wait_ms if wait_ms is not None else 1e9)
            else:
                positions[driver] = position
        return positions, None if wait_ms is None else wait_ms / 1000.0

    async def _wait(self, wait_s: float | None) -> None:
        try:
            async with asyncio.timeout(wait_s):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _failed(self, error: Exception) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._abandoned:
            self._abandoned = False
            self._address.given_up()
            return
        if not isinstance(error, PeerError):
            log.error("fetch failed", leader=self.leader_id, exc_info=error)
        elif not self._unreachable:
            self._unreachable = True
            self._on_unreachable(self.leader_id)
            log.warning("leader does not answer", leader=self.leader_id, error=str(error))
        await self._wait(self._back_off_s)
        self._back_off_s = min(self._back_off_s * 2, BACK_OFF_MAX_S)

    async def _until_flushed(self, positions: dict[PartitionDriver, FetchPosition]) -> None:
        while any(driver.log.flushed_end < driver.log.end_offset for driver in positions if driver in self.drivers):
            self._changed.clear()
            await self._changed.wait()

    # ------------------------------------------------------------ requests

    async def _connected(self) -> PeerConnection:
        endpoint = self._endpoint()
        if endpoint is None:
            raise PeerError("the leader is not registered")
        if self._connection is None or self._connection.transport is None or self._connected_to != endpoint:
            if self._connection is not None:
                self._connection.close()
            self._connection = await self._address.connect(endpoint)
            self._connection.answer_bytes_max = self._settings.answer_bytes_max
            self._connected_to = endpoint
            self._begin_session()
        elif self._session_epoch != self._broker_epoch():
            self._begin_session()
        return self._connection

    def _begin_session(self) -> None:
        self._session = FollowerSession()
        self._session_epoch = self._broker_epoch()
        self._in_session.clear()

    async def _exchange(
        self, connection: PeerConnection, positions: dict[PartitionDriver, FetchPosition]
    ) -> FetchResponse:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        frame = encode_request_frame(
            FETCH, FETCH_VERSION, self._correlation_id, f"broker-{self._broker_id}", self._request(positions)
        )
        self._in_flight = frozenset(positions)
        self._abandoned = False
        try:
            answer = await connection.exchange(frame, self._wait_max_ms / 1000.0 + ANSWER_DEADLINE_S)
        finally:
            self._in_flight = None
        self._abandoned = False
        correlation_id, offset = decode_response_header(answer, FETCH, FETCH_VERSION)
        if correlation_id != self._correlation_id:
            raise PeerError("answer to another request")
        response: FetchResponse = FETCH.decode_response(answer[offset:], FETCH_VERSION)
        if response.error_code:
            raise PeerError(f"the leader refused the request: error {response.error_code}")
        self._session.answered(response.session_id)
        return response

    def _request(self, positions: dict[PartitionDriver, FetchPosition]) -> FetchRequest:
        session = self._session.request(positions)
        topics: dict[UUID, FetchTopic] = {}
        for driver, position in session.named.items():
            self._in_session[driver.topic_uuid, driver.number] = driver
            topic = topics.get(driver.topic_uuid)
            if topic is None:
                topic = topics[driver.topic_uuid] = FetchTopic(topic_id=driver.topic_uuid, partitions=[])
            topic.partitions.append(
                FetchPartition(
                    partition=driver.number,
                    current_leader_epoch=position.current_leader_epoch,
                    fetch_offset=position.fetch_offset,
                    last_fetched_epoch=position.last_fetched_epoch,
                    log_start_offset=position.log_start_offset,
                    partition_max_bytes=self._settings.partition_max_bytes,
                )
            )
        return FetchRequest(
            replica_state=ReplicaState(replica_id=self._broker_id, replica_epoch=self._session_epoch),
            max_wait_ms=self._wait_max_ms,
            min_bytes=1,
            max_bytes=self._settings.max_bytes,
            session_id=session.session_id,
            session_epoch=session.session_epoch,
            topics=list(topics.values()),
            forgotten_topics_data=self._forgotten(session.forgotten),
        )

    def _forgotten(self, drivers: list[PartitionDriver]) -> list[ForgottenTopic]:
        topics: dict[UUID, ForgottenTopic] = {}
        for driver in drivers:
            topic = topics.setdefault(driver.topic_uuid, ForgottenTopic(topic_id=driver.topic_uuid, partitions=[]))
            topic.partitions.append(driver.number)
            if self._in_session.get((driver.topic_uuid, driver.number)) is driver:
                del self._in_session[driver.topic_uuid, driver.number]
        return list(topics.values())

    def _apply(self, answer: FetchResponse, positions: dict[PartitionDriver, FetchPosition]) -> Exception | None:
        """Hand every partition its part. What one of them raises is returned, after the others had theirs."""
        failure: Exception | None = None
        arrived_ms = wall_ms()
        for topic in answer.responses:
            for data in topic.partitions:
                driver = self._in_session.get((topic.topic_id, data.partition_index))
                if driver is None or driver not in positions or driver not in self.drivers:
                    # Removed meanwhile (KAFKA-13207).
                    continue
                position = positions[driver]
                diverging = data.diverging_epoch
                event = FetchResponded(
                    leader_id=self.leader_id,
                    leader_epoch=position.current_leader_epoch,
                    fetch_offset=position.fetch_offset,
                    last_fetched_epoch=position.last_fetched_epoch,
                    error_code=data.error_code,
                    high_watermark=data.high_watermark,
                    log_start_offset=data.log_start_offset,
                    diverging=None if diverging is None else (diverging.epoch, diverging.end_offset),
                    records=_as_view(data.records),
                    wall_ms=arrived_ms,
                )
                if event.records:
                    self._throttles.received(driver, len(event.records))
                try:
                    driver.fetched(event)
                except DiskFailure:
                    raise
                except Exception as error:
                    failure = error
        return failure


def _as_view(records: object) -> memoryview:
    """Decoded records are one view of the answer, or None."""
    return records if isinstance(records, memoryview) else memoryview(b"")

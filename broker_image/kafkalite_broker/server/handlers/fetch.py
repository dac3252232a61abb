"""Fetch (key 1): for consumers up to the high watermark, for followers up to the log end.

Fetch sessions (KIP-227) are declined with session id 0, which every client accepts.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast
from uuid import UUID

from kafkalite_broker.server.handlers.bounds import partitions_named, within_bounds
from kafkalite_core.model.errors import BrokerError
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from kafkalite_core.replica.events import CONSUMER_ID, FetchRequested
from kafkalite_core.storage.errors import ReadInterrupted
from kafkalite_core.storage.reading import ReadResult

if TYPE_CHECKING:
    from kafkalite_broker.replication.driver import PartitionDriver
    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.services import Services
    from kafkalite_core.protocol.fetch import FetchPartition
    from kafkalite_core.protocol.primitives import Records
    from kafkalite_core.storage.reading import ColdRead

TOPIC_IDS_FROM_VERSION = 13
REPLICA_STATE_FROM_VERSION = 15
HINTS_FROM_VERSION = 16
INVALID_SESSION_ID = 0
FULL_FETCH_EPOCHS = frozenset({-1, 0})
FETCH_BYTES_MAX = 57_671_680
"""Kafka's `fetch.max.bytes`: one answer is never larger, whatever the client allows, one batch excepted."""

LEADER_MOVED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
EMPTY = b""


class Wanted:
    """One partition of a fetch: the question, its driver, and the current answer."""

    __slots__ = ("cold", "data", "driver", "question", "size_bytes", "topic")

    def __init__(self, topic: str, question: FetchPartition) -> None:
        self.topic = topic
        self.question = question
        self.driver: PartitionDriver | None = None
        # Never null, errors included: librdkafka takes a null for a broken message and asks again without a pause.
        self.data = PartitionData(partition_index=question.partition, records=EMPTY)
        self.size_bytes = 0
        self.cold: ColdRead | None = None


class PendingFetch:
    """One Fetch request until it is answered."""

    __slots__ = ("_deadline_s", "_groups", "_loop", "_replica_epoch", "_replica_id", "_request", "_scheduled",
                 "_services", "_waiting", "_wanted", "_woken", "done")  # fmt: skip

    def __init__(self, request: Request, services: Services) -> None:
        body = request.body
        self._request = request
        self._services = services
        self._loop = asyncio.get_running_loop()
        self._deadline_s = 0.0
        self._scheduled = False
        self._waiting = False
        self._woken: set[PartitionDriver] = set()
        self.done = False
        self._replica_id, self._replica_epoch = body.replica_id, -1
        if request.version >= REPLICA_STATE_FROM_VERSION:
            # A tagged field that consumers leave out.
            state = body.replica_state
            self._replica_id = CONSUMER_ID if state is None else state.replica_id
            self._replica_epoch = -1 if state is None else state.replica_epoch
        self._groups: list[tuple[str, UUID | None, list[Wanted]]] = []
        self._wanted: list[Wanted] = []
        self._collect()

    @property
    def from_follower(self) -> bool:
        """Whether a broker asks, and not a client."""
        return bool(self._replica_id != CONSUMER_ID)

    def _collect(self) -> None:
        by_id = self._request.version >= TOPIC_IDS_FROM_VERSION
        partitions = self._services.partitions
        for topic in self._request.body.topics:
            name, topic_id, unknown = topic.topic, None, False
            if by_id:
                topic_id = topic.topic_id
                found = self._services.cache.topic_by_id(str(topic_id))
                unknown = found is None
                name = "" if found is None else found.ref.name
            group = [Wanted(name, question) for question in topic.partitions]
            for wanted in group:
                if unknown:
                    wanted.data.error_code = ErrorCode.UNKNOWN_TOPIC_ID
                    continue
                try:
                    driver = partitions.hosted(name, wanted.question.partition)
                except BrokerError as error:
                    wanted.data.error_code = error.error_code
                    continue
                if topic_id is not None and driver.ref.topic_id != str(topic_id):
                    wanted.data.error_code = ErrorCode.UNKNOWN_TOPIC_ID
                    continue
                wanted.driver = driver
            self._groups.append((name, topic_id, group))
            self._wanted.extend(group)

    def start(self) -> None:
        """Answer at once when there is something to tell, else wait."""
        body = self._request.body
        if body.session_id != INVALID_SESSION_ID and body.session_epoch not in FULL_FETCH_EPOCHS:
            # Sessions are never granted here: the client begins anew with a full fetch.
            self.done = True
            self._request.answer(FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
            return
        if self._attempt() or body.max_wait_ms <= 0:
            self._respond()
            return
        self._waiting = True
        self._request.on_abandoned(self._abandoned)
        self._deadline_s = self._loop.time() + body.max_wait_ms / 1000.0
        for wanted in self._wanted:
            if wanted.driver is not None:
                wanted.driver.wait(self, for_log_end=self.from_follower)
        self._services.waiting.add(self, self._deadline_s)

    def wake(self, driver: PartitionDriver) -> None:
        """A partition moved: look at it again, once per turn of the loop however many partitions moved."""
        self._woken.add(driver)
        if not self._scheduled and not self.done:
            self._scheduled = True
            self._loop.call_soon(self._look_again)

    def _look_again(self) -> None:
        self._scheduled = False
        if self.done:
            return
        woken, self._woken = self._woken, set()
        try:
            if self._attempt(woken):
                self._respond()
        except Exception as error:
            self._let_go()
            self._request.failed(error)

    def expire(self) -> None:
        """`max_wait_ms` is over: answer with what there is."""
        if self.done:
            return
        try:
            self._attempt({wanted.driver for wanted in self._wanted if wanted.driver is not None})
            self._respond()
        except Exception as error:
            self._let_go()
            self._request.failed(error)

    def _abandoned(self) -> None:
        """The client went away: nothing waits for it any longer."""
        self._let_go()

    def _let_go(self) -> None:
        if self.done:
            return
        self.done = True
        for wanted in self._wanted:
            if wanted.driver is not None:
                wanted.driver.stop_waiting(self)
        if self._waiting:
            self._services.waiting.finished()

    def _attempt(self, moved: set[PartitionDriver] | None = None) -> bool:
        """Read every partition, later those that moved; with many partitions the others are most of the work.

        True when the answer must not wait: enough bytes, an error, a divergence.
        """
        body = self._request.body
        total_bytes = 0
        if moved is not None:
            total_bytes = sum(wanted.size_bytes for wanted in self._wanted if wanted.driver not in moved)
        left_bytes = min(body.max_bytes, FETCH_BYTES_MAX) - total_bytes
        urgent = not self._wanted
        for wanted in self._wanted:
            driver = wanted.driver
            if driver is None:
                urgent = True
                continue
            if moved is not None and driver not in moved:
                continue
            urgent |= self._read(driver, wanted, left_bytes, first=total_bytes == 0, reread=moved is not None)
            total_bytes += wanted.size_bytes
            left_bytes -= wanted.size_bytes
        return urgent or total_bytes >= body.min_bytes

    def _read(self, driver: PartitionDriver, wanted: Wanted, left_bytes: int, *, first: bool, reread: bool) -> bool:
        question, data = wanted.question, wanted.data
        answer = driver.fetch(
            FetchRequested(
                token=self,
                replica_id=self._replica_id,
                replica_epoch=self._replica_epoch,
                current_leader_epoch=question.current_leader_epoch,
                fetch_offset=question.fetch_offset,
                last_fetched_epoch=question.last_fetched_epoch,
                log_start_offset=question.log_start_offset,
                reread=reread,
            )
        )
        data.error_code = answer.error_code
        data.high_watermark = answer.high_watermark
        data.last_stable_offset = answer.high_watermark
        data.log_start_offset = answer.log_start_offset
        data.records = EMPTY
        wanted.size_bytes = 0
        wanted.cold = None
        if answer.error_code:
            return True
        if answer.diverging is not None:
            epoch, end_offset = answer.diverging
            data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
            return True
        if answer.read_from < answer.read_end and (left_bytes > 0 or first):
            plan = driver.log.plan_read(
                answer.read_from,
                max_bytes=max(min(question.partition_max_bytes, left_bytes), 0),
                end=answer.read_end,
                minimum_one=first,
            )
            if isinstance(plan, ReadResult):
                data.records = cast("Records", plan.buffers)
                wanted.size_bytes = plan.size
            else:
                # On the disk: read on another thread once it is certain that the answer goes out.
                wanted.cold = plan
                wanted.size_bytes = max(plan.max_bytes, 1)
        return False

    def _respond(self) -> None:
        self._let_go()
        if any(wanted.cold is not None for wanted in self._wanted):
            self._services.background(self._request.guarded(self._read_cold()))
        else:
            self._answer()

    async def _read_cold(self) -> None:
        for wanted in self._wanted:
            if wanted.cold is None or wanted.driver is None:
                continue
            wanted.size_bytes = 0
            if self._request.abandoned:
                break
            try:
                result = await self._loop.run_in_executor(self._services.io_pool, wanted.cold.run)
            except ReadInterrupted:
                # The log was cut meanwhile: the client asks again.
                continue
            if wanted.driver.log.generation != wanted.cold.generation:
                # Cut, and perhaps written anew, while it was read: these bytes may belong to no one.
                continue
            wanted.data.records = cast("Records", result.buffers)
            wanted.size_bytes = result.size
        self._answer()

    def _answer(self) -> None:
        response = FetchResponse(
            session_id=INVALID_SESSION_ID,
            responses=[
                FetchableTopicResponse(
                    topic=name, topic_id=topic_id or UUID(int=0), partitions=[wanted.data for wanted in group]
                )
                for name, topic_id, group in self._groups
            ],
        )
        self._add_leader_hints(response)
        for wanted in self._wanted:
            if wanted.size_bytes and wanted.driver is not None:
                wanted.driver.telemetry.fetched(wanted.size_bytes, follower=self.from_follower)
        self._request.answer(response)

    def _add_leader_hints(self, response: FetchResponse) -> None:
        """KIP-951: tell the new leader, so that the client need not ask."""
        if self._request.version < HINTS_FROM_VERSION:
            return
        leaders = set()
        for wanted in self._wanted:
            if wanted.data.error_code not in LEADER_MOVED:
                continue
            state = self._services.partition_of(wanted.topic, wanted.question.partition)
            if state is not None and state.leader >= 0:
                wanted.data.current_leader = LeaderIdAndEpoch(leader_id=state.leader, leader_epoch=state.leader_epoch)
                leaders.add(state.leader)
        response.node_endpoints = [
            NodeEndpoint(node_id=leader, host=endpoint[0], port=endpoint[1], rack=endpoint[2])
            for leader in sorted(leaders)
            if (endpoint := self._services.endpoint(leader)) is not None
        ]


class FetchHandler:
    """Reads from partitions, waiting up to `max_wait_ms` for `min_bytes`."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def __call__(self, request: Request) -> None:
        """Answer now or when there is enough."""
        if not within_bounds(request, partitions_named(request)):
            return
        PendingFetch(request, self._services).start()

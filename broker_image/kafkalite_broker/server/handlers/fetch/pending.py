"""One Fetch request until it is answered: it may wait for data, and read what is cold from the disk."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import UUID

from kafkalite_broker.server.answer_budget import Room
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.fetch import FetchableTopicResponse, FetchResponse, LeaderIdAndEpoch, NodeEndpoint
from kafkalite_core.replica.fetch_session import NO_SESSION
from kafkalite_core.storage.errors import ReadInterrupted

if TYPE_CHECKING:
    from kafkalite_broker.replication.driver import PartitionDriver
    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.handlers.fetch.sessions import FollowerFetches
    from kafkalite_broker.server.handlers.fetch.wanted import Asker, Wanted
    from kafkalite_broker.server.services import Services

HINTS_FROM_VERSION = 16
FETCH_BYTES_MAX = 57_671_680
"""Kafka's `fetch.max.bytes`: one answer is never larger, whatever the client allows, one batch excepted."""

WAIT_MAX_S = 300.0
"""What a fetch holds is counted while it waits, so it may not do so for days, as a client may ask."""

WAITING_PARTITION_BYTES = 1 << 10
"""Memory of a partition that a fetch waits for, and about that of the fetch itself."""

LEADER_MOVED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
NO_TOPIC_ID = UUID(int=0)


class PendingFetch:
    """One Fetch request until it is answered.

    Args:
        request: The request.
        services: The broker.
        asker: Who asks.
        wanted: What to look at: every partition, or those of a session that may have news.
        session: The follower's session; None outside of any.
    """

    __slots__ = ("_asker", "_bytes_max", "_known", "_loop", "_request", "_scheduled", "_services", "_session",
                 "_waiting", "_wanted", "_woken", "done")  # fmt: skip

    def __init__(
        self,
        request: Request,
        services: Services,
        asker: Asker,
        wanted: list[Wanted],
        session: FollowerFetches | None = None,
    ) -> None:
        self._request = request
        self._services = services
        self._asker = asker
        self._bytes_max = min(request.body.max_bytes, FETCH_BYTES_MAX)
        self._wanted = wanted
        self._known = set() if session is None else set(wanted)
        """Of a session, of which more may move: those that are in `_wanted`, of which there may be thousands."""
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._scheduled = False
        self._waiting = False
        self._woken: set[PartitionDriver] = set()
        self.done = False

    def start(self) -> None:
        """Answer at once when there is something to tell, else wait."""
        body = self._request.body
        if self._attempt() or body.max_wait_ms <= 0:
            self._respond()
            return
        # What waits is `wanted`, of which a partition takes far more than in the frame.
        body.topics, body.forgotten_topics_data = [], []
        self._let_go_of_records()
        self._request.waits(kept_bytes=0)
        self._waiting = True
        self._request.on_abandoned(self._abandoned)
        if self._session is not None:
            self._session.waiting = self
        else:
            for wanted in self._wanted:
                if wanted.driver is not None:
                    wanted.driver.wait(self, for_log_end=self._asker.is_follower)
        # A session is the connection's, and a follower's fetch never makes room for consumers.
        held_bytes = 0 if self._session is not None else WAITING_PARTITION_BYTES * (len(self._wanted) + 1)
        self._services.waiting.add(self, self._loop.time() + min(body.max_wait_ms / 1000.0, WAIT_MAX_S), held_bytes)

    def add(self, wanted: Wanted) -> None:
        """A partition of the session moved that was at rest when the request came."""
        if wanted not in self._known:
            self._known.add(wanted)
            self._wanted.append(wanted)

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
        if self._session is not None:
            for wanted in self._session.noted():
                self.add(wanted)
                if wanted.driver is not None:
                    woken.add(wanted.driver)
        try:
            if self._attempt(woken):
                self._attempt_what_was_let_go(woken)
                self._respond()
            else:
                self._let_go_of_records()
        except Exception as error:
            self._let_go()
            self._request.failed(error)

    def expire(self) -> None:
        """`max_wait_ms`, or what is allowed of it, is over: answer with what there is."""
        if self.done:
            return
        try:
            if self._session is not None:
                self._wanted = self._session.everything()
            self._attempt_all()
            self._respond()
        except Exception as error:
            self._let_go()
            self._request.failed(error)

    def _abandoned(self) -> None:
        """The client went away: nothing waits for it any longer."""
        self._let_go()
        self._wanted = []
        self._known.clear()

    def _let_go(self) -> None:
        if self.done:
            return
        self.done = True
        if not self._waiting:
            return
        self._services.waiting.finished(self)
        if self._session is not None:
            self._session.waiting = None
        else:
            for wanted in self._wanted:
                if wanted.driver is not None:
                    wanted.driver.stop_waiting(self)

    def _attempt_all(self) -> None:
        self._attempt({wanted.driver for wanted in self._wanted if wanted.driver is not None})

    def _attempt_what_was_let_go(self, read: set[PartitionDriver]) -> None:
        """Of what waited only sizes were kept. There may be less by now, or an error: Kafka too answers with that."""
        found = {wanted.driver for wanted in self._wanted if wanted.size_bytes and wanted.driver is not None}
        let_go = found - read
        if let_go:
            self._attempt(let_go)

    def _note_replication(self) -> None:
        """The leader of a partition took the fetch for that of a broker that has a replica."""
        if any(wanted.driver is not None and not wanted.data.error_code for wanted in self._wanted):
            self._request.replicates()

    def _attempt(self, moved: set[PartitionDriver] | None = None) -> bool:
        """Read every partition, later those that moved; with many partitions the others are most of the work.

        True when the answer must not wait: enough bytes, an error, a divergence.
        """
        body, session = self._request.body, self._session
        total_bytes = 0
        if moved is not None:
            total_bytes = sum(wanted.size_bytes for wanted in self._wanted if wanted.driver not in moved)
        left_bytes = self._bytes_max - total_bytes
        urgent = session is None and not self._wanted
        throttles = self._services.partitions.throttles
        for wanted in self._wanted:
            driver = wanted.driver
            if driver is None:
                urgent = True
                continue
            if moved is not None and driver not in moved:
                continue
            if session is not None:
                session.looked(wanted)
            first = total_bytes == 0
            try:
                urgent |= wanted.read(self._asker, self._request, left_bytes, first=first, throttles=throttles)
            except Exception:
                driver.telemetry.fetch_failed()
                raise
            total_bytes += wanted.size_bytes
            left_bytes -= wanted.size_bytes
        if self._asker.is_follower and not self._request.on_replication:
            self._note_replication()
        return urgent or total_bytes >= body.min_bytes

    # ------------------------------------------------------------ answering

    def _respond(self) -> None:
        self._let_go()
        if any(wanted.cold is not None for wanted in self._wanted) or not self._leaves_at_once():
            self._services.background(self._request.guarded(self._answer_in_turn()))
        else:
            self._answer()

    def _leaves_at_once(self) -> bool:
        """Whether there is memory for an answer that nothing is to be read for: it is counted then."""
        held_bytes = 0 if self._asker.is_follower else sum(wanted.held_bytes for wanted in self._wanted)
        if not held_bytes:
            return True
        answers = self._services.answers
        if not (self._request.is_first and answers.has_room(held_bytes)):
            return False
        self._request.holds_until_sent(Room(answers, held_bytes, hot=True))
        return True

    async def _answer_in_turn(self) -> None:
        """Read what is cold, when it is this connection's turn and there is memory, and answer.

        Only the first unanswered request of a connection does, so that no answer waits in memory for one before it.
        """
        room = None
        try:
            if not self._request.is_first:
                self._let_go_of_records()
                await self._request.turn()
                self._attempt_all()
            room = self._room()
            if room is not None:
                await self._enter(room)
            await self._read_cold()
            if room is not None:
                room.holds(sum(wanted.held_bytes for wanted in self._wanted))
                self._request.holds_until_sent(room)
                room = None
            self._answer()
        finally:
            if room is not None:
                room.give_back()

    def _room(self) -> Room | None:
        """Memory for the records. A broker's fetch takes none: it never waits for consumers."""
        if self._asker.is_follower or self._request.abandoned:
            return None
        sizes = [
            wanted.cold.size_bytes_max(wanted.driver.config.max_message_bytes)
            for wanted in self._wanted
            if wanted.cold is not None and wanted.driver is not None
        ]
        size_bytes = sum(sizes) + sum(wanted.held_bytes for wanted in self._wanted)
        return Room(self._services.answers, size_bytes, hot=not sizes) if size_bytes else None

    async def _enter(self, room: Room) -> None:
        waits = room.entered
        if waits is not None:
            self._let_go_of_records()
            await self._request.unless_abandoned(waits)
        if waits is not None or room.is_cut:
            # Plans do not keep: a segment may have gone meanwhile. Nor may there be as much as was planned.
            self._bytes_max = min(self._bytes_max, room.size_bytes)
            self._attempt_all()

    def _let_go_of_records(self) -> None:
        """Of records that wait for more, or for their turn, only the sizes are kept: no bound counts them."""
        for wanted in self._wanted:
            wanted.let_go()

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
                wanted.give(None)
                continue
            except Exception:
                wanted.driver.telemetry.fetch_failed()
                raise
            wanted.driver.log.keep_indexes(wanted.cold.loading)
            # Otherwise cut, and perhaps written anew, while it was read.
            intact = wanted.driver.log.generation == wanted.cold.generation
            wanted.give(result if intact else None)

    def _answer(self) -> None:
        told = self._wanted if self._session is None else self._session.news(self._wanted)
        topics: dict[UUID | str, FetchableTopicResponse] = {}
        for wanted in told:
            key = wanted.topic_id or wanted.topic
            topic = topics.get(key)
            if topic is None:
                topic_id = wanted.topic_id or NO_TOPIC_ID
                topic = topics[key] = FetchableTopicResponse(topic=wanted.topic, topic_id=topic_id, partitions=[])
            topic.partitions.append(wanted.data)
            if wanted.size_bytes and wanted.driver is not None:
                wanted.driver.telemetry.fetched(wanted.size_bytes, follower=self._asker.is_follower)
                if self._asker.is_follower:
                    self._services.partitions.throttles.sent(wanted.driver, self._asker.replica_id, wanted.size_bytes)
        response = FetchResponse(
            session_id=NO_SESSION if self._session is None else self._session.session_id,
            responses=list(topics.values()),
        )
        self._add_leader_hints(response, told)
        self._known.clear()
        self._wanted = []  # this may be known for as long as it could have waited, and must not keep what was sent
        self._request.answer(response)

    def _add_leader_hints(self, response: FetchResponse, told: list[Wanted]) -> None:
        """KIP-951: tell the new leader, so that the client need not ask."""
        if self._request.version < HINTS_FROM_VERSION:
            return
        leaders = set()
        for wanted in told:
            if wanted.data.error_code not in LEADER_MOVED:
                continue
            state = self._services.partition_of(wanted.topic, wanted.question.partition)
            if state is not None and state.leader >= 0:
                wanted.data.current_leader = LeaderIdAndEpoch(leader_id=state.leader, leader_epoch=state.leader_epoch)
                leaders.add(state.leader)
        response.node_endpoints = [
            NodeEndpoint(node_id=leader, host=endpoint[0], port=endpoint[1], rack=endpoint[2])
            for leader in sorted(leaders)
            if (endpoint := self._services.endpoint(leader, self._request.listener)) is not None
        ]

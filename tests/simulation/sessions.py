"""Fetch sessions of followers (KIP-227) over the production `FollowerSession` and `LeaderSession`.

A connection carries one session and one request at a time; whoever loses it begins anew. So its messages come once and
in order, or the connection is given up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.replica.events import FetchAnswered, FetchRequested
from kafkalite_core.replica.fetch_session import NO_SESSION, FollowerSession, LeaderSession, SessionRequest
from tests.simulation.driver import Asked, Driver, Given

if TYPE_CHECKING:
    from kafkalite_core.replica.events import FetchPosition
    from tests.simulation.broker import Broker
    from tests.simulation.fetcher import Fetcher

Key = tuple[str, int]
PARTITIONS_MAX = 10_000


class Connection:
    """Between one fetcher and one process of its leader, for one broker epoch of the follower."""

    __slots__ = ("drivers", "epoch", "leader", "open", "session", "side")

    def __init__(self, leader: Broker, epoch: int) -> None:
        self.leader = leader
        self.epoch = epoch
        self.session: FollowerSession[Key] = FollowerSession()
        self.drivers: dict[Key, Driver] = {}
        self.side: LeaderSide | None = None
        self.open = True

    def close(self) -> None:
        """It is given up; what is under way on it is lost."""
        self.open = False
        if self.side is not None:
            self.side.close()


class Entry:
    """One partition of a session as its leader sees it."""

    __slots__ = ("answer", "asked", "driver", "looked_for", "records")

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.driver: Driver | None = None
        self.answer = FetchAnswered(token=None, error_code=0)
        self.records = b""
        self.looked_for: SessionFetch | None = None


class LeaderSide:
    """What a leader remembers of a follower's fetches on one connection; it hears what moves."""

    __slots__ = ("_follower", "_leader", "closed", "session", "waiting")

    def __init__(self, leader: Broker, follower: tuple[int, int], session_id: int) -> None:
        self._leader = leader
        self._follower = follower
        self.session: LeaderSession[Key, Entry] = LeaderSession(session_id, PARTITIONS_MAX)
        self.waiting: SessionFetch | None = None
        self.closed = False

    def take(self, request: SessionRequest[Key], asked: dict[Key, Asked]) -> list[Entry]:
        """Take what a request names and forgets; what is to be looked at for it."""
        named = ((key, Entry(asked[key])) for key in request.named)
        for gone in self.session.take(named, request.forgotten):
            self._leave(gone)
        return self.found(self.session.look(self._leader.mono_ms()))

    def everything(self) -> list[Entry]:
        """All partitions: the wait of a request is over."""
        return self.found(self.session.look_at_all(self._leader.mono_ms()))

    def found(self, entries: list[Entry]) -> list[Entry]:
        """Find the replicas anew: one may have gone, or another may have come."""
        for entry in entries:
            asked = entry.asked
            driver = self._leader.partitions.drivers.get((asked.topic, asked.number))
            if driver is not None and driver.ref.topic_id != asked.topic_id:
                driver = None
            if driver is not entry.driver:
                self._leave(entry)
                entry.driver = driver
                if driver is not None and not self.closed:
                    driver.sessions[self] = (asked.topic_id, asked.number)
        return entries

    def _leave(self, entry: Entry) -> None:
        driver, entry.driver = entry.driver, None
        if driver is not None:
            driver.sessions.pop(self, None)

    def wake(self, key: Key) -> None:
        """There is more to read, or the role changed."""
        entry = self.session.note(key)
        if entry is not None and self.waiting is not None:
            self.waiting.wake(entry)

    def note(self, key: Key) -> None:
        """The high watermark moved: told with the next answer, which it does not hasten."""
        self.session.note(key)

    def look(self, entry: Entry, request: SessionFetch, room: int) -> bool:
        """Ask the replica; True when the answer need not wait for more."""
        asked, driver = entry.asked, entry.driver
        self.session.looked((asked.topic_id, asked.number))
        entry.records = b""
        if driver is None:
            entry.answer = FetchAnswered(token=None, error_code=int(ErrorCode.UNKNOWN_TOPIC_ID))
            return True
        position = asked.position
        entry.answer = driver.fetch(
            FetchRequested(
                token=None,
                replica_id=self._follower[0],
                replica_epoch=self._follower[1],
                current_leader_epoch=position.current_leader_epoch,
                fetch_offset=position.fetch_offset,
                last_fetched_epoch=position.last_fetched_epoch,
                log_start_offset=position.log_start_offset,
                reread=entry.looked_for is request,
            )
        )
        entry.looked_for = request
        shape = self._leader.shape
        if room > 0:
            entry.records = driver.read(entry.answer, min(shape.partition_max_bytes, room))
        elif entry.answer.read_end > entry.answer.read_from:
            self.session.note((asked.topic_id, asked.number))  # left out for want of room
        return bool(entry.records or entry.answer.error_code or entry.answer.diverging is not None)

    def news(self, looked_at: list[Entry]) -> list[Given]:
        """What the answer tells."""
        told: list[Given] = []
        for entry in looked_at:
            answer = entry.answer
            urgent = bool(entry.records or answer.error_code or answer.diverging is not None)
            if self.session.is_news(
                (entry.asked.topic_id, entry.asked.number),
                high_watermark=answer.high_watermark,
                log_start_offset=answer.log_start_offset,
                urgent=urgent,
            ):
                told.append(Given(entry.asked, answer, entry.records))
        return told

    def close(self) -> None:
        """The connection is gone."""
        self.closed = True
        for entry in self.session.entries():
            self._leave(entry)


class SessionFetch:
    """One request of a session, at its leader: answered at once, or when there is something to tell."""

    __slots__ = ("_asked", "_connection", "_done", "_fetcher", "_follower", "_looked_at", "_number", "_request",
                 "_scheduled", "_woken")  # fmt: skip

    def __init__(
        self,
        fetcher: Fetcher,
        follower: Broker,
        connection: Connection,
        number: int,
        positions: dict[Key, FetchPosition],
    ) -> None:
        self._fetcher = fetcher
        self._follower = follower
        self._connection = connection
        self._number = number
        self._request = connection.session.request(positions)
        names = {key: driver.ref.name for key, driver in connection.drivers.items()}
        self._asked = {key: Asked(key[0], names[key], key[1], place) for key, place in self._request.named.items()}
        self._looked_at: dict[Entry, None] = {}
        self._woken: dict[Entry, None] = {}
        self._scheduled = False
        self._done = False

    def arrived(self) -> None:
        """At the leader."""
        connection, request = self._connection, self._request
        if not connection.open:
            return
        leader = connection.leader
        side = connection.side
        if request.session_id == NO_SESSION:
            leader.sessions += 1
            side = connection.side = LeaderSide(leader, (self._follower.host.id, connection.epoch), leader.sessions)
        else:
            code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            if side is not None and side.waiting is None:
                code = side.session.check(request.session_id, request.session_epoch, len(request.named))
            if code is not ErrorCode.NONE or side is None:
                self._send(int(code), NO_SESSION, [])
                return
        telling = self._look(side, side.take(request, self._asked))
        if telling:
            self._answer(side)
        else:
            side.waiting = self
            leader.world.at(leader.shape.fetch_wait_ms, leader.process, self._time_is_up)

    def _look(self, side: LeaderSide, entries: list[Entry]) -> bool:
        room = self._connection.leader.shape.fetch_max_bytes
        telling = False
        for entry in entries:
            self._looked_at[entry] = None
            telling |= side.look(entry, self, room)
            room -= len(entry.records)
        return telling

    def wake(self, entry: Entry) -> None:
        """A partition moved: look at it after this event."""
        self._woken[entry] = None
        if not self._scheduled and not self._done:
            self._scheduled = True
            leader = self._connection.leader
            leader.world.at(0.0, leader.process, self._look_again)

    def _look_again(self) -> None:
        self._scheduled = False
        side = self._connection.side
        if self._done or side is None or not self._connection.open:
            return
        woken, self._woken = self._woken, {}
        entries = list(woken | dict.fromkeys(side.session.noted()))
        if self._look(side, side.found(entries)):
            self._answer(side)

    def _time_is_up(self) -> None:
        side = self._connection.side
        if self._done or side is None or not self._connection.open:
            self._connection.leader.world.events -= 1
            return
        self._looked_at.clear()
        self._look(side, side.everything())
        self._answer(side)

    def _answer(self, side: LeaderSide) -> None:
        self._done = True
        if side.waiting is self:
            side.waiting = None
        self._send(0, side.session.session_id, side.news(list(self._looked_at)))

    def _send(self, error_code: int, session_id: int, given: list[Given]) -> None:
        leader, follower = self._connection.leader, self._follower
        leader.network.send_once(
            leader.host.name,
            follower.host.name,
            follower.process,
            self._fetcher.session_answered,
            self._connection,
            self._number,
            error_code,
            session_id,
            given,
        )

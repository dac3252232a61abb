"""What a connection remembers of a follower's fetches, so that they need not name partitions at rest (KIP-227)."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

from kafkalite_broker.clock import now_ms
from kafkalite_broker.server.handlers.bounds import ENTRIES_MAX
from kafkalite_broker.server.handlers.fetch.wanted import wanted_by
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.replica.fetch_session import LeaderSession

if TYPE_CHECKING:
    from kafkalite_broker.replication.driver import PartitionDriver
    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.handlers.fetch.pending import PendingFetch
    from kafkalite_broker.server.handlers.fetch.wanted import Asker, Wanted
    from kafkalite_broker.server.services import Services

PartitionKey: TypeAlias = tuple[UUID, int]
"""Topic id and partition."""

_ids = count(1)


def _next_id() -> int:
    """Positive, and not that of another session for a long time: a session is known on its own connection only."""
    return (next(_ids) - 1) % (2**31 - 1) + 1


def _key(wanted: Wanted) -> PartitionKey:
    assert wanted.topic_id is not None
    return wanted.topic_id, wanted.question.partition


class FollowerFetches:
    """The fetch session of one follower on one connection; at most one request of it waits.

    It stays with the drivers of its partitions and hears what moves, whether a request is waiting or not.
    """

    def __init__(self, asker: Asker, services: Services) -> None:
        self._services = services
        self._asker = (asker.replica_id, asker.replica_epoch)
        self._session: LeaderSession[PartitionKey, Wanted] = LeaderSession(_next_id(), ENTRIES_MAX)
        self._closed = False
        self.waiting: PendingFetch | None = None

    @property
    def session_id(self) -> int:
        """For the answers."""
        return self._session.session_id

    def __len__(self) -> int:
        return len(self._session)

    def continues(self, request: Request, asker: Asker, named: int) -> ErrorCode:
        """Whether the request goes on with this session. A follower that registered anew has to begin a new one."""
        if (asker.replica_id, asker.replica_epoch) != self._asker or self.waiting is not None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        return self._session.check(request.body.session_id, request.body.session_epoch, named)

    def take(self, request: Request) -> list[Wanted]:
        """Take what a request names and forgets; returns what is to be looked at for it."""
        forgotten = [
            (topic.topic_id, number) for topic in request.body.forgotten_topics_data for number in topic.partitions
        ]
        for wanted in self._session.take(((_key(wanted), wanted) for wanted in wanted_by(request)), forgotten):
            self._leave(wanted)
        return self._found(self._session.look(now_ms()))

    def everything(self) -> list[Wanted]:
        """All partitions: the wait of a request is over."""
        return self._found(self._session.look_at_all(now_ms()))

    def _found(self, entries: list[Wanted]) -> list[Wanted]:
        for wanted in entries:
            before = wanted.driver
            wanted.find(self._services)
            if wanted.driver is not before:
                if before is not None:
                    before.unfollow(self)
                if wanted.driver is not None and not self._closed:
                    wanted.driver.follow(self)
        return entries

    def _leave(self, wanted: Wanted) -> None:
        driver, wanted.driver = wanted.driver, None
        if driver is not None:
            driver.unfollow(self)

    # ------------------------------------------------------------ what drivers tell

    def wake(self, driver: PartitionDriver) -> None:
        """There is more to read, or the role changed: look at it now, or with the next request."""
        wanted = self._session.note((driver.topic_uuid, driver.number))
        if wanted is not None and self.waiting is not None:
            self.waiting.add(wanted)
            self.waiting.wake(driver)

    def note(self, driver: PartitionDriver) -> None:
        """The high watermark moved: told with the next answer, which it does not hasten."""
        self._session.note((driver.topic_uuid, driver.number))

    # ------------------------------------------------------------ answers

    def noted(self) -> list[Wanted]:
        """What moved since it was looked at."""
        return self._session.noted()

    def looked(self, wanted: Wanted) -> None:
        """It was looked at for the request that waits."""
        self._session.looked(_key(wanted))

    def news(self, looked_at: list[Wanted]) -> list[Wanted]:
        """What the answer tells of the partitions that were looked at."""
        told: list[Wanted] = []
        for wanted in looked_at:
            key, data = _key(wanted), wanted.data
            if wanted.left_out:
                self._session.note(key)
            if self._session.is_news(
                key,
                high_watermark=data.high_watermark,
                log_start_offset=data.log_start_offset,
                urgent=wanted.urgent,
            ):
                told.append(wanted)
        return told

    def close(self) -> None:
        """The connection is gone, or begins another session. A request that still waits is answered in its time."""
        self._closed = True
        for wanted in self._session.entries():
            self._leave(wanted)

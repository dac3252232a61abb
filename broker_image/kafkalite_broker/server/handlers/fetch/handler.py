"""Takes Fetch requests: with a session, or all partitions at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_broker.server.handlers.bounds import partitions_named, within_bounds
from kafkalite_broker.server.handlers.fetch.pending import PendingFetch
from kafkalite_broker.server.handlers.fetch.sessions import FollowerFetches
from kafkalite_broker.server.handlers.fetch.wanted import REPLICA_STATE_FROM_VERSION, Asker, wanted_by
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.fetch import FetchResponse
from kafkalite_core.replica.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION

if TYPE_CHECKING:
    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.services import Services


class FetchHandler:
    """Reads from partitions, waiting up to `max_wait_ms` for `min_bytes`."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def __call__(self, request: Request) -> None:
        """Answer now or when there is enough."""
        body = request.body
        named = partitions_named(request)
        forgotten = sum(len(topic.partitions) + 1 for topic in body.forgotten_topics_data)
        if not within_bounds(request, named + forgotten):
            return
        asker = Asker(request, rack_aware=self._services.partitions.rack_aware)
        if asker.rack:
            asker.reachable = self._services.reachable(request.listener)
        if body.session_id != NO_SESSION and body.session_epoch not in {INITIAL_EPOCH, FINAL_EPOCH}:
            self._continue(request, asker, named)
        elif body.session_epoch == INITIAL_EPOCH and self._may_have_session(request, asker):
            session = FollowerFetches(asker, self._services)
            request.attachment = session
            PendingFetch(request, self._services, asker, session.take(request), session).start()
        else:
            request.attachment = None
            wanted = wanted_by(request)
            for one in wanted:
                one.find(self._services)
            PendingFetch(request, self._services, asker, wanted).start()

    @staticmethod
    def _may_have_session(request: Request, asker: Asker) -> bool:
        """Followers only: their connections are few, and it is they who name every partition in every request."""
        return asker.is_follower and request.version >= REPLICA_STATE_FROM_VERSION and asker.replica_epoch >= 0

    def _continue(self, request: Request, asker: Asker, named: int) -> None:
        session = request.attachment
        if isinstance(session, FollowerFetches):
            code = session.continues(request, asker, named)
            if code is ErrorCode.NONE:
                PendingFetch(request, self._services, asker, session.take(request), session).start()
                return
        else:
            code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        # The other side begins anew with a full request.
        request.attachment = None
        request.answer(FetchResponse(error_code=code))

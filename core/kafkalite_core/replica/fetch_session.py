"""Incremental fetch sessions between brokers (KIP-227): a request names what moved, an answer tells what is news.

A session belongs to one connection and to one incarnation of the follower, so that neither side can remember what the
other has forgotten: whoever loses the connection begins anew with a full request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from kafkalite_core.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from kafkalite_core.replica.events import FetchPosition

NO_SESSION: Final = 0
"""Session id of a request or an answer outside of any session."""
INITIAL_EPOCH: Final = 0
"""Session epoch of a full request that asks for a session."""
FINAL_EPOCH: Final = -1
"""Session epoch of a full request that wants none, and ends the one there was."""
EPOCH_MAX: Final = 2**31 - 1
FULL_LOOK_INTERVAL_MS: Final = 500.0
"""How old what a leader knows of a partition that does not move may be; much less than `replica.lag.time.max.ms`."""

Key = TypeVar("Key")
Entry = TypeVar("Entry")


def epoch_after(epoch: int) -> int:
    """The session epoch of the next request; it never becomes 0 or -1 again, which mean something else."""
    return 1 if epoch == EPOCH_MAX else epoch + 1


class SessionRequest(NamedTuple, Generic[Key]):
    """What a follower's next request says.

    Attributes:
        session_id: `NO_SESSION` with a full request.
        session_epoch: Counts the requests of the session.
        named: Partitions whose position the leader does not know; all of them in a full request.
        forgotten: Partitions that the leader knows and this request is not about.
    """

    session_id: int
    session_epoch: int
    named: dict[Key, FetchPosition]
    forgotten: list[Key]


class FollowerSession(Generic[Key]):
    """The follower's side: which positions the leader knows. To be dropped with the connection.

    Invariant: after an answer to `request(positions)` the leader's view of this follower is exactly `positions`.
    """

    __slots__ = ("_epoch", "_id", "_known")

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._known: dict[Key, FetchPosition] = {}

    def request(self, positions: Mapping[Key, FetchPosition]) -> SessionRequest[Key]:
        """The request that makes the leader know these positions and no others."""
        known = self._known
        if self._id == NO_SESSION:
            self._known = dict(positions)
            return SessionRequest(NO_SESSION, INITIAL_EPOCH, self._known, [])
        named = {key: position for key, position in positions.items() if known.get(key) != position}
        known.update(named)
        forgotten = [] if len(known) == len(positions) else [key for key in known if key not in positions]
        for key in forgotten:
            del known[key]
        return SessionRequest(self._id, self._epoch, named, forgotten)

    def answered(self, session_id: int) -> None:
        """The leader answered without an error, with this session id: it may grant a session, or end it."""
        self._epoch = epoch_after(self._epoch) if session_id == self._id != NO_SESSION else INITIAL_EPOCH + 1
        self._id = session_id


class LeaderSession(Generic[Key, Entry]):
    """The leader's side: the partitions of the session, which of them have to be looked at, and what was told of them.

    Looked at with a request <=> named by it, or noted since the last look (its log end or high watermark moved), or
    every partition when the last look at all of them is `FULL_LOOK_INTERVAL_MS` old: by then what the leader knows of
    a follower at rest would begin to count as lag.

    Args:
        session_id: Not `NO_SESSION`.
        partitions_max: More are refused.
    """

    __slots__ = ("_all_due_ms", "_due", "_entries", "_epoch", "_partitions_max", "_told", "session_id")

    def __init__(self, session_id: int, partitions_max: int) -> None:
        assert session_id != NO_SESSION
        self.session_id = session_id
        self._partitions_max = partitions_max
        self._epoch = INITIAL_EPOCH
        self._all_due_ms = 0.0
        self._entries: dict[Key, Entry] = {}
        self._due: dict[Key, None] = {}
        self._told: dict[Key, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Key) -> Entry | None:
        """The entry of a partition of the session."""
        return self._entries.get(key)

    def entries(self) -> Collection[Entry]:
        """Every entry."""
        return self._entries.values()

    def check(self, session_id: int, session_epoch: int, named: int) -> ErrorCode:
        """Whether a request that names so many partitions continues this session."""
        if session_id != self.session_id or len(self._entries) + named > self._partitions_max:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        return ErrorCode.NONE if session_epoch == self._epoch else ErrorCode.INVALID_FETCH_SESSION_EPOCH

    def take(self, named: Iterable[tuple[Key, Entry]], forgotten: Iterable[Key]) -> list[Entry]:
        """A request arrived: it forgets, then names. Returns the entries that are no longer in use."""
        self._epoch = epoch_after(self._epoch)
        gone: list[Entry] = []
        for key in forgotten:
            self._remove(key, gone)
        for key, entry in named:
            # What was told is forgotten as well: a follower that moved may have had no use for the last answer.
            self._remove(key, gone)
            self._entries[key] = entry
            self._due[key] = None
        return gone

    def _remove(self, key: Key, gone: list[Entry]) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            gone.append(entry)
        self._due.pop(key, None)
        self._told.pop(key, None)

    def note(self, key: Key) -> Entry | None:
        """A partition moved: it is looked at with this request or the next. None when it is not of this session."""
        entry = self._entries.get(key)
        if entry is not None:
            self._due[key] = None
        return entry

    def look(self, now_ms: float) -> list[Entry]:
        """What to look at for the request that was taken; those that wait longest come first."""
        if now_ms >= self._all_due_ms:
            return self.look_at_all(now_ms)
        due = [self._entries[key] for key in self._due]
        self._due.clear()
        return due

    def look_at_all(self, now_ms: float) -> list[Entry]:
        """Every entry, those that are due first."""
        due, self._due = self._due, {}
        self._all_due_ms = now_ms + FULL_LOOK_INTERVAL_MS
        return [self._entries[key] for key in due | dict.fromkeys(self._entries)]

    def noted(self) -> list[Entry]:
        """What was noted since the last look: an answer that goes out anyway may tell of it."""
        return [self._entries[key] for key in self._due]

    def looked(self, key: Key) -> None:
        """It was looked at, after having been noted."""
        self._due.pop(key, None)

    def is_news(self, key: Key, *, high_watermark: int, log_start_offset: int, urgent: bool) -> bool:
        """Whether to tell the follower; what is told is remembered.

        Told <=> there are records, an error or a divergence (`urgent`), or the high watermark or the log start differs
        from what was told last.
        """
        bounds = (high_watermark, log_start_offset)
        if not urgent and self._told.get(key) == bounds:
            return False
        if key in self._entries:
            self._told[key] = bounds
        return True

"""The objects, in memory and in SQLite, with their history for watches.

All decisions are taken on the event loop against the newest state, the one that includes writes still on their way to
the disk; readers and watchers see what is on the disk. One thread commits everything that arrived while it was busy in
one transaction (`synchronous=FULL`), so a write costs one flush, shared. A failing disk ends the process: a control
plane that forgets what it answered must not go on.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kafkalite_local.apiserver.errors import expired, object_too_large

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

Json = dict[str, Any]
_LOG = logging.getLogger(__name__)
Attributes = tuple[dict[str, str], dict[str, str]]
"""Labels, and the fields that field selectors know."""

OBJECT_BYTES_MAX: Final = 1_572_864
"""etcd's limit on one request (1.5 MiB)."""

HISTORY_EVENTS_MAX: Final = 20_000
HISTORY_BYTES_MAX: Final = 64 << 20
PRUNE_EVERY: Final = 500
"""Commits between two deletions of old history from the database."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS objects (
    storage TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, revision INTEGER NOT NULL, value BLOB NOT NULL,
    PRIMARY KEY (storage, namespace, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS events (
    revision INTEGER PRIMARY KEY, type TEXT NOT NULL, storage TEXT NOT NULL, namespace TEXT NOT NULL,
    name TEXT NOT NULL, value BLOB NOT NULL, attributes BLOB NOT NULL, before BLOB);
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One stored object. `object` is shared and must never be changed; `copy()` gives a private one."""

    storage: str
    namespace: str
    name: str
    revision: int
    object: Json
    raw: bytes
    attributes: Attributes

    def copy(self) -> Json:
        """A private copy of the object."""
        decoded: Json = msgspec.json.decode(self.raw)
        return decoded


@dataclass(frozen=True, slots=True)
class Event:
    """One change. `before` holds the attributes of the object as it was, None for a new one."""

    revision: int
    type: str
    storage: str
    namespace: str
    name: str
    raw: bytes
    attributes: Attributes
    before: Attributes | None


@dataclass(slots=True)
class _Pending:
    event: Event
    entry: Entry | None
    done: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Store:
    """See the module. `attributes` gives the labels and selectable fields of an object of a storage."""

    def __init__(
        self,
        path: Path,
        attributes: Callable[[str, Json], Attributes],
        on_failure: Callable[[BaseException], None],
        *,
        history_events_max: int = HISTORY_EVENTS_MAX,
    ) -> None:
        self._path = path
        self._attributes = attributes
        self._on_failure = on_failure
        self._history_max = history_events_max
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._heads: dict[str, dict[tuple[str, str], Entry]] = {}
        self._committed: dict[str, dict[tuple[str, str], Entry]] = {}
        self._queue: list[_Pending] = []
        self._flush: asyncio.Task[None] | None = None
        self._last: asyncio.Future[None] | None = None
        """Done when the newest decision is on the disk."""
        self._failed = False
        self._listeners: dict[int, Callable[[Event], None]] = {}
        self._ids = count()
        self._history: deque[Event] = deque()
        self._history_bytes = 0
        self._commits = 0
        self._next = 1
        self.revision = 0
        self.compacted = 0
        self._database: sqlite3.Connection | None = None

    def open(self) -> None:
        """Open the database, making it if it is not there, and load everything. Blocks."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        database = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=FULL")
        database.execute("PRAGMA wal_autocheckpoint=4000")
        database.executescript(_SCHEMA)
        self._database = database
        for storage, namespace, name, revision, value in database.execute("SELECT * FROM objects"):
            entry = self._entry(storage, namespace, name, revision, value)
            self._heads.setdefault(storage, {})[namespace, name] = entry
            self._committed.setdefault(storage, {})[namespace, name] = entry
        meta = dict(database.execute("SELECT key, value FROM meta"))
        self.revision = meta.get("revision", 0)
        self._next = self.revision + 1
        self.compacted = meta.get("compacted", 0)
        rows = database.execute("SELECT * FROM events WHERE revision > ? ORDER BY revision", (self.compacted,))
        for revision, type_, storage, namespace, name, value, attributes, before in rows:
            self._remember(
                Event(
                    revision,
                    type_,
                    storage,
                    namespace,
                    name,
                    value,
                    msgspec.json.decode(attributes, type=Attributes),
                    None if before is None else msgspec.json.decode(before, type=Attributes),
                )
            )

    async def close(self) -> None:
        """Finish what was begun, which a disk that failed cannot, then close the database."""
        if not self._failed:
            await self.settled()
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close_database)
        self._thread.shutdown()

    def _close_database(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def _entry(self, storage: str, namespace: str, name: str, revision: int, raw: bytes) -> Entry:
        decoded = msgspec.json.decode(raw)
        return Entry(storage, namespace, name, revision, decoded, raw, self._attributes(storage, decoded))

    # --- reading -----------------------------------------------------------------------------------------------

    def get(self, storage: str, namespace: str, name: str) -> Entry | None:
        """The object as it is on the disk."""
        return self._committed.get(storage, {}).get((namespace, name))

    def head(self, storage: str, namespace: str, name: str) -> Entry | None:
        """The object as the next write has to see it."""
        return self._heads.get(storage, {}).get((namespace, name))

    def entries(self, storage: str, namespace: str | None = None) -> list[Entry]:
        """All objects of a storage as they are on the disk, in the order of namespace and name."""
        entries = self._committed.get(storage, {})
        if namespace is not None:
            return [entries[key] for key in sorted(entries) if key[0] == namespace]
        return [entries[key] for key in sorted(entries)]

    def heads(self) -> Iterator[Entry]:
        """Every object, as the next write has to see it. The caller may write while it iterates."""
        for entries in list(self._heads.values()):
            yield from list(entries.values())

    def since(self, revision: int) -> list[Event]:
        """The history after `revision`, oldest first. Raises ApiError 410 when it is no longer kept."""
        if revision < self.compacted:
            raise expired(f"too old resource version: {revision} ({self.compacted})")
        if not self._history or revision >= self.revision:
            return []
        found = []
        for event in reversed(self._history):
            if event.revision <= revision:
                break
            found.append(event)
        found.reverse()
        return found

    # --- watching ----------------------------------------------------------------------------------------------

    def subscribe(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Call `listener` with every change from now on, in order. The answer ends the subscription.

        What a listener raises is logged, and keeps nothing from the others.
        """
        identity = next(self._ids)
        self._listeners[identity] = listener
        return lambda: self._listeners.pop(identity, None) and None

    # --- writing -----------------------------------------------------------------------------------------------

    def put(self, storage: str, namespace: str, name: str, value: Json) -> tuple[Entry, asyncio.Future[None]]:
        """Store `value`, which the store owns from now on, under a new resource version.

        Returns the entry and the future that is done when it is on the disk. Raises ApiError 500 above 1.5 MiB.
        """
        before = self.head(storage, namespace, name)
        entry, pending = self._prepare("MODIFIED" if before else "ADDED", storage, namespace, name, value, before)
        pending.entry = entry
        self._heads.setdefault(storage, {})[namespace, name] = entry
        return entry, self._enqueue(pending)

    def remove(self, storage: str, namespace: str, name: str, value: Json) -> tuple[Entry, asyncio.Future[None]]:
        """Delete an object; `value` is its last state, which watchers get with the deletion's resource version."""
        before = self._heads[storage][namespace, name]
        entry, pending = self._prepare("DELETED", storage, namespace, name, value, before)
        del self._heads[storage][namespace, name]
        return entry, self._enqueue(pending)

    def _prepare(
        self, type_: str, storage: str, namespace: str, name: str, value: Json, before: Entry | None
    ) -> tuple[Entry, _Pending]:
        revision = self._next
        value["metadata"]["resourceVersion"] = str(revision)
        raw = msgspec.json.encode(value)
        if len(raw) > OBJECT_BYTES_MAX:
            raise object_too_large()
        self._next += 1
        attributes = self._attributes(storage, value)
        entry = Entry(storage, namespace, name, revision, value, raw, attributes)
        seen = before.attributes if before else None
        return entry, _Pending(Event(revision, type_, storage, namespace, name, raw, attributes, seen), None)

    def _enqueue(self, pending: _Pending) -> asyncio.Future[None]:
        self._queue.append(pending)
        self._last = pending.done
        # After a failure nothing is written any more: it would rest on decisions that are not on the disk.
        if not self._failed and (self._flush is None or self._flush.done()):
            self._flush = asyncio.get_running_loop().create_task(self._run_flush(), name="store-flush")
        # Several wait for one commit. Whoever gives up, such as the request of a client that went away, must not
        # cancel it for the others.
        return asyncio.shield(pending.done)

    async def settled(self) -> None:
        """Wait until everything that was decided before this call is on the disk; for ever when the disk has failed.

        What is decided meanwhile is not waited for: with two who write all the time that would never end.
        """
        if self._last is not None:
            await asyncio.shield(self._last)

    async def _run_flush(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._queue:
                batch, self._queue = self._queue, []
                await loop.run_in_executor(self._thread, self._commit, [pending.event for pending in batch])
                for pending in batch:
                    self._publish(pending)
        except Exception as error:  # nothing that was answered may be forgotten: stop, and start again from the disk
            self._failed = True
            self._on_failure(error)

    def _commit(self, events: Iterable[Event]) -> None:
        database = self._database
        assert database is not None
        database.execute("BEGIN IMMEDIATE")
        last = 0
        for event in events:
            key = (event.storage, event.namespace, event.name)
            if event.type == "DELETED":
                database.execute("DELETE FROM objects WHERE storage=? AND namespace=? AND name=?", key)
            else:
                database.execute("INSERT OR REPLACE INTO objects VALUES (?,?,?,?,?)", (*key, event.revision, event.raw))
            before = None if event.before is None else msgspec.json.encode(event.before)
            attributes = msgspec.json.encode(event.attributes)
            database.execute(
                "INSERT INTO events VALUES (?,?,?,?,?,?,?,?)",
                (event.revision, event.type, *key, event.raw, attributes, before),
            )
            last = event.revision
        database.execute("INSERT OR REPLACE INTO meta VALUES ('revision', ?)", (last,))
        self._commits += 1
        if self._commits % PRUNE_EVERY == 0:
            compacted = self.compacted
            database.execute("DELETE FROM events WHERE revision <= ?", (compacted,))
            database.execute("INSERT OR REPLACE INTO meta VALUES ('compacted', ?)", (compacted,))
        database.execute("COMMIT")

    def _publish(self, pending: _Pending) -> None:
        event = pending.event
        entries = self._committed.setdefault(event.storage, {})
        if pending.entry is None:
            entries.pop((event.namespace, event.name), None)
        else:
            entries[event.namespace, event.name] = pending.entry
        self.revision = event.revision
        self._remember(event)
        for listener in list(self._listeners.values()):
            try:
                listener(event)
            except Exception:  # the event is on the disk: whoever cannot digest it is no failure of the disk
                _LOG.exception("a listener failed at %s %s/%s", event.storage, event.namespace, event.name)
        if not pending.done.done():
            pending.done.set_result(None)

    def _remember(self, event: Event) -> None:
        self._history.append(event)
        self._history_bytes += len(event.raw)
        while len(self._history) > self._history_max or self._history_bytes > HISTORY_BYTES_MAX:
            oldest = self._history.popleft()
            self._history_bytes -= len(oldest.raw)
            self.compacted = oldest.revision

"""Watches: the changes after a resource version, as a stream, with bookmarks."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import msgspec
from aiohttp import web

from kafkalite_local.apiserver.errors import ApiError, bad_request
from kafkalite_local.apiserver.reading import check_not_future, in_version, parse_revision
from kafkalite_local.apiserver.tables import table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite_local.apiserver.selectors import Selector
    from kafkalite_local.apiserver.store import Event, Store
    from kafkalite_local.apiserver.types import ResourceType

Json = dict[str, Any]
_LOG = logging.getLogger(__name__)

BOOKMARK_INTERVAL_S: Final = 5.0
"""Shorter than the real server's minute: clients in local mode notice a dead stream sooner."""

QUEUE_EVENTS_MAX: Final = 10_000
QUEUE_BYTES_MAX: Final = 32 << 20
"""A watcher that is further behind is cut off; it comes back with its last resource version."""

INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"


class Watch:
    """One watch request: what it selects, what is still to be sent, and where it stands."""

    def __init__(
        self,
        store: Store,
        resource: ResourceType,
        namespace: str | None,
        selector: Selector,
        query: Mapping[str, str],
        *,
        table_version: str = "",
        bookmark_interval_s: float = BOOKMARK_INTERVAL_S,
    ) -> None:
        self._store = store
        self._resource = resource
        self._namespace = namespace
        self._selector = selector
        self._table_version = table_version
        self._include = query.get("includeObject") or "Metadata"
        self._columns_sent = False
        self._bookmarks = query.get("allowWatchBookmarks") in {"true", "1"}
        self._bookmark_interval_s = bookmark_interval_s
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._wake = asyncio.Event()
        self._overrun = False
        self._seen = 0
        timeout = query.get("timeoutSeconds") or ""
        self._timeout_s = float(timeout) if timeout.isdigit() and int(timeout) else random.uniform(1800, 3600)
        self._begin(query)

    def _begin(self, query: Mapping[str, str]) -> None:
        revision = parse_revision(query.get("resourceVersion", ""))
        initial = query.get("sendInitialEvents")
        if initial is not None:
            self._check_initial(initial, query)
        wants_state = initial == "true" or (initial is None and revision == 0)
        check_not_future(revision, self._store.revision)
        self._seen = self._store.revision
        if wants_state:
            for entry in self._store.entries(self._resource.storage, self._namespace):
                if self._selector.matches(entry.attributes):
                    self._push("ADDED", entry.raw)
            if initial == "true":
                self._push_bookmark(initial_end=True)
            return
        try:
            missed = self._store.since(revision or self._store.revision)
        except ApiError as error:
            # The real server answers 200 and puts the error into the stream.
            self._push_raw("ERROR", msgspec.json.encode(error.status()))
            self._overrun = True
            return
        for event in missed:
            self._on_event(event)

    def _check_initial(self, initial: str, query: Mapping[str, str]) -> None:
        if initial not in {"true", "false"}:
            raise bad_request("sendInitialEvents: Invalid value")
        if query.get("resourceVersionMatch") != "NotOlderThan":
            raise bad_request(
                "ListOptions.meta.k8s.io is invalid: resourceVersionMatch: Forbidden: "
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            )
        if initial == "true" and not self._bookmarks:
            raise bad_request(
                "ListOptions.meta.k8s.io is invalid: sendInitialEvents: Forbidden: "
                "sendInitialEvents requires setting allowWatchBookmarks to true"
            )

    def _listen(self, event: Event) -> None:
        """Take an event; one that cannot be shown ends this watch, since its client must not miss it unknowingly."""
        if self._overrun:
            return
        try:
            self._on_event(event)
        except Exception:
            _LOG.exception("a watch of %s ends at %s/%s", event.storage, event.namespace, event.name)
            error = ApiError(500, "InternalError", "Internal error occurred: see the log of the API server")
            self._push_raw("ERROR", msgspec.json.encode(error.status()))
            self._overrun = True

    def _on_event(self, event: Event) -> None:
        self._seen = event.revision
        if event.storage != self._resource.storage:
            return
        if self._namespace is not None and event.namespace != self._namespace:
            return
        after = event.type != "DELETED" and self._selector.matches(event.attributes)
        before = event.before is not None and self._selector.matches(event.before)
        if after:
            self._push("MODIFIED" if before else "ADDED", event.raw)
        elif before:
            self._push("DELETED", event.raw)

    def _push(self, type_: str, raw: bytes) -> None:
        raw = in_version(self._resource, raw)
        if self._table_version:
            raw = self._as_table(raw)
        self._push_raw(type_, raw)

    def _as_table(self, raw: bytes) -> bytes:
        value = msgspec.json.decode(raw)
        rows = table(
            self._resource,
            [value],
            {"resourceVersion": value["metadata"]["resourceVersion"]},
            version=self._table_version,
            include=self._include,
            with_columns=not self._columns_sent,
        )
        self._columns_sent = True
        return msgspec.json.encode(rows)

    def _push_raw(self, type_: str, raw: bytes) -> None:
        line = b'{"type":"' + type_.encode() + b'","object":' + raw + b"}\n"
        self._queue.append(line)
        self._queued_bytes += len(line)
        if len(self._queue) > QUEUE_EVENTS_MAX or self._queued_bytes > QUEUE_BYTES_MAX:
            self._overrun = True
        self._wake.set()

    def _push_bookmark(self, *, initial_end: bool = False) -> None:
        metadata: Json = {"resourceVersion": str(self._seen), "creationTimestamp": None}
        if initial_end:
            metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
        value = {"kind": self._resource.kind, "apiVersion": self._resource.api_version, "metadata": metadata}
        if self._table_version:
            body = table(self._resource, [], {"resourceVersion": str(self._seen)}, version="v1", include="None")
            self._push_raw("BOOKMARK", msgspec.json.encode(body))
        else:
            self._push_raw("BOOKMARK", msgspec.json.encode(value))

    async def run(self, request: web.Request, stopping: asyncio.Event) -> web.StreamResponse:
        """Send until the time is over, the client goes, the server stops or the watcher is too slow."""
        response = web.StreamResponse(
            headers={"Content-Type": "application/json", "Cache-Control": "no-cache, private"}
        )
        response.enable_chunked_encoding()
        unsubscribe = self._store.subscribe(self._listen)
        loop = asyncio.get_running_loop()
        end = loop.time() + self._timeout_s
        bookmark = loop.time() + self._bookmark_interval_s
        try:
            await response.prepare(request)
            while not stopping.is_set():
                await self._drain(response)
                now = loop.time()
                if self._overrun or now >= end:
                    break
                if self._bookmarks and now >= bookmark:
                    self._push_bookmark()
                    bookmark = now + self._bookmark_interval_s
                    continue
                await self._sleep(min(end, bookmark if self._bookmarks else end) - now)
            if self._bookmarks and not self._overrun:
                self._push_bookmark()
                await self._drain(response)
            await response.write_eof()
        except ConnectionError:
            pass  # the client went away
        finally:
            unsubscribe()
        return response

    async def _drain(self, response: web.StreamResponse) -> None:
        while self._queue:
            chunk = b"".join(self._queue)
            self._queue.clear()
            self._queued_bytes = 0
            await response.write(chunk)

    async def _sleep(self, seconds: float) -> None:
        self._wake.clear()
        if self._queue:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass

    def wake(self) -> None:
        """Look at the stop flag now."""
        self._wake.set()

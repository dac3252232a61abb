"""The Kubernetes client that broker, operator, kubelet and CLI share.

Every call has a hard deadline that covers connection, request and the whole body. No write is ever sent twice by
this module: what became of a write without an answer is the caller's decision (see `KubeUnavailable.ambiguous`).
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NoReturn

import aiohttp
import msgspec

from kafkalite_runtime.kube.answers import error_for, status_text
from kafkalite_runtime.kube.config import KubeConfig
from kafkalite_runtime.kube.errors import (
    KubeError,
    KubeUnavailable,
    cause_of,
    described,
)
from kafkalite_runtime.kube.kinds import Kind

JsonObject = dict[str, Any]
JsonPatch = list[JsonObject]

MAX_BODY_BYTES = 64 * 1024 * 1024
MAX_LINE_BYTES = 8 * 1024 * 1024  # an object is at most 1.5 MiB in etcd; a watch line wraps one
LIST_PAGE = 500
MAX_LIST_PAGES = 1_000
CONNECTIONS = 64

_JSON = "application/json"
_JSON_PATCH = "application/json-patch+json"
_MERGE_PATCH = "application/merge-patch+json"
_STRICT = {"fieldValidation": "Strict"}
_DRY_RUN = {"dryRun": "All"}
_TRANSPORT_ERRORS = (aiohttp.ClientError, OSError, TimeoutError, asyncio.IncompleteReadError)


@dataclass(frozen=True, slots=True)
class KubeList:
    """All objects of one consistent read."""

    items: list[JsonObject]
    resource_version: str


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """`type` is ADDED, MODIFIED, DELETED or BOOKMARK; `object` of a BOOKMARK holds only its resourceVersion."""

    type: str
    object: JsonObject


class KubeClient:
    """See the module; one instance per process and event loop, closed with `close()`."""

    def __init__(self, config: KubeConfig) -> None:
        self.config = config
        self._session: aiohttp.ClientSession | None = None

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> "KubeClient":
        """`KUBECONFIG`, else the service account of the pod. Raises ConfigError when there is neither."""
        return cls(KubeConfig.from_environment(environ))

    async def get(self, kind: Kind, namespace: str | None, name: str, *, deadline_s: float = 3.0) -> JsonObject:
        """One object, read consistently. Raises KubeNotFound and the other errors of `kube.errors`."""
        return await self._call("GET", kind.path(namespace, name), deadline_s=deadline_s)

    async def list(
        self, kind: Kind, namespace: str | None = None, *, label_selector: str = "", deadline_s: float = 10.0
    ) -> KubeList:
        """All objects (None: of all namespaces) as of one resourceVersion, read in pages.

        `apiVersion` and `kind`, which servers leave out of list items, are filled in. Raises KubeGone when the
        continue token expired between pages.
        """
        params = {"limit": str(LIST_PAGE)}
        if label_selector:
            params["labelSelector"] = label_selector
        items: list[JsonObject] = []
        try:
            async with asyncio.timeout(deadline_s):
                for _ in range(MAX_LIST_PAGES):
                    page = await self._call("GET", kind.path(namespace), params=params, deadline_s=deadline_s)
                    items += page.get("items") or []
                    metadata = page.get("metadata") or {}
                    if not metadata.get("continue"):
                        break
                    params["continue"] = metadata["continue"]
                else:
                    raise KubeError(500, "TooManyPages", f"{kind.plural}: more than {MAX_LIST_PAGES} pages")
        except TimeoutError as error:
            why = f"no answer in {deadline_s} s"
            raise self._unavailable(f"LIST {kind.plural}: {why}", why) from error
        for item in items:
            item.setdefault("apiVersion", kind.api_version)
            item.setdefault("kind", kind.kind)
        return KubeList(items, str(metadata.get("resourceVersion", "")))

    async def watch(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str = "",
        silence_limit_s: float = 15.0,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Changes after `resource_version`, bookmarks included, until the server ends the stream (a normal end).

        The server is asked to end the stream after two thirds of `silence_limit_s`, so that longer silence always
        means a dead connection. Close the iterator (`contextlib.aclosing`) when leaving it early.

        Raises:
            KubeGone: list again.
            KubeUnavailable: connection lost, silent, or an error in the stream; continue from the last version.
        """
        params = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(watch_s(silence_limit_s)),
        }
        if label_selector:
            params["labelSelector"] = label_selector
        what = f"WATCH {kind.plural}"
        try:
            async with contextlib.AsyncExitStack() as stack:
                async with asyncio.timeout(silence_limit_s):
                    response = await stack.enter_async_context(
                        self._request("GET", kind.path(namespace), params, None, _JSON, SimpleNamespace(sent=False))
                    )
                    stack.callback(_abandon, response)
                    if response.status != 200:
                        self._raise_for(what, response, await _read_body(response), write=False)
                async for line in _lines(response.content, silence_limit_s):
                    yield _watch_event(line)
        except _TRANSPORT_ERRORS as error:
            raise self._unavailable(f"{what}: {described(error)}", cause_of(error)) from error

    async def create(
        self,
        kind: Kind,
        namespace: str | None,
        body: JsonObject,
        *,
        strict: bool = False,
        dry_run: bool = False,
        deadline_s: float = 3.0,
    ) -> JsonObject:
        """POST. Raises KubeConflict (AlreadyExists) when the name is taken.

        `strict`: refuse unknown fields; `dry_run`: judge the request and store nothing.
        """
        params = _write_params(strict=strict, dry_run=dry_run)
        return await self._call("POST", kind.path(namespace), body=body, params=params, deadline_s=deadline_s)

    async def replace(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        body: JsonObject,
        *,
        subresource: str = "",
        deadline_s: float = 3.0,
    ) -> JsonObject:
        """PUT. A resourceVersion in `body` makes it a compare-and-swap: KubeConflict when it is not the latest."""
        return await self._call("PUT", kind.path(namespace, name, subresource), body=body, deadline_s=deadline_s)

    async def json_patch(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        operations: JsonPatch,
        *,
        subresource: str = "",
        dry_run: bool = False,
        deadline_s: float = 3.0,
    ) -> JsonObject:
        """JSON Patch. KubeInvalid for a failed `test` or rule; KubeConflict: not applied, same tests may be retried."""
        path = kind.path(namespace, name, subresource)
        params = _write_params(dry_run=dry_run)
        return await self._call(
            "PATCH", path, body=operations, params=params, content_type=_JSON_PATCH, deadline_s=deadline_s
        )

    async def merge_patch(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        body: JsonObject,
        *,
        subresource: str = "",
        strict: bool = False,
        dry_run: bool = False,
        deadline_s: float = 3.0,
    ) -> JsonObject:
        """JSON Merge Patch (RFC 7386); `strict`: refuse unknown fields, which are else dropped."""
        path = kind.path(namespace, name, subresource)
        params = _write_params(strict=strict, dry_run=dry_run)
        return await self._call(
            "PATCH", path, body=body, params=params, content_type=_MERGE_PATCH, deadline_s=deadline_s
        )

    async def delete(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_period_s: int | None = None,
        propagation: str = "Background",
        deadline_s: float = 3.0,
    ) -> None:
        """DELETE, in the background or with another policy (`Foreground`; `Orphan` leaves what it owns alone).

        With `uid` only that very object, with `resource_version` only that version of it: KubeConflict otherwise.
        """
        body: JsonObject = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        wanted = {"uid": uid, "resourceVersion": resource_version}
        if preconditions := {name: value for name, value in wanted.items() if value is not None}:
            body["preconditions"] = preconditions
        if grace_period_s is not None:
            body["gracePeriodSeconds"] = grace_period_s
        await self._call("DELETE", kind.path(namespace, name), body=body, deadline_s=deadline_s)

    async def close(self) -> None:
        """Close all connections; running calls fail."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    # -- one request ------------------------------------------------------------------------------------------

    async def _call(
        self,
        method: str,
        path: str,
        *,
        deadline_s: float,
        params: Mapping[str, str] | None = None,
        body: JsonObject | JsonPatch | None = None,
        content_type: str = _JSON,
    ) -> JsonObject:
        assert deadline_s > 0
        write = method != "GET"
        what = f"{method} {path}"
        progress = SimpleNamespace(sent=False)
        try:
            async with (
                asyncio.timeout(deadline_s),
                self._request(method, path, params, body, content_type, progress) as response,
            ):
                payload = await _read_body(response)
        except _TRANSPORT_ERRORS as error:
            # Before a connection was ours nothing can have reached the server; after it anything can have.
            text, sent = f"{what}: {described(error)}", write and progress.sent
            raise self._unavailable(text, cause_of(error), ambiguous=sent) from error
        if not 200 <= response.status < 300:
            self._raise_for(what, response, payload, write=write)
        try:
            answer = msgspec.json.decode(payload)
        except (msgspec.DecodeError, RecursionError) as error:
            text = f"{what}: the answer is not JSON ({error})"
            raise self._unavailable(text, "its answer is not JSON", ambiguous=write) from error
        if not isinstance(answer, dict):
            why = "its answer is not a JSON object"
            raise self._unavailable(f"{what}: {why}", why, ambiguous=write)
        return answer

    def _request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        body: JsonObject | JsonPatch | None,
        content_type: str,
        progress: SimpleNamespace,
    ) -> "aiohttp.client._RequestContextManager":
        headers = {"Accept": _JSON}
        token = self.config.token_file.get() if self.config.token_file else self.config.token
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if body is not None:
            headers["Content-Type"] = content_type
        return self._open_session().request(
            method,
            self.config.server + path,
            params=params,
            data=msgspec.json.encode(body) if body is not None else None,
            headers=headers,
            ssl=trust if (trust := self.config.trust()) is not None else True,
            allow_redirects=False,
            trace_request_ctx=progress,
        )

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            trace = aiohttp.TraceConfig()
            trace.on_connection_create_end.append(_mark_sent)
            trace.on_connection_reuseconn.append(_mark_sent)
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=CONNECTIONS, keepalive_timeout=30),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
                trace_configs=[trace],
                auto_decompress=True,
                trust_env=False,
            )
            # aiohttp repeats PUT and DELETE on its own when a kept-alive connection turns out to be dead. The first
            # one may have been applied, and the second would then report a conflict with ourselves.
            self._session._retry_connection = False  # noqa: SLF001
        return self._session

    def _raise_for(self, what: str, response: aiohttp.ClientResponse, payload: bytes, *, write: bool) -> NoReturn:
        status = response.status
        if status == 401 and self.config.token_file:
            self.config.token_file.forget()
        reason, message = status_text(payload)
        error = error_for(status, reason, f"{what}: {message}", response.headers.get("Retry-After", ""), write=write)
        if isinstance(error, KubeUnavailable):
            error.server, error.why = self.config.server, " ".join(f"{status} {message or reason}".split())
        raise error

    def _unavailable(self, text: str, why: str, *, ambiguous: bool = False) -> KubeUnavailable:
        return KubeUnavailable(text, ambiguous=ambiguous, server=self.config.server, why=why)


def _write_params(*, strict: bool = False, dry_run: bool = False) -> dict[str, str] | None:
    return ((_STRICT if strict else {}) | (_DRY_RUN if dry_run else {})) or None


async def _mark_sent(_session: aiohttp.ClientSession, context: SimpleNamespace, _params: object) -> None:
    context.trace_request_ctx.sent = True


def _abandon(response: aiohttp.ClientResponse) -> None:
    """End the connection of a stream that did not end: TLS would wait for a goodbye of the peer, which may be gone."""
    if response.connection is not None and response.connection.transport is not None:
        response.connection.transport.abort()


async def _read_body(response: aiohttp.ClientResponse) -> bytes:
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise aiohttp.ClientPayloadError(f"answer larger than {MAX_BODY_BYTES} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


def watch_s(silence_limit_s: float) -> int:
    """After how long the server is asked to end a watch whose silence means a dead connection after that limit."""
    return max(1, int(silence_limit_s * 2 / 3))


async def _lines(content: aiohttp.StreamReader, silence_limit_s: float) -> AsyncIterator[bytes]:
    rest = bytearray()
    while True:
        async with asyncio.timeout(silence_limit_s):
            chunk = await content.readany()
        if not chunk:
            # A line without its end was cut off: it will come again from the last version that was whole.
            return
        rest += chunk
        if b"\n" not in chunk:
            if len(rest) > MAX_LINE_BYTES:
                raise aiohttp.ClientPayloadError(f"watch line larger than {MAX_LINE_BYTES} bytes")
            continue
        *whole, tail = bytes(rest).split(b"\n")
        rest = bytearray(tail)
        for line in whole:
            if line.strip():
                yield line


def _watch_event(line: bytes) -> WatchEvent:
    try:
        document = msgspec.json.decode(line)
        event = WatchEvent(document["type"], document["object"])
        if event.type != "ERROR":
            _ = event.object["metadata"]["resourceVersion"]
    except (msgspec.DecodeError, RecursionError, KeyError, TypeError) as error:
        raise KubeUnavailable(f"watch: a line is not an event ({error})", ambiguous=False) from error
    if event.type == "ERROR":
        status = int(event.object.get("code") or 500)
        text = str(event.object.get("message") or "error in the watch")
        raise error_for(status, str(event.object.get("reason") or ""), text, "", write=False)
    return event

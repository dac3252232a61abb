"""The dispatch table: API key and version -> codec and handler. A new Kafka API is one row and one handler module."""

from __future__ import annotations

import asyncio
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from kafkalite_broker.server.slot import UNCOUNTED
from kafkalite_core.model.errors import KafkaLiteError
from kafkalite_core.protocol.apis import API, unsupported_api_versions_response
from kafkalite_core.protocol.header import RequestHeader, decode_request_header, encode_response_frame
from kafkalite_core.storage.errors import DiskFailure
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from concurrent.futures import Executor

    from kafkalite_broker.server.slot import Attachment, Held, Slot
    from kafkalite_broker.telemetry import BrokerTelemetry
    from kafkalite_core.protocol.api_spec import ApiSpec

API_VERSIONS_KEY = 18

WAITING_BYTES_FREE = 4 << 10
"""What a request that waits may hold without being counted. No more than 64 of a connection wait at a time."""

QUESTION_BYTES_MAX = 2 << 20
"""Requests that carry neither records nor what the members of a group tell each other are small. Reading one with a
million names would hold the event loop for seconds, and the broker would lose its lease."""

LARGE_APIS = frozenset({0, 8, 11, 14})
"""Produce, OffsetCommit, JoinGroup, SyncGroup: as large as a frame may be."""

log = get_logger(__name__)


def _done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Request:
    """One request on its way: what a handler needs to answer it.

    Attributes:
        version: API version of request and answer.
        client_id: As the client calls itself; None when it does not.
        body: The decoded message.
        received_s: Monotonic time of arrival.
        size_bytes: Of the frame.
    """

    __slots__ = ("_slot", "_spec", "_table", "body", "client_id", "correlation_id", "received_s", "size_bytes",
                 "version")  # fmt: skip

    def __init__(
        self, spec: ApiSpec, header: RequestHeader, body: Any, slot: Slot, table: RequestTable, size_bytes: int
    ) -> None:
        self._spec = spec
        self._slot = slot
        self._table = table
        self.version = header.api_version
        self.correlation_id = header.correlation_id
        self.client_id = header.client_id
        self.body = body
        self.received_s = slot.received_s
        self.size_bytes = size_bytes

    def answer(self, response: object) -> None:
        """Encode and send the answer, in its turn. Never raises: answers come from timers and flushes as well."""
        if self._slot.closed:
            self._slot.finish(())
        else:
            try:
                buffers = encode_response_frame(self._spec, self.version, self.correlation_id, response)
            except Exception as error:
                self.failed(error)
                return
            self._slot.finish(buffers)
        self._table.request_answered(self._spec.name, monotonic() - self.received_s)

    async def answer_large(self, response: object, pool: Executor) -> None:
        """As `answer`, for what may be so large that its encoding would hold the event loop: a thread encodes it.

        Of a connection one such answer is encoded and not yet sent, however many its client asks for and does not read.
        """
        await self.turn()
        if self._slot.closed:
            self._slot.finish(())
            return
        loop = asyncio.get_running_loop()
        buffers = await loop.run_in_executor(
            pool, encode_response_frame, self._spec, self.version, self.correlation_id, response
        )
        self.holds_until_sent(UNCOUNTED)
        self._slot.finish(buffers)
        self._table.request_answered(self._spec.name, monotonic() - self.received_s)

    def answer_nothing(self) -> None:
        """The request has no answer (acks=0)."""
        self._slot.finish(())
        self._table.request_answered(self._spec.name, monotonic() - self.received_s)

    def close(self, reason: str) -> None:
        """Close the connection: the only way to tell an error where there is no answer."""
        self._slot.close(reason)

    def failed(self, error: BaseException) -> None:
        """A defect of a handler must not leave the client, and the answers behind this one, waiting for ever."""
        self._table.failed(self._spec.name, self.version, self._slot, error)

    async def guarded(self, work: Awaitable[None]) -> None:
        """Await the work of a handler that answers later; what it raises closes the connection."""
        try:
            await work
        except Exception as error:
            self.failed(error)

    def waits(self, appended_bytes: int = 0, kept_bytes: int | None = None) -> None:
        """The answer comes later, and nobody needs the frame for it: its bytes are free for the frames of others.

        A message, several times as large as it was in the frame, goes on to be counted with that if it is not small.

        Args:
            appended_bytes: So much of the frame is not in the message any longer: it belongs to a log.
            kept_bytes: What the request holds, where it has let go of its message; counted whatever the frame was.
        """
        if kept_bytes is not None:
            self._slot.holds(kept_bytes)
            return
        left_bytes = self.size_bytes - appended_bytes
        self._slot.let_go(left_bytes if left_bytes > WAITING_BYTES_FREE else 0)

    @property
    def is_first(self) -> bool:
        """Whether all requests before it were answered, and nothing large of these answers is unsent."""
        return self._slot.is_first

    async def turn(self) -> None:
        """Wait until it `is_first`, or the client goes away. Who waits here must hold nothing that others wait for."""
        if self._slot.done or self.is_first:
            return
        turn = asyncio.get_running_loop().create_future()
        self._slot.on_first = partial(_done, turn)
        await self.unless_abandoned(turn)

    async def unless_abandoned(self, future: asyncio.Future[None]) -> None:
        """Wait for it, or until the client goes away."""
        self.on_abandoned(partial(_done, future))
        if not self.abandoned:
            await future

    def holds_until_sent(self, held: Held) -> None:
        """Have it given back when nothing of the answer is in memory any longer: it was sent, or never will be.

        Until then the client is sent nothing else that is large, and no further request of it is read.
        """
        if self._slot.done:
            held.give_back()
        else:
            self._slot.held = held

    @property
    def on_replication(self) -> bool:
        """Whether `replicates` was called for this connection."""
        return self._slot.replicates

    def replicates(self) -> None:
        """Another broker replicates on this connection: it is read whatever memory requests hold.

        Otherwise requests that wait for replication could keep out the very fetches that they wait for.
        """
        self._slot.replication_noted()

    def on_abandoned(self, callback: Callable[[], None]) -> None:
        """Have the callback called if the client goes away before the answer."""
        self._slot.on_abandoned = callback

    @property
    def attachment(self) -> Attachment | None:
        """What handlers remember of this connection."""
        return self._slot.attachment

    @attachment.setter
    def attachment(self, attachment: Attachment | None) -> None:
        self._slot.attachment = attachment

    @property
    def peer(self) -> str:
        """Address of the client, for logs."""
        return self._slot.peer

    @property
    def listener(self) -> str:
        """Name of the listener that the client came in on: it is told addresses of this one."""
        return self._slot.listener

    @property
    def client_host(self) -> str:
        """Address of the client as Kafka's tools show it: `/127.0.0.1`."""
        return "/" + self._slot.peer.rpartition(":")[0]

    @property
    def abandoned(self) -> bool:
        """The client is gone; nobody waits for the answer."""
        return self._slot.closed


class RequestTable:
    """Decodes frames and calls handlers.

    Args:
        handlers: Handler by API key; called with the decoded request, answers now or later.
        telemetry: Counters.
        on_fatal: Told a `DiskFailure`, after which the process must end (R12).
    """

    def __init__(
        self,
        handlers: Mapping[int, Callable[[Request], None]],
        telemetry: BrokerTelemetry,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self._handlers = dict(handlers)
        self._on_fatal = on_fatal
        self.request_answered = telemetry.request_answered

    def dispatch(self, frame: bytearray, slot: Slot) -> None:
        """Handle one frame. Whatever is wrong with it closes the connection, and this connection only."""
        view = memoryview(frame)
        key = int.from_bytes(view[:2], "big", signed=True)
        if len(frame) > QUESTION_BYTES_MAX and key not in LARGE_APIS:
            # Not even the header is read: there may be a million tagged fields in it.
            name = f"API key {key}" if key not in API else API[key].name
            slot.close(f"{name} of {len(frame)} bytes, at most {QUESTION_BYTES_MAX} are read")
            return
        try:
            header, offset = decode_request_header(view)
            spec = API.get(header.api_key)
            handler = self._handlers.get(header.api_key)
            if spec is None or handler is None:
                slot.close(f"API key {header.api_key} version {header.api_version} is not served")
                return
            if not spec.min_version <= header.api_version <= spec.max_version:
                self._unsupported_version(spec, header, slot)
                return
            body = spec.decode_request(view[offset:], header.api_version)
        except KafkaLiteError as error:
            slot.close(f"request cannot be read: {error}")
            return
        except Exception as error:
            log.error("decoder failed", peer=slot.peer, exc_info=error)
            slot.close("request cannot be read")
            return
        try:
            handler(Request(spec, header, body, slot, self, len(frame)))
        except Exception as error:
            # A defect of a handler must not take the other connections with it.
            self.failed(spec.name, header.api_version, slot, error)

    def failed(self, api: str, version: int, slot: Slot, error: BaseException) -> None:
        """A handler raised: the connection is closed. After a disk failure the broker ends instead (R12)."""
        if isinstance(error, DiskFailure):
            self._on_fatal(error)
        log.error("handler failed", api=api, version=version, peer=slot.peer, exc_info=error)
        slot.close(f"internal error while handling {api}")

    def _unsupported_version(self, spec: ApiSpec, header: RequestHeader, slot: Slot) -> None:
        if header.api_key == API_VERSIONS_KEY:
            # The client retries with a version that it finds in this answer (KIP-35); always in version 0.
            response = unsupported_api_versions_response()
            slot.finish(encode_response_frame(spec, 0, header.correlation_id, response))
            return
        slot.close(
            f"{spec.name} version {header.api_version} is not served ({spec.min_version} to {spec.max_version} are)"
        )

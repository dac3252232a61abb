"""A connection to another broker: one request at a time, answered by one frame."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, cast

from kafkalite_core.model.limits import SOCKET_REQUEST_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

LENGTH_BYTES = 4
CONNECT_DEADLINE_S = 2.0


class PeerError(Exception):
    """The other broker cannot be reached, closed the connection, or sent what is no answer."""


class PeerConnection(asyncio.Protocol):
    """The asyncio side of `Peer`: collects one answer frame."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[bytearray] | None = None
        self._buffer = bytearray()

    @property
    def answering(self) -> bool:
        """Whether the expected answer has begun to arrive, or has arrived and was not looked at yet."""
        return bool(self._buffer) or self._answer is None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember the transport."""
        # uvloop's transports are no subclasses of asyncio's.
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail whoever waits."""
        self.transport = None
        self._fail(PeerError("the connection was closed" if exc is None else str(exc)))

    def data_received(self, data: bytes) -> None:
        """Collect the frame; nothing is allocated before it has arrived."""
        self._buffer += data
        if len(self._buffer) < LENGTH_BYTES:
            return
        size_bytes = int.from_bytes(self._buffer[:LENGTH_BYTES], "big", signed=True)
        if not 0 < size_bytes <= SOCKET_REQUEST_BYTES_MAX:
            self._fail(PeerError(f"answer of {size_bytes} bytes"))
            self.close()
            return
        missing = size_bytes + LENGTH_BYTES - len(self._buffer)
        if missing > 0:
            return
        answer, self._answer = self._answer, None
        frame, self._buffer = self._buffer, bytearray()
        if missing < 0 or answer is None:
            self._fail(PeerError("more bytes than were asked for"))
            self.close()
        if answer is not None and not answer.done():
            answer.set_result(frame)

    async def exchange(self, buffers: Sequence[bytes | bytearray | memoryview], deadline_s: float) -> memoryview:
        """Send a request frame; returns the answer without its length prefix. Raises `PeerError`."""
        if self.transport is None:
            raise PeerError("not connected")
        assert self._answer is None, "one request at a time"
        self._answer = asyncio.get_running_loop().create_future()
        answer = self._answer
        self.transport.writelines(buffers)
        try:
            async with asyncio.timeout(deadline_s):
                frame = await answer
        except TimeoutError:
            self.close()
            raise PeerError(f"no answer within {deadline_s:.1f} s") from None
        finally:
            self._answer = None
        return memoryview(frame)[LENGTH_BYTES:]

    def close(self) -> None:
        """Drop the connection and whatever it was about to answer."""
        if self.transport is not None:
            self.transport.abort()
            self.transport = None

    def _fail(self, error: PeerError) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(error)


async def connect(host: str, port: int) -> PeerConnection:
    """Connect; names are resolved anew each time, since a pod comes back with another address. Raises `PeerError`."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(CONNECT_DEADLINE_S):
            _, connection = await loop.create_connection(PeerConnection, host, port)
    except (OSError, TimeoutError, UnicodeError) as error:
        # UnicodeError: a host name that is none.
        raise PeerError(f"cannot connect to {host}:{port}: {error}") from error
    return connection


async def close_quietly(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait for its end."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task

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
BEGINNING_BYTES = 65_536


class PeerError(Exception):
    """The other broker cannot be reached, closed the connection, or sent what is no answer."""


class PeerConnection(asyncio.BufferedProtocol):
    """The asyncio side of `Peer`: collects one answer frame.

    The socket is read straight into the frame, which is allocated once its length is known. Small frames are copied out
    of the buffer for beginnings, so that who keeps a small answer keeps no large buffer with it.
    """

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[memoryview] | None = None
        self._beginning = bytearray(BEGINNING_BYTES)
        self._frame: bytearray | None = None
        self._received_bytes = 0

    @property
    def answering(self) -> bool:
        """Whether the expected answer has begun to arrive, or has arrived and was not looked at yet."""
        return self._received_bytes > 0 or self._answer is None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember the transport."""
        # uvloop's transports are no subclasses of asyncio's.
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail whoever waits."""
        self.transport = None
        self._fail(PeerError("the connection was closed" if exc is None else str(exc)))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        del sizehint
        return memoryview(self._beginning if self._frame is None else self._frame)[self._received_bytes :]

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have arrived: the beginning of a frame, its rest, or more than was asked for."""
        self._received_bytes += nbytes
        received_bytes = self._received_bytes
        if received_bytes < LENGTH_BYTES:
            return
        size_bytes = int.from_bytes((self._frame or self._beginning)[:LENGTH_BYTES], "big", signed=True)
        if not 0 < size_bytes <= SOCKET_REQUEST_BYTES_MAX:
            self._fail(PeerError(f"answer of {size_bytes} bytes"))
            self.close()
            return
        frame_bytes = LENGTH_BYTES + size_bytes
        if received_bytes < frame_bytes:
            if self._frame is None and frame_bytes > BEGINNING_BYTES:
                self._frame = bytearray(frame_bytes)
                self._frame[:received_bytes] = memoryview(self._beginning)[:received_bytes]
            return
        answer, self._answer = self._answer, None
        frame = self._frame if self._frame is not None else bytes(memoryview(self._beginning)[:frame_bytes])
        self._frame, self._received_bytes = None, 0
        if received_bytes > frame_bytes or answer is None:
            self._fail(PeerError("more bytes than were asked for"))
            self.close()
        if answer is not None and not answer.done():
            answer.set_result(memoryview(frame)[LENGTH_BYTES:])

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
                return await answer
        except TimeoutError:
            self.close()
            raise PeerError(f"no answer within {deadline_s:.1f} s") from None
        finally:
            self._answer = None

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

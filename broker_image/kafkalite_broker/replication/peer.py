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
TRANSFER_LIMIT_S = 60.0
"""How long an answer may take beyond its deadline while bytes of it arrive. Who sends a byte now and then must not hold
up all that is replicated on the connection for ever."""
BUFFER_BYTES = 64 << 10
"""What every connection has to read into."""
BUFFER_BYTES_MAX = 4 << 20
"""The largest buffer that a connection keeps for its next answer."""


class PeerError(Exception):
    """The other broker cannot be reached, closed the connection, or sent what is no answer."""


class PeerConnection(asyncio.BufferedProtocol):
    """The asyncio side of `Peer`: collects one answer frame.

    The socket is read straight into a buffer, which grows to the length of the frame once that is known and serves the
    next answer too: nothing is copied, and no memory is cleared for each answer. Whoever keeps a view of an answer
    keeps the buffer; then the connection takes another.
    """

    def __init__(self) -> None:
        self.address = ""
        self.answer_bytes_max = SOCKET_REQUEST_BYTES_MAX
        self.transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[memoryview] | None = None
        self._buffer = bytearray(BUFFER_BYTES)
        self._received_bytes = 0
        self._loop = asyncio.get_running_loop()
        self._silence_s = self._heard_s = self._end_s = 0.0
        """Of the awaited answer: how long nothing may arrive, when something did last, when it has to be whole."""

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
        if self._answer is None:
            # Nothing was asked for. What comes nevertheless must not overwrite an answer that is still read.
            return memoryview(bytearray(LENGTH_BYTES))
        return memoryview(self._buffer)[self._received_bytes :]

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have arrived: the beginning of a frame, its rest, or more than was asked for."""
        if self._answer is None:
            self.close()
            return
        self._received_bytes += nbytes
        self._heard_s = self._loop.time()
        received_bytes = self._received_bytes
        if received_bytes < LENGTH_BYTES:
            return
        size_bytes = int.from_bytes(self._buffer[:LENGTH_BYTES], "big", signed=True)
        if not 0 < size_bytes <= self.answer_bytes_max:
            self._fail(PeerError(f"answer of {size_bytes} bytes, more than {self.answer_bytes_max}"))
            self.close()
            return
        frame_bytes = LENGTH_BYTES + size_bytes
        if received_bytes < frame_bytes:
            if frame_bytes > len(self._buffer):
                larger = bytearray(frame_bytes)
                larger[:received_bytes] = memoryview(self._buffer)[:received_bytes]
                self._buffer = larger
            return
        answer, self._answer = self._answer, None
        self._received_bytes = 0
        if received_bytes > frame_bytes:
            self.close()
        if not answer.done():
            answer.set_result(memoryview(self._buffer)[LENGTH_BYTES:frame_bytes])

    def _fresh_buffer(self) -> None:
        """Read the next answer into another buffer if somebody still has a view of the last one, or it was huge."""
        buffer = self._buffer
        if len(buffer) <= BUFFER_BYTES_MAX:
            try:
                # Refused while there are views: the size of what they show cannot change.
                buffer.append(0)
            except BufferError:
                pass
            else:
                del buffer[-1]
                return
        self._buffer = bytearray(BUFFER_BYTES)

    async def exchange(self, buffers: Sequence[bytes | bytearray | memoryview], deadline_s: float) -> memoryview:
        """Send a request frame; returns the answer without its length prefix. Raises `PeerError`.

        The deadline is one of silence: it begins anew with whatever arrives, within `TRANSFER_LIMIT_S`. A large answer
        over a slow link would otherwise be dropped, and asked for again, for ever.
        """
        if self.transport is None:
            raise PeerError("not connected")
        assert self._answer is None, "one request at a time"
        self._fresh_buffer()
        answer: asyncio.Future[memoryview] = self._loop.create_future()
        self._answer = answer
        self._silence_s = deadline_s
        self._heard_s = self._loop.time()
        self._end_s = self._heard_s + deadline_s + TRANSFER_LIMIT_S
        self._timer = self._loop.call_later(deadline_s, self._look_at_silence)
        self.transport.writelines(buffers)
        try:
            return await answer
        finally:
            self._answer = None
            self._timer.cancel()

    def _look_at_silence(self) -> None:
        now_s, due_s = self._loop.time(), min(self._heard_s + self._silence_s, self._end_s)
        if now_s < due_s:
            self._timer = self._loop.call_at(due_s, self._look_at_silence)
            return
        silent = due_s < self._end_s
        limit = f"within {self._silence_s:.1f} s" if silent else f"whole {TRANSFER_LIMIT_S:.0f} s after its deadline"
        self._fail(PeerError(f"no answer {limit}, {self._received_bytes} bytes of one have arrived"))
        self.close()

    def close(self) -> None:
        """Drop the connection and whatever it was about to answer."""
        if self.transport is not None:
            self.transport.abort()
            self.transport = None

    def _fail(self, error: PeerError) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(error)


async def connect(addresses: Sequence[str], port: int) -> PeerConnection:
    """Connect to the first of these addresses where it is possible. Raises `PeerError`."""
    loop = asyncio.get_running_loop()
    problem: Exception | None = None
    address = ""
    try:
        async with asyncio.timeout(CONNECT_DEADLINE_S):
            for address in addresses:
                try:
                    _, connection = await loop.create_connection(PeerConnection, address, port)
                except OSError as error:
                    problem = error
                else:
                    connection.address = address
                    return connection
    except TimeoutError as error:
        problem = error
    raise PeerError(f"cannot connect to {address}:{port}: {str(problem or '') or 'no answer in time'}") from problem


async def close_quietly(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait for its end."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task

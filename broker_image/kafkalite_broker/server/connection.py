"""One client connection: framing, order of answers, limits.

Requests are handed to the dispatcher as they arrive and are answered strictly in that order, whatever finishes first.
A frame that claims 100 MiB costs at most twice what was sent of it.

The socket is read into one buffer that all connections share, since a read is over before the next one begins; the rest
of a large frame is read straight into the frame.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Protocol, cast

from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalite_broker.server.budget import InFlightBudget

REQUESTS_IN_FLIGHT_MAX = 64
"""Requests of one connection that may wait for their answers; then the connection stops reading."""

LENGTH_BYTES = 4
READ_BUFFER_BYTES = 256 << 10
DIRECT_BYTES_MIN = 16 << 10
"""What is missing of a frame is read straight into it from this size on; below it one read may bring the next too."""
LINGER_S = 5.0
"""How long a closing connection may take to send what was answered already."""

log = get_logger(__name__)


class Slot:
    """The place of one answer in the order of a connection's answers."""

    __slots__ = ("_connection", "_size_bytes", "buffers", "done", "on_abandoned")

    def __init__(self, connection: Connection, size_bytes: int) -> None:
        self._connection = connection
        self._size_bytes = size_bytes
        self.buffers: Sequence[bytes | bytearray | memoryview] = ()
        self.done = False
        self.on_abandoned: Callable[[], None] | None = None
        """Called when the connection ends before the answer: whoever waits on its behalf lets go."""

    def finish(self, buffers: Sequence[bytes | bytearray | memoryview]) -> None:
        """Answer with these buffers; none at all for a request that has no answer (acks=0)."""
        if self.done:
            return
        self.done = True
        self.buffers = buffers
        self.on_abandoned = None
        self._connection.slot_finished(self._size_bytes)

    def abandon(self) -> None:
        """The connection is gone: nothing is kept for the answer any longer, however long the client would wait."""
        on_abandoned = self.on_abandoned
        self.finish(())
        if on_abandoned is not None:
            on_abandoned()

    def close(self, reason: str) -> None:
        """Close the connection instead of answering, as Kafka does where no error code can be expressed."""
        self._connection.close(reason)
        self.finish(())

    @property
    def peer(self) -> str:
        """Address of the client, for logs."""
        return self._connection.peer

    @property
    def listener(self) -> str:
        """Name of the listener that the client came in on."""
        return self._connection.listener

    @property
    def closed(self) -> bool:
        """Whether the connection is gone: nobody waits for the answer."""
        return self._connection.closed

    @property
    def attachment(self) -> Attachment | None:
        """What a handler remembers of the connection that is answered on."""
        return self._connection.attachment

    @attachment.setter
    def attachment(self, attachment: Attachment | None) -> None:
        self._connection.attachment = attachment


class Attachment(Protocol):
    """What a handler remembers of a connection."""

    def close(self) -> None:
        """The connection is gone, or remembers something else now."""


class Dispatcher(Protocol):
    """Takes one complete frame; answers through the slot, now or later."""

    def dispatch(self, frame: bytearray, slot: Slot) -> None:
        """Handle one request frame (without its length prefix)."""

    def connection_made(self, connection: Connection) -> bool:
        """A client connected; False when there are too many."""

    def connection_lost(self, connection: Connection) -> None:
        """It went away."""


class Connection(asyncio.BufferedProtocol):
    """asyncio protocol of one client connection.

    Args:
        dispatcher: Handles the frames.
        budget: Shared bound on bytes in flight.
        frame_bytes_max: `socket.request.max.bytes`.
        listener: Name of the listener that accepted it.
        read_buffer: Shared by all connections of one loop; holds nothing between two of its turns.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        budget: InFlightBudget,
        frame_bytes_max: int,
        listener: str,
        read_buffer: bytearray,
    ) -> None:
        self._dispatcher = dispatcher
        self._budget = budget
        self._frame_bytes_max = frame_bytes_max
        self.listener = listener
        self.peer = "unknown"
        self.closed = False
        self.last_activity_s = 0.0
        self.frame_started_s: float | None = None
        self._transport: asyncio.Transport | None = None
        self._slots: deque[Slot] = deque()
        self._length = bytearray()
        self._read_buffer = read_buffer
        self._frame: bytearray | None = None
        """What has arrived of a frame, and room for more: never more room than that, nor than `_frame_bytes`."""
        self._frame_bytes = 0
        self._received_bytes = 0
        self._direct = False
        """Whether the transport reads into the frame."""
        self._unread = bytearray()
        self._paused_by: set[str] = set()
        self._attachment: Attachment | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def attachment(self) -> Attachment | None:
        """What a handler remembers of this connection; closed with it, or when it is replaced."""
        return self._attachment

    @attachment.setter
    def attachment(self, attachment: Attachment | None) -> None:
        before, self._attachment = self._attachment, attachment
        if before is not None:
            before.close()
        if attachment is not None and self.closed:
            self.attachment = None

    # ------------------------------------------------------------ asyncio callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the connection, or close it when there are too many."""
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = transport = cast("asyncio.Transport", transport)
        self.last_activity_s = self._loop.time()
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer)
        transport.set_write_buffer_limits(high=1 << 20)
        if not self._dispatcher.connection_made(self):
            self.close("too many connections")

    def connection_lost(self, exc: Exception | None) -> None:
        """Give back what the connection held."""
        del exc
        self.closed = True
        self.frame_started_s = None
        self._release()
        self._dispatcher.connection_lost(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        del sizehint
        frame, received_bytes = self._frame, self._received_bytes
        self._direct = False
        if frame is None or self._paused_by or self._unread:
            return memoryview(self._read_buffer)
        room_bytes = max(len(frame), min(self._frame_bytes, 2 * received_bytes))
        if room_bytes - received_bytes < DIRECT_BYTES_MIN:
            return memoryview(self._read_buffer)
        if room_bytes > len(frame):
            frame += bytes(room_bytes - len(frame))
        self._direct = True
        return memoryview(frame)[received_bytes:]

    def buffer_updated(self, nbytes: int) -> None:
        """Cut frames out of the stream."""
        if self.closed:
            return
        self.last_activity_s = self._loop.time()
        if self._direct:
            self._received(nbytes)
            return
        data = memoryview(self._read_buffer)[:nbytes]
        if self._paused_by or self._unread:
            # The transport may deliver what it had read already; it is kept and is bounded by one read of the loop.
            # What was kept before comes first, even if reading may go on by now.
            self._unread += data
            return
        self._consume(data)

    def pause_writing(self) -> None:
        """The client does not read its answers: stop reading its requests."""
        self._pause("answers not read")

    def resume_writing(self) -> None:
        """The client reads again."""
        self._resume("answers not read")

    # ------------------------------------------------------------ frames

    def _consume(self, data: memoryview) -> None:
        position = 0
        while position < len(data):
            if self.closed:
                return
            if self._paused_by:
                self._unread += data[position:]
                return
            if self._frame is None:
                taken = min(LENGTH_BYTES - len(self._length), len(data) - position)
                self._length += data[position : position + taken]
                position += taken
                if len(self._length) < LENGTH_BYTES or not self._begin_frame():
                    continue
            position += self._continue_frame(data[position:])

    def _begin_frame(self) -> bool:
        size_bytes = int.from_bytes(self._length, "big", signed=True)
        self._length.clear()
        if not 0 < size_bytes <= self._frame_bytes_max:
            self.close(
                f"frame length {size_bytes} is outside 1 to {self._frame_bytes_max} (socket.request.max.bytes): "
                "not a Kafka client, or a request that is too large"
            )
            return False
        self._frame = bytearray()
        self._frame_bytes = size_bytes
        self._received_bytes = 0
        self.frame_started_s = self.last_activity_s
        return True

    def _continue_frame(self, data: memoryview) -> int:
        frame, received_bytes = self._frame, self._received_bytes
        assert frame is not None
        taken = min(self._frame_bytes - received_bytes, len(data))
        frame[received_bytes : received_bytes + taken] = data[:taken]
        self._received(taken)
        return taken

    def _received(self, size_bytes: int) -> None:
        """So much more of the frame has arrived, and lies in it."""
        self._received_bytes += size_bytes
        self._budget.take(size_bytes)
        if self._received_bytes == self._frame_bytes:
            frame, self._frame, self.frame_started_s = self._frame, None, None
            assert frame is not None
            self._dispatch(frame)
        if self._budget.exhausted and self._frame is None:
            self._pause("budget")
            self._budget.wait(self._budget_free)

    def _dispatch(self, frame: bytearray) -> None:
        slot = Slot(self, len(frame))
        self._slots.append(slot)
        if len(self._slots) >= REQUESTS_IN_FLIGHT_MAX:
            self._pause("requests in flight")
        self._dispatcher.dispatch(frame, slot)

    # ------------------------------------------------------------ answers

    def slot_finished(self, size_bytes: int) -> None:
        """An answer is ready: send every answer whose turn has come."""
        self._budget.give_back(size_bytes)
        if self.closed:
            return
        buffers: list[bytes | bytearray | memoryview] = []
        while self._slots and self._slots[0].done:
            buffers.extend(self._slots.popleft().buffers)
        if buffers and self._transport is not None:
            self._transport.writelines(buffers)
        if len(self._slots) <= REQUESTS_IN_FLIGHT_MAX // 2:
            self._resume("requests in flight")

    def close(self, reason: str = "") -> None:
        """Close the connection; a reason is logged once."""
        if self.closed:
            return
        self.closed = True
        if reason:
            log.warning("connection closed", peer=self.peer, listener=self.listener, reason=reason)
        self._release()
        if self._transport is not None:
            # What was answered before is still sent; a client that does not read it cannot hold the socket for long.
            self._transport.close()
            self._loop.call_later(LINGER_S, self._transport.abort)

    def _release(self) -> None:
        if self._frame is not None:
            self._frame = None
            self._budget.give_back(self._received_bytes)
        self._unread.clear()
        slots = list(self._slots)
        self._slots.clear()
        for slot in slots:
            if not slot.done:
                slot.abandon()
        self.attachment = None

    # ------------------------------------------------------------ pausing

    def _budget_free(self) -> None:
        self._resume("budget")

    def _pause(self, cause: str) -> None:
        if not self._paused_by and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
        self._paused_by.add(cause)

    def _resume(self, cause: str) -> None:
        if cause not in self._paused_by:
            return
        self._paused_by.discard(cause)
        if self._paused_by or self.closed or self._transport is None or self._transport.is_closing():
            return
        # Not from inside an answer: what is unread may dispatch requests, which may answer at once.
        self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        if self._paused_by or self.closed or self._transport is None or self._transport.is_closing():
            return
        unread, self._unread = self._unread, bytearray()
        if unread:
            self._consume(memoryview(unread))
        if not self._paused_by and not self.closed:
            self._transport.resume_reading()

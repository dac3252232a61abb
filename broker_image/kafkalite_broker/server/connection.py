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

from kafkalite_broker.server.slot import Attachment, Slot
from kafkalite_core.model.listener import host_port
from kafkalite_runtime.logging import get_logger
from kafkalite_runtime.sockets import plain_address

if TYPE_CHECKING:
    from kafkalite_broker.server.budget import InFlightBudget

REQUESTS_IN_FLIGHT_MAX = 64
"""Requests of one connection that may wait for their answers; then the connection stops reading."""

LENGTH_BYTES = 4
READ_BUFFER_BYTES = 256 << 10
DIRECT_BYTES_MIN = 16 << 10
"""What is missing of a frame is read straight into it from this size on; below it one read may bring the next too."""
WRITE_BUFFER_BYTES = 1 << 20
"""Unsent answers beyond which a connection reads no further requests."""
LINGER_S = 5.0
"""How long a closing connection may take to send what was answered already."""
TURN_SILENCE_S = 5.0
"""A client that sends nothing of its frame for so long, while all others wait for it to be whole, is taken for gone."""

log = get_logger(__name__)


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
        self.replicates = False
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
        self._arrived_s = self._unread_s = 0.0
        """When what is being cut into frames was read, and when the oldest of what is kept was."""
        self._paused_by: set[str] = set()
        self._reading = True
        """Whether the transport reads."""
        self._ended = False
        """Nothing is read any more."""
        self._stopped_s = 0.0
        self._has_begun = False
        """Whether the budget knows of the unfinished frame."""
        self._has_turn = False
        """Whether it is read whatever pauses it, until the frame is whole."""
        self._turn_began_s = 0.0
        self._unsent: list[Slot] = []
        """Answered and handed to the transport, which has not sent all of them."""
        self._stalled_bytes = 0
        self._stalled_s = 0.0
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
        self.peer = host_port(plain_address(peer[0]), peer[1]) if isinstance(peer, tuple) else str(peer)
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        if not self._dispatcher.connection_made(self):
            self.close("too many connections")

    def connection_lost(self, exc: Exception | None) -> None:
        """Give back what the connection held."""
        del exc
        self.closed = True
        self.frame_started_s = None
        self._release()
        self._all_sent()
        self._dispatcher.connection_lost(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        del sizehint
        frame, received_bytes = self._frame, self._received_bytes
        self._direct = False
        if frame is None or self._stopped or self._unread:
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
        if self.closed or self._ended:
            return
        self.last_activity_s = self._arrived_s = self._loop.time()
        if self._direct:
            self._received(nbytes)
            return
        data = memoryview(self._read_buffer)[:nbytes]
        if self._stopped or self._unread:
            # The transport may deliver what it had read already; it is kept and is bounded by one read of the loop.
            # What was kept before comes first, even if reading may go on by now.
            self._keep(data)
            return
        self._consume(data)

    def pause_writing(self) -> None:
        """The client does not read its answers: stop reading its requests."""
        self._pause("answers not read")

    def resume_writing(self) -> None:
        """The client reads again."""
        if self._unsent and self._transport is not None:
            self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
            self._all_sent()
        self._resume("answers not read")

    # ------------------------------------------------------------ frames

    def _consume(self, data: memoryview) -> None:
        position = 0
        while position < len(data):
            if self.closed:
                return
            if self._stopped:
                self._keep(data[position:])
                return
            if self._frame is None:
                taken = min(LENGTH_BYTES - len(self._length), len(data) - position)
                self._length += data[position : position + taken]
                position += taken
                if len(self._length) < LENGTH_BYTES or not self._begin_frame():
                    continue
            position += self._continue_frame(data[position:])

    def _keep(self, data: memoryview) -> None:
        if not self._unread:
            self._unread_s = self._arrived_s
        self._unread += data

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
        budget = self._budget
        self._received_bytes += size_bytes
        budget.take(size_bytes)
        if self._received_bytes == self._frame_bytes:
            frame, self._frame, self.frame_started_s = self._frame, None, None
            assert frame is not None
            self._dispatch(frame)
            if self._has_begun:
                self._has_begun = self._has_turn = False
                budget.ended(self)
                if self._paused_by:
                    self._stop_reading()
        elif not self._has_begun and not self.replicates:
            self._has_begun = True
            budget.begun(self)
        if (budget.held or budget.exhausted) and not (self.replicates or self.closed):
            budget.check(self)

    def _dispatch(self, frame: bytearray) -> None:
        slot = Slot(self, len(frame), self._arrived_s)
        self._slots.append(slot)
        if len(self._slots) >= REQUESTS_IN_FLIGHT_MAX:
            self._pause("requests in flight")
        self._dispatcher.dispatch(frame, slot)

    # ------------------------------------------------------------ answers

    def let_go(self, size_bytes: int) -> None:
        """A request that waits holds so much less, or, if negative, more."""
        self._budget.give_back(size_bytes)

    def slot_finished(self, size_bytes: int) -> None:
        """An answer is ready: send every answer whose turn has come."""
        self._budget.give_back(size_bytes)
        if self.closed:
            return
        buffers: list[bytes | bytearray | memoryview] = []
        slots, counted = self._slots, len(self._unsent)
        while slots and slots[0].done:
            slot = slots.popleft()
            buffers.extend(slot.buffers)
            if slot.held is not None:
                self._unsent.append(slot)
        transport = self._transport
        if buffers and transport is not None:
            if len(self._unsent) > counted:
                # Then the transport tells, by `resume_writing`, when nothing is left of it.
                transport.set_write_buffer_limits(high=0)
            transport.writelines(buffers)
        if len(self._unsent) > counted and transport is not None and not transport.get_write_buffer_size():
            transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
            self._all_sent()
        elif slots and slots[0].on_first is not None:
            self._tell_first()
        if len(slots) <= REQUESTS_IN_FLIGHT_MAX // 2:
            self._resume("requests in flight")

    def is_first(self, slot: Slot) -> bool:
        """Whether everything before that answer was answered, and nothing large of it is unsent."""
        return not self._unsent and bool(self._slots) and self._slots[0] is slot

    def stalls(self, now_s: float, patience_s: float) -> bool:
        """Asked now and then: whether nothing of an answer is read, and others wait for what it or the rest holds."""
        if not self._unsent or self._transport is None:
            return False
        unsent_bytes = self._transport.get_write_buffer_size()
        if unsent_bytes != self._stalled_bytes:
            self._stalled_bytes, self._stalled_s = unsent_bytes, now_s
        if now_s - self._stalled_s < patience_s:
            return False
        if self._slots and self._budget.held:
            return True
        return any(slot.held is not None and slot.held.is_waited_for for slot in self._unsent)

    def _all_sent(self) -> None:
        unsent, self._unsent = self._unsent, []
        self._stalled_bytes = 0
        for slot in unsent:
            slot.sent()
        self._tell_first()

    def _tell_first(self) -> None:
        if self._slots and self._slots[0].on_first is not None and not self._unsent:
            on_first, self._slots[0].on_first = self._slots[0].on_first, None
            on_first()

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
        self._has_begun = self._has_turn = False
        self._budget.left(self)
        if self._frame is not None:
            self._frame = None
            self._budget.give_back(self._received_bytes)
        self._unread.clear()
        slots = list(self._slots)
        self._slots.clear()
        for slot in slots:
            if slot.done:
                slot.sent()
            else:
                slot.abandon()
        self.attachment = None

    # ------------------------------------------------------------ pausing

    @property
    def held(self) -> bool:
        """Whether it is not read because requests, of whatever connection, hold too much memory."""
        return "budget" in self._paused_by and not self._has_turn

    def hold(self) -> None:
        """See `budget.Reader`."""
        self._pause("budget")

    def replication_noted(self) -> None:
        """Another broker replicates here: no budget holds the connection any longer, even if one has until now."""
        self.replicates = True
        self._resume("budget")

    def take_turn(self) -> None:
        """See `budget.Reader`."""
        if not self._has_turn:
            self._has_turn = True
            self._turn_began_s = self._loop.time()
            self._loop.call_later(TURN_SILENCE_S, self._end_silent_turn)
            if not self._reading:
                self._loop.call_soon(self._read_on)

    def _end_silent_turn(self) -> None:
        """Turns come one after the other: with the whole time of a frame for each, dead clients would add theirs up."""
        if self.closed or not self._has_turn:
            return
        silent_s = self._loop.time() - max(self.last_activity_s, self._turn_began_s)
        if silent_s >= TURN_SILENCE_S:
            self.close(f"nothing of a request arrived for {TURN_SILENCE_S:.0f} s while others waited for memory")
        else:
            self._loop.call_later(TURN_SILENCE_S - silent_s, self._end_silent_turn)

    def go_on(self) -> None:
        """See `budget.Reader`."""
        self._has_turn = False
        self._resume("budget")
        if self._paused_by:
            self._stop_reading()

    def overdue(self, now_s: float, frame_s: float) -> bool:
        """Whether a frame takes longer than that to arrive. Time in which it was not read does not count."""
        return self._reading and self.frame_started_s is not None and now_s - self.frame_started_s > frame_s

    @property
    def _stopped(self) -> bool:
        return bool(self._paused_by) and not self._has_turn

    def end_reading(self) -> None:
        """The broker ends: nothing further is read, nor handled of what was. What is answered is still sent."""
        self._ended = True
        self._unread.clear()
        self._stop_reading()

    def _pause(self, cause: str) -> None:
        self._paused_by.add(cause)
        if not self._has_turn:
            self._stop_reading()

    def _stop_reading(self) -> None:
        if not self._reading or self._transport is None or self._transport.is_closing():
            return
        self._reading = False
        self._stopped_s = self._loop.time()
        self._transport.pause_reading()

    def _resume(self, cause: str) -> None:
        if cause not in self._paused_by:
            return
        self._paused_by.discard(cause)
        if not self._paused_by and not self._reading:
            # Not from inside an answer: what is unread may dispatch requests, which may answer at once.
            self._loop.call_soon(self._read_on)

    def _may_read_on(self) -> bool:
        transport = self._transport
        stays = self._reading or self._stopped or self._ended or self.closed
        return not (stays or transport is None or transport.is_closing())

    def _read_on(self) -> None:
        if not self._may_read_on():
            return
        # While it was stopped nobody was late.
        now_s = self.last_activity_s = self._loop.time()
        if self.frame_started_s is not None:
            self.frame_started_s += now_s - self._stopped_s
        self._stopped_s = now_s
        unread, self._unread = self._unread, bytearray()
        if unread:
            self._arrived_s = self._unread_s
            self._consume(memoryview(unread))
        if self._may_read_on():
            assert self._transport is not None
            self._reading = True
            self._transport.resume_reading()

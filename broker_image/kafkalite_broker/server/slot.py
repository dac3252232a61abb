"""The place of one answer in the order of a connection's answers, and what is counted for its request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalite_broker.server.connection import Connection


class Slot:
    """The place of one answer in the order of a connection's answers."""

    __slots__ = ("_connection", "_size_bytes", "buffers", "done", "held", "on_abandoned", "on_first", "received_s")

    def __init__(self, connection: Connection, size_bytes: int, received_s: float) -> None:
        self._connection = connection
        self._size_bytes = size_bytes
        self.received_s = received_s
        """Monotonic time at which the last of the request was read; it may have waited in the connection since."""
        self.buffers: Sequence[bytes | bytearray | memoryview] = ()
        self.done = False
        self.on_abandoned: Callable[[], None] | None = None
        """Called when the connection ends before the answer: whoever waits on its behalf lets go."""
        self.on_first: Callable[[], None] | None = None
        """Called once everything before this answer was answered, and nothing large of that is unsent."""
        self.held: Held | None = None
        """Given back when nothing holds the buffers of the answer any longer: they were sent, or never will be."""

    def finish(self, buffers: Sequence[bytes | bytearray | memoryview]) -> None:
        """Answer with these buffers; none at all for a request that has no answer (acks=0)."""
        if self.done:
            return
        self.done = True
        self.buffers = buffers
        self.on_abandoned = self.on_first = None
        size_bytes, self._size_bytes = self._size_bytes, 0
        self._connection.slot_finished(size_bytes)

    def let_go(self, kept_bytes: int) -> None:
        """The request waits, but no longer holds its frame: of its bytes only so many are counted from now on."""
        given_bytes = self._size_bytes - kept_bytes
        if given_bytes > 0:
            self._size_bytes = kept_bytes
            self._connection.let_go(given_bytes)

    def holds(self, size_bytes: int) -> None:
        """The request waits, and holds so much instead of its frame, which may be more."""
        if not self.done:
            given_bytes, self._size_bytes = self._size_bytes - size_bytes, size_bytes
            self._connection.let_go(given_bytes)

    def abandon(self) -> None:
        """The connection is gone: nothing is kept for the answer any longer, however long the client would wait."""
        on_abandoned = self.on_abandoned
        self.finish(())
        if on_abandoned is not None:
            on_abandoned()
        self.sent()

    def sent(self) -> None:
        """The buffers of the answer have left, or never will."""
        self.buffers = ()
        held, self.held = self.held, None
        if held is not None:
            held.give_back()

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
    def is_first(self) -> bool:
        """Whether everything before it was answered, and nothing large of that is unsent."""
        return self._connection.is_first(self)

    @property
    def replicates(self) -> bool:
        """Whether another broker replicates on this connection: it is read whatever memory requests hold."""
        return self._connection.replicates

    def replication_noted(self) -> None:
        """Another broker replicates on this connection."""
        self._connection.replication_noted()

    @property
    def attachment(self) -> Attachment | None:
        """What a handler remembers of the connection that is answered on."""
        return self._connection.attachment

    @attachment.setter
    def attachment(self, attachment: Attachment | None) -> None:
        self._connection.attachment = attachment


class Held(Protocol):
    """What an answer holds of a memory that is shared."""

    @property
    def is_waited_for(self) -> bool:
        """Whether others wait for it."""

    def give_back(self) -> None:
        """The answer holds nothing any longer."""


class Uncounted:
    """What a large answer holds of no memory that is shared: it only bounds what its own connection has unsent."""

    is_waited_for = False

    def give_back(self) -> None:
        """Nothing was taken."""


UNCOUNTED = Uncounted()


class Attachment(Protocol):
    """What a handler remembers of a connection."""

    def close(self) -> None:
        """The connection is gone, or remembers something else now."""

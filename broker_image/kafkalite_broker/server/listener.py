"""The sockets of a broker, the set of its connections, and the bounds on both."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kafkalite_broker.background import nobody, watch
from kafkalite_broker.server.budget import InFlightBudget
from kafkalite_broker.server.connection import READ_BUFFER_BYTES, Connection
from kafkalite_runtime.logging import get_logger
from kafkalite_runtime.sockets import ALL_ADDRESSES, BACKLOG, listen_everywhere

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite_broker.server.dispatch import RequestTable
    from kafkalite_broker.server.slot import Slot

SWEEP_INTERVAL_S = 10.0
FRAME_DEADLINE_S = 60.0
"""A client that needs longer than this for one frame is slower than any real one (slow-loris)."""
STALL_S = 10.0
"""A client that reads nothing of an answer for so long, while others wait for the memory, makes room."""

log = get_logger(__name__)


class ListenerError(Exception):
    """An address that the broker cannot listen on; the text says which and why."""


class Server:
    """All listeners of a broker.

    Args:
        table: Dispatch table of the Kafka APIs.
        frame_bytes_max: `socket.request.max.bytes`.
        in_flight_bytes_max: `queued.max.request.bytes`.
        connections_max: `max.connections`; see `limit_connections`.
        idle_s: `connections.max.idle.ms` in seconds.
        on_failed: Told the exception that ended the closing of idle connections: the process is to end.
        inter_broker: Listener that brokers use among themselves: clients of the others cannot take its connections.
    """

    def __init__(
        self,
        table: RequestTable,
        *,
        frame_bytes_max: int,
        in_flight_bytes_max: int,
        connections_max: int,
        idle_s: float,
        on_failed: Callable[[BaseException], None] = nobody,
        inter_broker: str = "",
    ) -> None:
        self._table = table
        self._frame_bytes_max = frame_bytes_max
        self._connections_max = connections_max
        self._idle_s = idle_s
        self._on_failed = on_failed
        self._inter_broker = inter_broker
        self.budget = InFlightBudget(in_flight_bytes_max)
        self.connections: set[Connection] = set()
        self._servers: list[asyncio.Server] = []
        self._read_buffer = bytearray(READ_BUFFER_BYTES)
        self._sweeper: asyncio.Task[None] | None = None
        self._ended = False

    async def listen(self, name: str, host: str, port: int) -> int:
        """Listen on an address; returns the port (of use when `port` is 0). Raises `ListenerError`."""
        loop = asyncio.get_running_loop()
        try:
            if host == ALL_ADDRESSES:
                server = await loop.create_server(self._connection(name), sock=listen_everywhere(port), backlog=BACKLOG)
            else:
                server = await loop.create_server(self._connection(name), host, port, backlog=BACKLOG)
        except OSError as error:
            raise ListenerError(f"listener {name}: cannot listen on {host}:{port}: {error.strerror}") from error
        self._servers.append(server)
        if self._sweeper is None:
            self._sweeper = asyncio.create_task(self._sweep(), name="connection sweeper")
            watch(self._sweeper, self._on_failed)
        address = server.sockets[0].getsockname()
        log.info("listening", listener=name, host=address[0], port=address[1])
        return int(address[1])

    def _connection(self, name: str) -> Callable[[], Connection]:
        return lambda: Connection(self, self.budget, self._frame_bytes_max, name, self._read_buffer)

    def dispatch(self, frame: bytearray, slot: Slot) -> None:
        """Hand a frame to the API table."""
        self._table.dispatch(frame, slot)

    def connection_made(self, connection: Connection) -> bool:
        """Count a connection; False when there are too many.

        For one of the listener that brokers use, the client of another listener that was silent for longest makes
        room (as in KIP-402).
        """
        if self._ended:
            connection.close()
            return True
        if len(self.connections) >= self._connections_max and not self._made_room_for(connection):
            return False
        self.connections.add(connection)
        return True

    def limit_connections(self, connections_max: int) -> None:
        """Another `max.connections`: of those that are too many now the ones that were silent for longest are closed.

        As in Kafka, not those of the listener that brokers use, unless there is no other; nor any that replicates.
        """
        self._connections_max = connections_max
        excess = len(self.connections) - connections_max
        if excess <= 0:
            return
        shared = len(self._servers) == 1
        may_go = [
            each for each in self.connections if not each.replicates and (shared or each.listener != self._inter_broker)
        ]
        may_go.sort(key=lambda each: each.last_activity_s)
        for connection in may_go[:excess]:
            self.connections.discard(connection)
            connection.close()
        log.warning("connections closed: more than max.connections", closed=len(may_go[:excess]), too_many=excess)

    def _made_room_for(self, connection: Connection) -> bool:
        if connection.listener != self._inter_broker:
            return False
        others = [each for each in self.connections if each.listener != self._inter_broker]
        if not others:
            return False
        idlest = min(others, key=lambda each: each.last_activity_s)
        self.connections.discard(idlest)
        idlest.close("too many connections: one between brokers goes first")
        return True

    def connection_lost(self, connection: Connection) -> None:
        """Forget a connection."""
        self.connections.discard(connection)

    def stop_reading(self) -> None:
        """Take no further request, of nobody. Whatever is dropped from here on, nothing is handled that was sent behind
        it on the same connection.
        """
        self._ended = True
        for server in self._servers:
            server.close()
        for connection in self.connections:
            connection.end_reading()

    async def stop(self) -> None:
        """Close everything."""
        self.stop_reading()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self.connections):
            connection.close()
        # One turn of the loop, so that transports can flush what was answered.
        await asyncio.sleep(0)

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SWEEP_INTERVAL_S)
            now_s = loop.time()
            for connection in list(self.connections):
                if now_s - connection.last_activity_s > self._idle_s and not connection.held:
                    connection.close()
                elif connection.overdue(now_s, FRAME_DEADLINE_S):
                    connection.close(f"a request did not arrive whole within {FRAME_DEADLINE_S:.0f} s")
                elif connection.stalls(now_s, STALL_S):
                    connection.close(f"nothing of an answer was read for {STALL_S:.0f} s while others wait for memory")

"""Where another broker is reached: replication must not end because names cannot be resolved for a while."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from kafkalite_broker.replication.peer import CONNECT_DEADLINE_S, PeerError, connect

if TYPE_CHECKING:
    from kafkalite_broker.replication.peer import PeerConnection

RESOLVE_DEADLINE_S = 1.0
"""How long a resolver may take where an address is known already."""


class PeerAddress:
    """The address of one peer that was connected to last.

    A name is resolved anew for every connection, since a pod comes back with another address, with two exceptions:

    - the last connection was given up by this side: its peer has just answered where it is;
    - the name cannot be resolved now. A cluster's resolver is away when its nodes are taken for dead, for instance
      after an outage of the API server; the peer is as a rule where it was. If another broker has that address by now
      it does not lead what is asked for (S1), and says so.
    """

    def __init__(self) -> None:
        self._endpoint: tuple[str, int] | None = None
        self._last = ""
        self._is_there = False

    def given_up(self) -> None:
        """The last connection was closed by this side, and nothing was wrong with it."""
        self._is_there = True

    async def connect(self, endpoint: tuple[str, int]) -> PeerConnection:
        """A connection to `endpoint` (host, port). Raises `PeerError`."""
        last = self._last if endpoint == self._endpoint else ""
        is_there, self._is_there = self._is_there, False
        host, port = endpoint
        if last and is_there:
            connection = await connect([last], port)
        else:
            connection = await connect(await _resolved(host, port, last), port)
        self._endpoint, self._last = endpoint, connection.address
        return connection


async def _resolved(host: str, port: int, last: str) -> list[str]:
    """The addresses of a name, in order of preference, or else the last one. Raises `PeerError`."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(RESOLVE_DEADLINE_S if last else CONNECT_DEADLINE_S):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError, UnicodeError) as error:
        # UnicodeError: a host name that is none.
        if last:
            return [last]
        reason = str(error) or "its name was not resolved in time"
        raise PeerError(f"cannot connect to {host}:{port}: {reason}") from error
    return list(dict.fromkeys(str(each[4][0]) for each in found))

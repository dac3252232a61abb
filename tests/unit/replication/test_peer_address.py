"""Peers are found again while names cannot be resolved, and looked for anew when they may have moved."""

import asyncio
import contextlib
import socket

import pytest

from kafkalite_broker.replication import peer_address
from kafkalite_broker.replication.peer import PeerError
from kafkalite_broker.replication.peer_address import PeerAddress

NAME = "kafkalite-broker-1.kafkalite-brokers.default.svc"


class Names:
    """A resolver that knows one name."""

    def __init__(self, monkeypatch):
        self.addresses = ["127.0.0.1"]
        self.asked = 0
        self.hangs = self.fails = False
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", self._look_up)

    async def _look_up(self, host, port, **_):
        assert host == NAME
        self.asked += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.fails:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in self.addresses]


@pytest.fixture
async def names(monkeypatch):
    return Names(monkeypatch)


@pytest.fixture
async def port():
    serving = set()

    async def serve(reader, writer):
        serving.add(asyncio.current_task())
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()
    await asyncio.gather(*serving)
    await asyncio.sleep(0)  # their sockets are closed by the loop


async def reached(address, port, host=NAME):
    connection = await address.connect((host, port))
    connection.close()
    return connection.address


async def test_a_name_is_resolved_for_every_connection(names, port):
    address = PeerAddress()
    for _ in range(2):
        assert await reached(address, port) == "127.0.0.1"
    assert names.asked == 2


@pytest.mark.parametrize("how", ["fails", "hangs"])
async def test_without_a_resolver_the_peer_is_looked_for_where_it_was(names, port, monkeypatch, how):
    monkeypatch.setattr(peer_address, "RESOLVE_DEADLINE_S", 0.05)
    address = PeerAddress()
    await reached(address, port)
    setattr(names, how, True)
    assert await reached(address, port) == "127.0.0.1"
    assert names.asked == 2, "a pod may have moved"


@pytest.mark.parametrize("how", ["fails", "hangs"])
async def test_of_a_peer_that_was_never_reached_nothing_is_known(names, port, monkeypatch, how):
    monkeypatch.setattr(peer_address, "CONNECT_DEADLINE_S", 0.05)
    setattr(names, how, True)
    with pytest.raises(PeerError, match=f"cannot connect to {NAME}:{port}: .*(resolution|resolved)"):
        await PeerAddress().connect((NAME, port))


async def test_nor_of_another_endpoint(names, port):
    address = PeerAddress()
    await reached(address, port)
    names.fails = True
    with pytest.raises(PeerError, match="name resolution"):
        await address.connect((NAME, port + 1))


async def test_a_peer_whose_connection_was_given_up_is_where_it_was(names, port):
    address = PeerAddress()
    await reached(address, port)
    address.given_up()
    await reached(address, port)
    assert names.asked == 1
    await reached(address, port)
    assert names.asked == 2, "that connection may have been closed by the peer"


async def test_it_is_looked_for_anew_when_it_is_not_there(names, port):
    address = PeerAddress()
    await reached(address, port)
    address._last = "127.0.0.2"  # nobody listens there
    address.given_up()
    with pytest.raises(PeerError, match=r"cannot connect to 127.0.0.2"):
        await address.connect((NAME, port))
    assert await reached(address, port) == "127.0.0.1"


async def test_of_several_addresses_the_first_that_answers_is_taken(names, port):
    names.addresses = ["127.0.0.2", "127.0.0.1"]
    assert await reached(PeerAddress(), port) == "127.0.0.1"


async def test_addresses_need_no_resolver(port):
    assert await reached(PeerAddress(), port, host="127.0.0.1") == "127.0.0.1"

"""The server over real sockets on uvloop: torn frames, pipelines, slow and half-closed clients, the sweep."""

import asyncio
import socket

import pytest

from kafkalite_broker.server import listener
from kafkalite_broker.server.connection import REQUESTS_IN_FLIGHT_MAX
from kafkalite_broker.server.listener import ListenerError, Server
from tests.unit.replication.rig import on_uvloop, until


class Table:
    """Answers each frame with the same bytes, at once or when told."""

    def __init__(self):
        self.hold = False
        self.held = []
        self.size = 1

    def dispatch(self, frame, slot):
        if self.hold:
            self.held.append((bytes(frame), slot))
        else:
            slot.finish([bytes(frame) * self.size])


class Running:
    def __init__(self, **options):
        self.table = Table()
        self.server = Server(
            self.table,
            **{
                "frame_bytes_max": 1 << 20, "in_flight_bytes_max": 1 << 22, "connections_max": 5, "idle_s": 600.0,
                **options,
            },
        )  # fmt: skip
        self.writers = []

    async def __aenter__(self):
        self.port = await self.server.listen("plain", "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_):
        for writer in self.writers:
            writer.close()
        await self.server.stop()

    async def connect(self, port=None):
        reader, writer = await asyncio.open_connection("127.0.0.1", port or self.port)
        self.writers.append(writer)
        return reader, writer


def frame(payload):
    return len(payload).to_bytes(4, "big") + payload


@on_uvloop
async def test_frames_torn_anywhere_arrive_whole():
    async with Running() as running:
        reader, writer = await running.connect()
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = frame(b"first") + frame(b"second") + frame(b"third")
        for position in range(len(stream)):
            writer.write(stream[position : position + 1])
            await asyncio.sleep(0)
        assert await reader.readexactly(16) == b"firstsecondthird"


@on_uvloop
async def test_a_pipeline_of_a_hundred_is_answered_in_order_whatever_finishes_first():
    async with Running() as running:
        reader, writer = await running.connect()
        running.table.hold = True
        payloads = [b"%04d" % number for number in range(100)]
        writer.write(b"".join(map(frame, payloads)))
        await until(lambda: len(running.table.held) == REQUESTS_IN_FLIGHT_MAX)
        while running.table.held:
            for payload, slot in reversed(running.table.held):
                slot.finish([payload])
            running.table.held.clear()
            await asyncio.sleep(0.02)
        assert await reader.readexactly(400) == b"".join(payloads)
        assert running.server.budget.used_bytes == 0


@on_uvloop
async def test_the_budget_holds_all_connections_back_and_lets_them_go_on():
    async with Running(in_flight_bytes_max=4000) as running:
        running.table.hold = True
        clients = [await running.connect() for _ in range(3)]
        payload = b"x" * 1000
        for _, writer in clients:
            writer.write(frame(payload) * 10)
        await until(lambda: running.server.budget.exhausted)
        await asyncio.sleep(0.05)
        assert len(running.table.held) <= 4 + len(clients), "each may finish the frame that it is in"
        answered = 0
        while answered < 30:
            await until(lambda: running.table.held)
            held, running.table.held = running.table.held, []
            answered += len(held)
            for sent, slot in held:
                slot.finish([sent])
        for reader, _ in clients:
            assert await reader.readexactly(10_000) == payload * 10
        assert running.server.budget.used_bytes == 0


@on_uvloop
async def test_a_client_that_does_not_read_is_not_read_from_until_it_does():
    async with Running() as running:
        running.table.size = 1 << 20
        reader, writer = await running.connect()
        await until(lambda: running.server.connections)
        (connection,) = running.server.connections
        reader._transport.pause_reading()
        writer.write(frame(b"ab") * 60)
        await until(lambda: connection._paused_by == {"answers not read"})
        reader._limit = 1 << 30
        reader._transport.resume_reading()
        total = 0
        while total < 60 * 2 << 20:
            total += len(await reader.read(1 << 22))
        assert not connection._paused_by


@on_uvloop
async def test_who_closes_half_or_all_leaves_nothing_behind():
    async with Running() as running:
        running.table.hold = True
        for close in (lambda writer: writer.write_eof(), lambda writer: writer.transport.abort()):
            _, writer = await running.connect()
            writer.write(frame(b"waits") + (100).to_bytes(4, "big") + b"half")
            await until(lambda: running.table.held and running.server.budget.used_bytes == 9)
            abandoned = []
            running.table.held[-1][1].on_abandoned = lambda abandoned=abandoned: abandoned.append(True)
            close(writer)
            await until(lambda: not running.server.connections)
            assert abandoned == [True]
            assert running.server.budget.used_bytes == 0
            running.table.held.pop()[1].finish([b"late"])
            assert running.server.budget.used_bytes == 0


@on_uvloop
async def test_connections_beyond_the_limit_are_closed_and_make_room_when_others_go():
    async with Running(connections_max=2) as running:
        clients = [await running.connect() for _ in range(2)]
        await until(lambda: len(running.server.connections) == 2)
        reader, _ = await running.connect()
        assert await reader.read() == b""
        clients[0][1].close()
        await until(lambda: len(running.server.connections) == 1)
        reader, writer = await running.connect()
        writer.write(frame(b"hello"))
        assert await reader.readexactly(5) == b"hello"


def by_client(server, *clients):
    """The server's ends of the clients' connections."""
    ends = {each.peer: each for each in server.connections}
    return [ends[f"127.0.0.1:{writer.get_extra_info('sockname')[1]}"] for _, writer in clients]


@on_uvloop
async def test_a_lower_limit_closes_who_was_silent_for_longest_and_a_higher_one_lets_more_in():
    async with Running(inter_broker="plain") as running:
        server = running.server
        clients = [await running.connect() for _ in range(5)]
        await until(lambda: len(server.connections) == 5)
        ends = by_client(server, *clients)
        for end, last_activity_s in zip(ends, (1, 4, 3, 2, 5), strict=True):
            end.last_activity_s = last_activity_s
        ends[0].replication_noted()
        server.limit_connections(3)
        assert server.connections == {ends[0], ends[1], ends[4]}, "a broker that replicates is not put off"
        assert [await clients[number][0].read() for number in (2, 3)] == [b"", b""]
        refused, _ = await running.connect()
        assert await refused.read() == b""
        server.limit_connections(4)
        assert len(server.connections) == 3
        reader, writer = await running.connect()
        writer.write(frame(b"hello"))
        assert await reader.readexactly(5) == b"hello"
        clients[1][1].write(frame(b"still"))
        assert await clients[1][0].readexactly(5) == b"still"


@on_uvloop
async def test_a_lower_limit_closes_no_connection_of_the_listener_of_brokers():
    async with Running(inter_broker="plain") as running:
        outside = await running.server.listen("ext", "127.0.0.1", 0)
        brokers = [await running.connect() for _ in range(2)]
        await until(lambda: len(running.server.connections) == 2)
        ends = by_client(running.server, *brokers)
        clients = [await running.connect(outside) for _ in range(2)]
        await until(lambda: len(running.server.connections) == 4)
        running.server.limit_connections(1)
        assert running.server.connections == set(ends)
        assert [await reader.read() for reader, _ in clients] == [b"", b""]


def test_the_sweep_closes_the_idle_and_the_slow_only(monkeypatch):
    monkeypatch.setattr(listener, "SWEEP_INTERVAL_S", 0.01)

    @on_uvloop
    async def run():
        async with Running(idle_s=100.0) as running:
            idle, _ = await running.connect()
            slow, slow_writer = await running.connect()
            await until(lambda: len(running.server.connections) == 2)
            slow_writer.write((100).to_bytes(4, "big") + b"half")
            await until(lambda: any(one.frame_started_s is not None for one in running.server.connections))
            await asyncio.sleep(0.03)
            assert len(running.server.connections) == 2
            for connection in running.server.connections:
                if connection.frame_started_s is None:
                    connection.last_activity_s -= 101
                else:
                    connection.frame_started_s -= listener.FRAME_DEADLINE_S + 1
            assert await idle.read() == b""
            assert await slow.read() == b""
            await until(lambda: running.server.budget.used_bytes == 0)

    run()


@on_uvloop
async def test_a_port_that_is_taken_is_named():
    async with Running() as running:
        with pytest.raises(ListenerError, match=f"127.0.0.1:{running.port}"):
            await Running().server.listen("second", "127.0.0.1", running.port)


@on_uvloop
async def test_a_listener_on_all_addresses_knows_clients_by_their_own():
    async with Running() as running:
        port = await running.server.listen("everywhere", "", 0)
        for address, shown in (("127.0.0.1", "127.0.0.1:"), ("::1", "[::1]:")):
            try:
                reader, writer = await asyncio.open_connection(address, port)
            except OSError:
                assert ":" in address, "a kernel without IPv6"
                continue
            running.writers.append(writer)
            writer.write(frame(b"hello"))
            assert await reader.readexactly(5) == b"hello"
            assert [each.peer for each in running.server.connections if each.peer.startswith(shown)]


@on_uvloop
async def test_clients_outside_cannot_keep_brokers_from_one_another():
    async with Running(connections_max=2, inter_broker="plain") as running:
        outside = await running.server.listen("ext", "127.0.0.1", 0)
        clients = [await running.connect(outside) for _ in range(2)]
        await until(lambda: len(running.server.connections) == 2)
        first, second = clients
        connected_s = max(each.last_activity_s for each in running.server.connections)
        await until(lambda: asyncio.get_running_loop().time() > connected_s)  # its clock has milliseconds
        second[1].write(frame(b"alive"))
        assert await second[0].readexactly(5) == b"alive"
        turned_away, _ = await running.connect(outside)
        assert await turned_away.read() == b"", "no room for one more of them"
        reader, writer = await running.connect()
        writer.write(frame(b"broker"))
        assert await reader.readexactly(6) == b"broker"
        assert await first[0].read() == b"", "the one that was silent for longest made room"
        reader, writer = await running.connect()
        writer.write(frame(b"broker"))
        assert await reader.readexactly(6) == b"broker"
        assert await second[0].read() == b""
        reader, _ = await running.connect()
        assert await reader.read() == b"", "brokers do not make room for brokers"


@on_uvloop
async def test_a_sweep_that_ends_is_told(monkeypatch):
    monkeypatch.setattr(listener, "SWEEP_INTERVAL_S", 0.01)
    told = asyncio.get_running_loop().create_future()
    async with Running(on_failed=told.set_result) as running:
        running.server.connections.add("no connection")
        assert isinstance(await told, AttributeError)
        running.server.connections.clear()

"""What answers to consumers hold: bounded over all of them, in turn, and all given back."""

import asyncio
import contextlib
import socket
from types import SimpleNamespace

import pytest

from kafkalite_broker.server import dispatch, listener
from kafkalite_broker.server.answer_budget import SHARES, AnswerBudget
from kafkalite_broker.server.budget import InFlightBudget
from kafkalite_broker.server.connection import WRITE_BUFFER_BYTES, Connection
from kafkalite_broker.server.dispatch import Request
from kafkalite_broker.server.handlers.fetch import handler
from kafkalite_broker.server.handlers.fetch.pending import PendingFetch
from kafkalite_core.protocol.apis import API
from tests.unit.replication.rig import MIB, Client, Rig, batch, on_uvloop, until
from tests.unit.server.client_requests import FETCH, fetch_request, produce
from tests.unit.server.fake_connection import FakeDispatcher, FakeTransport, feed, frame
from tests.unit.server.test_fetch_sessions import FollowerClient, lead

LIMIT = 2 * MIB
SHARE = LIMIT // SHARES
BATCH = batch(b"x" * 100_000)
BATCHES = 60

# ---------------------------------------------------------------------------------------------------- the connection


@pytest.fixture
async def parts():
    dispatcher, transport = FakeDispatcher(), FakeTransport()
    connection = Connection(dispatcher, InFlightBudget(1 << 20), 1000, "plain", bytearray(1 << 14))
    connection.connection_made(transport)
    feed(connection, frame(b"1") + frame(b"2") + frame(b"3"))
    return connection, transport, [slot for _, slot in dispatcher.frames]


def told(slot, calls, name, *, is_waited_for=True):
    slot.held = SimpleNamespace(give_back=lambda: calls.append(f"{name} sent"), is_waited_for=is_waited_for)


async def test_an_answer_is_held_until_its_client_has_read_it(parts):
    connection, transport, (first, second, _) = parts
    calls = []
    told(first, calls, "first")
    second.on_first = lambda: calls.append("second is first")
    transport.client_reads = False
    first.finish([b"answer"])
    assert transport.high == 0, "the transport tells when nothing is left"
    assert calls == []
    assert not second.is_first
    transport.unsent_bytes = 0
    connection.resume_writing()
    assert calls == ["first sent", "second is first"]
    assert second.is_first
    assert transport.high == WRITE_BUFFER_BYTES


async def test_an_answer_that_leaves_at_once_is_not_held(parts):
    _, transport, (first, second, third) = parts
    calls = []
    told(second, calls, "second")
    third.on_first = lambda: calls.append("third is first")
    second.finish([b"later"])
    assert calls == []
    assert first.is_first
    assert not third.is_first
    first.finish([b"now"])
    assert calls == ["second sent", "third is first"]
    assert transport.high == WRITE_BUFFER_BYTES


async def test_a_connection_that_ends_holds_no_answers(parts):
    connection, transport, (first, second, third) = parts
    calls = []
    for name, slot in (("first", first), ("second", second), ("third", third)):
        told(slot, calls, name)
    transport.client_reads = False
    first.finish([b"handed to the transport"])
    third.finish([b"not yet"])
    connection.close()
    assert calls == ["second sent", "third sent"], "the transport still holds the first"
    connection.connection_lost(None)
    assert calls == ["second sent", "third sent", "first sent"]


async def test_a_large_answer_is_encoded_in_its_turn_and_held_until_it_is_read(parts, monkeypatch):
    connection, transport, (first, second, third) = parts
    monkeypatch.setattr(dispatch, "encode_response_frame", lambda *_: [b"large"])
    header = SimpleNamespace(api_version=0, correlation_id=7, client_id=None)
    table = SimpleNamespace(request_answered=lambda *_: None)
    request = Request(API[10], header, None, second, table, 1)
    answering = asyncio.create_task(request.answer_large("response", None))
    await asyncio.sleep(0)
    assert second.on_first is not None
    first.finish([b"first "])
    transport.client_reads = False
    await answering
    assert transport.sent == b"first large"
    assert not third.is_first
    transport.unsent_bytes = 0
    connection.resume_writing()
    assert third.is_first


async def test_a_client_stalls_that_reads_nothing(parts):
    connection, transport, (first, _, _) = parts
    told(first, [], "first")
    assert not connection.stalls(0.0, 10.0)
    transport.client_reads = False
    first.finish([b"answer"])
    assert not connection.stalls(100.0, 10.0)
    assert not connection.stalls(109.0, 10.0)
    transport.unsent_bytes -= 1
    assert not connection.stalls(111.0, 10.0)
    assert connection.stalls(121.0, 10.0)
    first.held.is_waited_for = False
    assert not connection.stalls(131.0, 10.0), "nobody minds"
    connection._budget.held = True
    assert connection.stalls(132.0, 10.0), "requests behind it hold what others wait for"


# ---------------------------------------------------------------------------------------------------- fetches


class Measured(AnswerBudget):
    """Remembers the most that was ever counted."""

    most_bytes = 0

    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if name == "used_bytes":
            self.most_bytes = max(self.most_bytes, value)


@contextlib.asynccontextmanager
async def cold_log(tmp_path, *, followed=False, hot=False):
    """A leader whose log is on the disk only, or in memory too, with a small budget."""
    async with Rig(tmp_path) as rig:
        rig.answers.__class__ = Measured
        rig.answers.limit_bytes = LIMIT
        ref = await lead(rig, partitions=1) if followed else await rig.lead()
        async with rig.client() as writer:
            for _ in range(BATCHES):
                await produce(writer, (0, BATCH), acks=1)
        if not hot:
            rig.driver().log.tail.clear()
        yield rig, ref
    assert rig.answers.used_bytes == 0
    assert not rig.answers.somebody_waits()


class Narrow(Client):
    """A client whose socket takes little that it does not read."""

    async def __aenter__(self):
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.port))
        self.reader, self.writer = await asyncio.open_connection(sock=sock, limit=1024)
        return self


def narrow(rig):
    """The same for the broker's side of all connections."""
    for connection in rig.server.connections:
        connection._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)


def everything(offset=0):
    return fetch_request(offset, max_bytes=50 * MIB, partition_max_bytes=50 * MIB)


async def part_of(client):
    _, response = await client.receive(FETCH, 12)
    return response.responses[0].partitions[0]


async def read_all(client):
    """Offsets of all batches, as a consumer reads them."""
    offset, sizes = 0, []
    while offset < BATCHES:
        client.send(FETCH, 12, everything(offset))
        records = (await part_of(client)).records
        assert len(records) >= len(BATCH)
        assert int.from_bytes(records[:8], "big") == offset
        sizes.append(len(records))
        offset += len(records) // len(BATCH)
    return sizes


@on_uvloop
async def test_consumers_that_catch_up_hold_no_more_than_the_budget(tmp_path):
    async with cold_log(tmp_path) as (rig, _), contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(rig.client()) for _ in range(8)]
        for sizes in await asyncio.gather(*map(read_all, clients)):
            assert sum(sizes) == BATCHES * len(BATCH)
            assert max(sizes) <= SHARE
        assert SHARE < rig.answers.most_bytes <= LIMIT


@on_uvloop
async def test_clients_that_do_not_read_keep_out_consumers_but_no_broker(tmp_path):
    async with cold_log(tmp_path, followed=True) as (rig, ref), contextlib.AsyncExitStack() as stack:
        hogs = [await stack.enter_async_context(Narrow(rig.port)) for _ in range(2 * SHARES)]
        consumer, broker = [await stack.enter_async_context(rig.client()) for _ in range(2)]
        await until(lambda: len(rig.server.connections) == len(hogs) + 2)
        narrow(rig)
        follower = FollowerClient(broker, ref)
        await follower.ask({0: BATCHES})
        await until(lambda: rig.driver().replica.high_watermark == BATCHES)
        for hog in hogs:
            hog.send(FETCH, 12, everything())
        await until(lambda: rig.answers.somebody_waits())
        consumer.send(FETCH, 12, everything())
        consumers_answer = asyncio.create_task(part_of(consumer))
        for _ in range(3):
            assert (await follower.ask({0: 0}))[0][1] > len(BATCH)
        assert not consumers_answer.done()
        assert rig.answers.used_bytes <= LIMIT
        for hog in hogs:
            hog.writer.transport.abort()
        assert len((await consumers_answer).records) > len(BATCH)


@on_uvloop
async def test_one_client_holds_one_answer_however_many_it_asks_for(tmp_path):
    async with cold_log(tmp_path) as (rig, _), rig.client() as client, Narrow(rig.port) as hog:
        await until(lambda: len(rig.server.connections) == 2)
        narrow(rig)
        for _ in range(60):
            hog.send(FETCH, 12, everything())
        await until(lambda: rig.answers.used_bytes)
        assert sum(await read_all(client)) == BATCHES * len(BATCH)
        assert 0 < rig.answers.used_bytes <= SHARE
        for _ in range(60):
            assert len((await part_of(hog)).records) > len(BATCH)
        assert rig.answers.most_bytes <= 2 * SHARE


@on_uvloop
async def test_a_batch_that_is_larger_than_the_share_is_given(tmp_path):
    async with cold_log(tmp_path) as (rig, _), rig.client() as client:
        rig.answers.limit_bytes = len(BATCH)
        client.send(FETCH, 12, everything(7))
        assert len((await part_of(client)).records) == len(BATCH)


@on_uvloop
async def test_fetches_that_wait_for_memory_do_not_keep_the_broker_from_its_end(tmp_path):
    async with cold_log(tmp_path) as (rig, _), contextlib.AsyncExitStack() as stack:
        hogs = [await stack.enter_async_context(Narrow(rig.port)) for _ in range(2 * SHARES)]
        await until(lambda: len(rig.server.connections) == len(hogs))
        narrow(rig)
        for hog in hogs:
            hog.send(FETCH, 12, everything())
            hog.send(FETCH, 12, everything())
        await until(rig.answers.somebody_waits)
        await rig.server.stop()
        await until(lambda: not rig.tasks)
        for hog in hogs:
            hog.writer.transport.abort()
        await until(lambda: not rig.answers.used_bytes)


@pytest.mark.parametrize("hot", [False, True])
def test_who_reads_nothing_is_disconnected_when_others_wait(tmp_path, monkeypatch, hot):
    monkeypatch.setattr(listener, "SWEEP_INTERVAL_S", 0.01)
    monkeypatch.setattr(listener, "STALL_S", 0.05)

    @on_uvloop
    async def run(tmp_path):
        async with cold_log(tmp_path, hot=hot) as (rig, _), contextlib.AsyncExitStack() as stack:
            count = SHARES // 2 if hot else SHARES
            hogs = [await stack.enter_async_context(Narrow(rig.port)) for _ in range(count)]
            await until(lambda: len(rig.server.connections) == len(hogs))
            narrow(rig)
            for hog in hogs:
                hog.send(FETCH, 12, everything())
            await until(lambda: all(connection._unsent for connection in rig.server.connections))
            connections, loop = list(rig.server.connections), asyncio.get_running_loop()
            await until(lambda: all(one._stalled_bytes and loop.time() - one._stalled_s > 0.2 for one in connections))
            assert not any(one.closed for one in connections), "nobody minds"
            consumer = await stack.enter_async_context(rig.client())
            assert sum(await read_all(consumer)) == BATCHES * len(BATCH)

    run(tmp_path)


@on_uvloop
async def test_fetches_that_were_answered_keep_no_records(tmp_path):
    async with cold_log(tmp_path) as (rig, _), rig.client() as client:
        client.send(FETCH, 12, fetch_request(BATCHES, wait_ms=60_000))
        await until(lambda: len(rig.services.waiting) == 1)
        await_answer = asyncio.create_task(part_of(client))
        async with rig.client() as writer:
            await produce(writer, (0, BATCH))
        assert len((await await_answer).records) == len(BATCH)
        ((_, _, answered),) = rig.services.waiting._heap
        assert not answered._wanted


# ---------------------------------------------------------------------------------------------------- from memory


@on_uvloop
async def test_answers_from_memory_that_nobody_reads_hold_half_of_the_budget(tmp_path):
    async with cold_log(tmp_path, hot=True) as (rig, _), contextlib.AsyncExitStack() as stack:
        hogs = [await stack.enter_async_context(Narrow(rig.port)) for _ in range(2 * SHARES)]
        consumer = await stack.enter_async_context(rig.client())
        await until(lambda: len(rig.server.connections) == len(hogs) + 1)
        narrow(rig)
        for hog in hogs:
            hog.send(FETCH, 12, everything())
        await until(lambda: len(rig.answers._hot) == SHARES + SHARES // 2)
        assert 0 < rig.answers.most_bytes <= LIMIT // 2
        consumer.send(FETCH, 12, everything())
        answer = asyncio.create_task(part_of(consumer))
        await until(lambda: len(rig.answers._hot) == SHARES + SHARES // 2 + 1)
        rig.driver().log.tail.clear()
        async with rig.client() as behind:
            assert sum(await read_all(behind)) == BATCHES * len(BATCH), "what is cold has the other half"
        assert not answer.done()
        for hog in hogs:
            hog.writer.transport.abort()
        assert len((await answer).records) > len(BATCH)


@on_uvloop
async def test_a_client_that_reads_gets_what_is_in_memory_at_once(tmp_path):
    async with cold_log(tmp_path, hot=True) as (rig, _), rig.client() as client:
        offset = 0
        while offset < BATCHES:
            client.send(FETCH, 12, fetch_request(offset, max_bytes=SHARE, partition_max_bytes=SHARE))
            offset += len((await part_of(client)).records) // len(BATCH)
            assert not rig.tasks
        await until(lambda: not rig.answers.used_bytes)


@on_uvloop
async def test_one_client_holds_one_answer_from_memory_however_many_it_asks_for(tmp_path):
    async with cold_log(tmp_path, hot=True) as (rig, _), Narrow(rig.port) as hog:
        await until(lambda: len(rig.server.connections) == 1)
        narrow(rig)
        for _ in range(60):
            hog.send(FETCH, 12, everything())
        await until(lambda: rig.answers.used_bytes)
        for _ in range(60):
            assert len((await part_of(hog)).records) > len(BATCH)
        assert 0 < rig.answers.most_bytes <= SHARE


@on_uvloop
async def test_what_waits_for_memory_keeps_no_records(tmp_path):
    async with cold_log(tmp_path, hot=True) as (rig, _), contextlib.AsyncExitStack() as stack:
        hogs = [await stack.enter_async_context(Narrow(rig.port)) for _ in range(SHARES)]
        await until(lambda: len(rig.server.connections) == len(hogs))
        narrow(rig)
        made = []

        class Kept(PendingFetch):
            __slots__ = ()

            def __init__(self, *arguments):
                super().__init__(*arguments)
                made.append(self)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(handler, "PendingFetch", Kept)
            for hog in hogs:
                hog.send(FETCH, 12, everything())
                hog.send(FETCH, 12, everything())
            await until(lambda: len(made) == 2 * SHARES and len(rig.answers._hot) == SHARES // 2)
        await until(lambda: sum(bool(one._wanted) for one in made) == SHARES + SHARES // 2)
        assert sum(wanted.held_bytes for one in made for wanted in one._wanted) == 0
        for hog in hogs:
            hog.writer.transport.abort()
        await until(lambda: not rig.answers.used_bytes)


@on_uvloop
async def test_a_broker_is_answered_from_memory_whatever_consumers_hold(tmp_path):
    async with cold_log(tmp_path, followed=True, hot=True) as (rig, ref), contextlib.AsyncExitStack() as stack:
        hogs = [await stack.enter_async_context(Narrow(rig.port)) for _ in range(SHARES)]
        broker = await stack.enter_async_context(rig.client())
        await until(lambda: len(rig.server.connections) == len(hogs) + 1)
        narrow(rig)
        follower = FollowerClient(broker, ref)
        await follower.ask({0: BATCHES})
        await until(lambda: rig.driver().replica.high_watermark == BATCHES)
        for hog in hogs:
            hog.send(FETCH, 12, everything())
        await until(rig.answers.somebody_waits)
        for _ in range(3):
            assert (await follower.ask({0: 0}))[0][1] > len(BATCH)
        for hog in hogs:
            hog.writer.transport.abort()
        await until(lambda: not rig.answers.used_bytes)


@on_uvloop
async def test_an_answer_from_memory_is_not_held_behind_one_that_waits(tmp_path):
    async with cold_log(tmp_path, hot=True) as (rig, _), rig.client() as client, rig.client() as writer:
        client.send(FETCH, 12, fetch_request(BATCHES, wait_ms=60_000))
        for _ in range(3):
            client.send(FETCH, 12, fetch_request(0, max_bytes=SHARE, partition_max_bytes=SHARE))
        await until(lambda: len(rig.tasks) == 3)
        assert rig.answers.used_bytes == 0
        await produce(writer, (0, BATCH))
        assert len((await part_of(client)).records) == len(BATCH)
        for _ in range(3):
            assert len((await part_of(client)).records) > len(BATCH)
        await until(lambda: not rig.answers.used_bytes)

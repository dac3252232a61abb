"""A broker that stops: what is dropped, and what was sent behind it."""

import asyncio
from types import SimpleNamespace

import pytest

from kafkalite_broker.background import Background
from kafkalite_broker.broker import Broker
from kafkalite_core.protocol.apis import API
from kafkalite_core.protocol.header import encode_request_frame
from tests.unit.replication.rig import Rig, batch, on_uvloop, until
from tests.unit.server.client_requests import PRODUCE, produce_request
from tests.unit.server.fake_connection import feed
from tests.unit.server.test_produce_handler import SQUEEZED, SlowChecks


async def nothing(*_arguments, **_named):
    """Nothing has to be done."""


def ending(plane, background, writer_stops):
    """A broker of which all but the data plane and its tasks is a dummy."""
    broker = Broker.__new__(Broker)
    broker._plane, broker._background = plane, background
    broker._serving, broker._exit_code, broker._state = True, 0, "running"
    broker._link = SimpleNamespace(broker_epoch=1, in_doubt=False, stop=nothing)
    broker._writer = SimpleNamespace(stop=writer_stops)
    broker._producer_ids = broker._endpoint = SimpleNamespace(stop=nothing)
    broker._lease = SimpleNamespace(stop=lambda: None)
    broker._client = SimpleNamespace(close=nothing)
    broker._termination = SimpleNamespace(write=lambda **_: None)
    broker._settings = SimpleNamespace(broker_id=0)
    return broker


@on_uvloop
async def test_nothing_is_appended_behind_a_batch_that_is_dropped(tmp_path, monkeypatch):
    checks, background = SlowChecks(monkeypatch), Background()
    rig = Rig(tmp_path)
    rig.background = background.start
    async with rig, rig.client() as client:
        await rig.lead(partitions=2, config={"cleanup.policy": "compact"})
        client.send(PRODUCE, 9, produce_request((0, SQUEEZED)))
        await until(lambda: len(checks.threads) == 2)  # at once, and on the thread
        [connection] = rig.server.connections
        frame = encode_request_frame(API[PRODUCE], 9, 7, "test", produce_request((0, batch()), (1, batch())))
        sent_behind = b"".join(bytes(part) for part in frame)
        held = []

        def ends():
            return [rig.driver(number=number).log.end_offset for number in (0, 1)]

        async def writer_stops():
            """In the middle of the end, when the check was broken off."""
            feed(connection, sent_behind)
            held.append(ends())
            checks.may_go_on.set()

        async def close(**_options):
            await rig.server.stop()
            held.append(ends())

        plane = SimpleNamespace(recovering=False, stop_reading=rig.server.stop_reading, close=close)
        await ending(plane, background, writer_stops)._close()
        assert await client.closed()
        assert [*held, ends()] == [[0, 0]] * 3


@pytest.mark.parametrize(("in_doubt", "marked"), [(False, 6), (True, None)])
@on_uvloop
async def test_the_clean_marker_names_the_epoch_after_the_last_registration_or_none(in_doubt, marked):  # S11
    """One is on its way when the broker is asked to stop: it lands before its task has ended, or nobody knows."""
    closed = []

    async def close(*, clean, broker_epoch):
        closed.append((clean, broker_epoch))

    plane = SimpleNamespace(recovering=False, stop_reading=lambda: None, close=close)
    broker = ending(plane, SimpleNamespace(stop=nothing), nothing)

    async def link_stops():
        broker._link.broker_epoch, broker._link.in_doubt = 6, in_doubt

    broker._link.stop = link_stops
    await broker._close()
    assert closed == [(True, marked)]


@on_uvloop
async def test_superseded_while_it_closes_a_broker_leaves_no_clean_marker():  # R8
    closed = []

    async def close(*, clean, broker_epoch):
        closed.append(clean)

    plane = SimpleNamespace(recovering=False, stop_reading=lambda: None, close=close)
    broker = ending(plane, SimpleNamespace(stop=nothing), nothing)
    broker._outlived, broker._stopping = asyncio.Event(), asyncio.Event()

    async def link_stops():
        broker._superseded("a newer one")

    broker._link.stop = link_stops
    await broker._close()
    assert closed == [False]


@on_uvloop
async def test_who_connects_while_the_broker_ends_is_not_served(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as client:
        await until(lambda: len(rig.server.connections) == 1)
        rig.server.stop_reading()
        late = rig.server._connection("plain")()
        transport = SimpleNamespace(closed=False)
        transport.get_extra_info = lambda _name: ("127.0.0.1", 1)
        transport.set_write_buffer_limits = lambda high: None
        transport.abort = lambda: None
        transport.close = lambda: setattr(transport, "closed", True)
        late.connection_made(transport)
        assert transport.closed
        assert len(rig.server.connections) == 1
        await rig.server.stop()
        assert await client.closed()

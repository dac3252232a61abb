"""Framing, order of answers and limits of a connection, against a transport that only remembers."""

import asyncio
import random

import pytest

from kafkalite_broker.server.budget import InFlightBudget
from kafkalite_broker.server.connection import DIRECT_BYTES_MIN, REQUESTS_IN_FLIGHT_MAX, Connection
from tests.unit.server.fake_connection import FakeDispatcher, FakeTransport, feed, frame

FRAME_MAX = 1000


@pytest.fixture
async def parts():
    dispatcher, budget, transport = FakeDispatcher(), InFlightBudget(5000), FakeTransport()
    connection = Connection(dispatcher, budget, FRAME_MAX, "plain", bytearray(1 << 10))
    connection.connection_made(transport)
    return connection, dispatcher, budget, transport


async def test_frames_are_cut_wherever_the_stream_is_torn(parts):
    connection, dispatcher, _, _ = parts
    stream = frame(b"first") + frame(b"x" * 300) + frame(b"third")
    for torn_at in range(1, 12):
        dispatcher.frames.clear()
        for start in range(0, len(stream), torn_at):
            feed(connection, stream[start : start + torn_at])
        assert [payload for payload, _ in dispatcher.frames] == [b"first", b"x" * 300, b"third"]
        for _, slot in dispatcher.frames:
            slot.finish(())


@pytest.mark.parametrize("seed", range(20))
async def test_large_frames_are_read_in_place_wherever_the_stream_is_torn(seed):
    print(f"seed {seed}")
    rng = random.Random(seed)
    dispatcher, budget = FakeDispatcher(), InFlightBudget(1 << 30)
    connection = Connection(dispatcher, budget, 1 << 20, "plain", bytearray(64 << 10))
    connection.connection_made(FakeTransport())
    payloads = [rng.randbytes(rng.choice((1, 30, 5_000, 40_000, 300_000))) for _ in range(12)]
    stream = b"".join(map(frame, payloads))
    direct = 0
    while stream:
        size = rng.choice((1, 3, 100, 20_000, 70_000))
        feed(connection, stream[:size])
        direct += connection._direct
        stream = stream[size:]
    assert [payload for payload, _ in dispatcher.frames] == payloads
    assert direct, "nothing was read in place"
    assert budget.used_bytes == sum(map(len, payloads))
    for _, slot in dispatcher.frames:
        slot.finish(())
    assert budget.used_bytes == 0


async def test_a_frame_costs_at_most_twice_what_arrived_of_it():
    connection = Connection(FakeDispatcher(), InFlightBudget(1 << 40), 100 << 20, "plain", bytearray(64 << 10))
    connection.connection_made(FakeTransport())
    feed(connection, (100 << 20).to_bytes(4, "big"))
    arrived_bytes = 0
    while arrived_bytes < 5 << 20:
        buffer = connection.get_buffer(-1)
        if buffer.obj is not connection._read_buffer:
            assert len(buffer) >= DIRECT_BYTES_MIN
            assert len(buffer.obj) <= 2 * arrived_bytes
        connection.buffer_updated(min(len(buffer), 10_000))
        arrived_bytes += min(len(buffer), 10_000)
        del buffer
    connection.connection_lost(None)


async def test_answers_leave_in_the_order_of_the_requests(parts):
    connection, dispatcher, _, transport = parts
    feed(connection, frame(b"1") + frame(b"2") + frame(b"3"))
    slots = [slot for _, slot in dispatcher.frames]
    slots[2].finish([b"three"])
    slots[1].finish([])
    assert transport.sent == b""
    slots[0].finish([b"o", b"ne "])
    assert transport.sent == b"one three"


@pytest.mark.parametrize("length", [0, -1, -(2**31), FRAME_MAX + 1, 2**31 - 1])
async def test_a_bad_frame_length_closes_and_allocates_nothing(parts, length):
    connection, dispatcher, budget, transport = parts
    feed(connection, length.to_bytes(4, "big", signed=True) + b"rest")
    assert transport.closing
    assert connection.closed
    assert dispatcher.frames == []
    assert budget.used_bytes == 0


async def test_a_claimed_length_costs_only_what_arrived(parts):
    connection, _, budget, _ = parts
    feed(connection, FRAME_MAX.to_bytes(4, "big") + b"abc")
    assert budget.used_bytes == 3
    assert len(connection.get_buffer(-1)) == 1 << 10, "the shared buffer, not room for what was claimed"
    connection.connection_lost(None)
    assert budget.used_bytes == 0


async def test_too_many_unanswered_requests_stop_the_reading_until_half_are_answered(parts):
    connection, dispatcher, _, transport = parts
    feed(connection, frame(b"r") * (REQUESTS_IN_FLIGHT_MAX + 10))
    assert len(dispatcher.frames) == REQUESTS_IN_FLIGHT_MAX
    assert not transport.reading
    for _, slot in dispatcher.frames[: REQUESTS_IN_FLIGHT_MAX // 2]:
        slot.finish([])
    await asyncio.sleep(0)
    assert len(dispatcher.frames) == REQUESTS_IN_FLIGHT_MAX + 10
    assert transport.reading


async def test_the_shared_budget_stops_the_reading_of_a_connection(parts):
    connection, dispatcher, budget, transport = parts
    for _ in range(5):
        feed(connection, frame(b"y" * 999))
    feed(connection, frame(b"y" * 999))
    assert not transport.reading
    for _, slot in dispatcher.frames:
        slot.finish([])
    await asyncio.sleep(0)
    assert transport.reading
    assert budget.used_bytes == 0


async def test_a_slot_that_closes_gives_its_bytes_back(parts):
    connection, dispatcher, budget, transport = parts
    feed(connection, frame(b"junk"))
    dispatcher.frames[0][1].close("cannot be read")
    assert transport.closing
    assert budget.used_bytes == 0
    dispatcher.frames[0][1].finish([b"late"])
    assert transport.sent == b""
    assert budget.used_bytes == 0


async def test_more_connections_than_allowed_are_closed():
    dispatcher, transport = FakeDispatcher(), FakeTransport()
    dispatcher.accept = False
    Connection(dispatcher, InFlightBudget(100), FRAME_MAX, "plain", bytearray(1 << 10)).connection_made(transport)
    assert transport.closing


async def test_what_was_kept_while_paused_comes_before_what_arrives_later(parts):
    connection, dispatcher, _, _ = parts
    connection.pause_writing()
    feed(connection, frame(b"first"))
    connection.resume_writing()
    feed(connection, frame(b"second"))
    await asyncio.sleep(0)
    assert [payload for payload, _ in dispatcher.frames] == [b"first", b"second"]


async def test_a_request_came_when_it_was_read_however_long_it_was_kept(parts, monkeypatch):
    connection, dispatcher, _, _ = parts
    clock = [100.0]
    monkeypatch.setattr(connection._loop, "time", lambda: clock[0])
    feed(connection, frame(b"at once"))
    connection.pause_writing()
    feed(connection, frame(b"r") * (REQUESTS_IN_FLIGHT_MAX + 10))
    clock[0] += 5.0
    feed(connection, frame(b"r"))  # read before the connection stopped
    connection.resume_writing()
    connection._read_on()
    clock[0] += 5.0
    for _, slot in dispatcher.frames[:]:
        slot.finish([])
    connection._read_on()
    feed(connection, frame(b"later"))
    came = {(payload, slot.received_s) for payload, slot in dispatcher.frames}
    assert came == {(b"at once", 100.0), (b"r", 100.0), (b"later", 110.0)}
    assert len(dispatcher.frames) == REQUESTS_IN_FLIGHT_MAX + 13


async def test_nothing_is_handled_once_reading_has_ended_and_answers_are_still_sent(parts):
    connection, dispatcher, _, transport = parts
    feed(connection, frame(b"r") * (REQUESTS_IN_FLIGHT_MAX + 10))
    feed(connection, frame(b"kept")[:6])
    connection.end_reading()
    assert not transport.reading
    for _, slot in dispatcher.frames[:]:
        slot.finish([b"a"])
    await asyncio.sleep(0)
    connection.take_turn()
    feed(connection, frame(b"late"))
    await asyncio.sleep(0)
    assert len(dispatcher.frames) == REQUESTS_IN_FLIGHT_MAX
    assert transport.sent == b"a" * REQUESTS_IN_FLIGHT_MAX
    assert not transport.reading

"""What a connection to another broker does with its one buffer, without a socket."""

import asyncio
from types import SimpleNamespace

import pytest

from kafkalite_broker.replication.fetcher import FetchSettings
from kafkalite_broker.replication.peer import (
    BUFFER_BYTES,
    BUFFER_BYTES_MAX,
    LENGTH_BYTES,
    TRANSFER_LIMIT_S,
    PeerConnection,
    PeerError,
)


class Wire(asyncio.Transport):
    def __init__(self):
        super().__init__()
        self.aborted = False

    def writelines(self, list_of_data):
        pass

    def abort(self):
        self.aborted = True


def arrive(connection, data):
    while data:
        buffer = connection.get_buffer(-1)
        taken = min(len(buffer), len(data))
        buffer[:taken] = data[:taken]
        connection.buffer_updated(taken)
        data = data[taken:]


def frame(payload):
    return len(payload).to_bytes(LENGTH_BYTES, "big") + payload


@pytest.fixture
async def connection():
    connection = PeerConnection()
    connection.connection_made(Wire())
    return connection


async def exchange(connection, data, pieces=1):
    asked = asyncio.create_task(connection.exchange([b"?"], 5.0))
    await asyncio.sleep(0)
    size = -(-len(data) // pieces)
    for start in range(0, len(data), size):
        arrive(connection, data[start : start + size])
    return await asked


@pytest.mark.parametrize("size", [1, 100, BUFFER_BYTES - LENGTH_BYTES, BUFFER_BYTES, 3 * BUFFER_BYTES + 7])
@pytest.mark.parametrize("pieces", [1, 2, 5])
async def test_answers_of_any_size_arrive_whole_one_after_the_other(connection, size, pieces):
    for letter in (b"a", b"b", b"c"):
        answer = await exchange(connection, frame(letter * size), pieces)
        assert bytes(answer) == letter * size


async def test_the_buffer_serves_the_next_answer_once_nobody_reads_the_last(connection):
    answer = await exchange(connection, frame(b"x" * 500_000))
    first = answer.obj
    del answer
    answer = await exchange(connection, frame(b"y" * 400_000))
    assert answer.obj is first
    assert len(first) == 500_000 + LENGTH_BYTES


async def test_a_kept_view_keeps_its_bytes(connection):
    kept = (await exchange(connection, frame(b"x" * 500)))[100:200]
    answer = await exchange(connection, frame(b"y" * 500))
    assert bytes(answer) == b"y" * 500
    assert bytes(kept) == b"x" * 100


async def test_a_huge_buffer_is_not_kept(connection):
    await exchange(connection, frame(b"x" * BUFFER_BYTES_MAX))
    answer = await exchange(connection, frame(b"y"))
    assert len(answer.obj) == BUFFER_BYTES


async def test_an_answer_that_is_larger_than_any_ends_the_connection_before_memory_is_taken(connection):
    wire = connection.transport
    connection.answer_bytes_max = 1000
    assert len(await exchange(connection, frame(b"x" * 1000))) == 1000
    with pytest.raises(PeerError, match="answer of 1001 bytes, more than 1000"):
        await exchange(connection, frame(b"x" * 1001)[:100])
    assert wire.aborted


def test_a_batch_of_the_largest_request_fits_into_an_answer():
    settings = FetchSettings(wait_max_ms=500, max_bytes=10, partition_max_bytes=10, request_bytes_max=150_000_000)
    assert settings.answer_bytes_max >= 150_000_010


class Clock:
    """The loop of a connection, as far as time is concerned."""

    def __init__(self):
        self.now_s = 100.0
        self.timers = []
        self.create_future = asyncio.get_running_loop().create_future

    def time(self):
        return self.now_s

    def call_later(self, delay_s, callback):
        return self.call_at(self.now_s + delay_s, callback)

    def call_at(self, when_s, callback):
        timer = SimpleNamespace(when_s=when_s, callback=callback, cancel=lambda: self.timers.remove(timer))
        self.timers.append(timer)
        return timer

    def advance(self, seconds):
        self.now_s += seconds
        for timer in [timer for timer in self.timers if timer.when_s <= self.now_s]:
            self.timers.remove(timer)
            timer.cancel = lambda: None
            timer.callback()


@pytest.fixture
async def slow(connection):
    """A connection, its clock, and an answer that it has asked for and that may be missing for 5 s."""
    clock = connection._loop = Clock()
    asked = asyncio.create_task(connection.exchange([b"?"], 5.0))
    await asyncio.sleep(0)
    return connection, clock, asked


async def test_an_answer_that_arrives_steadily_may_take_longer_than_silence_may_last(slow):
    connection, clock, asked = slow
    data = frame(b"x" * 10)
    for start in range(len(data)):
        clock.advance(4.0)
        arrive(connection, data[start : start + 1])
    assert bytes(await asked) == b"x" * 10
    assert clock.now_s > 150.0
    assert not clock.timers


async def test_silence_ends_the_connection_before_and_in_the_middle_of_an_answer(slow):
    connection, clock, asked = slow
    wire = connection.transport
    clock.advance(4.0)
    arrive(connection, frame(b"x" * 100)[:50])
    clock.advance(4.9)
    assert not wire.aborted
    clock.advance(0.2)
    assert wire.aborted
    with pytest.raises(PeerError, match=r"no answer within 5\.0 s, 50 bytes"):
        await asked


async def test_an_answer_that_trickles_for_ever_ends_the_connection(slow):
    connection, clock, asked = slow
    wire, data = connection.transport, frame(b"x" * 10_000)
    for start in range(66):
        assert not wire.aborted
        arrive(connection, data[start : start + 1])
        clock.advance(1.0)
        if clock.now_s >= 100.0 + 5.0 + TRANSFER_LIMIT_S:
            break
    assert wire.aborted
    with pytest.raises(PeerError, match="no answer whole"):
        await asked


async def test_what_was_not_asked_for_ends_the_connection_and_spares_the_answer(connection):
    wire = connection.transport
    answer = await exchange(connection, frame(b"x" * 100))
    connection.get_buffer(-1)[:4] = b"\xee\xee\xee\xee"
    connection.buffer_updated(4)
    assert wire.aborted
    assert bytes(answer) == b"x" * 100
    with pytest.raises(PeerError, match="not connected"):
        await connection.exchange([b"?"], 1.0)

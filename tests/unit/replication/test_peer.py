"""What a connection to another broker does with its one buffer, without a socket."""

import asyncio

import pytest

from kafkalite_broker.replication.fetcher import FetchSettings
from kafkalite_broker.replication.peer import BUFFER_BYTES, BUFFER_BYTES_MAX, LENGTH_BYTES, PeerConnection, PeerError


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


async def test_what_was_not_asked_for_ends_the_connection_and_spares_the_answer(connection):
    wire = connection.transport
    answer = await exchange(connection, frame(b"x" * 100))
    connection.get_buffer(-1)[:4] = b"\xee\xee\xee\xee"
    connection.buffer_updated(4)
    assert wire.aborted
    assert bytes(answer) == b"x" * 100
    with pytest.raises(PeerError, match="not connected"):
        await connection.exchange([b"?"], 1.0)

"""Requests that wait hold no frames, and cannot keep out the fetches that they wait for: real sockets and logs."""

import asyncio
import gc
import weakref

from kafkalite_broker.server.handlers.fetch.pending import WAITING_PARTITION_BYTES
from tests.unit.replication.rig import Rig, batch, on_uvloop, until
from tests.unit.server.client_requests import FETCH, PRODUCE, fetch_request, produce_request
from tests.unit.server.test_fetch_sessions import FollowerClient, lead

LARGE = batch(b"x" * 400_000)
LIMIT = 1 << 20


class Frame(bytearray):
    """A frame that can be asked for by a weak reference."""


def watch_frames(rig):
    """Weak references to the frames that arrive from now on."""
    frames, dispatch = [], rig.server._table.dispatch

    def watched(frame, slot):
        copy = Frame(frame)
        frames.append(weakref.ref(copy))
        dispatch(copy, slot)

    rig.server._table.dispatch = watched
    return frames


@on_uvloop
async def test_parked_produces_hold_no_frames_and_do_not_keep_followers_out(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as one, rig.client() as other, rig.client() as broker:
        ref = await lead(rig, partitions=1)
        rig.server.budget.limit_bytes = LIMIT
        frames = watch_frames(rig)
        for _ in range(4):
            one.send(PRODUCE, 9, produce_request((0, LARGE), timeout_ms=60_000))
            other.send(PRODUCE, 9, produce_request((0, LARGE), timeout_ms=60_000))
        await until(lambda: rig.driver().log.end_offset == 8)
        assert rig.server.budget.used_bytes < 1000
        rig.driver().log.tail.clear()
        gc.collect()
        assert [frame() for frame in frames] == [None] * 8
        follower = FollowerClient(broker, ref)
        await follower.ask({0: 0})
        await follower.ask({0: 8})
        for client in (one, other):
            for _ in range(4):
                _, response = await client.receive(PRODUCE, 9)
                assert response.responses[0].partition_responses[0].error_code == 0
        assert rig.server.budget.used_bytes == 0


@on_uvloop
async def test_a_follower_fetches_on_while_requests_hold_all_the_memory(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as hog, rig.client() as broker, rig.client() as consumer:
        ref = await lead(rig, partitions=1)
        rig.server.budget.limit_bytes = LIMIT // 2
        follower = FollowerClient(broker, ref)
        await follower.ask({0: 0})
        consumer.send(FETCH, 12, fetch_request(0))
        await consumer.receive(FETCH, 12)
        hog.writer.write((LIMIT - 1).to_bytes(4, "big") + bytes(LIMIT - 100))
        await until(lambda: rig.server.budget.held)
        for _ in range(5):
            await follower.ask({0: 0})
        consumer.send(FETCH, 12, fetch_request(0))
        await consumer.receive(FETCH, 12)
        consumer.send(FETCH, 12, fetch_request(0))
        waiting = asyncio.create_task(consumer.receive(FETCH, 12))
        for _ in range(5):
            await follower.ask({0: 0})
        assert not waiting.done(), "a consumer is held"
        hog.writer.close()
        await waiting


@on_uvloop
async def test_who_only_says_that_it_is_a_broker_is_held_as_everybody(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as client:
        ref = await lead(rig, partitions=1)
        impostor = FollowerClient(client, ref)
        answer = await impostor.ask({0: 0}, replica_epoch=7)
        assert answer[0][2], "refused"
        (connection,) = rig.server.connections
        assert not connection.replicates
        impostor.session_id = impostor.session_epoch = 0
        await impostor.ask({0: 0})
        assert connection.replicates


@on_uvloop
async def test_fetches_that_wait_hold_up_no_requests_and_the_oldest_makes_room(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as old, rig.client() as client, rig.client() as broker:
        ref = await lead(rig, partitions=200)
        waiting = rig.services.waiting
        waiting._bytes_max = 300 * WAITING_PARTITION_BYTES
        follower = FollowerClient(broker, ref)
        await follower.ask(dict.fromkeys(range(200), 0))
        follower.send({}, wait_ms=60_000)
        await until(lambda: len(waiting) == 1)
        old.send(FETCH, 12, fetch_request(*[0] * 150, wait_ms=60_000, min_bytes=1 << 20))
        await until(lambda: len(waiting) == 2)
        client.send(FETCH, 12, fetch_request(*[0] * 140, wait_ms=60_000))
        await until(lambda: len(waiting) == 3)
        assert waiting.held_bytes == 292 * WAITING_PARTITION_BYTES
        client.send(FETCH, 12, fetch_request(*[0] * 9, wait_ms=60_000))
        _, response = await old.receive(FETCH, 12)
        parts = [part for topic in response.responses for part in topic.partitions]
        assert [(part.error_code, part.records) for part in parts] == [(0, b"")] * 150
        assert waiting.held_bytes == 151 * WAITING_PARTITION_BYTES
        assert rig.server.budget.used_bytes == 0
    await until(lambda: waiting.held_bytes == 0)

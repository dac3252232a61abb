"""Fetch sessions of followers (KIP-227) over a real socket: what a request need not name, what an answer need not tell."""

import asyncio
from types import SimpleNamespace
from uuid import UUID

from kafkalite_broker.server.handlers.fetch.pending import PendingFetch
from kafkalite_broker.server.handlers.fetch.wanted import Wanted
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from tests.unit.replication.rig import Rig, batch, entry, on_uvloop, topic_ref, until
from tests.unit.server.client_requests import FETCH, fetch_request, produce

VERSION = 16


class FollowerClient:
    """Speaks for broker 1 to the leader in the rig, the topic's partitions led by broker 0 with both in the ISR."""

    def __init__(self, client, ref):
        self.client = client
        self.topic_id = UUID(ref.topic_id)
        self.session_id, self.session_epoch = 0, 0

    def request(self, named, *, forgotten=(), wait_ms=0, max_bytes=1 << 20, replica_epoch=1):
        partitions = [
            FetchPartition(
                partition=number,
                current_leader_epoch=0,
                fetch_offset=offset,
                last_fetched_epoch=-1,
                log_start_offset=0,
                partition_max_bytes=1 << 20,
            )
            for number, offset in named.items()
        ]
        return FetchRequest(
            replica_state=ReplicaState(replica_id=1, replica_epoch=replica_epoch),
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            topics=[FetchTopic(topic_id=self.topic_id, partitions=partitions)] if named else [],
            forgotten_topics_data=[ForgottenTopic(topic_id=self.topic_id, partitions=list(forgotten))]
            if forgotten
            else [],
        )

    def send(self, named, **options):
        self.client.send(FETCH, VERSION, self.request(named, **options))

    async def receive(self):
        _, response = await self.client.receive(FETCH, VERSION)
        if not response.error_code:
            self.session_id = response.session_id
            self.session_epoch += 1
        return response

    async def ask(self, named, **options):
        """{partition: (high watermark, bytes, error)} of the answer."""
        self.send(named, **options)
        response = await self.receive()
        assert response.error_code == 0
        return {
            part.partition_index: (part.high_watermark, len(part.records or b""), part.error_code)
            for topic in response.responses
            for part in topic.partitions
        }


async def lead(rig, partitions=2):
    rig.see_broker(0, rig.port)
    rig.see_broker(1, 1)
    ref = topic_ref()
    rig.see_topic(ref, {number: entry(0) for number in range(partitions)})
    await rig.flusher.drain()
    return ref


@on_uvloop
async def test_partitions_at_rest_are_neither_named_nor_told(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as client, rig.client() as writer:
        follower = FollowerClient(client, await lead(rig))
        one = batch()
        assert await follower.ask({0: 0, 1: 0}) == {0: (0, 0, 0), 1: (0, 0, 0)}
        assert follower.session_id > 0
        assert await follower.ask({}) == {}
        producing = asyncio.create_task(produce(writer, (1, one)))
        assert await follower.ask({}, wait_ms=10_000) == {1: (0, len(one), 0)}, "woken by a partition it did not name"
        await rig.flusher.drain()
        assert await follower.ask({1: 1}) == {1: (1, 0, 0)}, "committed now"
        assert (await producing)[0].error_code == 0
        assert await follower.ask({}) == {}


@on_uvloop
async def test_a_high_watermark_is_told_with_the_next_answer(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as client, rig.client() as writer:
        follower = FollowerClient(client, await lead(rig))
        await follower.ask({0: 0, 1: 0})
        writer_task = asyncio.create_task(produce(writer, (0, batch())))
        await follower.ask({}, wait_ms=10_000)
        await rig.flusher.drain()
        # Its own fetch commits the record while partition 1 keeps the request waiting.
        follower.send({0: 1}, wait_ms=60_000)
        await writer_task
        other = asyncio.create_task(produce(writer, (1, batch())))
        response = await follower.receive()
        told = {part.partition_index: part.high_watermark for topic in response.responses for part in topic.partitions}
        assert told == {0: 1, 1: 0}
        await follower.ask({1: 1})
        await other


@on_uvloop
async def test_a_session_that_waits_for_more_keeps_no_records_and_is_told_them_all(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as client, rig.client() as writer:
        follower = FollowerClient(client, await lead(rig))
        one = batch()
        await produce(writer, (0, one), acks=1)
        request = follower.request({0: 0, 1: 0}, wait_ms=60_000)
        request.min_bytes = 2 * len(one)
        client.send(FETCH, VERSION, request)
        await until(lambda: len(rig.services.waiting) == 1)
        ((_, _, waiting),) = rig.services.waiting._heap
        assert [(part.size_bytes, part.held_bytes) for part in waiting._wanted] == [(len(one), 0), (0, 0)]
        await produce(writer, (1, one), acks=1)
        response = await follower.receive()
        parts = [part for topic in response.responses for part in topic.partitions]
        assert [len(part.records) for part in parts] == [len(one)] * 2


@on_uvloop
async def test_what_moves_is_not_compared_with_all_that_moved_before():
    compared = []

    class Counted(Wanted):
        def __eq__(self, other):
            compared.append(other)
            return self is other

        __hash__ = object.__hash__

    parts = [Counted("orders", None, FetchPartition(partition=number)) for number in range(200)]
    request = SimpleNamespace(body=SimpleNamespace(max_bytes=1))
    waiting = PendingFetch(request, None, None, parts[:1], SimpleNamespace(waiting=None))
    for part in parts * 2:
        waiting.add(part)
    assert waiting._wanted == parts
    assert len(compared) < 10 * len(parts)


@on_uvloop
async def test_all_are_looked_at_when_the_wait_is_over(tmp_path, monkeypatch):
    async with Rig(tmp_path) as rig, rig.client() as client, rig.client() as writer:
        follower = FollowerClient(client, await lead(rig))
        await follower.ask({0: 0, 1: 0})
        producing = asyncio.create_task(produce(writer, (0, batch())))
        await follower.ask({}, wait_ms=10_000)
        await rig.flusher.drain()
        await follower.ask({0: 1})
        await producing
        driver = rig.driver()
        driver.log.advance_start(1)
        assert await follower.ask({}, wait_ms=20) == {0: (1, 0, 0)}, "the log start moved, of which nobody is told"


@on_uvloop
async def test_what_had_no_room_comes_first_the_next_time(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as client, rig.client() as writer:
        follower = FollowerClient(client, await lead(rig))
        await follower.ask({0: 0, 1: 0})
        one = batch()
        tasks = [asyncio.create_task(produce(writer, (0, one), (1, one)))]
        await until(lambda: rig.driver(number=1).log.end_offset == 1 and rig.driver().log.end_offset == 1)
        first = await follower.ask({}, wait_ms=10_000, max_bytes=1)
        assert [size for _, size, _ in first.values()].count(len(one)) == 1
        (sent,) = [number for number, (_, size, _) in first.items() if size]
        second = await follower.ask({sent: 0}, wait_ms=10_000, max_bytes=1)
        assert second[1 - sent][1] == len(one), "though the other is named and has more, too"
        await follower.ask({0: 1, 1: 1})
        await asyncio.gather(*tasks)


@on_uvloop
async def test_forgotten_partitions_wake_nobody(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as client:
        follower = FollowerClient(client, await lead(rig))
        await follower.ask({0: 0, 1: 0})
        assert await follower.ask({}, forgotten=[1]) == {}
        assert len(rig.driver()._sessions) == 1
        assert not rig.driver(number=1)._sessions
        assert await follower.ask({1: 0}) == {1: (0, 0, 0)}


@on_uvloop
async def test_a_session_ends_with_its_connection(tmp_path):
    async with Rig(tmp_path) as rig:
        ref = await lead(rig)
        async with rig.client() as client:
            follower = FollowerClient(client, ref)
            await follower.ask({0: 0, 1: 0})
            follower.send({}, wait_ms=60_000)
            await until(lambda: len(rig.services.waiting) == 1)
        await until(lambda: not rig.driver()._sessions and not rig.driver(number=1)._sessions)
        async with rig.client() as client:
            other = FollowerClient(client, ref)
            other.session_id, other.session_epoch = follower.session_id, follower.session_epoch
            other.send({})
            assert (await other.receive()).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@on_uvloop
async def test_a_second_full_request_begins_a_second_session(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as client:
        follower = FollowerClient(client, await lead(rig))
        await follower.ask({0: 0, 1: 0})
        first = follower.session_id
        follower.session_id = follower.session_epoch = 0
        assert await follower.ask({1: 0}) == {1: (0, 0, 0)}
        assert follower.session_id != first
        assert not rig.driver()._sessions


@on_uvloop
async def test_another_incarnation_or_another_order_ends_the_session(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as client:
        ref = await lead(rig)
        follower = FollowerClient(client, ref)
        await follower.ask({0: 0, 1: 0})
        follower.send({}, replica_epoch=2)
        assert (await follower.receive()).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert not rig.driver()._sessions
        follower = FollowerClient(client, ref)
        await follower.ask({0: 0})
        follower.session_epoch += 1
        follower.send({})
        assert (await follower.receive()).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        follower.session_epoch -= 1
        follower.send({})
        assert (await follower.receive()).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@on_uvloop
async def test_two_requests_of_a_session_at_once_are_one_too_many(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as client:
        follower = FollowerClient(client, await lead(rig))
        await follower.ask({0: 0, 1: 0})
        follower.send({}, wait_ms=200)
        follower.session_epoch += 1
        follower.send({}, wait_ms=200)
        _, first = await client.receive(FETCH, VERSION)
        _, second = await client.receive(FETCH, VERSION)
        assert (first.error_code, second.error_code) == (0, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        assert not rig.driver()._sessions


@on_uvloop
async def test_a_topic_that_goes_is_told_at_once(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as client:
        ref = await lead(rig)
        follower = FollowerClient(client, ref)
        await follower.ask({0: 0, 1: 0})
        follower.send({}, wait_ms=60_000)
        await until(lambda: len(rig.services.waiting) == 1)
        rig.delete_topic(ref)
        response = await follower.receive()
        assert all(part.error_code for part in response.responses[0].partitions)
        assert await follower.ask({0: 0}) == {0: (0, 0, ErrorCode.UNKNOWN_TOPIC_ID)}


@on_uvloop
async def test_clients_are_declined(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as client:
        ref = await lead(rig)
        request = fetch_request(0, topic_id=UUID(ref.topic_id))
        request.session_epoch = 0
        response = await client.ask(FETCH, VERSION, request)
        assert (response.error_code, response.session_id) == (0, 0)
        assert not rig.driver()._sessions

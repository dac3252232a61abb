"""The handler of Fetch over a real socket on uvloop, with real replicas and logs."""

import asyncio
from uuid import UUID

from kafkalite_broker.replication.driver import PartitionDriver
from kafkalite_broker.server.handlers.fetch import pending
from kafkalite_broker.server.handlers.fetch.pending import PendingFetch
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkalite_core.storage import reading
from kafkalite_core.storage.errors import DiskFailure
from tests.unit.replication.rig import Rig, batch, on_uvloop, until
from tests.unit.server.client_requests import (
    FETCH,
    PRODUCE,
    fetch,
    fetch_request,
    produce,
    produce_request,
)


@on_uvloop
async def test_fetch_waits_for_min_bytes_and_is_woken_by_the_append(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as reader, rig.client() as writer:
        await rig.lead()
        one = batch()
        reader.send(FETCH, 12, fetch_request(0, wait_ms=15_000, min_bytes=2 * len(one)))
        await produce(writer, (0, one))
        waiting = asyncio.create_task(reader.receive(FETCH, 12))
        assert not (await asyncio.wait({waiting}, timeout=0.05))[0], "one batch is not enough"
        await produce(writer, (0, one))
        _, response = await waiting
        assert len(response.responses[0].partitions[0].records) == 2 * len(one)


def kept(rig):
    """What the one fetch that waits keeps: sizes of records, records, and whether files."""
    ((_, _, waiting),) = rig.services.waiting._heap
    return [(one.size_bytes, one.held_bytes, one.cold is not None) for one in waiting._wanted]


@on_uvloop
async def test_a_fetch_that_waits_keeps_sizes_and_no_records(tmp_path, monkeypatch):
    async with Rig(tmp_path) as rig, rig.client() as reader, rig.client() as writer:
        await rig.lead(partitions=3)
        one = batch(b"x" * 100)
        size = len(one)
        await produce(writer, (0, one), (1, one))
        rig.driver(number=1).log.tail.clear()
        limits = {"max_bytes": 3 * size, "partition_max_bytes": size}
        reader.send(FETCH, 12, fetch_request(0, 0, 0, wait_ms=60_000, min_bytes=3 * size, **limits))
        await until(lambda: len(rig.services.waiting) == 1)
        assert kept(rig) == [(size, 0, False), (size, 0, False), (0, 0, False)]
        looked = []
        look = PendingFetch._look_again
        monkeypatch.setattr(PendingFetch, "_look_again", lambda self: looked.append(look(self)))
        rig.driver(number=0).wake_all()
        rig.driver(number=1).wake_all()
        await until(lambda: looked)
        assert kept(rig) == [(size, 0, False), (size, 0, False), (0, 0, False)], "there is still not enough"
        await produce(writer, (2, one))
        _, response = await reader.receive(FETCH, 12)
        assert [len(part.records) for part in response.responses[0].partitions] == [size] * 3


@on_uvloop
async def test_what_is_gone_when_a_fetch_is_answered_is_told(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as reader, rig.client() as writer:
        await rig.lead(partitions=3)
        one = batch(b"x" * 100)
        await produce(writer, (0, one), (0, one), (1, one))
        reader.send(FETCH, 12, fetch_request(0, 0, 0, wait_ms=60_000, min_bytes=4 * len(one)))
        await until(lambda: len(rig.services.waiting) == 1)
        # Deleted without a word to whoever waits.
        rig.driver().log.advance_start(1)
        await produce(writer, (2, one))
        _, response = await reader.receive(FETCH, 12)
        answered = [(part.error_code, len(part.records) // len(one)) for part in response.responses[0].partitions]
        assert answered == [(ErrorCode.OFFSET_OUT_OF_RANGE, 0), (0, 1), (0, 1)]


@on_uvloop
async def test_fetch_answers_at_its_deadline(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as client:
        await rig.lead()
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        (part,) = await fetch(client, 0, wait_ms=50)
        assert loop.time() - began_s >= 0.045
        assert (part.error_code, bytes(part.records or b"")) == (0, b"")


@on_uvloop
async def test_fetch_bounds_what_it_answers_but_always_gives_one_batch(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as client:
        await rig.lead(partitions=3)
        one = batch(b"x" * 100)
        await produce(client, *[(n, one) for n in (0, 1, 2, 0, 1, 2)])

        async def sizes(**limits):
            return [len(part.records or b"") // len(one) for part in await fetch(client, 0, 0, 0, **limits)]

        assert await sizes() == [2, 2, 2]
        assert await sizes(max_bytes=1) == [1, 0, 0]
        assert await sizes(max_bytes=-5, partition_max_bytes=-5) == [1, 0, 0]
        assert await sizes(partition_max_bytes=-5) == [1, 0, 0]
        assert await sizes(partition_max_bytes=len(one)) == [1, 1, 1]
        assert await sizes(max_bytes=3 * len(one)) == [2, 1, 0]


@on_uvloop
async def test_fetch_without_partitions_is_answered_at_once(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as client:
        response = await client.ask(FETCH, 12, FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=[]))
        assert response.responses == []
        assert len(rig.services.waiting) == 0


@on_uvloop
async def test_fetch_by_id_and_by_name_of_what_does_not_exist(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as client:
        ref = await rig.lead()
        (part,) = await fetch(client, 0, version=13, topic_id=UUID(int=5), wait_ms=60_000)
        assert part.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert part.records is not None, "librdkafka cannot read a null"
        (part,) = await fetch(client, 0, version=13, topic_id=UUID(ref.topic_id))
        assert part.error_code == 0
        (part,) = await fetch(client, 0, version=12, topic="nope", wait_ms=60_000)
        assert part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        (part,) = await fetch(client, 99)
        assert part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert part.records is not None


@on_uvloop
async def test_an_unknown_fetch_session_is_refused_so_that_the_client_begins_anew(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as client:
        await rig.lead()
        request = fetch_request(0)
        request.session_id, request.session_epoch = 7, 3
        response = await client.ask(FETCH, 12, request)
        assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@on_uvloop
async def test_a_waiting_fetch_hears_when_its_partition_goes(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as client:
        ref = await rig.lead()
        client.send(FETCH, 12, fetch_request(0, wait_ms=60_000))
        await until(lambda: len(rig.services.waiting) == 1)
        rig.delete_topic(ref)
        _, response = await client.receive(FETCH, 12)
        assert response.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@on_uvloop
async def test_of_a_partition_that_is_named_again_the_last_word_counts(tmp_path, monkeypatch):
    async with Rig(tmp_path) as rig, rig.client() as client:
        await rig.lead(partitions=2)
        one = batch()
        await produce(client, (0, one), (0, one), (1, one))

        def again(*offsets, **options):
            request = fetch_request(0, 0, **options)
            named = [FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000) for offset in offsets]
            request.topics.append(FetchTopic(topic="orders", partitions=named))
            return request

        response = await client.ask(FETCH, 12, again(2, 1))
        parts = [part for topic in response.responses for part in topic.partitions]
        assert [(part.partition_index, len(part.records) // len(one)) for part in parts] == [(0, 1), (1, 1)]
        asked = []
        fetch_one = PartitionDriver.fetch
        monkeypatch.setattr(PartitionDriver, "fetch", lambda self, event: asked.append(self) or fetch_one(self, event))
        client.send(FETCH, 12, again(*[2] * 500, wait_ms=60_000, min_bytes=len(one) * 5))
        await until(lambda: len(rig.services.waiting) == 1)
        assert len(asked) == 2


@on_uvloop
async def test_no_fetch_waits_for_days(tmp_path, monkeypatch):
    monkeypatch.setattr(pending, "WAIT_MAX_S", 0.01)
    async with Rig(tmp_path) as rig, rig.client() as client:
        await rig.lead()
        (part,) = await fetch(client, 0, wait_ms=2**31 - 1)
        assert (part.error_code, bytes(part.records or b"")) == (0, b"")


@on_uvloop
async def test_fetches_of_clients_that_left_hold_nothing(tmp_path):
    async with Rig(tmp_path) as rig:
        await rig.lead()
        for _ in range(3):
            async with rig.client() as client:
                for _ in range(60):
                    client.send(FETCH, 12, fetch_request(0, wait_ms=2**31 - 1))
                await until(lambda: len(rig.driver()._high_watermark_waiters) == 60)
            await until(lambda: not rig.server.connections)
            assert rig.server.budget.used_bytes == 0
            assert not rig.driver()._high_watermark_waiters
        assert len(rig.services.waiting) < 100


@on_uvloop
async def test_cold_reads_come_from_the_disk_and_are_dropped_when_the_log_was_cut(tmp_path, monkeypatch):
    async with Rig(tmp_path) as rig, rig.client() as client:
        await rig.lead()
        one = batch(b"cold")
        await produce(client, (0, one))
        log = rig.driver().log
        log.tail.clear()
        (part,) = await fetch(client, 0, wait_ms=100)
        assert len(part.records) == len(one)
        answer = rig.pool.submit

        def cut_meanwhile(run, *arguments):
            log.generation += 1
            return answer(run, *arguments)

        monkeypatch.setattr(rig.pool, "submit", cut_meanwhile)
        (part,) = await fetch(client, 0)
        assert not part.records


@on_uvloop
async def test_of_fetches_only_those_count_as_failed_that_nobody_can_explain(tmp_path, monkeypatch):
    async with Rig(tmp_path) as rig:
        await rig.lead(partitions=2)
        counters = rig.telemetry.topic("orders")
        async with rig.client() as client:
            await produce(client, (0, batch()), (1, batch()))
            answers = await fetch(client, 99, 0, 0)
            assert [part.error_code for part in answers] == [
                ErrorCode.OFFSET_OUT_OF_RANGE, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ]  # fmt: skip
            (part,) = await fetch(client, 0, current_leader_epoch=7)
            assert part.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
            assert counters.failed_fetch_requests == 0

        def fail(*_, **__):
            raise ZeroDivisionError

        async with rig.client() as client:
            monkeypatch.setattr(rig.driver().log, "plan_read", fail)
            client.send(FETCH, 12, fetch_request(0, 0))
            assert await client.closed()
            assert counters.failed_fetch_requests == 1, "the other partition was not looked at any more"
        async with rig.client() as client:
            rig.driver(number=1).log.tail.clear()
            monkeypatch.setattr(reading.ColdRead, "run", fail)
            client.send(FETCH, 12, fetch_request(99, 0))
            assert await client.closed()
            assert counters.failed_fetch_requests == 2


@on_uvloop
async def test_a_defect_while_a_fetch_waits_closes_its_connection_only(tmp_path, monkeypatch):
    async with Rig(tmp_path) as rig, rig.client() as broken, rig.client() as other:
        await rig.lead()
        broken.send(FETCH, 12, fetch_request(0, wait_ms=60_000))
        await until(lambda: len(rig.services.waiting) == 1)

        def fail(*_, **__):
            raise ZeroDivisionError

        with monkeypatch.context() as patched:
            patched.setattr(PendingFetch, "_attempt", fail)
            rig.driver().wake_all()
            assert await broken.closed()
        assert (await produce(other, (0, batch())))[0].error_code == 0
        assert not rig.fatal


@on_uvloop
async def test_a_disk_failure_in_a_handler_ends_the_broker(tmp_path, monkeypatch):
    async with Rig(tmp_path) as rig, rig.client() as client:
        await rig.lead()

        def fail(*_, **__):
            raise DiskFailure("EIO")

        monkeypatch.setattr(rig.driver().log, "append_as_leader", fail)
        client.send(PRODUCE, 9, produce_request((0, batch())))
        assert await client.closed()
        assert [type(error) for error in rig.fatal] == [DiskFailure]

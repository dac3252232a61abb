"""What describes many partitions is made in slices: whole, in its turn, and with room for others in between."""

import asyncio
import contextlib
from types import SimpleNamespace

from kafkalite_broker.server import dispatch
from kafkalite_broker.server.handlers.slices import PARTITIONS_AT_ONCE, SlicedAnswers
from kafkalite_core.protocol.api_versions import ApiVersionsRequest
from kafkalite_core.protocol.describe_log_dirs import DescribeLogDirsRequest
from kafkalite_core.protocol.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from kafkalite_core.protocol.metadata import MetadataRequest, MetadataRequestTopic
from tests.unit.replication.rig import Rig, entry, on_uvloop, topic_ref, until
from tests.unit.server.client_requests import METADATA
from tests.unit.server.test_answer_memory import Narrow, narrow

API_VERSIONS, LOG_DIRS, PARTITIONS = 18, 35, 75
TOPICS, SIZE = 12, 250


def see_many(rig):
    """Topics of other brokers, so that nothing is opened here."""
    for number in range(3):
        rig.see_broker(number, rig.port)
    for number in range(TOPICS):
        entries = {n: entry(1, replicas=(1, 2, 9)) for n in range(SIZE)}
        rig.see_topic(topic_ref(f"t{number:02}"), entries)


def shown(topics):
    return [(topic.name, [part.partition_index for part in topic.partitions]) for topic in topics]


EVERYTHING = [(f"t{number:02}", list(range(SIZE))) for number in range(TOPICS)]


@on_uvloop
async def test_metadata_of_everything_is_whole_and_in_order(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as client:
        see_many(rig)
        first = client.send(METADATA, 9, MetadataRequest(topics=None))
        second = client.send(API_VERSIONS, 0, ApiVersionsRequest())
        correlation_id, response = await client.receive(METADATA, 9)
        assert correlation_id == first
        assert shown(response.topics) == EVERYTHING
        part = response.topics[3].partitions[7]
        assert (part.leader_id, part.replica_nodes, part.isr_nodes, part.offline_replicas) == (
            1, [1, 2, 9], [1, 2, 9], [9],
        )  # fmt: skip
        assert (await client.receive(API_VERSIONS, 0))[0] == second, "answers keep the order of the questions"
        names = [MetadataRequestTopic(name=name) for name in ("t07", "nope", "t01", "t00", "t02")]
        response = await client.ask(METADATA, 9, MetadataRequest(topics=names))
        assert [topic.name for topic in response.topics] == ["t07", "nope", "t01", "t00", "t02"]
        assert [len(topic.partitions) for topic in response.topics] == [SIZE, 0, SIZE, SIZE, SIZE]


@on_uvloop
async def test_pages_of_partitions_are_whole(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as client:
        see_many(rig)
        answer = await client.ask(PARTITIONS, 0, DescribeTopicPartitionsRequest([], 1900, None))
        following = answer.next_cursor
        assert (following.topic_name, following.partition_index) == ("t07", 150)
        cursor = Cursor(following.topic_name, following.partition_index)
        rest = await client.ask(PARTITIONS, 0, DescribeTopicPartitionsRequest([], 1900, cursor))
        assert rest.next_cursor is None
        pages = {}
        for name, numbers in shown(answer.topics) + shown(rest.topics):
            pages.setdefault(name, []).extend(numbers)
        assert list(pages.items()) == EVERYTHING


@on_uvloop
async def test_other_work_has_its_turn_between_the_slices(tmp_path, monkeypatch):
    made = []
    give = SlicedAnswers.give

    def watched(self, request, work):
        def counting():
            while True:
                turns.append(0)
                try:
                    next(work)
                except StopIteration as done:
                    return done.value
                yield

        give(self, request, counting())

    monkeypatch.setattr(SlicedAnswers, "give", watched)
    turns = []

    async def others():
        while True:
            if turns:
                turns[-1] += 1
            await asyncio.sleep(0)

    async with Rig(tmp_path) as rig, rig.client() as client:
        see_many(rig)
        task = asyncio.create_task(others())
        for key, version, request in (
            (METADATA, 9, MetadataRequest(topics=None)),
            (PARTITIONS, 0, DescribeTopicPartitionsRequest([], 2000, None)),
        ):
            turns.clear()
            await client.ask(key, version, request)
            made.append(len(turns))
            assert min(turns[:-1]) >= 1, turns
        task.cancel()
    assert made == [TOPICS * SIZE // PARTITIONS_AT_ONCE, 2000 // PARTITIONS_AT_ONCE]


@contextlib.asynccontextmanager
async def unread(rig, monkeypatch, count):
    """A client that asked for everything so often, the last time for log directories, and reads nothing.

    And the correlation ids of the answers that were encoded.
    """
    encoded = []
    encode = dispatch.encode_response_frame
    monkeypatch.setattr(dispatch, "encode_response_frame", lambda *a: encoded.append(a[2]) or encode(*a))
    async with Narrow(rig.port) as hog:
        await until(lambda: rig.server.connections)
        narrow(rig)
        for _ in range(count - 1):
            hog.send(METADATA, 9, MetadataRequest(topics=None))
        hog.send(LOG_DIRS, 1, DescribeLogDirsRequest(topics=None))
        await until(lambda: len(rig.tasks) == count - 1 and encoded)
        yield hog, encoded


@on_uvloop
async def test_a_client_that_does_not_read_has_one_large_answer_unsent_and_keeps_nobody_waiting(tmp_path, monkeypatch):
    async with Rig(tmp_path) as rig:
        see_many(rig)
        async with unread(rig, monkeypatch, 30) as (hog, encoded), rig.client() as other:
            assert shown((await other.ask(METADATA, 9, MetadataRequest(topics=None))).topics) == EVERYTHING
            await other.ask(LOG_DIRS, 1, DescribeLogDirsRequest(topics=None))
            assert encoded == [1, 1, 2], "one for the first client: who asked later had its turn"
            answers = [await hog.receive(METADATA, 9) for _ in range(29)]
            assert [correlation_id for correlation_id, _ in answers] == list(range(1, 30))
            assert (await hog.receive(LOG_DIRS, 1))[0] == 30
            assert all(shown(response.topics) == EVERYTHING for _, response in answers)
            await until(lambda: not rig.tasks)


@on_uvloop
async def test_large_answers_that_wait_for_their_turn_end_with_the_connection(tmp_path, monkeypatch):
    async with Rig(tmp_path) as rig:
        see_many(rig)
        async with unread(rig, monkeypatch, 30) as (hog, encoded):
            hog.writer.transport.abort()
            await until(lambda: not rig.server.connections and not rig.tasks)
            assert encoded == [1]
            assert rig.server.budget.used_bytes == 0


class FakeRequest:
    def __init__(self):
        self.abandoned = False
        self.answers = []

    def answer(self, response):
        self.answers.append(("at once", response))

    async def answer_large(self, response, pool):
        assert pool == "pool"
        self.answers.append(("large", response))

    def answer_nothing(self):
        self.answers.append(("nothing", None))

    async def turn(self):
        pass

    async def guarded(self, work):
        await work


def slices(count, log, name="x"):
    try:
        for number in range(count):
            log.append((name, number))
            if number < count - 1:
                yield
        return name
    finally:
        log.append((name, "end"))


@on_uvloop
async def test_small_ones_are_answered_at_once_and_large_ones_one_after_the_other():
    tasks, log = [], []
    services = SimpleNamespace(io_pool="pool", background=lambda work: tasks.append(asyncio.create_task(work)))
    answers = SlicedAnswers(services)
    small, first, second = FakeRequest(), FakeRequest(), FakeRequest()
    answers.give(small, slices(1, log, "small"))
    assert small.answers == [("at once", "small")]
    log.clear()
    answers.give(first, slices(3, log, "first"))
    answers.give(second, slices(3, log, "second"))
    await asyncio.gather(*tasks)
    assert (first.answers, second.answers) == ([("large", "first")], [("large", "second")])
    assert [name for name, _ in log] == ["first", "second"] + ["first"] * 3 + ["second"] * 3


@on_uvloop
async def test_nothing_more_is_made_for_a_client_that_is_gone():
    tasks, log = [], []
    services = SimpleNamespace(io_pool="pool", background=lambda work: tasks.append(asyncio.create_task(work)))
    answers = SlicedAnswers(services)
    request, next_one = FakeRequest(), FakeRequest()
    answers.give(request, slices(10**6, log))
    await until(lambda: len(log) > 3)
    request.abandoned = True
    answers.give(next_one, slices(2, log, "next"))
    await asyncio.gather(*tasks)
    assert request.answers == [("nothing", None)]
    assert ("x", "end") in log
    assert len(log) < 10**6
    assert next_one.answers == [("large", "next")]

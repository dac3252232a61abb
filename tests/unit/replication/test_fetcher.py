"""The follower's side over real sockets on uvloop: two brokers without a control plane, and a leader that misbehaves."""

import asyncio
import random

import pytest

from kafkalite_broker.replication import fetcher as fetcher_module
from kafkalite_broker.replication import peer, peer_address
from kafkalite_broker.replication.peer import PeerConnection, PeerError, connect
from kafkalite_broker.replication.peer_address import PeerAddress
from kafkalite_broker.replication.suspects import SuspectedLeaders
from kafkalite_core.model.errors import StorageError
from kafkalite_core.protocol.apis import API
from kafkalite_core.protocol.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kafkalite_core.protocol.header import decode_request_header, encode_response_frame
from kafkalite_core.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite_core.replica.events import Role
from kafkalite_core.storage.errors import DiskFailure
from kafkalite_core.storage.log import Log
from tests.unit.replication.rig import Rig, batch, entry, on_uvloop, topic_ref, until

FETCH = API[1]


async def produce(client, number=0, records=None, topic="orders"):
    data = [PartitionProduceData(index=number, records=records or batch())]
    request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=data)])
    response = await client.ask(0, 9, request)
    return response.responses[0].partition_responses[0]


def both_see(leader, follower, ref, partitions):
    for rig in (leader, follower):
        rig.see_broker(0, leader.port, epoch=leader.epoch)
        rig.see_broker(1, follower.port)
        rig.see_topic(ref, partitions)


@on_uvloop
async def test_acks_all_waits_for_the_follower_whose_log_becomes_the_same(tmp_path):
    async with Rig(tmp_path, 0) as leader, Rig(tmp_path, 1) as follower, leader.client() as client:
        ref = topic_ref()
        both_see(leader, follower, ref, {0: entry(0, min_isr=2), 1: entry(0, min_isr=2)})
        for n in range(3):
            assert (await produce(client, n % 2)).error_code == 0
            assert follower.driver(number=n % 2).log.flushed_end == n // 2 + 1, "acknowledged means on both disks"
        await until(lambda: follower.driver().replica.high_watermark == 2)
        assert leader.telemetry.topic("orders").replication_bytes_out > 0


@on_uvloop
async def test_a_topic_that_goes_while_its_log_is_unflushed_does_not_stop_the_others(tmp_path, monkeypatch):
    async with Rig(tmp_path, 0) as leader, Rig(tmp_path, 1) as follower, leader.client() as client:
        keep, gone = topic_ref("keep"), topic_ref("gone")
        both_see(leader, follower, keep, {0: entry(0, min_isr=2)})
        both_see(leader, follower, gone, {0: entry(0, min_isr=2)})
        await produce(client, topic="keep")
        await produce(client, topic="gone")
        dropped = follower.driver("gone").log
        with monkeypatch.context() as patched:
            # Its flush is never reported, as for a log that was set aside.
            patched.setattr(follower.flusher, "mark_dirty", lambda log: None)
            leader_end = leader.driver("gone").log
            pending = asyncio.create_task(produce(client, topic="gone"))
            await until(lambda: dropped.end_offset == 2 and leader_end.end_offset == 2)
        follower.delete_topic(gone)
        leader.delete_topic(gone)
        assert (await pending).error_code
        assert (await produce(client, topic="keep")).error_code == 0


@on_uvloop
async def test_a_partition_that_is_flushed_late_does_not_wait_for_the_long_poll_of_the_others(tmp_path):
    async with Rig(tmp_path, 0) as leader, Rig(tmp_path, 1) as follower, leader.client() as client:
        follower.partitions._fetch_settings.wait_max_ms = 60_000
        both_see(leader, follower, topic_ref("busy"), {0: entry(0, min_isr=2)})
        await produce(client, topic="busy")
        both_see(leader, follower, topic_ref("new"), {0: entry(0, min_isr=2)})
        assert (await produce(client, topic="new")).error_code == 0
        fetcher = follower.partitions._fetchers[0]
        await until(lambda: fetcher._in_flight is not None and len(fetcher._in_flight) == 2)
        late = follower.driver("new")
        fetcher._in_flight = frozenset({follower.driver("busy")})
        fetcher.flushed(late)
        await until(lambda: fetcher._in_flight is not None and late in fetcher._in_flight)


@on_uvloop
async def test_a_partition_that_the_leader_refuses_costs_no_connection(tmp_path):
    async with Rig(tmp_path, 0) as leader, Rig(tmp_path, 1) as follower, leader.client() as client:
        follower.partitions._fetch_settings.wait_max_ms = 60_000
        ref = topic_ref()
        both_see(leader, follower, ref, {0: entry(0, min_isr=2)})
        await produce(client)
        follower.see_topic(ref, {0: entry(0, min_isr=2), 1: entry(0, min_isr=2)})
        fetcher, refused = follower.partitions._fetchers[0], follower.driver(number=1)

        def refusals():
            follower.partitions.tick()
            return refused.replica._follower._failures

        await until(refusals)
        connection = fetcher._connection
        await until(lambda: refusals() >= 5)
        assert fetcher._connection is connection
        assert connection.transport is not None
        leader.see_topic(ref, {0: entry(0, min_isr=2), 1: entry(0, min_isr=2)})
        assert (await produce(client, 1)).error_code == 0, "it takes part again, whatever the others wait for"
        assert len(leader.server.connections) == 2, "the follower's and the client's"


@on_uvloop
async def test_the_leader_comes_back_at_another_port(tmp_path):
    async with Rig(tmp_path, 1) as follower:
        ref = topic_ref()
        async with Rig(tmp_path, 0) as first, first.client() as client:
            both_see(first, follower, ref, {0: entry(0, min_isr=2)})
            await produce(client)
        await until(lambda: follower.partitions.suspects)
        async with Rig(tmp_path, 0, epoch=2) as second, second.client() as client:
            both_see(second, follower, ref, {0: entry(0, min_isr=2, epoch=1, partition_epoch=1, broker_epochs={0: 2})})
            assert (await produce(client)).error_code == 0
            assert len(second.server.connections) == 2, "the follower's and the client's"


@on_uvloop
async def test_a_follower_becomes_leader_and_its_fetcher_ends(tmp_path):
    async with Rig(tmp_path, 0) as leader, Rig(tmp_path, 1) as follower, follower.client() as client:
        ref = topic_ref()
        both_see(leader, follower, ref, {0: entry(0, min_isr=2)})
        await until(lambda: follower.partitions._fetchers)
        both_see(leader, follower, ref, {0: entry(1, min_isr=2, epoch=1, partition_epoch=1)})
        assert not follower.partitions._fetchers
        assert follower.driver().replica.role is Role.LEADER
        assert (await produce(client)).error_code == 0


# ---------------------------------------------------------------------------------------------------- bad leaders


class BadLeader:
    """Answers fetches by a script: for each request what to do with it."""

    def __init__(self, *script):
        self.script = list(script)
        self.requests = 0
        self.connections = 0

    async def __aenter__(self):
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self.server.close()

    async def _serve(self, reader, writer):
        self.connections += 1
        try:
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                self.requests += 1
                step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
                answer = step(frame)
                if answer is None:
                    return
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


def good(frame, ahead=0):
    """Every partition asked for, with one batch at the offset asked for; so much further is committed."""
    header, offset = decode_request_header(memoryview(frame))
    request = FETCH.decode_request(memoryview(frame)[offset:], header.api_version)
    topics = []
    for topic in request.topics:
        parts = []
        for asked in topic.partitions:
            records = bytearray(batch())
            records[:8] = asked.fetch_offset.to_bytes(8, "big")
            records[12:16] = (0).to_bytes(4, "big")
            parts.append(
                PartitionData(
                    partition_index=asked.partition,
                    high_watermark=asked.fetch_offset + ahead,
                    log_start_offset=0,
                    records=[bytes(records)],
                )
            )
        topics.append(FetchableTopicResponse(topic_id=topic.topic_id, partitions=parts))
    response = FetchResponse(responses=topics)
    return b"".join(
        bytes(part) for part in encode_response_frame(FETCH, header.api_version, header.correlation_id, response)
    )


def garbage(frame):
    return (12).to_bytes(4, "big") + frame[4:8] + b"\x00" + b"\xff" * 7


def other_correlation_id(frame):
    answer = bytearray(good(frame))
    answer[7] ^= 0xFF
    return bytes(answer)


def too_long(_frame):
    return (2**31 - 1).to_bytes(4, "big") + b"x" * 10


def negative(_frame):
    return b"\xff\xff\xff\xff"


def twice(frame):
    return good(frame) * 2


def hang_up(_frame):
    return None


@pytest.mark.parametrize("bad", [garbage, other_correlation_id, too_long, negative, twice, hang_up])
def test_a_bad_answer_is_survived(tmp_path, bad):
    @on_uvloop
    async def run():
        async with BadLeader(bad, bad, good) as leader, Rig(tmp_path, 1) as follower:
            follower.see_broker(1, follower.port)
            follower.see_broker(0, leader.port)
            follower.see_topic(topic_ref(), {0: entry(0)})
            await until(lambda: follower.driver().log.end_offset >= 3)
            assert leader.connections == 3, "a connection that misbehaved is not used again"
            assert not follower.fatal

    run()


@on_uvloop
async def test_the_largest_lag_is_that_of_what_it_follows_now(tmp_path):
    def lag():
        return follower.telemetry.registry.get_sample_value("kafka_server_replicafetchermanager_maxlag")

    def ten_ahead(frame):
        return good(frame, ahead=10)

    async with BadLeader(ten_ahead) as leader, Rig(tmp_path, 1) as follower:
        assert lag() == 0, "nothing is followed"
        ref = topic_ref()
        follower.see_broker(1, follower.port)
        follower.see_broker(0, leader.port)
        follower.see_topic(ref, {0: entry(0)})
        await until(lambda: follower.driver().log.end_offset >= 2)
        assert lag() == 9
        follower.see_topic(ref, {0: entry(1, epoch=1, partition_epoch=1)})
        assert lag() == 0, "it leads"
        follower.see_topic(ref, {0: entry(0, epoch=2, partition_epoch=2)})
        assert lag() == 0, "its new leader has told nothing"


@pytest.mark.parametrize("error", [ZeroDivisionError(), StorageError("full")])
def test_what_one_partition_raises_costs_the_others_nothing(tmp_path, monkeypatch, error):
    @on_uvloop
    async def run():
        async with BadLeader(good) as leader, Rig(tmp_path, 1) as follower:
            follower.see_broker(1, follower.port)
            follower.see_broker(0, leader.port)
            follower.see_topic(topic_ref(), {0: entry(0), 1: entry(0)})
            monkeypatch.setattr(type(follower.driver().log), "append_as_follower", _failing(error, "orders-0"))
            await until(lambda: follower.driver(number=1).log.end_offset >= 2)
            assert follower.driver(number=0).log.end_offset == 0
            assert not follower.fatal
            monkeypatch.undo()
            await until(lambda: follower.driver(number=0).log.end_offset >= 1)

    run()


def _failing(error, directory):
    original = Log.append_as_follower

    def append(self, *arguments, **named):
        if self.directory == directory:
            raise error
        return original(self, *arguments, **named)

    return append


@on_uvloop
async def test_a_disk_failure_of_a_follower_is_fatal(tmp_path, monkeypatch):
    async with BadLeader(good) as leader, Rig(tmp_path, 1) as follower:
        follower.see_broker(1, follower.port)
        monkeypatch.setattr(
            "kafkalite_core.storage.log.Log.append_as_follower", _failing(DiskFailure("EIO"), "orders-0")
        )
        follower.see_broker(0, leader.port)
        follower.see_topic(topic_ref(), {0: entry(0)})
        await until(lambda: follower.fatal)
        assert isinstance(follower.fatal[0], DiskFailure)


@on_uvloop
async def test_a_defect_that_ends_a_fetcher_is_fatal(tmp_path, monkeypatch):
    def broken(*_arguments):
        raise ZeroDivisionError

    monkeypatch.setattr(SuspectedLeaders, "note", broken)
    async with BadLeader(hang_up) as leader, Rig(tmp_path, 1) as follower:
        follower.see_broker(1, follower.port)
        follower.see_broker(0, leader.port)
        follower.see_topic(topic_ref(), {0: entry(0)})
        try:
            await until(lambda: follower.fatal)
        finally:
            follower.partitions._fetchers.clear()  # there is nothing to stop
        assert isinstance(follower.fatal[0], ZeroDivisionError)


@on_uvloop
async def test_a_leader_that_is_silent_is_suspected_after_the_deadline(tmp_path, monkeypatch):
    monkeypatch.setattr(fetcher_module, "ANSWER_DEADLINE_S", 0.05)
    async with BadLeader(lambda _frame: b"") as leader, Rig(tmp_path, 1) as follower:
        follower.partitions._fetch_settings.wait_max_ms = 10
        follower.see_broker(1, follower.port)
        follower.see_broker(0, leader.port)
        follower.see_topic(topic_ref(), {0: entry(0)})
        await until(lambda: follower.partitions.suspects.concern(["orders"]))
        await until(lambda: leader.connections > 1)


@on_uvloop
async def test_requests_that_are_given_up_leave_no_suspicion_and_no_connection(tmp_path, monkeypatch):
    asked = []

    async def resolved(host, _port, _last):
        asked.append(host)
        return [host]

    monkeypatch.setattr(peer_address, "_resolved", resolved)
    async with Rig(tmp_path, 0) as leader, Rig(tmp_path, 1) as follower:
        both_see(leader, follower, topic_ref(), {0: entry(0)})
        fetcher = follower.partitions._fetchers[0]
        for _ in range(20):
            await until(lambda: fetcher._in_flight is not None and not fetcher._abandoned)
            before = fetcher._correlation_id
            fetcher.kick()
            await until(lambda before=before: fetcher._correlation_id > before)
        await until(lambda: fetcher._in_flight is not None and len(leader.server.connections) == 1)
        assert not follower.partitions.suspects
        assert asked == ["127.0.0.1"], "the leader is where it just was: no resolver is asked"
        assert len(leader.driver()._end_waiters) <= 1


# ---------------------------------------------------------------------------------------------------- connection


@on_uvloop
async def test_a_peer_connection_says_why_it_failed(monkeypatch):
    with pytest.raises(PeerError, match=r"cannot connect to 127.0.0.1:1: .*refused"):
        await connect(["127.0.0.1"], 1)
    with pytest.raises(PeerError, match="cannot connect to xxx"):
        await PeerAddress().connect(("x" * 300, 1))
    monkeypatch.setattr(peer, "CONNECT_DEADLINE_S", 0.0)
    with pytest.raises(PeerError, match=r"cannot connect to .*:1: no answer in time"):
        await connect(["127.0.0.1"], 1)
    with pytest.raises(PeerError, match="not connected"):
        await PeerConnection().exchange([b"x"], 1.0)


def deliver(connection, data):
    """What the loop does with bytes from the socket."""
    while data:
        room = connection.get_buffer(-1)
        taken = min(len(room), len(data))
        room[:taken] = data[:taken]
        connection.buffer_updated(taken)
        data = data[taken:]


@pytest.mark.parametrize(("size_bytes", "piece_bytes"), [(4, 1), (65_532, 65_536), (65_533, 7_000), (300_000, 299_999)])
@on_uvloop
async def test_an_answer_that_comes_in_pieces_is_put_together(size_bytes, piece_bytes):
    connection = PeerConnection()
    body = random.Random(size_bytes).randbytes(size_bytes)
    frame = size_bytes.to_bytes(4, "big") + body
    for _ in range(2):
        answer = connection._answer = asyncio.get_running_loop().create_future()
        assert not connection.answering
        for start in range(0, len(frame), piece_bytes):
            assert not answer.done()
            deliver(connection, frame[start : start + piece_bytes])
            assert connection.answering
        assert bytes(answer.result()) == body


@on_uvloop
async def test_an_answer_that_is_longer_than_it_says_is_refused():
    connection = PeerConnection()
    answer = connection._answer = asyncio.get_running_loop().create_future()
    deliver(connection, (4).to_bytes(4, "big") + b"data and more")
    assert bytes(answer.result()) == b"data"
    later = connection._answer = asyncio.get_running_loop().create_future()
    deliver(connection, (0).to_bytes(4, "big"))
    with pytest.raises(PeerError, match="0 bytes"):
        later.result()

"""DescribeCluster, DescribeTopicPartitions, DescribeLogDirs, DeleteRecords, ElectLeaders over a real socket."""

import asyncio
from dataclasses import replace
from uuid import UUID

import pytest

from kafkalite_broker.server.handlers import bounds, describe_log_dirs, elect_leaders
from kafkalite_core.model.errors import BrokerError
from kafkalite_core.model.partition import IsrEntry
from kafkalite_core.protocol.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kafkalite_core.protocol.describe_cluster import DescribeClusterRequest
from kafkalite_core.protocol.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from kafkalite_core.protocol.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from kafkalite_core.protocol.elect_leaders import ElectLeadersRequest, TopicPartitions
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from kafkalite_core.protocol.metadata import MetadataRequest
from tests.unit.replication.rig import Rig, batch, entry, on_uvloop, topic_ref, until
from tests.unit.server.client_requests import METADATA, fetch, produce

DELETE_RECORDS, LOG_DIRS, ELECT, REASSIGNMENTS, CLUSTER, PARTITIONS = 21, 35, 43, 46, 60, 75
NONE = int(ErrorCode.NONE)

# ------------------------------------------------------------------------------------------------ cluster, topics


@pytest.mark.parametrize("version", [0, 1])
def test_describe_cluster_agrees_with_metadata(tmp_path, version):
    @on_uvloop
    async def run():
        async with Rig(tmp_path, 2) as rig, rig.client() as client:
            await rig.lead()
            rig.see_broker(1, 19093)
            answer = await client.ask(CLUSTER, version, DescribeClusterRequest(True))
            metadata = await client.ask(METADATA, 9, MetadataRequest(topics=[]))
            assert (answer.error_code, answer.cluster_id, answer.controller_id) == (0, "cluster", 1)
            assert answer.controller_id == metadata.controller_id
            assert [(each.broker_id, each.host, each.port) for each in answer.brokers] == [
                (each.node_id, each.host, each.port) for each in metadata.brokers
            ]
            assert answer.cluster_authorized_operations == 0b1111110100000
            answer = await client.ask(CLUSTER, version, DescribeClusterRequest(False))
            assert answer.cluster_authorized_operations == -(2**31)
            if version:
                for kind, code in (
                    (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
                    (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
                ):
                    answer = await client.ask(CLUSTER, 1, DescribeClusterRequest(False, kind))
                    assert (answer.error_code, answer.brokers) == (code, [])
                    assert answer.error_message

    run()


async def pages(client, *names, limit=2000, cursor=None):
    request = DescribeTopicPartitionsRequest([TopicRequest(name) for name in names], limit, cursor)
    answer = await client.ask(PARTITIONS, 0, request)
    found = [(topic.name, [part.partition_index for part in topic.partitions]) for topic in answer.topics]
    following = answer.next_cursor
    return found, None if following is None else (following.topic_name, following.partition_index)


@on_uvloop
async def test_topics_come_page_by_page_in_the_order_of_their_names(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as client:
        for name, partitions in (("b", 3), ("a", 2), ("c", 1)):
            await rig.lead(topic_ref(name), partitions=partitions)
        rig.see_topic(topic_ref("unplaced"), {})
        assert await pages(client) == ([("a", [0, 1]), ("b", [0, 1, 2]), ("c", [0])], None)
        assert await pages(client, "c", "a", "c") == ([("a", [0, 1]), ("c", [0])], None)
        assert await pages(client, limit=1) == ([("a", [0])], ("a", 1))
        assert await pages(client, limit=2) == ([("a", [0, 1])], ("b", 0))
        assert await pages(client, limit=3) == ([("a", [0, 1]), ("b", [0])], ("b", 1))
        assert await pages(client, limit=0) == ([("a", [0])], ("a", 1))
        assert await pages(client, limit=6) == ([("a", [0, 1]), ("b", [0, 1, 2]), ("c", [0])], None)
        assert await pages(client, limit=4, cursor=Cursor("b", 1)) == ([("b", [1, 2]), ("c", [0])], None)
        assert await pages(client, cursor=Cursor("bb", 0)) == ([("c", [0])], None)
        seen, cursor = [], None
        while True:
            page, following = await pages(client, limit=2, cursor=cursor)
            seen += [(name, number) for name, numbers in page for number in numbers]
            if following is None:
                break
            cursor = Cursor(*following)
        assert seen == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]


@on_uvloop
async def test_a_described_partition_has_leader_replicas_and_eligible_leaders(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as client:
        rig.see_broker(0, rig.port)
        ref = topic_ref("__consumer_offsets")
        known = replace(entry(0, epoch=4, replicas=(0, 1)), isr=(IsrEntry(0, 1),), elr=(IsrEntry(1, 1),))
        rig.see_topic(ref, {0: known, 1: entry(1, replicas=(1,))})
        answer = await client.ask(
            PARTITIONS,
            0,
            DescribeTopicPartitionsRequest([TopicRequest(ref.name), TopicRequest("no/pe"), TopicRequest("x")]),
        )
        topic, bad, unknown = answer.topics
        assert (topic.topic_id, topic.is_internal) == (UUID(ref.topic_id), True)
        first, second = topic.partitions
        assert (first.leader_id, first.leader_epoch, first.replica_nodes, first.isr_nodes) == (0, 4, [0, 1], [0])
        assert (first.eligible_leader_replicas, first.last_known_elr, first.offline_replicas) == ([1], [], [1])
        assert (second.error_code, second.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        assert (bad.error_code, unknown.error_code) == (
            ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )  # fmt: skip


@on_uvloop
async def test_a_cursor_that_cannot_be_is_refused(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as client:
        await rig.lead()
        for cursor in (Cursor("orders", -1), Cursor("other", 0)):
            request = DescribeTopicPartitionsRequest([TopicRequest("orders")], 10, cursor)
            (topic,) = (await client.ask(PARTITIONS, 0, request)).topics
            assert (topic.error_code, topic.partitions) == (ErrorCode.INVALID_REQUEST, [])


@on_uvloop
async def test_reassignments_are_those_of_the_metadata(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as client:
        await rig.lead()

        async def listed(topics=None):
            answer = await client.ask(REASSIGNMENTS, 0, ListPartitionReassignmentsRequest(1000, topics))
            assert answer.error_code == 0
            return [
                (topic.name, part.partition_index, part.replicas, part.adding_replicas, part.removing_replicas)
                for topic in answer.topics
                for part in topic.partitions
            ]

        assert await listed() == []
        moving = replace(entry(0, replicas=(0, 1, 2)), adding=(2,), removing=(1,))
        rig.see_topic(topic_ref("moving"), {0: moving, 1: entry(0)})
        expected = [("moving", 0, [0, 1, 2], [2], [1])]
        assert await listed() == expected
        assert await listed([ListPartitionReassignmentsTopics("moving", [0, 1])]) == expected
        assert await listed([ListPartitionReassignmentsTopics("moving", [1])]) == []


# ------------------------------------------------------------------------------------------------ log directories


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_log_dirs_have_sizes_of_replicas_and_of_the_disk(tmp_path, version, monkeypatch):
    monkeypatch.setattr(describe_log_dirs, "REPLICAS_AT_ONCE", 1)

    @on_uvloop
    async def run():
        async with Rig(tmp_path) as rig, rig.client() as client:
            await rig.lead(partitions=2)
            await rig.lead(topic_ref("other"))
            data = batch(b"x" * 100)
            await produce(client, (0, data), (0, data))

            async def sizes(topics):
                answer = await client.ask(LOG_DIRS, version, DescribeLogDirsRequest(topics))
                (result,) = answer.results
                assert (answer.error_code, result.error_code, result.log_dir) == (0, 0, str(rig.root))
                if version >= 4:
                    assert 0 < result.usable_bytes <= result.total_bytes
                return {
                    (topic.name, part.partition_index): (part.partition_size, part.offset_lag, part.is_future_key)
                    for topic in result.topics
                    for part in topic.partitions
                }

            everything = {
                ("orders", 0): (2 * len(data), 0, False), ("orders", 1): (0, 0, False), ("other", 0): (0, 0, False),
            }  # fmt: skip
            assert await sizes(None) == everything
            named = [DescribableLogDirTopic("orders", [0, 9]), DescribableLogDirTopic("nope", [0])]
            assert await sizes(named) == {("orders", 0): (2 * len(data), 0, False)}
            assert await sizes([]) == {}

    run()


@on_uvloop
async def test_a_disk_that_cannot_be_asked_is_an_error_of_the_directory(tmp_path, monkeypatch):
    def broken(_directory):
        raise OSError("gone")

    monkeypatch.setattr(describe_log_dirs, "disk_bytes", broken)
    async with Rig(tmp_path) as rig, rig.client() as client:
        await rig.lead()
        (result,) = (await client.ask(LOG_DIRS, 4, DescribeLogDirsRequest(None))).results
        assert (result.error_code, result.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, [])


@on_uvloop
async def test_an_answer_that_cannot_be_encoded_on_a_thread_closes_the_connection(tmp_path, monkeypatch):
    monkeypatch.setattr(describe_log_dirs, "disk_bytes", lambda _: ("many", "few"))
    async with Rig(tmp_path) as rig, rig.client() as client:
        await rig.lead()
        client.send(LOG_DIRS, 4, DescribeLogDirsRequest(None))
        assert await client.closed()


# ------------------------------------------------------------------------------------------------ deleting records


async def deleted(client, *parts, topic="orders", version=2, timeout_ms=5000):
    wanted = [DeleteRecordsPartition(number, offset) for number, offset in parts]
    answer = await client.ask(
        DELETE_RECORDS, version, DeleteRecordsRequest([DeleteRecordsTopic(topic, wanted)], timeout_ms)
    )
    ((name, results),) = [(each.name, each.partitions) for each in answer.topics]
    assert name == topic
    return [(part.partition_index, part.error_code, part.low_watermark) for part in results]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_records_before_the_offset_are_gone(tmp_path, version):
    @on_uvloop
    async def run():
        async with Rig(tmp_path) as rig, rig.client() as client:
            await rig.lead(partitions=2)
            await produce(client, (0, batch(b"a", b"b", b"c")), (0, batch(b"d")))
            assert await deleted(client, (0, 2), (1, 0), (7, 0), (1, 5), version=version) == [
                (0, 0, 2), (1, 0, 0), (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1), (1, ErrorCode.OFFSET_OUT_OF_RANGE, -1),
            ]  # fmt: skip
            low, kept = await fetch(client, 1), await fetch(client, 2)
            assert (low[0].error_code, kept[0].error_code) == (ErrorCode.OFFSET_OUT_OF_RANGE, 0)
            assert (kept[0].log_start_offset, kept[0].high_watermark) == (2, 4)
            # Less than what is gone is no news; -1 is everything.
            assert await deleted(client, (0, 1), version=version) == [(0, 0, 2)]
            assert await deleted(client, (0, -1), version=version) == [(0, 0, 4)]
            assert rig.driver().log.start_offset == 4

    run()


@on_uvloop
async def test_the_answer_waits_for_the_followers_until_the_time_out(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as client:
        rig.see_broker(0, rig.port)
        rig.see_broker(1, 1)
        ref = topic_ref()
        rig.see_topic(ref, {0: replace(entry(0), isr=(IsrEntry(0, 1),))})
        await rig.flusher.drain()
        await produce(client, (0, batch(b"a", b"b")))
        client.send(
            DELETE_RECORDS, 2,
            DeleteRecordsRequest([DeleteRecordsTopic("orders", [DeleteRecordsPartition(0, 1)])], 100),
        )  # fmt: skip
        await until(lambda: rig.driver().log.start_offset == 1)
        waiting = asyncio.create_task(client.receive(DELETE_RECORDS, 2))
        assert not (await asyncio.wait({waiting}, timeout=0.05))[0]
        await asyncio.sleep(0.06)
        rig.partitions.tick()
        (part,) = (await waiting)[1].topics[0].partitions
        assert (part.error_code, part.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, -1)
        # Who waits when the partition goes is answered.
        client.send(
            DELETE_RECORDS, 2,
            DeleteRecordsRequest([DeleteRecordsTopic("orders", [DeleteRecordsPartition(0, 2)])], 10_000),
        )  # fmt: skip
        await until(lambda: rig.driver().log.start_offset == 2)
        rig.delete_topic(ref)
        (part,) = (await client.receive(DELETE_RECORDS, 2))[1].topics[0].partitions
        assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@on_uvloop
async def test_where_records_are_not_deleted(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as client:
        await rig.lead(topic_ref("compacted"), config={"cleanup.policy": "compact"})
        await rig.lead(topic_ref("both"), config={"cleanup.policy": "compact,delete"})
        await rig.lead(topic_ref("__consumer_offsets"), config={"cleanup.policy": "compact"})
        assert await deleted(client, (0, 0), topic="compacted") == [(0, ErrorCode.POLICY_VIOLATION, -1)]
        assert await deleted(client, (0, 0), topic="both") == [(0, 0, 0)]
        assert await deleted(client, (0, 0), topic="__consumer_offsets") == [(0, ErrorCode.INVALID_TOPIC_EXCEPTION, -1)]
        rig.see_topic(topic_ref("elsewhere"), {0: entry(1, replicas=(1,))})
        assert await deleted(client, (0, 0), topic="elsewhere") == [(0, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]


# ------------------------------------------------------------------------------------------------ elections


class FakeOperator:
    """Takes requests for elections; the test carries them out."""

    def __init__(self):
        self.asked = []
        self.refusal = None
        self.carry_out = lambda topic, partitions: None

    async def request_election(self, topic_name, partitions, *, unclean, deadline_s):
        if self.refusal is not None:
            raise self.refusal
        self.asked.append((topic_name, list(partitions), unclean))
        self.carry_out(topic_name, partitions)


def electing_rig(tmp_path):
    rig = Rig(tmp_path)
    rig.topic_writer = FakeOperator()
    return rig


async def elect(client, wanted, *, kind=0, version=2, timeout_ms=5000):
    named = None if wanted is None else [TopicPartitions(topic, numbers) for topic, numbers in wanted.items()]
    answer = await client.ask(ELECT, version, ElectLeadersRequest(kind, named, timeout_ms))
    assert answer.error_code == 0
    return {
        (result.topic, part.partition_id): ErrorCode(part.error_code)
        for result in answer.replica_election_results
        for part in result.partition_result
    }


def led_by(leader, *, epoch=0, isr=(0, 1)):
    made = entry(leader, epoch=epoch, partition_epoch=epoch, replicas=(0, 1))
    return replace(made, isr=tuple(IsrEntry(number, 1) for number in isr))


@pytest.mark.parametrize("version", [0, 1, 2])
def test_preferred_leaders_are_elected_by_the_operator(tmp_path, version):
    @on_uvloop
    async def run():
        async with electing_rig(tmp_path) as rig, rig.client() as client:
            rig.see_broker(0, rig.port)
            rig.see_broker(1, 1)
            ref = topic_ref()
            before = {0: led_by(1), 1: led_by(0), 2: led_by(1, isr=(1,)), 3: led_by(1)}
            rig.see_topic(ref, before)
            rig.topic_writer.carry_out = lambda _topic, partitions: asyncio.get_running_loop().call_later(
                0.02, rig.see_topic, ref, {**before, **{number: led_by(0, epoch=1) for number in partitions}}
            )
            found = await elect(client, {"orders": [0, 1, 2, 9], "nope": [0]}, version=version)
            assert found == {
                ("orders", 0): ErrorCode.NONE,
                ("orders", 1): ErrorCode.ELECTION_NOT_NEEDED,
                ("orders", 2): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                ("orders", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ("nope", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            }
            assert rig.topic_writer.asked == [("orders", [0], False)]
            # All partitions: those that have the wanted leader are left out.
            found = await elect(client, None, version=version)
            assert found == {
                ("orders", 2): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, ("orders", 3): ErrorCode.NONE,
            }  # fmt: skip

    run()


@on_uvloop
async def test_an_unclean_election_is_held_only_where_nobody_leads(tmp_path, monkeypatch):
    monkeypatch.setattr(elect_leaders, "PARTITIONS_AT_ONCE", 1)
    async with electing_rig(tmp_path) as rig, rig.client() as client:
        rig.see_broker(0, rig.port)
        ref = topic_ref()
        nobody = replace(led_by(1, isr=(1,)), leader=-1)
        before = {0: nobody, 1: led_by(0), 2: replace(nobody, replicas=(1,))}
        rig.see_topic(ref, before)
        rig.topic_writer.carry_out = lambda _topic, partitions: rig.see_topic(
            ref, {**before, **{number: led_by(0, epoch=1, isr=(0,)) for number in partitions}}
        )
        found = await elect(client, {"orders": [0, 1, 2]}, kind=1)
        assert found == {
            ("orders", 0): ErrorCode.NONE,
            ("orders", 1): ErrorCode.ELECTION_NOT_NEEDED,
            ("orders", 2): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        }
        assert rig.topic_writer.asked == [("orders", [0], True)]


@on_uvloop
async def test_elections_that_do_not_come_are_answered_in_time(tmp_path):
    async with electing_rig(tmp_path) as rig, rig.client() as client:
        rig.see_broker(0, rig.port)
        rig.see_broker(1, 1)
        ref = topic_ref()
        rig.see_topic(ref, {0: led_by(1)})
        assert await elect(client, {"orders": [0]}, timeout_ms=50) == {("orders", 0): ErrorCode.REQUEST_TIMED_OUT}
        # What becomes impossible meanwhile is not waited for.
        asyncio.get_running_loop().call_later(0.02, rig.see_topic, ref, {0: led_by(1, epoch=1, isr=(1,))})
        found = await elect(client, {"orders": [0]}, timeout_ms=10_000)
        assert found == {("orders", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
        rig.see_topic(ref, {0: led_by(1, epoch=2)})
        rig.topic_writer.refusal = BrokerError(ErrorCode.POLICY_VIOLATION, "not permitted")
        assert await elect(client, {"orders": [0]}) == {("orders", 0): ErrorCode.POLICY_VIOLATION}


@on_uvloop
async def test_an_unknown_type_of_election_and_too_many_partitions(tmp_path, monkeypatch):
    monkeypatch.setattr(bounds, "ENTRIES_MAX", 3)
    async with electing_rig(tmp_path) as rig, rig.client() as client:
        await rig.lead()
        answer = await client.ask(ELECT, 2, ElectLeadersRequest(5, None, 100))
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        for key, version, request in (
            (ELECT, 2, ElectLeadersRequest(0, [TopicPartitions("orders", [0, 1, 2])], 100)),
            (LOG_DIRS, 4, DescribeLogDirsRequest([DescribableLogDirTopic("orders", [0, 1, 2])])),
            (
                DELETE_RECORDS,
                2,
                DeleteRecordsRequest([DeleteRecordsTopic("orders", [DeleteRecordsPartition(0, 0)] * 3)]),
            ),
            (PARTITIONS, 0, DescribeTopicPartitionsRequest([TopicRequest(str(number)) for number in range(4)])),
            (
                REASSIGNMENTS,
                0,
                ListPartitionReassignmentsRequest(1, [ListPartitionReassignmentsTopics("x", [0, 1, 2])]),
            ),
        ):
            async with rig.client() as other:
                other.send(key, version, request)
                assert await other.closed()

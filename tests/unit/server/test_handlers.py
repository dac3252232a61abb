"""Every API's handler over a real socket on uvloop, with real replicas and logs."""

import asyncio
import threading
from uuid import UUID

import pytest
from prometheus_client import generate_latest

from kafkalite_broker.server import dispatch
from kafkalite_broker.server.handlers import bounds, metadata
from kafkalite_core.model.errors import BrokerError
from kafkalite_core.protocol.api_versions import ApiVersionsRequest
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.find_coordinator import FindCoordinatorRequest
from kafkalite_core.protocol.init_producer_id import InitProducerIdRequest
from kafkalite_core.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kafkalite_core.protocol.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkalite_core.protocol.metadata import MetadataRequest, MetadataRequestTopic
from kafkalite_core.protocol.offset_commit import OffsetCommitRequest
from kafkalite_core.protocol.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kafkalite_core.protocol.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kafkalite_core.storage.timestamps import SegmentSearch
from tests.unit.replication.rig import Rig, batch, entry, on_uvloop, topic_ref
from tests.unit.server.client_requests import (
    FETCH,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    fetch,
    fetch_request,
    produce,
    produce_request,
)

COMMIT, JOIN, SYNC = 8, 11, 14

# ---------------------------------------------------------------------------------------------------- offsets


async def offsets(client, *timestamps, version=8, replica_id=-1, partitions=None):
    wanted = [
        ListOffsetsPartition(partition_index=index, timestamp=timestamp, current_leader_epoch=-1)
        for index, timestamp in zip(partitions or range(len(timestamps)), timestamps, strict=True)
    ]
    request = ListOffsetsRequest(replica_id=replica_id, topics=[ListOffsetsTopic(name="orders", partitions=wanted)])
    response = await client.ask(LIST_OFFSETS, version, request)
    return [(part.error_code, part.timestamp, part.offset) for part in response.topics[0].partitions]


@on_uvloop
async def test_list_offsets_special_timestamps(tmp_path):
    unsupported = (ErrorCode.UNSUPPORTED_VERSION, -1, -1)
    async with Rig(tmp_path) as rig, rig.client() as client:
        await rig.lead(partitions=8)
        await produce(client, *[(n, batch(b"a", b"b")) for n in range(8)])
        found = await offsets(client, -1, -2, -3, -4, -5, -99, 1000, 1001)
        assert found == [
            (0, -1, 2), (0, -1, 0), (0, 1000, 0), (0, -1, 0), unsupported, unsupported, (0, 1000, 0), (0, -1, -1),
        ]  # fmt: skip
        assert await offsets(client, -1, -3, -4, version=6) == [(0, -1, 2), unsupported, unsupported]
        assert await offsets(client, -3, version=7) == [(0, 1000, 0)]


@on_uvloop
async def test_list_offsets_by_time_are_searched_for_on_a_thread_and_end_with_a_cut(tmp_path, monkeypatch):
    threads = []
    run = SegmentSearch.run
    async with Rig(tmp_path) as rig, rig.client() as client:
        await rig.lead(partitions=2)
        await produce(client, *[(n, batch(b"a", b"b")) for n in range(2)])

        def noting(self):
            threads.append(threading.current_thread())
            run(self)
            if len(threads) == 1:
                rig.driver().log.generation += 1

        monkeypatch.setattr(SegmentSearch, "run", noting)
        cut, found = await offsets(client, 1000, -3)
        assert (cut, found) == ((ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1), (0, 1000, 0))
        assert len(threads) == 2
        assert threading.main_thread() not in threads


@on_uvloop
async def test_list_offsets_of_one_partition_twice_is_refused(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as client:
        await rig.lead(partitions=2)
        found = await offsets(client, -1, -2, -1, partitions=[0, 0, 1])
        assert [code for code, _, _ in found] == [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST, 0]


@on_uvloop
async def test_offset_for_leader_epoch(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as client:
        await rig.lead()
        await produce(client, (0, batch(b"a", b"b")))
        wanted = [
            OffsetForLeaderPartition(partition=number, current_leader_epoch=current, leader_epoch=0)
            for number, current in ((0, -1), (0, 5), (3, -1))
        ]
        request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="orders", partitions=wanted)])
        response = await client.ask(23, 4, request)
        assert [(part.error_code, part.end_offset) for part in response.topics[0].partitions] == [
            (0, 2),
            (ErrorCode.UNKNOWN_LEADER_EPOCH, -1),
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        ]


# ---------------------------------------------------------------------------------------------------- metadata


@on_uvloop
async def test_metadata_all_none_and_unknown_topics(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as client:
        ref = await rig.lead(partitions=2)

        async def names(version, topics):
            response = await client.ask(METADATA, version, MetadataRequest(topics=topics))
            return [(topic.name, topic.error_code) for topic in response.topics]

        assert await names(0, []) == [("orders", 0)]
        assert await names(1, None) == [("orders", 0)]
        assert await names(1, []) == []
        wanted = [MetadataRequestTopic(name=name) for name in ("orders", "nope", "no/pe", "orders")]
        assert await names(9, wanted) == [
            ("orders", 0),
            ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("no/pe", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ]
        ids = [MetadataRequestTopic(name=None, topic_id=found) for found in (UUID(ref.topic_id), UUID(int=9))]
        assert await names(12, ids) == [("orders", 0), (None, ErrorCode.UNKNOWN_TOPIC_ID)]
        response = await client.ask(METADATA, 12, MetadataRequest(topics=None))
        assert [(broker.node_id, broker.port) for broker in response.brokers] == [(0, rig.port)]
        assert [part.leader_id for part in response.topics[0].partitions] == [0, 0]


@on_uvloop
async def test_metadata_is_held_until_the_election_and_not_for_longer(tmp_path, monkeypatch):
    moment_s = metadata.ELECTION_WAIT_S
    monkeypatch.setattr(metadata, "ELECTION_WAIT_S", 200.0)  # only the election ends it
    async with Rig(tmp_path) as rig, rig.client() as client:
        rig.see_broker(0, rig.port)
        rig.see_broker(1, 1)
        ref = topic_ref()
        rig.see_topic(ref, {0: entry(0, replicas=(0,), epoch=3), 1: entry(1, replicas=(1,), epoch=3)})
        rig.partitions.suspects.note(1)
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name="orders")])
        client.send(METADATA, 12, wanted)
        waiting = asyncio.create_task(client.receive(METADATA, 12))
        assert not (await asyncio.wait({waiting}, timeout=0.05))[0]
        moved = entry(0, replicas=(0, 1), epoch=4, partition_epoch=1)
        rig.see_topic(ref, {0: entry(0, replicas=(0,), epoch=3), 1: moved})
        assert [part.leader_id for part in (await waiting)[1].topics[0].partitions] == [0, 0]
        rig.see_topic(ref, {0: entry(0, replicas=(0,), epoch=3), 1: entry(1, epoch=5, partition_epoch=2)})
        monkeypatch.setattr(metadata, "ELECTION_WAIT_S", moment_s)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await client.ask(METADATA, 12, wanted)
        assert 0.2 < loop.time() - began_s < 30


# ---------------------------------------------------------------------------------------------------- the rest


class Ids:
    def __init__(self, *results):
        self.results = list(results)

    async def next(self):
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result


@on_uvloop
async def test_init_producer_id(tmp_path):
    rig = Rig(tmp_path)
    rig.producer_ids = Ids(41, BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE), ZeroDivisionError())
    async with rig, rig.client() as client:
        plain = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
        found = [await client.ask(22, 4, plain) for _ in range(2)]
        assert [(one.error_code, one.producer_id, one.producer_epoch) for one in found] == [
            (0, 41, 0),
            (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, -1),
        ]
        for transactional_id in ("", "t"):
            request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1)
            assert (await client.ask(22, 4, request)).error_code
        client.send(22, 4, plain)
        assert await client.closed(), "a defect in the background closes the connection"


@on_uvloop
async def test_api_versions_and_find_coordinator(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as client:
        versions = await client.ask(18, 3, ApiVersionsRequest(client_software_name="a", client_software_version="1"))
        assert {api.api_key for api in versions.api_keys} >= {0, 1, 2, 3, 10, 18, 22, 23}
        refused = await client.ask(18, 3, ApiVersionsRequest(client_software_name="!", client_software_version="1"))
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        old = await client.ask(10, 3, FindCoordinatorRequest(key="g"))
        assert old.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        new = await client.ask(10, 4, FindCoordinatorRequest(coordinator_keys=["g", "h"]))
        assert [(one.key, one.error_code) for one in new.coordinators] == [
            ("g", ErrorCode.COORDINATOR_NOT_AVAILABLE),
            ("h", ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ]


@pytest.mark.parametrize(
    ("key", "version", "request_body"),
    [
        (PRODUCE, 9, produce_request(*[(0, None)] * 20)),
        (FETCH, 12, fetch_request(*[0] * 20)),
        (METADATA, 9, MetadataRequest(topics=[MetadataRequestTopic(name=f"t{n}") for n in range(20)])),
        (LIST_OFFSETS, 5, ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="orders", partitions=[
            ListOffsetsPartition(partition_index=0, timestamp=-1)] * 20)])),
        (23, 4, OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="orders", partitions=[
            OffsetForLeaderPartition(partition=0, leader_epoch=0)] * 20)])),
    ],
)  # fmt: skip
def test_a_request_that_names_too_much_closes_its_connection(tmp_path, monkeypatch, key, version, request_body):
    monkeypatch.setattr(bounds, "ENTRIES_MAX", 10)

    @on_uvloop
    async def run():
        async with Rig(tmp_path) as rig, rig.client() as client:
            await rig.lead()
            client.send(key, version, request_body)
            assert await client.closed()
            assert rig.server.budget.used_bytes == 0

    run()


@on_uvloop
async def test_a_question_of_many_megabytes_is_not_even_read(tmp_path, monkeypatch):
    monkeypatch.setattr(dispatch, "QUESTION_BYTES_MAX", 100)
    large = bytes(200)
    async with Rig(tmp_path) as rig, rig.client() as client:
        await rig.lead()
        assert (await produce(client, (0, batch(b"x" * 200))))[0].error_code == 0
        sync = SyncGroupRequest(
            group_id="g", member_id="m", assignments=[SyncGroupRequestAssignment(member_id="m", assignment=large)]
        )
        join = JoinGroupRequest(
            group_id="g",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=large)],
        )
        commit = OffsetCommitRequest(group_id="g" * 200)
        for key, version, request in ((SYNC, 3, sync), (JOIN, 5, join), (COMMIT, 7, commit)):
            assert await client.ask(key, version, request)
        monkeypatch.setattr(dispatch, "decode_request_header", None)
        client.send(METADATA, 9, MetadataRequest(topics=[MetadataRequestTopic(name="t" * 200)]))
        assert await client.closed()


@on_uvloop
async def test_every_metric_that_dashboards_ask_a_broker_for_is_there(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as client:
        await rig.lead()
        await produce(client, (0, batch()))
        await fetch(client, 0)
        samples = {}
        for line in generate_latest(rig.telemetry.registry).decode().splitlines():
            if not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                samples[name] = float(value)
        for name in (
            "underreplicatedpartitions", "underminisrpartitioncount", "offlinereplicacount", "isrshrinks_total",
            "isrexpands_total", "partitioncount", "leadercount",
        ):  # fmt: skip
            assert f"kafka_server_replicamanager_{name}" in samples, name
        for name in ("bytesin", "bytesout", "messagesin", "totalproducerequests", "totalfetchrequests"):
            assert samples[f"kafka_server_brokertopicmetrics_{name}_total"] >= 1, name
            assert samples[f'kafka_server_brokertopicmetrics_{name}_total{{topic="orders"}}'] >= 1, name
        for name in ("failedproducerequests", "failedfetchrequests"):
            assert samples[f"kafka_server_brokertopicmetrics_{name}_total"] == 0, name
            assert samples[f'kafka_server_brokertopicmetrics_{name}_total{{topic="orders"}}'] == 0, name
        assert samples['kafkalite_request_seconds_count{request="Produce"}'] == 1
        assert samples['kafkalite_partition_high_watermark_lag{partition="0",topic="orders"}'] == 0
        assert samples["kafka_server_socket_server_metrics_connection_count"] == 0
        assert "kafkalite_event_loop_lag_seconds" in samples
        assert samples["kafkalite_flushes_total"] == samples["kafkalite_log_flush_seconds_count"] == 0

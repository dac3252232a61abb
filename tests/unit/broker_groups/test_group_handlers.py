"""The group APIs over a socket: who is asked, what the metadata answer, bounds; the coordinator is the test's."""

import threading

import pytest
from prometheus_client import generate_latest

from kafkalite_broker.server import dispatch
from kafkalite_broker.server.handlers import bounds
from kafkalite_core.groups.events import Answered, Loaded, Requested, TopicsDeleted
from kafkalite_core.protocol.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from kafkalite_core.protocol.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.find_coordinator import FindCoordinatorRequest
from kafkalite_core.protocol.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafkalite_core.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kafkalite_core.protocol.leave_group import LeaveGroupRequest, MemberIdentity
from kafkalite_core.protocol.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from kafkalite_core.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kafkalite_core.protocol.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from kafkalite_core.protocol.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kafkalite_core.protocol.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.unit.broker_groups.fakes import OFFSETS, REF, GroupRig, answer_with, group_in, serving, use_fakes
from tests.unit.replication.rig import batch, on_uvloop, topic_ref, until
from tests.unit.server.client_requests import produce
from tests.unit.server.test_answer_memory import Narrow, narrow

COMMIT, OFFSET_FETCH, FIND, JOIN, HEARTBEAT, LEAVE, SYNC, DESCRIBE, LIST, DELETE, OFFSET_DELETE = (
    8, 9, 10, 11, 12, 13, 14, 15, 16, 42, 47,
)  # fmt: skip


@pytest.fixture
def made(monkeypatch):
    return use_fakes(monkeypatch)


# ---------------------------------------------------------------------------------------------------- who is asked


@on_uvloop
async def test_the_coordinator_of_the_groups_partition_gets_the_request(tmp_path, made):
    async with GroupRig(tmp_path) as rig, rig.client() as client:
        rig.lead_offsets(partitions=3)
        coordinators = await serving(rig, 0, 1, 2)
        answer_with(coordinators[2], lambda request: HeartbeatResponse(error_code=27))
        request = HeartbeatRequest(group_id=group_in(2, 3), generation_id=4, member_id="m")
        assert (await client.ask(HEARTBEAT, 3, request)).error_code == 27
        (asked,) = coordinators[2].of(Requested)
        assert (asked.request.member_id, asked.api_version, asked.client_id) == ("m", 3, "test")
        assert asked.client_host == "/127.0.0.1"
        assert asked.wall_ms > 1_600_000_000_000
        assert asked.fresh_member_id == ""
        assert [each.of(Requested) for each in coordinators[:2]] == [[], []]


@on_uvloop
async def test_without_leadership_the_client_looks_for_the_coordinator_again(tmp_path, made):
    async with GroupRig(tmp_path) as rig, rig.client() as client:
        request = HeartbeatRequest(group_id="g", member_id="m")
        assert (await client.ask(HEARTBEAT, 4, request)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await client.ask(LIST, 4, ListGroupsRequest())).error_code == 0
        rig.lose_offsets(epoch=0)
        assert (await client.ask(HEARTBEAT, 4, request)).error_code == ErrorCode.NOT_COORDINATOR
        listed = await client.ask(LIST, 4, ListGroupsRequest())
        assert (listed.error_code, listed.groups) == (0, [])


@on_uvloop
async def test_each_join_has_an_id_of_its_own_to_give(tmp_path, made):
    async with GroupRig(tmp_path) as rig, rig.client() as client:
        rig.lead_offsets()
        (coordinator,) = await serving(rig, 0)
        answer_with(coordinator, lambda request: JoinGroupResponse(error_code=79, member_id="x", protocol_name=""))
        request = JoinGroupRequest(
            group_id="g", session_timeout_ms=6000, rebalance_timeout_ms=6000, member_id="", protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )  # fmt: skip
        for _ in range(2):
            assert (await client.ask(JOIN, 5, request)).error_code == 79
        ids = [asked.fresh_member_id for asked in coordinator.of(Requested)]
        assert len(set(ids)) == 2
        assert all(len(each) == 36 for each in ids)


@on_uvloop
async def test_members_that_wait_for_one_another_keep_no_bytes_of_frames(tmp_path, made):
    async with GroupRig(tmp_path) as rig, rig.client() as client:
        rig.lead_offsets()
        (coordinator,) = await serving(rig, 0)
        join = JoinGroupRequest(
            group_id="g", session_timeout_ms=6000, rebalance_timeout_ms=6000, member_id="m", protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )  # fmt: skip
        sync = SyncGroupRequest(group_id="g", generation_id=1, member_id="m")
        commit = OffsetCommitRequest(group_id="g", topics=[])
        for number, (key, version, request) in enumerate(((JOIN, 5, join), (SYNC, 3, sync), (COMMIT, 7, commit)), 1):
            client.send(key, version, request)
            await until(lambda number=number: len(coordinator.of(Requested)) == number)
            assert rig.server.budget.used_bytes == 0


@on_uvloop
async def test_a_client_that_goes_away_while_it_joins_stays_a_member(tmp_path, made):
    async with GroupRig(tmp_path) as rig:
        rig.lead_offsets()
        (coordinator,) = await serving(rig, 0)
        async with rig.client() as client:
            client.send(HEARTBEAT, 4, HeartbeatRequest(group_id="g", member_id="m"))
            await until(lambda: coordinator.of(Requested))
        await until(lambda: not rig.server.connections)
        assert len(coordinator.events) == 2, "loaded, requested, and nothing about the connection"
        assert rig.server.budget.used_bytes == 0
        coordinator.react = lambda event: coordinator.answer_all() if not isinstance(event, Loaded) else []
        async with rig.client() as client:
            answered = await client.ask(HEARTBEAT, 4, HeartbeatRequest(group_id="g", member_id="n"))
            assert answered.error_code == 0


# ---------------------------------------------------------------------------------------------------- several groups


@on_uvloop
async def test_requests_for_several_groups_are_split_and_answered_in_their_order(tmp_path, made):
    async with GroupRig(tmp_path) as rig, rig.client() as client:
        names = [group_in(number, 3) for number in (2, 0, 1)]
        rig.see_broker(0, rig.port)
        rig.see_topic(REF, rig.entries(0, 2, (0,), leader=0) | {2: rig.entries(0, 3, (0, 1), leader=1)[2]})
        for coordinator in await serving(rig, 0, 1):
            coordinator.react = _describe
        described = await client.ask(DESCRIBE, 5, DescribeGroupsRequest(groups=names))
        assert [(each.group_id, each.error_code) for each in described.groups] == [
            (names[0], ErrorCode.NOT_COORDINATOR), (names[1], 0), (names[2], 0),
        ]  # fmt: skip
        deleted = await client.ask(DELETE, 2, DeleteGroupsRequest(groups_names=names))
        assert [(each.group_id, each.error_code) for each in deleted.results] == [
            (names[0], ErrorCode.NOT_COORDINATOR), (names[1], 0), (names[2], 0),
        ]  # fmt: skip
        fetched = await client.ask(
            OFFSET_FETCH, 8, OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name) for name in names])
        )
        assert [(each.group_id, each.error_code) for each in fetched.groups] == [
            (names[0], ErrorCode.NOT_COORDINATOR), (names[1], 0), (names[2], 0),
        ]  # fmt: skip
        listed = await client.ask(LIST, 4, ListGroupsRequest())
        assert (listed.error_code, [each.group_id for each in listed.groups]) == (0, ["listed", "listed"])
        assert (await client.ask(DESCRIBE, 5, DescribeGroupsRequest(groups=[]))).groups == []


@on_uvloop
async def test_a_group_named_many_times_has_one_answer(tmp_path, made):
    async with GroupRig(tmp_path) as rig, rig.client() as client:
        rig.lead_offsets(partitions=2)
        for coordinator in await serving(rig, 0, 1):
            coordinator.react = _describe
        names = ["a", "b", "a", "a"]
        described = await client.ask(DESCRIBE, 5, DescribeGroupsRequest(groups=names))
        assert [each.group_id for each in described.groups] == ["a", "b"]
        fetched = await client.ask(
            OFFSET_FETCH, 8, OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name) for name in names])
        )
        assert [each.group_id for each in fetched.groups] == ["a", "b"]
        deleted = await client.ask(DELETE, 2, DeleteGroupsRequest(groups_names=names))
        assert [each.group_id for each in deleted.results] == ["a", "b"]


@on_uvloop
async def test_a_client_that_reads_nothing_has_one_large_answer_made(tmp_path, made):
    parts = [OffsetFetchResponsePartitions(partition_index=i, committed_offset=i, metadata="m") for i in range(5000)]
    topics = [OffsetFetchResponseTopics(name="orders", partitions=parts)]
    large = OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics)])
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    async with GroupRig(tmp_path) as rig, Narrow(rig.port) as hog, rig.client() as other:
        rig.lead_offsets()
        (coordinator,) = await serving(rig, 0)
        await until(lambda: len(rig.server.connections) == 2)
        narrow(rig)
        answer_with(coordinator, lambda request: large)
        for _ in range(30):
            hog.send(OFFSET_FETCH, 8, request)
        await until(lambda: coordinator.of(Requested) and any(each._unsent for each in rig.server.connections))
        await other.ask(OFFSET_FETCH, 8, request)
        assert len(coordinator.of(Requested)) == 2, "one for each of the two"
        answers = [await hog.receive(OFFSET_FETCH, 8) for _ in range(20)]
        assert [correlation_id for correlation_id, _ in answers] == list(range(1, 21))
        assert all(len(answer.groups[0].topics[0].partitions) == 5000 for _, answer in answers)
        hog.writer.transport.abort()
        await until(lambda: len(rig.server.connections) == 1)
        asked = len(coordinator.of(Requested))
        await other.ask(OFFSET_FETCH, 8, request)
        assert len(coordinator.of(Requested)) == asked + 1 < 25, "who is gone asks no more"


@on_uvloop
async def test_a_large_answer_is_encoded_on_a_thread_and_keeps_its_place(tmp_path, made, monkeypatch):
    threads = []
    encode = dispatch.encode_response_frame

    def spied(*arguments):
        threads.append(threading.current_thread() is threading.main_thread())
        return encode(*arguments)

    monkeypatch.setattr(dispatch, "encode_response_frame", spied)
    async with GroupRig(tmp_path) as rig, rig.client() as client:
        rig.lead_offsets()
        (coordinator,) = await serving(rig, 0)
        groups = [ListedGroup(group_id=f"g{number}") for number in range(3000)]
        answer_with(
            coordinator,
            lambda request: (
                ListGroupsResponse(groups=groups)
                if isinstance(request, ListGroupsRequest)
                else HeartbeatResponse(error_code=27)
            ),
        )
        client.send(LIST, 4, ListGroupsRequest())
        client.send(HEARTBEAT, 3, HeartbeatRequest(group_id="g", member_id="m"))
        _, listed = await client.receive(LIST, 4)
        _, beat = await client.receive(HEARTBEAT, 3)
        assert len(listed.groups) == 3000
        assert beat.error_code == 27
        assert sorted(threads) == [False, True]


def _describe(event):
    if not isinstance(event, Requested):
        return []
    request = event.request
    if isinstance(request, DescribeGroupsRequest):
        response = DescribeGroupsResponse(groups=[DescribedGroup(group_id=name) for name in request.groups])
    elif isinstance(request, DeleteGroupsRequest):
        response = DeleteGroupsResponse(results=[DeletableGroupResult(group_id=name) for name in request.groups_names])
    elif isinstance(request, OffsetFetchRequest):
        response = OffsetFetchResponse(
            groups=[OffsetFetchResponseGroup(group_id=group.group_id) for group in request.groups]
        )
    else:
        response = ListGroupsResponse(groups=[ListedGroup(group_id="listed")])
    return [Answered(token=event.token, response=response)]


# ---------------------------------------------------------------------------------------------------- offsets


def commit_request(**topics):
    return OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                partitions=[OffsetCommitRequestPartition(partition_index=n, committed_offset=5) for n in numbers],
            )
            for name, numbers in topics.items()
        ],
    )


def codes(response):
    return [
        (topic.name, entry.partition_index, entry.error_code) for topic in response.topics for entry in topic.partitions
    ]


def commits(request):
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=entry.partition_index, error_code=0)
                    for entry in reversed(topic.partitions)
                ],
            )
            for topic in reversed(request.topics)
        ]
    )


@on_uvloop
async def test_offsets_are_committed_for_partitions_that_exist_and_for_no_others(tmp_path, made):
    async with GroupRig(tmp_path) as rig, rig.client() as client:
        rig.lead_offsets()
        await rig.lead(topic_ref("orders"), partitions=2)
        (coordinator,) = await serving(rig, 0)
        answer_with(coordinator, commits)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        response = await client.ask(COMMIT, 7, commit_request(gone=[0], orders=[1, 2, 0]))
        assert codes(response) == [("gone", 0, unknown), ("orders", 1, 0), ("orders", 2, unknown), ("orders", 0, 0)]
        assert [topic.name for topic in coordinator.of(Requested)[0].request.topics] == ["orders"]
        assert codes(await client.ask(COMMIT, 7, commit_request(orders=[0]))) == [("orders", 0, 0)]
        before = len(coordinator.events)
        assert codes(await client.ask(COMMIT, 7, commit_request(gone=[0, 1]))) == [
            ("gone", 0, unknown),
            ("gone", 1, unknown),
        ]
        assert len(coordinator.events) == before, "there was nothing to ask"


@on_uvloop
async def test_an_error_of_the_whole_group_is_the_answer_to_offset_delete(tmp_path, made):
    async with GroupRig(tmp_path) as rig, rig.client() as client:
        rig.lead_offsets()
        await rig.lead(topic_ref("orders"))
        (coordinator,) = await serving(rig, 0)

        def request(*names):
            partitions = [OffsetDeleteRequestPartition(partition_index=0)]
            topics = [OffsetDeleteRequestTopic(name=name, partitions=partitions) for name in names]
            return OffsetDeleteRequest(group_id="g", topics=topics)

        answer_with(coordinator, lambda body: OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND))
        refused = await client.ask(OFFSET_DELETE, 0, request("orders", "gone"))
        assert (refused.error_code, refused.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
        answer_with(coordinator, lambda body: OffsetDeleteResponse(topics=commits(body).topics))
        done = await client.ask(OFFSET_DELETE, 0, request("orders", "gone"))
        assert codes(done) == [("orders", 0, 0), ("gone", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


@on_uvloop
async def test_offsets_of_deleted_topics_go_when_the_deletion_was_seen(tmp_path, made):
    async with GroupRig(tmp_path) as rig:
        rig.lead_offsets()
        (coordinator,) = await serving(rig, 0)
        orders, kept = topic_ref("orders"), topic_ref("kept")
        await rig.lead(orders)
        await rig.lead(kept, deletion_policy="Retain")
        found = [rig.cache.topic("orders"), rig.cache.topic("kept")]
        rig.groups.topics_deleted([(found[0], False)])
        rig.groups.topics_deleted([(found[1], True)])
        rig.groups.topics_deleted([(found[0], True), (found[1], True)])
        await until(lambda: coordinator.of(TopicsDeleted))
        assert [event.topics for event in coordinator.of(TopicsDeleted)] == [{"orders"}]


@on_uvloop
async def test_clients_do_not_write_to_the_internal_topic(tmp_path, made):
    async with GroupRig(tmp_path) as rig, rig.client() as client:
        rig.lead_offsets()
        (answer,) = await produce(client, (0, batch()), topic=OFFSETS)
        assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert "internal" in answer.error_message
        assert rig.offsets().log.end_offset == 0


# ---------------------------------------------------------------------------------------------------- bounds, metrics


MANY = 20


@pytest.mark.parametrize(
    ("key", "version", "body"),
    [
        (COMMIT, 7, commit_request(orders=range(MANY))),
        (OFFSET_FETCH, 7, OffsetFetchRequest(group_id="g", topics=[
            OffsetFetchRequestTopic(name="orders", partition_indexes=list(range(MANY)))])),
        (OFFSET_FETCH, 8, OffsetFetchRequest(groups=[
            OffsetFetchRequestGroup(group_id=f"g{n}", topics=None) for n in range(MANY)])),
        (FIND, 4, FindCoordinatorRequest(coordinator_keys=[f"g{n}" for n in range(MANY)])),
        (JOIN, 5, JoinGroupRequest(group_id="g", protocol_type="consumer", protocols=[
            JoinGroupRequestProtocol(name=f"p{n}", metadata=b"") for n in range(MANY)])),
        (LEAVE, 4, LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=f"m{n}") for n in range(MANY)])),
        (SYNC, 3, SyncGroupRequest(group_id="g", assignments=[
            SyncGroupRequestAssignment(member_id=f"m{n}", assignment=b"") for n in range(MANY)])),
        (DESCRIBE, 5, DescribeGroupsRequest(groups=[f"g{n}" for n in range(MANY)])),
        (LIST, 4, ListGroupsRequest(states_filter=["Stable"] * MANY)),
        (DELETE, 2, DeleteGroupsRequest(groups_names=[f"g{n}" for n in range(MANY)])),
        (OFFSET_DELETE, 0, OffsetDeleteRequest(group_id="g", topics=[OffsetDeleteRequestTopic(name="orders", partitions=[
            OffsetDeleteRequestPartition(partition_index=n) for n in range(MANY)])])),
    ],
)  # fmt: skip
def test_a_request_that_names_too_much_closes_its_connection(tmp_path, made, monkeypatch, key, version, body):
    monkeypatch.setattr(bounds, "ENTRIES_MAX", 10)

    @on_uvloop
    async def run():
        async with GroupRig(tmp_path) as rig, rig.client() as client:
            rig.lead_offsets()
            (coordinator,) = await serving(rig, 0)
            client.send(key, version, body)
            assert await client.closed()
            assert coordinator.of(Requested) == []

    run()


def metrics(rig):
    lines = generate_latest(rig.telemetry.registry).decode().splitlines()
    return {
        name.removeprefix("kafka_server_group_coordinator_metrics_").removeprefix("kafka_coordinator_group_"): float(
            value
        )
        for line in lines
        if "group" in line and not line.startswith("#")
        for name, value in [line.rsplit(" ", 1)]
    }


@on_uvloop
async def test_metrics_survive_the_coordinators_that_counted(tmp_path, made):
    async with GroupRig(tmp_path) as rig:
        rig.lead_offsets(partitions=2)
        first, second = await serving(rig, 0, 1)
        first.statistics.offset_commits, second.statistics.offset_commits = 5, 7
        first.statistics.rebalances_completed, second.statistics.offsets_expired = 2, 3
        first.states, second.states = {"Stable": 2, "Empty": 1}, {"Stable": 1}
        seen = metrics(rig)
        assert seen["groupmetadatamanager_numgroups"] == 4
        assert seen["groupmetadatamanager_numgroupsstable"] == 3
        assert seen["groupmetadatamanager_numgroupsempty"] == 1
        assert seen["offset_commit_count_total"] == 12
        assert seen["group_completed_rebalance_count_total"] == 2
        assert seen["offset_expiration_count_total"] == 3
        assert seen['num_partitions{state="active"}'] == 2
        rig.lose_offsets(epoch=1, partitions=2)
        seen = metrics(rig)
        assert seen["groupmetadatamanager_numgroups"] == 0
        assert seen["offset_commit_count_total"] == 12
        assert seen['num_partitions{state="active"}'] == 0

"""The real coordinator on a real log, over a socket: one member's life, with a change of leadership in the middle."""

import pytest

from kafkalite_broker.groups import manager as manager_module
from kafkalite_broker.groups.settings import group_config
from kafkalite_core.groups.config import GroupConfig
from kafkalite_core.groups.metadata_budget import said_bytes
from kafkalite_core.model.config import BROKER_KEYS
from kafkalite_core.protocol.describe_groups import DescribeGroupsRequest
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.find_coordinator import FindCoordinatorRequest
from kafkalite_core.protocol.heartbeat import HeartbeatRequest
from kafkalite_core.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kafkalite_core.protocol.leave_group import LeaveGroupRequest, MemberIdentity
from kafkalite_core.protocol.list_groups import ListGroupsRequest
from kafkalite_core.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkalite_core.protocol.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kafkalite_core.protocol.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.unit.broker_groups.fakes import GroupRig, loaded
from tests.unit.replication.rig import on_uvloop, topic_ref, until

COMMIT, OFFSET_FETCH, FIND, JOIN, HEARTBEAT, LEAVE, SYNC, DESCRIBE, LIST = 8, 9, 10, 11, 12, 13, 14, 15, 16


def join(member_id=""):
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=6000,
        rebalance_timeout_ms=6000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"topics")],
    )


def commit(offset, member_id, generation):
    return OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[
            OffsetCommitRequestTopic(
                name="orders",
                partitions=[
                    OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="m")
                ],
            )
        ],
    )


async def committed(client):
    topics = [OffsetFetchRequestTopics(name="orders", partition_indexes=[0])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)], require_stable=True)
    response = await client.ask(OFFSET_FETCH, 8, request)
    (group,) = response.groups
    assert group.error_code == 0
    (part,) = group.topics[0].partitions
    return part.committed_offset, part.metadata, part.error_code


async def described(client):
    response = await client.ask(DESCRIBE, 5, DescribeGroupsRequest(groups=["g"]))
    (group,) = response.groups
    return group.group_state, [member.client_host for member in group.members]


async def enter(client):
    """Join and sync as the only member; returns (member id, generation)."""
    refused = await client.ask(JOIN, 5, join())
    assert refused.error_code == ErrorCode.MEMBER_ID_REQUIRED
    joined = await client.ask(JOIN, 5, join(refused.member_id))
    assert (joined.error_code, joined.leader) == (0, joined.member_id)
    synced = await client.ask(
        SYNC,
        3,
        SyncGroupRequest(
            group_id="g",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")],
        ),
    )
    assert (synced.error_code, bytes(synced.assignment)) == (0, b"all")
    return joined.member_id, joined.generation_id


@on_uvloop
async def test_a_members_life(tmp_path):
    rig = GroupRig(tmp_path)
    rig.config["group.initial.rebalance.delay.ms"] = "0"
    async with rig, rig.client() as client:
        rig.lead_offsets(partitions=4)
        await rig.lead(topic_ref("orders"))
        await until(lambda: len(rig.groups._led) == 4 and all(one.loaded for one in rig.groups._led.values()))
        assert (await client.ask(FIND, 3, FindCoordinatorRequest(key="g"))).node_id == 0
        member, generation = await enter(client)
        answer = await client.ask(COMMIT, 7, commit(41, member, generation))
        assert answer.topics[0].partitions[0].error_code == 0
        assert await committed(client) == (41, "m", 0)
        assert await described(client) == ("Stable", ["/127.0.0.1"])

        rig.lose_offsets(epoch=1, partitions=4)
        beat = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member)
        assert (await client.ask(HEARTBEAT, 3, beat)).error_code == ErrorCode.NOT_COORDINATOR
        rig.lead_offsets(epoch=2, partitions=4)
        await until(lambda: len(rig.groups._led) == 4 and all(one.loaded for one in rig.groups._led.values()))

        assert (await client.ask(HEARTBEAT, 3, beat)).error_code == 0, "generation and member outlive the coordinator"
        assert await committed(client) == (41, "m", 0)
        stale = await client.ask(COMMIT, 7, commit(40, member, generation - 1))
        assert stale.topics[0].partitions[0].error_code == ErrorCode.ILLEGAL_GENERATION
        listed = await client.ask(LIST, 4, ListGroupsRequest())
        assert [(group.group_id, group.group_state) for group in listed.groups] == [("g", "Stable")]
        left = await client.ask(LEAVE, 4, LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=member)]))
        assert left.error_code == 0
        assert await described(client) == ("Empty", [])
        assert await committed(client) == (41, "m", 0)


@on_uvloop
async def test_what_members_say_about_themselves_counts_while_their_coordinator_is_here(tmp_path, monkeypatch):
    monkeypatch.setattr(manager_module, "LOAD_AGAIN_S", 0.02)
    async with GroupRig(tmp_path) as rig, rig.client() as client:
        rig.lead_offsets()
        coordinator = await loaded(rig)
        await enter(client)
        said = said_bytes([("range", b"topics")])
        assert rig.groups.metadata.used_bytes == said
        coordinator._handlers.clear()  # a defect
        await client.ask(HEARTBEAT, 3, HeartbeatRequest(group_id="g", generation_id=1, member_id="m"))
        assert rig.groups.metadata.used_bytes == 0
        await loaded(rig)
        assert rig.groups.metadata.used_bytes == said, "it is loaded again"
        rig.lose_offsets(epoch=1)
        await until(lambda: rig.groups.metadata.used_bytes == 0)


@on_uvloop
async def test_a_partition_that_loads_says_so(tmp_path):
    async with GroupRig(tmp_path) as rig, rig.client() as client:
        rig.lead_offsets(replicas=(0, 1))
        rig.write((b"k", b"v"))
        beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        # A coordinator that loads takes no heartbeats amiss.
        assert (await client.ask(HEARTBEAT, 3, beat)).error_code in {0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
        joined = await client.ask(JOIN, 5, join())
        assert joined.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_the_brokers_defaults_are_the_coordinators():
    assert group_config({}) == GroupConfig()


@pytest.mark.parametrize(
    "key", [name for name in BROKER_KEYS if name.startswith(("group.", "kafkalite.group.", "offset.metadata."))]
)
def test_every_key_reaches_the_coordinator(key):
    assert group_config({key: "7001000"}) != GroupConfig()

"""Topics that come into being because a client asked for their metadata."""

import asyncio
from dataclasses import replace
from uuid import UUID

from kafkalite_broker.cluster import topic_auto_creation
from kafkalite_core.model.errors import BrokerError
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.metadata import MetadataRequest, MetadataRequestTopic
from tests.unit.replication.rig import entry, on_uvloop, topic_ref
from tests.unit.server.admin_rig import AdminRig
from tests.unit.server.client_requests import METADATA


async def metadata(client, *names, version=9, create=True):
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=create
    )
    found = (await client.ask(METADATA, version, request)).topics
    return [ErrorCode(topic.error_code).name for topic in found]


@on_uvloop
async def test_topics_are_made_on_demand_only_where_both_sides_want_it(tmp_path):
    async with AdminRig(tmp_path) as rig, rig.client() as client:
        assert await metadata(client, "orders") == ["UNKNOWN_TOPIC_OR_PARTITION"]
    config = {"auto.create.topics.enable": "true", "num.partitions": "2", "default.replication.factor": "2"}
    async with AdminRig(tmp_path, **config) as rig, rig.client() as client:
        assert await metadata(client, "orders", create=False) == ["UNKNOWN_TOPIC_OR_PARTITION"]
        assert rig.topic_writer.calls == []
        assert await metadata(client, "orders", "a b") == ["LEADER_NOT_AVAILABLE", "INVALID_TOPIC_EXCEPTION"]
        assert await rig.changes.until(lambda: rig.cache.topic("orders") is not None, 5)
        assert rig.topic_writer.calls == [("create", "orders", 2, 2, {}, None, False)]
        assert await metadata(client, "orders") == ["NONE"]
        assert await metadata(client, "payments", version=1) == ["LEADER_NOT_AVAILABLE"]


@on_uvloop
async def test_versions_that_know_ids_but_not_questions_by_id(tmp_path):
    async with AdminRig(tmp_path) as rig, rig.client() as client:
        ref = topic_ref("orders")
        rig.see_topic(ref, {0: entry(0, replicas=(0,))})
        by_id = MetadataRequestTopic(name=None, topic_id=UUID(ref.topic_id))
        both = MetadataRequestTopic(name="orders", topic_id=UUID(ref.topic_id))
        for version in (10, 11):
            request = MetadataRequest(topics=[by_id, both, MetadataRequestTopic(name="orders")])
            found = (await client.ask(METADATA, version, request)).topics
            assert [(topic.error_code, topic.name) for topic in found] == [
                (ErrorCode.INVALID_REQUEST, ""),
                (ErrorCode.INVALID_REQUEST, "orders"),
                (ErrorCode.NONE, "orders"),
            ]
        (found,) = (await client.ask(METADATA, 12, MetadataRequest(topics=[by_id]))).topics
        assert (found.error_code, found.name) == (ErrorCode.NONE, "orders")


@on_uvloop
async def test_topics_on_demand_that_cannot_be(tmp_path, monkeypatch):
    monkeypatch.setattr(topic_auto_creation, "NAMES_AGE_MAX_S", -1.0)
    config = {"auto.create.topics.enable": "true", "default.replication.factor": "5"}
    async with AdminRig(tmp_path, **config) as rig, rig.client() as client:
        assert await metadata(client, "orders") == ["INVALID_REPLICATION_FACTOR"]
        rig.cluster = replace(rig.cluster, config={"auto.create.topics.enable": "true"})
        rig.see_topic(topic_ref("a.b"), {0: entry(0, replicas=(0,))})
        assert await metadata(client, "a_b") == ["INVALID_TOPIC_EXCEPTION"]
        rig.topic_writer.error = BrokerError(ErrorCode.POLICY_VIOLATION, "no more topics")
        assert await metadata(client, "orders") == ["LEADER_NOT_AVAILABLE"]
        calls = len(rig.topic_writer.calls)
        assert await metadata(client, "orders") == ["UNKNOWN_TOPIC_OR_PARTITION"]
        assert len(rig.topic_writer.calls) == calls, "not tried again with each question"


@on_uvloop
async def test_topics_on_demand_are_bounded_and_made_once(tmp_path, monkeypatch):
    monkeypatch.setattr(topic_auto_creation, "UNDER_WAY_MAX", 3)
    config = {"auto.create.topics.enable": "true", "default.replication.factor": "1"}
    async with AdminRig(tmp_path, **config) as rig, rig.client() as client:
        blocked = asyncio.Event()
        original = rig.topic_writer.create

        async def slow(*arguments, **named):
            await blocked.wait()
            return await original(*arguments, **named)

        rig.topic_writer.create = slow
        names = [f"t{n}" for n in range(6)]
        for _ in range(3):
            assert await metadata(client, *names) == ["LEADER_NOT_AVAILABLE"] * 6
        blocked.set()
        assert await rig.changes.until(lambda: len(rig.cache.topics()) == 3, 5)
        assert len(rig.topic_writer.calls) == 3

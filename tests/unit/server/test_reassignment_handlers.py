"""AlterPartitionReassignments and ListPartitionReassignments over a real socket."""

import asyncio
from dataclasses import replace
from time import monotonic

import pytest

from kafkalite_broker.cluster.reassigning import Judgement
from kafkalite_broker.server.handlers import alter_partition_reassignments, bounds
from kafkalite_core.controller.reassignment import retargeted
from kafkalite_core.model.errors import BrokerError
from kafkalite_core.protocol.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.list_partition_reassignments import ListPartitionReassignmentsRequest
from tests.unit.replication.rig import Rig, entry, on_uvloop, topic_ref

ALTER, LIST = 45, 46


class FakeWriter:
    """Accepts what is not in `refused`, and shows the moves in the metadata after a moment, unless told not to."""

    def __init__(self, rig):
        self.rig = rig
        self.asked = []
        self.refused = {}
        self.error = None
        self.begins = True

    async def reassign(self, name, wish, *, brokers, deadline_s):
        self.asked.append((name, dict(wish.replicas), wish.factor_may_change, set(brokers)))
        if self.error is not None:
            raise self.error
        targets = {n: tuple(ids) for n, ids in wish.replicas.items() if n not in self.refused and ids is not None}
        topic = self.rig.cache.topic(name)
        moved = {
            n: replace(retargeted(e, targets[n]), partition_epoch=e.partition_epoch + 1) if n in targets else e
            for n, e in topic.partitions.items()
        }
        if self.begins:
            asyncio.get_running_loop().call_later(0.02, self.rig.see_topic, topic.ref, moved)
        return Judgement(targets=targets, errors={n: e for n, e in self.refused.items() if n in wish.replicas})


class ReassigningRig(Rig):
    def __init__(self, root):
        super().__init__(root)
        self.topic_writer = FakeWriter(self)

    async def __aenter__(self):
        await super().__aenter__()
        for broker_id in range(4):
            self.see_broker(broker_id, self.port)
        self.see_topic(topic_ref(), {n: entry(1, replicas=(1, 2)) for n in range(3)})
        return self


async def alter(client, wanted, *, version=1, timeout_ms=5000, factor=True):
    topics = [
        ReassignableTopic(name, [ReassignablePartition(n, ids) for n, ids in partitions])
        for name, partitions in wanted.items()
    ]
    answer = await client.ask(ALTER, version, AlterPartitionReassignmentsRequest(timeout_ms, factor, topics))
    assert answer.error_code == 0
    return {
        (topic.name, part.partition_index): (ErrorCode(part.error_code), part.error_message)
        for topic in answer.responses
        for part in topic.partitions
    }


async def listed(client):
    answer = await client.ask(LIST, 0, ListPartitionReassignmentsRequest(1000, None))
    return {
        (topic.name, p.partition_index): (p.replicas, p.adding_replicas, p.removing_replicas)
        for topic in answer.topics
        for p in topic.partitions
    }


@pytest.mark.parametrize("version", [0, 1])
def test_moves_that_have_begun_are_answered_and_listed(tmp_path, version):
    @on_uvloop
    async def run():
        async with ReassigningRig(tmp_path) as rig, rig.client() as client:
            refusal = BrokerError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No reassignment.")
            rig.topic_writer.refused = {1: refusal}
            found = await alter(client, {"orders": [(0, [3, 1]), (1, None)]}, version=version)
            assert found == {
                ("orders", 0): (ErrorCode.NONE, None),
                ("orders", 1): (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No reassignment."),
            }
            assert rig.topic_writer.asked == [("orders", {0: [3, 1], 1: None}, True, {0, 1, 2, 3})]
            assert await listed(client) == {("orders", 0): ([3, 1, 2], [3], [2])}

    run()


@on_uvloop
async def test_a_client_is_not_kept_waiting_for_its_turn(tmp_path, monkeypatch):
    monkeypatch.setattr(alter_partition_reassignments, "BEGIN_LIMIT_S", 0.05)
    async with ReassigningRig(tmp_path) as rig, rig.client() as client:
        rig.topic_writer.begins = False
        begun = monotonic()
        assert await alter(client, {"orders": [(0, [3, 1])]}, timeout_ms=60_000) == {
            ("orders", 0): (ErrorCode.NONE, None)
        }
        assert monotonic() - begun < 30
        assert await listed(client) == {}
        # The wish stands in the spec: it is listed as what it will be.
        pins = {0: (3, 1), 1: (1, 2), 2: (0, 77)}
        topic = rig.cache.topic("orders")
        rig.see_topic(topic.ref, topic.partitions, replica_assignment=pins)
        assert await listed(client) == {("orders", 0): ([3, 1, 2], [3], [2])}


@on_uvloop
async def test_requests_that_are_wrong_as_a_whole(tmp_path, monkeypatch):
    async with ReassigningRig(tmp_path) as rig, rig.client() as client:
        found = await alter(client, {"orders": [(0, [1]), (0, [2])]}, factor=False)
        assert found[("orders", 0)][0] == ErrorCode.INVALID_REQUEST
        assert rig.topic_writer.asked == []
        rig.topic_writer.error = BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such topic")
        found = await alter(client, {"gone": [(0, [1]), (1, None)]}, factor=False)
        assert found == {("gone", n): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such topic") for n in range(2)}
        assert rig.topic_writer.asked[-1][2] is False
        monkeypatch.setattr(alter_partition_reassignments, "PARTITIONS_PER_REQUEST_MAX", 1)
        request = AlterPartitionReassignmentsRequest(
            100, True, [ReassignableTopic("orders", [ReassignablePartition(n, [1]) for n in range(2)])]
        )
        answer = await client.ask(ALTER, 1, request)
        assert (answer.error_code, answer.responses) == (ErrorCode.POLICY_VIOLATION, [])
        monkeypatch.setattr(bounds, "ENTRIES_MAX", 3)
        async with rig.client() as other:
            other.send(ALTER, 1, request)
            assert await other.closed()

"""Reassignments that clients ask for, written into the spec: against the embedded API server."""

import asyncio
from dataclasses import replace

import pytest

from kafkalite_broker.cluster import persistence
from kafkalite_broker.cluster.reassigning import ReassignmentWish, judge_reassignment
from kafkalite_core.model.partition import IsrEntry
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.resources import topic_objects
from kafkalite_core.resources.topics import render_partition
from kafkalite_runtime.kube import TOPICS
from tests.unit.broker_cluster.conftest import ENTRY, NAMESPACE, TOPIC_ID
from tests.unit.broker_cluster.test_topic_writer import Side
from tests.unit.resources.builders import topic_object

BROKERS = range(5)
MOVING = replace(ENTRY, replicas=(2, 0, 1), adding=(2,), removing=(1,))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(persistence, "backoff_s", lambda *_: 0.005)


@pytest.fixture
def side(world):
    return Side(world)


def obj(entries, **spec):
    partitions = {str(number): render_partition(entry) for number, entry in entries.items()}
    spec = {"partitions": len(entries), "replicas": 2, **spec}
    return topic_object(spec=spec, status={"topicId": TOPIC_ID, "partitions": partitions})


def judged(found, replicas, **more):
    return judge_reassignment(found, ReassignmentWish(replicas=replicas, **more), BROKERS)


def codes(judgement):
    return {number: error.error_code for number, error in judgement.errors.items()}


def patched(judgement):
    return {op["path"]: op["value"] for op in judgement.operations if op["op"] == "add"}


def test_every_partition_is_judged_for_itself():
    found = obj({0: ENTRY, 1: ENTRY, 2: ENTRY, 3: ENTRY})
    judgement = judged(found, {0: [1, 2], 1: [1, 1], 2: [], 3: [0, 9], 7: [0], 8: None})
    assert judgement.targets == {0: (1, 2)}
    invalid = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(judgement) == {1: invalid, 2: invalid, 3: invalid, 7: unknown, 8: unknown}
    assert "broker 9" in judgement.errors[3].message
    assert patched(judgement) == {"/spec/replicaAssignment": {"0": [1, 2]}}


def test_the_number_of_replicas_follows_when_every_partition_is_named():
    found = obj({0: ENTRY, 1: ENTRY})
    assert "/spec/replicas" not in patched(judged(found, {0: [0, 1, 2]}))
    assert "/spec/replicas" not in patched(judged(found, {0: [0, 1, 2], 1: [0]}))
    assert patched(judged(found, {0: [0, 1, 2], 1: [1, 2, 3]}))["/spec/replicas"] == 3
    strict = obj({0: ENTRY}, config={"min.insync.replicas": "2"})
    assert "/spec/replicas" not in patched(judged(strict, {0: [0]})), "the schema asks for min.insync.replicas"


def test_another_number_of_replicas_can_be_ruled_out():  # KAFKA-14121
    found = obj({0: ENTRY, 1: MOVING})
    judgement = judged(found, {0: [0, 1, 2], 1: [3, 4]}, factor_may_change=False)
    assert codes(judgement) == {0: ErrorCode.INVALID_REPLICATION_FACTOR}
    assert judgement.targets == {1: (3, 4)}


def test_a_cancellation_wishes_for_what_there_was_and_only_while_it_lasts():
    found = obj({0: MOVING, 1: ENTRY, 2: ENTRY}, replicaAssignment={"0": [2, 0], "2": [3, 4]})
    judgement = judged(found, {0: None, 1: None, 2: None})
    assert judgement.targets == {0: (0, 1), 2: (0, 1)}
    assert codes(judgement) == {1: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}
    tests = {op["path"]: op["value"] for op in judgement.operations if op["op"] == "test"}
    assert tests["/status/partitions/0/partitionEpoch"] == MOVING.partition_epoch
    # After an answer that was lost the same cancellation is no error.
    done = obj({0: ENTRY}, replicaAssignment={"0": [0, 1]})
    assert not judge_reassignment(done, ReassignmentWish(replicas={0: None}), BROKERS, unsure=True).errors


def test_what_the_spec_says_already_is_not_written():
    found = obj({0: ENTRY}, replicaAssignment={"0": [1, 2]})
    assert judged(found, {0: [1, 2]}).operations == []
    assert topic_objects.reassignment(found, {}) == []


async def reassign(side, replicas):
    return await side.writer.reassign("orders", ReassignmentWish(replicas=replicas), brokers=BROKERS, deadline_s=5)


async def assignment(world):
    (found,) = (await world.client.list(TOPICS, NAMESPACE)).items
    return found["spec"].get("replicaAssignment")


@pytest.mark.parametrize("fault", ["ok", "lose request", "lose answer", "refuse"])
async def test_the_wish_is_written_once_whatever_is_lost(world, side, fault):
    side.absorb(await world.create_topic("orders"))
    side.client.faults = [fault]
    judgement = await reassign(side, {0: [3, 4]})
    assert (judgement.targets, judgement.errors) == ({0: (3, 4)}, {})
    assert await assignment(world) == {"0": [3, 4]}
    assert side.cache.topic("orders").replica_assignment == {0: (3, 4)}


async def test_wishes_of_two_brokers_for_different_partitions_add_up(world):
    sides = [Side(world), Side(world)]
    await world.create_topic("orders")
    status = {"status": {"partitions": {"1": render_partition(ENTRY)}}}
    made = await world.client.merge_patch(TOPICS, NAMESPACE, "orders", status, subresource="status")
    for side in sides:
        side.absorb(made)
    await asyncio.gather(reassign(sides[0], {0: [3, 4]}), reassign(sides[1], {1: [4, 3]}))
    assert await assignment(world) == {"0": [3, 4], "1": [4, 3]}


async def test_a_cancellation_that_comes_after_the_end_does_not_move_everything_back(world, side, monkeypatch):
    """The move completes between the read and the patch: the test of its epoch keeps the wish out."""
    made = await world.create_topic("orders", MOVING)
    side.absorb(made)
    original, steps = side.client.json_patch, []

    async def completing(*arguments, **named):
        if not steps:
            steps.append("completed")
            done = replace(
                ENTRY,
                leader=0,
                leader_epoch=2,
                partition_epoch=9,
                replicas=(2, 0),
                isr=(IsrEntry(0, 1), IsrEntry(2, 1)),
            )
            entry = {"adding": None, "removing": None, **render_partition(done)}
            status = {"status": {"partitions": {"0": entry}}}
            await world.client.merge_patch(TOPICS, NAMESPACE, "orders", status, subresource="status")
        return await original(*arguments, **named)

    monkeypatch.setattr(side.client, "json_patch", completing)
    judgement = await reassign(side, {0: None})
    assert codes(judgement) == {0: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}
    assert await assignment(world) is None

"""Compare-and-swaps on partition entries: outcomes, retries, what the replica is told (S5, R6)."""

import asyncio
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from kafkalite_broker.cluster import isr_writer
from kafkalite_broker.cluster.isr_writer import PartitionWriter
from kafkalite_core.membership.metadata_cache import MetadataCache, Sighting
from kafkalite_core.model.partition import IsrEntry
from kafkalite_core.replica.events import CasOutcome, ProposePartition
from kafkalite_core.resources.topics import parse_topic
from kafkalite_runtime.kube import TOPICS
from tests.unit.broker_cluster.conftest import ENTRY, NAMESPACE

SHRUNK = replace(ENTRY, partition_epoch=4, isr=(IsrEntry(0, 1),))
RIVAL = replace(ENTRY, partition_epoch=4, leader=1, leader_epoch=2)


class Writing:
    """A writer, its cache, and one topic."""

    def __init__(self, world, topic):
        self.world = world
        self.client = world.new_client()
        self.cache = MetadataCache()
        self.registry = CollectorRegistry()
        self.ref = parse_topic(topic).ref
        self.absorb(topic)
        self.writer = PartitionWriter(
            self.client, absorb=lambda found: self.absorb(found), committed=self.cache.partition, registry=self.registry
        )
        self.count = 0

    def absorb(self, found):
        metadata = found["metadata"]
        sighting = Sighting(value=parse_topic(found), resource_version=metadata["resourceVersion"])
        self.cache.see_topic(sighting)

    async def propose(self, expected=ENTRY, proposed=SHRUNK):
        self.count += 1
        proposal = ProposePartition(proposal_id=self.count, expected=expected, proposed=proposed, reason="test")
        answered = asyncio.get_running_loop().create_future()
        self.writer.propose(self.ref, 0, proposal, answered.set_result)
        answer = await asyncio.wait_for(answered, 30)
        assert answer.proposal_id == self.count
        return answer

    async def stored(self):
        return parse_topic(await self.world.client.get(TOPICS, NAMESPACE, "orders")).partitions[0]

    def metric(self, name, **labels):
        return self.registry.get_sample_value(name, labels) or 0


@pytest.fixture
async def writing(world, monkeypatch):
    monkeypatch.setattr(isr_writer, "backoff_s", lambda *_: 0.001)
    found = Writing(world, await world.create_topic())
    yield found
    await found.writer.stop()


async def test_applied(writing):
    answer = await writing.propose()
    assert answer.outcome is CasOutcome.APPLIED
    assert answer.observed == SHRUNK == await writing.stored()
    assert writing.cache.partition(writing.ref, 0) == SHRUNK, "the answer goes into the cache"
    assert writing.metric("kafkalite_cas_outcomes_total", outcome="applied") == 1
    assert writing.metric("kafkalite_cas_latency_seconds_count") == 1
    assert writing.metric("kafkalite_cas_conflicts_total") == 0


async def test_a_leader_may_name_its_successor(writing):
    handed_over = replace(ENTRY, partition_epoch=4, leader=1, leader_epoch=2, isr=(IsrEntry(1, 2),))
    answer = await writing.propose(proposed=handed_over)
    assert answer.outcome is CasOutcome.APPLIED
    assert await writing.stored() == handed_over
    stored = await writing.world.client.get(TOPICS, NAMESPACE, "orders")
    assert stored["status"]["controllerEpoch"] == 1


async def test_rejected_because_a_rival_was_faster(writing):
    await writing.world.set_entry(RIVAL)
    answer = await writing.propose()
    assert answer.outcome is CasOutcome.REJECTED
    assert answer.observed == RIVAL == writing.cache.partition(writing.ref, 0)
    assert writing.metric("kafkalite_cas_conflicts_total") == 1


async def test_rejected_by_the_cache_without_a_request(writing):
    writing.absorb(await writing.world.set_entry(RIVAL))
    answer = await writing.propose()
    assert answer.outcome is CasOutcome.REJECTED
    assert answer.observed == RIVAL
    assert writing.client.calls == 0


async def test_a_lost_answer_is_settled_by_another_compare_and_swap(writing):
    writing.client.faults = ["lose answer"]
    answer = await writing.propose()
    assert answer.outcome is CasOutcome.APPLIED
    assert answer.observed == SHRUNK
    assert writing.client.writes == 2, "never by a read alone"


async def test_a_lost_request_is_sent_again(writing):
    writing.client.faults = ["lose request"]
    assert (await writing.propose()).outcome is CasOutcome.APPLIED
    assert writing.client.writes == 2


async def test_unknown_while_nothing_answers_and_doubt_is_remembered(writing):
    writing.client.faults = ["lose request"] * 3
    assert (await writing.propose()).outcome is CasOutcome.UNKNOWN
    # Nothing of the next sendings goes out, but a copy of the first ones may still land.
    writing.client.faults = ["refuse"] * 3
    assert (await writing.propose()).outcome is CasOutcome.UNKNOWN
    assert (await writing.propose()).outcome is CasOutcome.APPLIED


async def test_not_attempted_when_nothing_was_sent(writing):
    writing.client.faults = ["refuse"] * 3
    answer = await writing.propose()
    assert answer.outcome is CasOutcome.NOT_ATTEMPTED
    assert await writing.stored() == ENTRY


async def test_a_rival_after_a_lost_request_settles_it(writing):
    writing.client.faults = ["lose request"] * 3
    assert (await writing.propose()).outcome is CasOutcome.UNKNOWN
    await writing.world.set_entry(RIVAL)
    answer = await writing.propose()
    assert answer.outcome is CasOutcome.REJECTED
    assert answer.observed == RIVAL


async def test_a_spec_that_cannot_be_read_leaves_no_doubt(writing, monkeypatch):
    """A lost answer is settled by the entry alone: a topic that is not understood would stay in doubt for ever."""
    get = writing.client.get

    async def with_a_bad_spec(*arguments, **options):
        found = await get(*arguments, **options)
        return {**found, "spec": {**found["spec"], "replicaAssignment": {"p0": [0]}}}

    monkeypatch.setattr(writing.client, "get", with_a_bad_spec)
    absorbed = writing.absorb
    writing.absorb = lambda found: absorbed({**found, "spec": {}})
    await writing.world.set_entry(RIVAL)
    answer = await writing.propose()
    assert answer.outcome is CasOutcome.REJECTED
    assert answer.observed == RIVAL


async def test_a_topic_made_again_is_not_touched(writing):
    await writing.world.client.delete(TOPICS, NAMESPACE, "orders")
    await writing.world.create_topic()
    assert (await writing.propose()).outcome is CasOutcome.REJECTED
    assert await writing.stored() == ENTRY


async def test_a_topic_that_is_gone(writing):
    await writing.world.client.delete(TOPICS, NAMESPACE, "orders")
    answer = await writing.propose()
    assert answer.outcome is CasOutcome.REJECTED
    assert answer.observed is None


async def test_nobody_is_answered_after_the_end(writing):
    answers = []
    proposal = ProposePartition(proposal_id=1, expected=ENTRY, proposed=SHRUNK, reason="test")
    writing.writer.propose(writing.ref, 0, proposal, answers.append)
    await writing.writer.stop()
    assert answers == []

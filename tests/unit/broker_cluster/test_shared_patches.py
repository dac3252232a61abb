"""Compare-and-swaps of one topic share a patch; each is answered for itself (KIP-497)."""

import asyncio
from dataclasses import replace

import pytest

from kafkalite_broker.cluster import isr_writer
from kafkalite_core.model.partition import IsrEntry
from kafkalite_core.replica.events import CasOutcome, ProposePartition
from kafkalite_core.resources.topics import parse_topic, render_partition
from kafkalite_runtime.kube import TOPICS
from tests.unit.broker_cluster.conftest import ENTRY, NAMESPACE
from tests.unit.broker_cluster.test_isr_writer import RIVAL, SHRUNK, Writing

PARTITIONS = 6
ALL = range(PARTITIONS)


@pytest.fixture
async def writing(world, monkeypatch):
    monkeypatch.setattr(isr_writer, "backoff_s", lambda *_: 0.001)
    await world.create_topic()
    topic = await set_entries(world, dict.fromkeys(range(1, PARTITIONS), ENTRY))
    found = Writing(world, topic)
    yield found
    await found.writer.stop()


async def set_entries(world, entries):
    status = {"partitions": {str(number): render_partition(entry) for number, entry in entries.items()}}
    return await world.client.merge_patch(TOPICS, NAMESPACE, "orders", {"status": status}, subresource="status")


async def stored(world):
    return parse_topic(await world.client.get(TOPICS, NAMESPACE, "orders")).partitions


def proposed(writing, numbers=ALL, proposed=SHRUNK):
    """Propose at once; futures of the answers by partition."""
    answers = {}
    for number in numbers:
        answers[number] = asyncio.get_running_loop().create_future()
        proposal = ProposePartition(proposal_id=number, expected=ENTRY, proposed=proposed, reason="test")
        writing.writer.propose(writing.ref, number, proposal, answers[number].set_result)
    return answers


async def outcomes(answers):
    async with asyncio.timeout(30):
        return {number: (await answer).outcome for number, answer in answers.items()}


async def test_they_land_with_one_patch(writing):
    assert await outcomes(proposed(writing)) == dict.fromkeys(ALL, CasOutcome.APPLIED)
    assert await stored(writing.world) == dict.fromkeys(ALL, SHRUNK)
    assert writing.client.writes == 1
    assert writing.metric("kafkalite_cas_latency_seconds_count") == 1
    assert writing.metric("kafkalite_cas_outcomes_total", outcome="applied") == PARTITIONS


async def test_what_is_proposed_meanwhile_shares_the_next(writing):
    writing.client.answer_s = 0.2
    first = proposed(writing, [0])
    await asyncio.sleep(0.05)
    later = proposed(writing, range(1, PARTITIONS))
    assert await outcomes(first | later) == dict.fromkeys(ALL, CasOutcome.APPLIED)
    assert writing.client.writes == 2


async def test_one_that_a_rival_overtook_does_not_keep_the_others(writing):
    await set_entries(writing.world, {2: RIVAL})
    answers = proposed(writing)
    others = [number for number in ALL if number != 2]
    assert await outcomes(answers) == dict.fromkeys(others, CasOutcome.APPLIED) | {2: CasOutcome.REJECTED}
    assert answers[2].result().observed == RIVAL
    assert await stored(writing.world) == dict.fromkeys(others, SHRUNK) | {2: RIVAL}
    assert writing.client.writes == 2, "one that is refused, one for the others"
    assert writing.metric("kafkalite_cas_conflicts_total") == 1


async def test_one_that_is_refused_for_what_it_is_does_not_keep_the_others(writing):
    """The API server takes no broker epoch below -1."""
    strange = replace(ENTRY, partition_epoch=4, isr=(IsrEntry(0, -7),))
    answers = proposed(writing, [0], strange) | proposed(writing, range(1, PARTITIONS))
    wanted = {0: CasOutcome.REJECTED} | dict.fromkeys(range(1, PARTITIONS), CasOutcome.APPLIED)
    assert await outcomes(answers) == wanted
    assert writing.client.writes == 7, "all, three, two, each of these, and the others in pairs"


async def test_one_that_the_watch_shows_overtaken_is_not_sent_with_the_others(writing):
    writing.client.answer_s = 2.0  # longer than the rival's write takes on a busy machine
    first = proposed(writing, [0])
    await asyncio.sleep(0.05)
    later = proposed(writing, range(1, PARTITIONS))
    writing.absorb(await set_entries(writing.world, {2: RIVAL}))
    writing.client.answer_s = 0.0
    wanted = dict.fromkeys(ALL, CasOutcome.APPLIED) | {2: CasOutcome.REJECTED}
    assert await outcomes(first | later) == wanted
    assert writing.client.writes == 2
    assert writing.metric("kafkalite_cas_conflicts_total") == 0


async def test_one_that_must_not_be_sent_does_not_keep_the_others(writing):
    """A defect: it would be refused for certain. Nobody knows what else is wrong, so it is answered as unknown."""
    stranger = replace(ENTRY, partition_epoch=4, isr=(IsrEntry(0, 1), IsrEntry(7, 1)))
    answers = proposed(writing, [0], stranger) | proposed(writing, range(1, PARTITIONS))
    wanted = {0: CasOutcome.UNKNOWN} | dict.fromkeys(range(1, PARTITIONS), CasOutcome.APPLIED)
    assert await outcomes(answers) == wanted
    assert writing.client.writes == 1


async def test_a_lost_answer_is_settled_for_each(writing):
    writing.client.faults = ["lose answer"]
    assert await outcomes(proposed(writing)) == dict.fromkeys(ALL, CasOutcome.APPLIED)
    assert await stored(writing.world) == dict.fromkeys(ALL, SHRUNK)


async def test_doubt_is_remembered_for_each(writing):
    writing.client.faults = ["lose request"] * (3 * PARTITIONS)
    assert await outcomes(proposed(writing)) == dict.fromkeys(ALL, CasOutcome.UNKNOWN)
    writing.client.faults = ["refuse"] * (3 * PARTITIONS)
    assert await outcomes(proposed(writing)) == dict.fromkeys(ALL, CasOutcome.UNKNOWN)
    writing.client.faults = []
    assert await outcomes(proposed(writing)) == dict.fromkeys(ALL, CasOutcome.APPLIED)


async def test_a_topic_that_is_gone(writing):
    await writing.world.client.delete(TOPICS, NAMESPACE, "orders")
    assert await outcomes(proposed(writing)) == dict.fromkeys(ALL, CasOutcome.REJECTED)


async def test_nobody_is_answered_after_the_end(writing):
    writing.client.answer_s = 5
    answers = proposed(writing)
    await asyncio.sleep(0.05)
    await writing.writer.stop()
    assert not any(answer.done() for answer in answers.values())

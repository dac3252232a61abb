"""A defect inside a compare-and-swap is answered as unknown, so that the ISR is not frozen for ever."""

import asyncio

from prometheus_client import CollectorRegistry

from kafkalite_broker.cluster.isr_writer import PartitionWriter
from kafkalite_core.model.partition import IsrEntry, Partition, TopicRef
from kafkalite_core.replica.events import CasOutcome, ProposePartition
from kafkalite_core.storage.errors import DiskFailure


class Broken:
    async def json_patch(self, *_args, **_kwargs):
        raise ZeroDivisionError


def entry(epoch: int) -> Partition:
    return Partition(leader=0, leader_epoch=0, partition_epoch=epoch, min_isr=1, replicas=(0, 1), isr=(IsrEntry(0, 1),))


REF = TopicRef(namespace="default", object_name="t", uid="u", topic_id="i", name="t")
PROPOSAL = ProposePartition(proposal_id=7, expected=entry(1), proposed=entry(2), reason="test")


def broken_writer(**options):
    return PartitionWriter(
        Broken(), absorb=lambda _: None, committed=lambda _ref, _number: None, registry=CollectorRegistry(), **options
    )


async def test_every_proposal_is_answered():
    writer = broken_writer()
    answered = asyncio.get_running_loop().create_future()
    writer.propose(REF, 0, PROPOSAL, answered.set_result)
    async with asyncio.timeout(30):
        answer = await answered
    assert (answer.proposal_id, answer.outcome) == (7, CasOutcome.UNKNOWN)
    await writer.stop()


async def test_an_answer_that_cannot_be_taken_in_is_told():
    """A disk that failed, or a defect: the replica would wait for the answer for ever."""
    told = asyncio.get_running_loop().create_future()
    writer = broken_writer(on_failed=told.set_result)

    def answer(_event):
        raise DiskFailure("no disk")

    writer.propose(REF, 0, PROPOSAL, answer)
    async with asyncio.timeout(30):
        assert isinstance(await told, DiskFailure)
    await writer.stop()

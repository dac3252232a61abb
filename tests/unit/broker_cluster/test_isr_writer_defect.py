"""A defect inside a compare-and-swap is answered as unknown, so that the ISR is not frozen for ever."""

import asyncio

from prometheus_client import CollectorRegistry

from kafkalite_broker.cluster.isr_writer import PartitionWriter
from kafkalite_core.model.partition import IsrEntry, Partition, TopicRef
from kafkalite_core.replica.events import CasOutcome, ProposePartition


class Broken:
    async def json_patch(self, *_args, **_kwargs):
        raise ZeroDivisionError


def entry(epoch: int) -> Partition:
    return Partition(leader=0, leader_epoch=0, partition_epoch=epoch, min_isr=1, replicas=(0, 1), isr=(IsrEntry(0, 1),))


async def test_every_proposal_is_answered():
    writer = PartitionWriter(
        Broken(), absorb=lambda _: None, committed=lambda _ref, _number: None, registry=CollectorRegistry()
    )
    ref = TopicRef(namespace="default", object_name="t", uid="u", topic_id="i", name="t")
    answered = asyncio.get_running_loop().create_future()
    proposal = ProposePartition(proposal_id=7, expected=entry(1), proposed=entry(2), reason="test")
    writer.propose(ref, 0, proposal, answered.set_result)
    async with asyncio.timeout(30):
        answer = await answered
    assert (answer.proposal_id, answer.outcome) == (7, CasOutcome.UNKNOWN)
    await writer.stop()

"""A reassignment from the change of the spec to the Events, against the embedded API server; leaders are played."""

from dataclasses import replace

import pytest

from kafkalite_core.model.partition import IsrEntry
from kafkalite_core.resources import patches
from kafkalite_runtime.kube.kinds import TOPICS
from tests.unit.operator.fakes import NAMESPACE, eventually
from tests.unit.operator.test_operator import condition, running_cluster, topic
from tests.unit.operator.test_wishes import event

pytestmark = pytest.mark.timeout(240)


async def wish(harness, **spec):
    await harness.client.merge_patch(TOPICS, NAMESPACE, "orders", {"spec": spec})


async def catch_up(harness, broker_id):
    """The leader takes a replica into the ISR."""
    found = await topic(harness)
    entry = found.partitions[0]
    joined = IsrEntry(broker_id, harness.brokers[broker_id].registration.broker_epoch)
    proposed = replace(entry, isr=(*entry.isr, joined), partition_epoch=entry.partition_epoch + 1)
    operations = patches.leader_proposal(found.ref, 0, entry, proposed)
    await harness.client.json_patch(TOPICS, NAMESPACE, "orders", operations, subresource="status")


async def becomes(harness, check):
    async def look():
        entry = (await topic(harness)).partitions[0]
        return entry if check(entry) else None

    return await eventually(look)


async def test_a_move_and_a_cancellation_are_told_step_by_step(harness):
    before = (await running_cluster(harness, partitions=1, replicas=1)).partitions[0]
    old, new = before.leader, (before.leader + 1) % 3
    await wish(harness, replicaAssignment={"0": [new]})
    await becomes(harness, lambda e: (e.replicas, e.adding, e.removing) == ((new, old), (new,), (old,)))
    assert f"broker {new} being added" in (await event(harness, "ReassignmentStarted"))["message"]

    async def told():
        return await condition(harness, "Progressing")

    async def waits():
        status, reason, message = await told()
        return (status, reason) == ("True", "Reassigning") and f"waiting for broker {new} to be in sync" in message

    await eventually(waits)
    await wish(harness, replicaAssignment={"0": [old]})
    back = await becomes(harness, lambda e: e.replicas == (old,))
    assert (back.leader, back.adding, back.removing) == (old, (), ())
    assert (await event(harness, "ReassignmentCancelled"))["type"] == "Normal"
    await wish(harness, replicaAssignment={"0": [new]})
    await becomes(harness, lambda e: bool(e.adding))
    await catch_up(harness, new)
    done = await becomes(harness, lambda e: e.replicas == (new,))
    assert (done.leader, done.isr_ids()) == (new, (new,))
    assert done.leader_epoch > back.leader_epoch
    assert f"broker {old} removed" in (await event(harness, "ReassignmentCompleted"))["message"]

    async def stable():
        return (await told())[:2] == ("False", "Stable")

    await eventually(stable)

"""Which replica acts, and that a replica which no longer does changes nothing."""

from __future__ import annotations

import asyncio
import signal
import time

import pytest

from kafkalite_core.resources import naming
from kafkalite_operator.elector import LEASE_DURATION_S
from kafkalite_runtime.kube.kinds import CLUSTERS, LEASES, TOPICS
from tests.ha.history import judge
from tests.ha.world import CLUSTER
from tests.unit.operator.fakes import eventually

pytestmark = pytest.mark.timeout(120)


async def running(world, replicas: int):
    """So many replicas, a cluster of three brokers and a topic; who leads."""
    for number in range(replicas):
        await world.operator(f"operator-{number}")
    await world.make_topic()
    await world.start_brokers()
    await world.ready()
    return await world.leader()


async def epoch(world) -> int:
    return (await world.get(CLUSTERS, CLUSTER))["status"]["controller"]["epoch"]


async def election(world) -> None:
    """A broker dies, and whoever is the controller now elects others."""
    victim = (await world.topic()).partitions[0].leader
    await world.brokers[victim].die()

    async def elected() -> bool:
        return all(entry.leader not in {victim, -1} for entry in (await world.topic()).partitions.values())

    await eventually(elected)


async def test_three_replicas_follow_one_another(world):
    """SIGKILL of the leader, then SIGTERM of its successor: the Lease runs out, the second time it is given back."""
    first = await running(world, 3)
    one = await epoch(world)
    world.operators[first].kill()
    began = time.monotonic()
    second = await world.leader(other_than=first)
    assert time.monotonic() - began < LEASE_DURATION_S + 10
    two = await epoch(world)
    assert two > one
    await election(world)
    assert (await world.topic()).controller_epoch == two
    world.operators[second].signal(signal.SIGTERM)
    assert await world.operators[second].ended() == 0
    ended = time.monotonic()
    assert world.operators[second].said("operator lease released")  # so its duration did not have to pass
    third = await world.leader(other_than=second)
    assert time.monotonic() - ended < LEASE_DURATION_S + 10
    assert third not in {first, second}
    assert await epoch(world) > two
    assert not world.operators[third].said("operator failed")
    judge(world)


async def test_a_new_process_of_the_same_pod_needs_no_expiry(world):
    """The container was killed and started again: its predecessor is certainly dead."""
    operator = await world.operator("operator-0", start=False)
    operator.start("uid-0")
    await world.make_topic()
    await world.leader()
    before = await epoch(world)
    operator.kill()
    began = time.monotonic()
    operator.start("uid-0")

    async def again() -> bool:
        return await epoch(world) > before

    await eventually(again)
    assert time.monotonic() - began < LEASE_DURATION_S + 10
    held = (await world.get(LEASES, naming.OPERATOR_LEASE))["spec"]
    assert held["holderIdentity"].startswith("operator-0_uid-0_")
    assert not [line for line in operator.lines() if "Traceback" in str(line)]


async def test_a_leader_that_was_stopped_past_its_lease_writes_nothing_more(world):
    """SIGSTOP with a broker's death to answer, takeover, SIGCONT."""
    stopped = await running(world, 2)
    old = await epoch(world)
    world.operators[stopped].signal(signal.SIGSTOP)
    # It will hear of this death when it goes on, together with everything that its successor has made of it.
    victim = (await world.topic()).partitions[0].leader
    await world.brokers[victim].die()
    await world.client.merge_patch(TOPICS, world.ns, "orders", {"spec": {"partitions": 4}})
    await world.leader(other_than=stopped)

    async def answered() -> bool:
        entries = (await world.topic()).partitions
        return len(entries) == 4 and all(entry.leader not in {victim, -1} for entry in entries.values())

    await eventually(answered)
    before = len(world.gate.writes)
    world.operators[stopped].signal(signal.SIGCONT)

    async def noticed() -> bool:
        return bool(world.operators[stopped].said("operator lease lost"))

    await eventually(noticed)
    # Something to do for whoever thinks that it is the controller.
    await world.client.merge_patch(TOPICS, world.ns, "orders", {"spec": {"partitions": 6}})
    await world.ready()
    late = [write for write in world.gate.writes[before:] if write.client == stopped and write.decides]
    assert not [write for write in late if write.status < 300], late
    assert (await world.topic()).controller_epoch > old
    assert world.operators[stopped].running()
    judge(world)


async def test_what_a_stale_controller_sent_is_refused_when_it_arrives_late(world):
    """Its elections are held in the network until its successor has answered the same death."""
    stale = await running(world, 2)
    held = world.gate.hold(
        stale, lambda method, path, body: path.endswith("orders/status") and "partitions" in str(body)
    )
    victim = (await world.topic()).partitions[0].leader
    await world.brokers[victim].die()
    await asyncio.wait_for(held.arrived.wait(), 30)
    world.operators[stale].signal(signal.SIGSTOP)
    await world.leader(other_than=stale)

    async def answered() -> bool:
        # Elections go alone; who else has the victim in its ISR is patched after them.
        entries = (await world.topic()).partitions.values()
        return all(entry.leader not in {victim, -1} and victim not in entry.isr_ids() for entry in entries)

    await eventually(answered)
    before = await world.get(TOPICS, "orders")
    held.released.set()
    await asyncio.wait_for(held.answered.wait(), 30)
    assert held.status == 422, held.answer
    assert (await world.get(TOPICS, "orders"))["status"]["partitions"] == before["status"]["partitions"]
    world.operators[stale].signal(signal.SIGCONT)
    judge(world)


async def test_the_rules_refuse_a_stale_epoch_even_when_every_test_would_pass(world):
    """The fence of the API server alone: an older controllerEpoch, an older controller of the cluster."""
    from kafkalite_runtime.kube.errors import KubeInvalid

    leader = await running(world, 1)
    world.operators[leader].kill()
    await world.operator("operator-9")
    await world.leader(other_than=leader)
    await election(world)
    now = await epoch(world)
    with pytest.raises(KubeInvalid, match="controllerEpoch never decreases"):
        operations = [{"op": "add", "path": "/status/controllerEpoch", "value": now - 1}]
        await world.client.json_patch(TOPICS, world.ns, "orders", operations, subresource="status")
    for controller, rule in (
        ({"holder": leader, "epoch": now - 1}, "never decreases"),
        ({"holder": leader, "epoch": now}, "another controller"),
    ):
        operations = [{"op": "add", "path": "/status/controller", "value": controller}]
        with pytest.raises(KubeInvalid) as refused:
            await world.client.json_patch(CLUSTERS, world.ns, CLUSTER, operations, subresource="status")
        assert "controller" in str(refused.value), rule


async def test_a_stopped_leader_does_not_put_an_old_statefulset_back(world):
    """It was about to apply three brokers; meanwhile somebody asked for four, and its successor made them four."""
    from kafkalite_runtime.kube.kinds import STATEFUL_SETS

    stale = await running(world, 2)
    held = world.gate.hold(
        stale, lambda method, path, body: method == "PATCH" and path.endswith("statefulsets/kafkalite-broker")
    )
    template = {"spec": {"template": {"pod": {"metadata": {"labels": {"a": "b"}}}}}}
    await world.client.merge_patch(CLUSTERS, world.ns, CLUSTER, template)
    await asyncio.wait_for(held.arrived.wait(), 30)
    world.operators[stale].signal(signal.SIGSTOP)
    await world.client.merge_patch(CLUSTERS, world.ns, CLUSTER, {"spec": {"replicas": 4}})
    await world.leader(other_than=stale)

    async def four() -> bool:
        return (await world.get(STATEFUL_SETS, "kafkalite-broker"))["spec"]["replicas"] == 4

    await eventually(four)
    held.released.set()
    await asyncio.wait_for(held.answered.wait(), 30)
    assert held.status in {409, 422}, held.answer
    assert await four()
    world.operators[stale].signal(signal.SIGCONT)

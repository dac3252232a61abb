"""Deletion on an API server with finalizers, garbage collection and namespaces that terminate: nothing is stuck."""

from __future__ import annotations

import asyncio

import pytest

from kafkalite_core.resources import naming
from kafkalite_runtime.kube.kinds import (
    BROKERS,
    CLUSTERS,
    CONFIG_MAPS,
    LEASES,
    PERSISTENT_VOLUME_CLAIMS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    SERVICES,
    STATEFUL_SETS,
    TOPICS,
)
from tests.ha.test_faults import sober
from tests.ha.world import CLUSTER, NAMESPACES, SPEC
from tests.unit.operator.fakes import eventually

pytestmark = pytest.mark.timeout(150)
MADE = (STATEFUL_SETS, SERVICES, CONFIG_MAPS, POD_DISRUPTION_BUDGETS, BROKERS)
EVERYTHING = (*MADE, CLUSTERS, TOPICS, PODS, PERSISTENT_VOLUME_CLAIMS, LEASES)


async def running(world, *, cluster: str = "", **environment: str):
    """A cluster that was made by its user (or by the operator, for the topic), with one topic."""
    operator = await world.operator("operator-0", **environment)
    if cluster:
        body = {"apiVersion": CLUSTERS.api_version, "kind": CLUSTERS.kind, "metadata": {"name": cluster}, "spec": SPEC}
        await world.client.create(CLUSTERS, world.ns, body)
    await world.make_topic()
    await world.start_brokers()
    await world.ready()

    async def all_made() -> bool:
        return len(await names(world, SERVICES)) == 5 and bool(await names(world, STATEFUL_SETS))

    await eventually(all_made)
    # As the StatefulSet controller would make it.
    claim = {
        "metadata": {"name": f"data-{CLUSTER}-broker-0", "labels": naming.broker_labels(CLUSTER)},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    await world.client.create(PERSISTENT_VOLUME_CLAIMS, world.ns, claim)
    return operator


async def names(world, kind) -> list[str]:
    listed = (await world.client.list(kind, world.ns)).items
    return sorted(item["metadata"]["name"] for item in listed if item["metadata"]["name"] != "kube-root-ca.crt")


async def terminating(world) -> list[str]:
    """What waits for somebody to take a finalizer off."""
    found = []
    for kind in EVERYTHING:
        for item in (await world.client.list(kind, world.ns)).items:
            if "deletionTimestamp" in item["metadata"]:
                found.append(f"{kind.kind} {item['metadata']['name']}: {item['metadata'].get('finalizers')}")
    return found


async def finalizers(world) -> list[str]:
    """Of objects of ours: nobody may have to take anything off them."""
    listed = [item for kind in (TOPICS, CLUSTERS, BROKERS) for item in (await world.client.list(kind, world.ns)).items]
    return [item["metadata"]["name"] for item in listed if item["metadata"].get("finalizers")]


async def gone(world, kind, name: str) -> None:
    await eventually(lambda: _missing(world, kind, name))


async def _missing(world, kind, name: str) -> bool:
    return await world.get(kind, name) is None


@pytest.mark.parametrize("operator_first", [False, True], ids=["operator runs", "operator removed first"])
async def test_topics_go_at_once(world, operator_first):
    operator = await running(world)
    if operator_first:
        operator.kill()
    await world.client.delete(TOPICS, world.ns, "orders")
    await gone(world, TOPICS, "orders")
    assert not await finalizers(world)
    assert not await terminating(world)


@pytest.mark.parametrize("policy", ["background", "foreground"])
async def test_a_cluster_goes_with_what_was_made_of_it_and_leaves_its_volumes(world, policy):
    operator = await running(world, cluster=CLUSTER, KAFKALITE_DEFAULT_CLUSTER="")
    options = {"propagationPolicy": policy.title()}
    path = CLUSTERS.path(world.ns, CLUSTER)
    await world.client._call("DELETE", path, body=options, deadline_s=10.0)
    await gone(world, CLUSTERS, CLUSTER)

    async def collected() -> bool:
        left = [name for kind in MADE for name in await names(world, kind)]
        return left == [naming.identity_name(CLUSTER)]

    await eventually(collected)
    # Records are where they were, and their topics say what they wait for.
    assert await names(world, PERSISTENT_VOLUME_CLAIMS) == [f"data-{CLUSTER}-broker-0"]
    assert await names(world, TOPICS) == ["orders"]

    async def says_so() -> bool:
        status, reason, _ = await world.condition(TOPICS, "orders", "Ready")
        return (status, reason) == ("False", "ClusterNotFound")

    await eventually(says_so)
    assert not await terminating(world)
    assert operator.running()
    sober(operator)


@pytest.mark.parametrize("operator_first", [False, True], ids=["operator runs", "operator removed first"])
async def test_a_namespace_goes(world, operator_first):
    """Although the operator would make the cluster of an orphan topic again, and brokers renew their Leases."""
    operator = await running(world)
    if operator_first:
        operator.kill()
    await world.client.delete(NAMESPACES, None, world.ns)
    await eventually(lambda: _missing(world, NAMESPACES, world.ns), timeout_s=90)
    if not operator_first:
        assert operator.running()
        await asyncio.sleep(2)
        sober(operator)


async def test_what_waits_for_another_finalizer_is_left_alone(world):
    """A topic that somebody else holds back is served no more and made nothing of."""
    await running(world)
    await world.client.merge_patch(TOPICS, world.ns, "orders", {"metadata": {"finalizers": ["example.com/backup"]}})
    await world.client.delete(TOPICS, world.ns, "orders")
    before = await world.get(TOPICS, "orders")
    assert "deletionTimestamp" in before["metadata"]
    await world.make_topic("other")
    await world.ready("other")
    after = await world.get(TOPICS, "orders")
    assert after["status"]["partitions"] == before["status"]["partitions"]
    await world.client.merge_patch(TOPICS, world.ns, "orders", {"metadata": {"finalizers": None}})
    await gone(world, TOPICS, "orders")

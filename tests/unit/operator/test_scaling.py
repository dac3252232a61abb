"""Brokers that leave: what the operator takes away, in which order, and what it leaves."""

import asyncio

import pytest

from kafkalite_core.resources.naming import data_claim_name
from kafkalite_operator import infrastructure, removal
from kafkalite_operator.removal import may_hold
from kafkalite_runtime.kube.errors import KubeInvalid
from kafkalite_runtime.kube.kinds import (
    BROKERS,
    CLUSTERS,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    SERVICES,
    TOPICS,
)
from tests.unit.operator.fakes import NAMESPACE, eventually
from tests.unit.operator.five_brokers import (
    CLUSTER,
    events,
    fewer,
    five,
    get,
    gone,
    names,
    pods,
    progressing,
    scale,
    scaling_down,
)

pytestmark = [pytest.mark.timeout(240), pytest.mark.usefixtures("quick")]


async def test_a_view_without_brokers_and_topics_ends_no_pod_that_is_in_use(harness):
    """Halfway through the lists after a restore of the store: brokers 3 and 4 are not there, the topic on 3 not yet."""
    await five(harness, assignment={"0": [0, 1, 3]})
    controller, store = harness.operators["operator-1"][0].controller, harness.operators["operator-1"][0].store
    await scale(harness, 2)
    await eventually(lambda: store.clusters()[NAMESPACE, CLUSTER].cluster.replicas == 2)
    settings = store.clusters()[NAMESPACE, CLUSTER]
    await controller._ensure_all(settings, [0, 1], None)
    assert await pods(harness) == 4, "a consistent look finds broker 3 in use"
    await harness.client.delete(TOPICS, NAMESPACE, "orders")
    await controller._ensure_all(settings, [0, 1], None)
    assert await pods(harness) == 2


async def test_empty_brokers_are_removed_one_by_one_the_last_one_first(harness):
    await five(harness)
    seen = []

    async def has(count):
        seen.append(await pods(harness))
        return seen[-1] == count

    await scale(harness, 3)
    await eventually(lambda: has(4))
    assert await get(harness, BROKERS, f"{CLUSTER}-broker-4"), "its object stays until it has ended"
    await eventually(lambda: scaling_down(harness))
    await harness.brokers[4].freeze()  # ends: nobody renews the Lease
    await eventually(lambda: has(3))
    assert not await get(harness, BROKERS, f"{CLUSTER}-broker-4")
    await harness.brokers[3].freeze()

    async def done():
        found = await progressing(harness)
        return found["reason"] == "Stable" and not await get(harness, BROKERS, f"{CLUSTER}-broker-3")

    await eventually(done)
    assert sorted(set(seen), reverse=True) == [5, 4, 3]
    services = await names(harness, SERVICES)
    assert {f"{CLUSTER}-broker-{i}" for i in range(3)} <= services
    assert not {f"{CLUSTER}-broker-{i}" for i in (3, 4)} & services
    assert len(await names(harness, PERSISTENT_VOLUME_CLAIMS)) == 5, "storage.deleteClaim is false"
    status = (await get(harness, CLUSTERS, CLUSTER))["status"]
    assert (status["brokers"], status["replicas"]) == ({"ready": 3, "total": 3}, 3)
    removed = await eventually(lambda: events(harness, "BrokerRemoved"))
    assert any("broker 4 held no replica and is removed; its volume stays" in message for message in removed)
    assert any("spec.replicas is 3, brokers 3, 4 leave" in message for message in await events(harness, "ScalingDown"))


async def four_of_five(harness):
    """Of five brokers the last one has ended and is to be removed, and its pod has not gone yet; its name."""
    name = f"{CLUSTER}-broker-4"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {"app.kubernetes.io/name": "kafkalite", "app.kubernetes.io/component": "broker"},
        },
        "spec": {"containers": [{"name": "broker", "image": "none"}]},
    }
    await harness.client.create(PODS, NAMESPACE, pod)
    await harness.brokers[4].freeze()
    await scale(harness, 4)

    async def shrunk():
        fencing = ((await get(harness, BROKERS, name)).get("status") or {}).get("fencing")
        return await pods(harness) == 4 and fencing

    await eventually(shrunk)
    return name


async def test_the_service_of_a_listener_outside_goes_when_the_broker_has_ended(harness):
    outside = {"name": "ext", "type": "loadbalancer", "port": 9094}
    await five(harness, listeners=[{"name": "plain", "type": "internal", "port": 9092}, outside])
    service = f"{CLUSTER}-broker-4-ext"
    await eventually(lambda: get(harness, SERVICES, service))
    name = await four_of_five(harness)
    await harness.client.merge_patch(CLUSTERS, NAMESPACE, CLUSTER, {"metadata": {"labels": {"seen": "again"}}})
    controller = harness.operators["operator-1"][0].controller
    looks = controller._listeners._seen
    looks.clear()
    await eventually(lambda: looks)
    assert await get(harness, SERVICES, service), "its pod has not ended"
    await harness.client.delete(PODS, NAMESPACE, name, grace_period_s=0)
    await eventually(lambda: gone(harness, 4))

    async def deleted():
        return not await get(harness, SERVICES, service)

    await eventually(deleted)
    assert await get(harness, SERVICES, f"{CLUSTER}-broker-3-ext")


async def test_nothing_is_deleted_before_the_pod_has_ended(harness):
    await five(harness, delete_claim=True)
    name = await four_of_five(harness)
    for kind, of in ((SERVICES, name), (BROKERS, name), (PERSISTENT_VOLUME_CLAIMS, data_claim_name(CLUSTER, 4))):
        assert await get(harness, kind, of)
    await harness.client.delete(PODS, NAMESPACE, name, grace_period_s=0)
    await eventually(lambda: gone(harness, 4))


async def test_a_lost_topic_that_is_made_again_meanwhile_brings_the_pod_back(harness):  # S10
    """It takes over what the broker holds of it: nothing of that broker is deleted."""
    await five(harness, delete_claim=True)
    await harness.brokers[4].holds_strays("lost", "lost-id", partitions=1, leader_epoch=3, partition_epoch=3)
    name = await four_of_five(harness)
    metadata = {"name": "lost", "namespace": NAMESPACE}
    head = {"apiVersion": "kafkalite.io/v1alpha1", "kind": "KafkaLiteTopic", "metadata": metadata}
    await harness.client.create(TOPICS, NAMESPACE, {**head, "spec": {"partitions": 1, "replicas": 3}})
    await harness.client.delete(PODS, NAMESPACE, name, grace_period_s=0)

    async def back():
        words = "broker 4 may hold data that lost will take over as soon as it is placed"
        return await pods(harness) == 5 and words in (await progressing(harness))["message"]

    await eventually(back)
    assert await get(harness, BROKERS, name)
    assert await get(harness, PERSISTENT_VOLUME_CLAIMS, data_claim_name(CLUSTER, 4))


async def test_a_service_that_is_refused_keeps_no_broker(harness, monkeypatch):
    await five(harness)
    ensure_one = infrastructure.Infrastructure._ensure_one

    async def refusing(self, settings, wanted):
        if wanted["metadata"]["name"] == f"{CLUSTER}-bootstrap":
            raise KubeInvalid(422, "Invalid", "provided port is already allocated")
        await ensure_one(self, settings, wanted)

    monkeypatch.setattr(infrastructure.Infrastructure, "_ensure_one", refusing)
    await scale(harness, 4)
    await eventually(lambda: fewer(harness))
    await harness.brokers[4].freeze()
    await eventually(lambda: gone(harness, 4))
    told = (await get(harness, CLUSTERS, CLUSTER))["status"]["conditions"]
    [condition] = [each for each in told if each["type"] == "ObjectsApplied"]
    assert "port is already allocated" in condition["message"]


async def test_a_change_of_mind_brings_the_pod_back(harness):
    await five(harness)
    await scale(harness, 4)
    await eventually(lambda: fewer(harness))
    await scale(harness, 5)

    async def whole():
        return await pods(harness) == 5 and (await progressing(harness))["reason"] == "Stable"

    await eventually(whole)
    await harness.brokers[4].renew()
    assert await get(harness, BROKERS, f"{CLUSTER}-broker-4")


async def test_a_broker_with_replicas_keeps_its_pod_and_the_conditions_say_why(harness):
    await five(harness, assignment={"0": [4, 1, 2], "1": [0, 1, 3]})
    await scale(harness, 2)

    async def told():
        found = await progressing(harness)
        return found if found["reason"] == "NotEnoughBrokers" else None

    found = await eventually(told)
    assert "orders (3)" in found["message"]
    assert await pods(harness) == 5
    await scale(harness, 3)

    async def moving():
        entries = (await get(harness, TOPICS, "orders"))["status"]["partitions"]
        return entries["0"].get("removing") == [4] and entries["1"].get("removing") == [3] and entries

    entries = await eventually(moving)
    assert entries["0"]["leader"] in (1, 2), "handed over before the move"
    await eventually(lambda: scaling_down(harness))
    assert await pods(harness) == 5
    assert await eventually(lambda: events(harness, "NotEnoughBrokers"))


async def test_a_topic_that_nobody_understands_keeps_every_broker(harness):
    await five(harness)
    operator = harness.operators["operator-1"][0]
    odd = await get(harness, TOPICS, "orders")
    odd = {**odd, "metadata": {**odd["metadata"], "uid": "other", "name": "odd"}, "spec": {"partitions": "many"}}
    operator.store.apply(TOPICS, "ADDED", odd)
    snapshot = operator.store.snapshot(
        (NAMESPACE, CLUSTER), controller_epoch=1, observing_since=None, balance_due=False
    )
    assert not snapshot.complete
    operator.store.relist(TOPICS, [], "0", NAMESPACE)
    snapshot = operator.store.snapshot(
        (NAMESPACE, CLUSTER), controller_epoch=1, observing_since=None, balance_due=False
    )
    assert snapshot.complete


async def test_a_replica_that_core_has_not_heard_of_keeps_the_broker(harness, monkeypatch):
    """What is read just before the pod would end counts, not the snapshot."""
    looked = asyncio.Event()

    def holds(topic, cluster, broker_id):
        looked.set()
        return True

    monkeypatch.setattr(removal, "may_hold", holds)
    await five(harness)
    await scale(harness, 4)
    await asyncio.wait_for(looked.wait(), 30)
    looked.clear()
    await asyncio.wait_for(looked.wait(), 30)
    assert await pods(harness) == 5


@pytest.mark.parametrize(
    ("topic", "answer"),
    [
        ({"spec": {}, "status": {"partitions": {"0": {"replicas": [0, 4]}}}}, True),
        ({"spec": {}, "status": {"partitions": {"0": {"replicas": [0, 3]}, "1": {"replicas": [4]}}}}, True),
        ({"spec": {}, "status": {"partitions": {"0": {"replicas": [0, 3]}}}}, False),
        ({"spec": {"clusterRef": {"name": "other"}}, "status": {"partitions": {"0": {"replicas": [4]}}}}, False),
        ({"spec": {}}, False),
        ({"spec": {}, "status": {"partitions": {"0": {}}}}, True),
        ({"spec": {}, "status": {"partitions": {"0": {"replicas": "4"}}}}, True),
        ({"spec": {}, "status": {"partitions": ["0"]}}, True),
        ({"spec": "none"}, True),
    ],
)
def test_what_is_not_understood_counts_as_held(topic, answer):
    assert may_hold(topic, CLUSTER, 4) is answer

"""Brokers that leave: what the operator takes away, in which order, and what it leaves."""

import asyncio

import pytest

from kafkalite_core.controller import emptied
from kafkalite_core.resources.naming import data_claim_name
from kafkalite_operator import removal
from kafkalite_operator.removal import may_hold
from kafkalite_runtime.kube.errors import KubeNotFound
from kafkalite_runtime.kube.kinds import (
    BROKERS,
    CLUSTERS,
    EVENTS,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    SERVICES,
    STATEFUL_SETS,
    TOPICS,
)
from tests.unit.operator.conftest import SPEC
from tests.unit.operator.fakes import NAMESPACE, eventually

pytestmark = pytest.mark.timeout(240)
CLUSTER = "kafkalite"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """What passes with time does so at once: brokers notice what is gone as soon as they are heard."""
    monkeypatch.setattr(removal, "POLL_S", 0.05)
    monkeypatch.setattr(emptied, "ADOPTION_GRACE_S", 0.0)
    monkeypatch.setattr(emptied, "PATIENCE_S", 0.0)


def noticed(harness, broker_id):
    """Whether the operator has heard the broker since its last replica went."""
    controller = harness.operators["operator-1"][0].controller
    broker = controller._store.brokers_of((NAMESPACE, CLUSTER)).get(broker_id)
    return broker is not None and any(each.noticed(broker) for each in controller._emptied.values())


async def get(harness, kind, name):
    try:
        return await harness.client.get(kind, NAMESPACE, name)
    except KubeNotFound:
        return None


async def five(harness, *, delete_claim=False, assignment=None, running=5):
    """Five brokers, one topic on the first three of them, and the claims that a StatefulSet would have made."""
    harness.start_operator()
    spec = {**SPEC, "replicas": 5, "storage": {"size": "1Gi", "deleteClaim": delete_claim}}
    metadata = {"name": CLUSTER, "namespace": NAMESPACE}
    head = {"apiVersion": "kafkalite.io/v1alpha1", "metadata": metadata}
    await harness.client.create(CLUSTERS, NAMESPACE, {**head, "kind": "KafkaLiteCluster", "spec": spec})
    assignment = assignment or {"0": [0, 1, 2]}
    topic = {"partitions": len(assignment), "replicas": 3, "replicaAssignment": assignment}
    metadata = {"name": "orders", "namespace": NAMESPACE}
    head = {"apiVersion": "kafkalite.io/v1alpha1", "metadata": metadata}
    await harness.client.create(TOPICS, NAMESPACE, {**head, "kind": "KafkaLiteTopic", "spec": topic})
    for broker_id in range(5):
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": data_claim_name(CLUSTER, broker_id), "namespace": NAMESPACE},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }
        await harness.client.create(PERSISTENT_VOLUME_CLAIMS, NAMESPACE, claim)
    await harness.start_brokers(running)
    await eventually(lambda: serves(harness))


async def serves(harness):
    found = await get(harness, TOPICS, "orders")
    made = await get(harness, STATEFUL_SETS, f"{CLUSTER}-broker")
    return bool((found.get("status") or {}).get("partitions")) and made


async def scale(harness, replicas):
    await harness.client.merge_patch(CLUSTERS, NAMESPACE, CLUSTER, {"spec": {"replicas": replicas}})


async def pods(harness):
    return (await get(harness, STATEFUL_SETS, f"{CLUSTER}-broker"))["spec"]["replicas"]


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


async def progressing(harness):
    found = await get(harness, CLUSTERS, CLUSTER)
    told = found["status"].get("conditions", [])
    return next((each for each in told if each["type"] == "Progressing"), {"reason": "", "message": ""})


async def scaling_down(harness):
    return (await progressing(harness))["reason"] == "ScalingDown"


async def names(harness, kind):
    listed = await harness.client.list(kind, NAMESPACE)
    return {item["metadata"]["name"] for item in listed.items}


async def events(harness, reason):
    return [e["message"] for e in (await harness.client.list(EVENTS, NAMESPACE)).items if e["reason"] == reason]


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


async def test_the_volume_goes_with_the_broker_when_the_storage_says_so(harness):
    await five(harness, delete_claim=True)
    await eventually(lambda: noticed(harness, 4))
    await harness.brokers[4].freeze()
    await scale(harness, 4)
    await eventually(lambda: gone(harness, 4))
    claims = await names(harness, PERSISTENT_VOLUME_CLAIMS)
    assert claims == {data_claim_name(CLUSTER, broker_id) for broker_id in range(4)}


async def only_replica_on_the_last(harness):
    """A topic with the policy Retain, whose one replica is on broker 4, which is to leave and is not heard any more."""
    await five(harness, delete_claim=True)
    spec = {"partitions": 1, "replicas": 1, "replicaAssignment": {"0": [4]}, "deletionPolicy": "Retain"}
    metadata = {"name": "kept", "namespace": NAMESPACE}
    head = {"apiVersion": "kafkalite.io/v1alpha1", "kind": "KafkaLiteTopic", "metadata": metadata}
    await harness.client.create(TOPICS, NAMESPACE, {**head, "spec": spec})

    async def placed():
        found = await get(harness, TOPICS, "kept")
        return (found.get("status") or {}).get("partitions")

    await eventually(placed)
    await eventually(lambda: not noticed(harness, 4))


async def volume_told(harness):
    await eventually(lambda: gone(harness, 4))
    claims = await names(harness, PERSISTENT_VOLUME_CLAIMS)
    (told,) = await eventually(lambda: events(harness, "BrokerRemoved"))
    return data_claim_name(CLUSTER, 4) in claims, told


async def test_a_volume_with_data_of_a_topic_that_was_just_deleted_stays(harness):  # S10
    """The broker has not noticed the deletion before it ended, so it lists nothing."""
    await only_replica_on_the_last(harness)
    await scale(harness, 4)
    await eventually(lambda: scaling_down(harness))
    await harness.client.delete(TOPICS, NAMESPACE, "kept")
    await eventually(lambda: noticed(harness, 4))
    await harness.brokers[4].freeze()
    stays, told = await volume_told(harness)
    assert stays
    assert "its volume stays: it has data of topics that were lost (kept)" in told


async def test_the_volume_of_a_broker_that_was_not_heard_since_its_last_replica_went_stays(harness):  # S10
    """Nobody knows what it would list: an operator that has just taken over has not seen what it had."""
    await five(harness, delete_claim=True)
    await harness.brokers[4].freeze()

    async def fenced():
        found = await get(harness, BROKERS, f"{CLUSTER}-broker-4")
        return (found.get("status") or {}).get("fencing")

    await eventually(fenced)
    await harness.stop_operator()
    harness.start_operator()
    await scale(harness, 4)
    stays, told = await volume_told(harness)
    assert stays
    assert "its broker was not heard for long enough after its last replica went" in told


async def test_what_a_broker_lists_at_its_end_counts_and_not_what_it_listed_before(harness):  # S10
    await five(harness, delete_claim=True)
    await eventually(lambda: noticed(harness, 4))
    await scale(harness, 4)
    await eventually(lambda: fewer(harness))
    await harness.brokers[4].holds_strays("lost", "lost-id", partitions=1, leader_epoch=3, partition_epoch=3)
    await harness.brokers[4].freeze()
    stays, told = await volume_told(harness)
    assert stays
    assert "it has data of topics that were lost (lost)" in told


async def test_a_broker_that_may_be_about_to_notice_is_waited_for(harness, monkeypatch):
    monkeypatch.setattr(emptied, "ADOPTION_GRACE_S", 3600.0)
    monkeypatch.setattr(emptied, "PATIENCE_S", 3600.0)
    asked = asyncio.Event()
    awaited = emptied.Emptied.waits_for

    def ask(self, broker, now):
        asked.set()
        return awaited(self, broker, now)

    monkeypatch.setattr(emptied.Emptied, "waits_for", ask)
    await five(harness, delete_claim=True)
    await scale(harness, 4)
    await asyncio.wait_for(asked.wait(), 30)
    asked.clear()
    await asyncio.wait_for(asked.wait(), 30)
    assert await pods(harness) == 5
    monkeypatch.setattr(emptied, "ADOPTION_GRACE_S", 0.0)
    await eventually(lambda: fewer(harness))


async def test_the_volume_of_a_broker_that_never_registered_stays(harness):  # S10
    """Nobody has said what is on it: its object may be one of a backup, which has no status."""
    await five(harness, delete_claim=True, running=4)
    await scale(harness, 4)
    await eventually(lambda: gone(harness, 4))
    assert data_claim_name(CLUSTER, 4) in await names(harness, PERSISTENT_VOLUME_CLAIMS)
    (told,) = await eventually(lambda: events(harness, "BrokerRemoved"))
    assert "its volume stays: the broker never registered" in told


async def gone(harness, broker_id):
    return not await get(harness, BROKERS, f"{CLUSTER}-broker-{broker_id}")


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


async def fewer(harness):
    return await pods(harness) == 4


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


async def test_the_volume_of_a_broker_that_shall_stay_after_all_is_not_deleted(harness, monkeypatch):
    await five(harness, delete_claim=True)
    await eventually(lambda: noticed(harness, 4))
    claim, refresh = data_claim_name(CLUSTER, 4), removal.BrokerRemoval._refresh

    async def raised_again(self, settings):
        """Just before the claim goes."""
        await scale(harness, 5)
        await refresh(self, settings)

    monkeypatch.setattr(removal.BrokerRemoval, "_refresh", raised_again)
    await scale(harness, 4)

    async def goes_on():
        return await pods(harness) == 5 and (await progressing(harness))["reason"] != "ScalingDown"

    async def shrunk():
        return await pods(harness) == 4

    await eventually(shrunk)
    await harness.brokers[4].freeze()
    await eventually(goes_on)
    assert await get(harness, PERSISTENT_VOLUME_CLAIMS, claim)
    assert await get(harness, BROKERS, f"{CLUSTER}-broker-4")

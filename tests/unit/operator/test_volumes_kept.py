"""Brokers that leave: when the volume goes with the broker, and when it stays because lost data may be on it (S10)."""

import asyncio

import pytest

from kafkalite_core.controller import emptied
from kafkalite_core.resources.naming import data_claim_name
from kafkalite_operator import removal
from kafkalite_runtime.kube.kinds import BROKERS, CLUSTERS, PERSISTENT_VOLUME_CLAIMS, TOPICS
from tests.unit.operator.fakes import NAMESPACE, eventually
from tests.unit.operator.five_brokers import (
    CLUSTER,
    events,
    fewer,
    five,
    get,
    gone,
    names,
    noticed,
    pods,
    progressing,
    scale,
    scaling_down,
)

pytestmark = [pytest.mark.timeout(240), pytest.mark.usefixtures("quick")]


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


async def test_whoever_takes_the_permission_back_while_the_broker_ends_keeps_the_volume(harness):
    """The pod has been asked to end, and its end may take long: what the spec says when the claim would go counts."""
    await five(harness, delete_claim=True, nodeLoss="replace")
    await eventually(lambda: noticed(harness, 4))
    await scale(harness, 4)
    await eventually(lambda: fewer(harness))
    await harness.client.merge_patch(CLUSTERS, NAMESPACE, CLUSTER, {"spec": {"storage": {"deleteClaim": False}}})
    await harness.brokers[4].freeze()
    stays, told = await volume_told(harness)
    assert stays
    assert "its volume stays (storage.deleteClaim is false)" in told

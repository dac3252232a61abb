"""Elections on request, from the annotation to the Event, against the embedded API server."""

import pytest

from kafkalite_core.model.partition import IsrEntry
from kafkalite_core.resources.naming import (
    ANNOTATION_ELECT_PREFERRED,
    ANNOTATION_ELECT_UNCLEAN,
    ANNOTATION_RECOVER_STORE,
)
from kafkalite_runtime.kube.kinds import EVENTS, TOPICS
from tests.unit.operator.fakes import NAMESPACE, eventually
from tests.unit.operator.test_operator import condition, make_topic, running_cluster, topic

pytestmark = pytest.mark.timeout(240)


async def annotate(harness, **wishes):
    names = {"preferred": ANNOTATION_ELECT_PREFERRED, "unclean": ANNOTATION_ELECT_UNCLEAN}
    annotations = {names[kind]: value for kind, value in wishes.items()}
    await harness.client.merge_patch(TOPICS, NAMESPACE, "orders", {"metadata": {"annotations": annotations}})

    async def gone():
        found = await harness.client.get(TOPICS, NAMESPACE, "orders")
        return not set(annotations) & set(found["metadata"].get("annotations") or {})

    await eventually(gone)


async def event(harness, reason):
    async def find():
        events = (await harness.client.list(EVENTS, NAMESPACE)).items
        return next((found for found in events if found["reason"] == reason), None)

    return await eventually(find)


async def test_wishes_that_cannot_be_and_wishes_that_are_met_are_removed_and_told(harness):
    before = await running_cluster(harness)
    first = before.partitions[0].leader
    await harness.brokers[first].die()

    async def led_by_others():
        return all(entry.leader not in {first, -1} for entry in (await topic(harness)).partitions.values())

    await eventually(led_by_others)
    # The broker is away, so it cannot lead: the wish is removed, and the Event says why.
    await annotate(harness, preferred="0")
    refused = await event(harness, "ElectionNotPossible")
    assert refused["type"] == "Warning"
    assert "partition 0" in refused["message"]
    # Where there are leaders nobody is elected uncleanly.
    entries = (await topic(harness)).partitions
    await annotate(harness, unclean="all")
    assert (await topic(harness)).partitions == entries
    assert (await event(harness, "ElectionsDone"))["type"] == "Normal"


async def test_a_lost_topic_of_which_nobody_in_sync_has_the_data_is_taken_over_with_consent(harness):  # S10
    await running_cluster(harness)
    isr = (IsrEntry(7, 3),)
    await harness.brokers[1].holds_strays("lost", "lost-id", partitions=1, leader_epoch=3, partition_epoch=3, isr=isr)
    await make_topic(harness, "lost", partitions=1)

    async def asked():
        found = await condition(harness, "Ready", "lost")
        return found if found and found[1] == "InSyncLost" else None

    assert "brokers [7]" in (await eventually(asked))[2]
    consent = {"metadata": {"annotations": {ANNOTATION_RECOVER_STORE: "true"}}}
    await harness.client.merge_patch(TOPICS, NAMESPACE, "lost", consent)
    told = await event(harness, "DataAdopted")
    assert told["type"] == "Warning"
    assert "nobody who was in sync" in told["message"]
    found = await topic(harness, "lost")
    assert (found.ref.topic_id, found.partitions[0].isr_ids()) == ("lost-id", (1,))
    (operator, *_) = harness.operators["operator-1"]
    counted = operator.metrics.registry.get_sample_value(
        "kafka_controller_controllerstats_uncleanleaderelections_total"
    )
    assert counted == 1

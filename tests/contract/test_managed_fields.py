"""The record of who wrote which field, `metadata.managedFields`: the operator has the server keep none of its topics."""

from __future__ import annotations

from dataclasses import replace

from kafkalite_core.model.partition import PartitionChange
from kafkalite_core.resources import patches
from kafkalite_core.resources.topics import parse_topic
from tests.contract.conftest import MERGE_PATCH, TOPICS, causes, entry, placed_topic, topic

APPLY_PATCH = "application/apply-patch+yaml"
RESET = {"op": "add", "path": "/metadata/managedFields", "value": [{}]}


def elected(partition):
    """Another leader."""
    epochs = {"leader_epoch": partition.leader_epoch + 1, "partition_epoch": partition.partition_epoch + 1}
    return replace(partition, leader=next(m.id for m in partition.isr if m.id != partition.leader), **epochs)


def without_a_follower(partition):
    """A smaller ISR."""
    isr = tuple(member for member in partition.isr if member.id == partition.leader)
    return replace(partition, isr=isr, partition_epoch=partition.partition_epoch + 1)


async def untracked_topic(api, ns):
    """A placed topic as the operator has it, and its path."""
    obj = await placed_topic(api, ns)
    path = TOPICS.format(ns=ns) + "/orders"
    operations = patches.untracked(obj, resource_version=obj["metadata"]["resourceVersion"])
    if operations:
        answer = await api.patch(path, operations)
        assert answer.status == 200, answer.body
    return path


async def test_of_a_topic_without_a_record_none_is_begun(api, ns):
    path = await untracked_topic(api, ns)
    before = (await api.get(path)).body
    assert before["metadata"]["generation"] == 1
    found = parse_topic(before)
    election = {0: PartitionChange(found.partitions[0], elected(found.partitions[0]))}
    shrinking = without_a_follower(found.partitions[1])
    summary = {"conditions": [{"type": "Ready", "status": "True"}]}
    writes = [
        (f"{path}/status", patches.elections(found.ref, election, controller_epoch=3)),
        (f"{path}/status", patches.leader_proposal(found.ref, 1, found.partitions[1], shrinking)),
        (f"{path}/status", [{"op": "add", "path": f"/status/{name}", "value": each} for name, each in summary.items()]),
        (path, [{"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}}]),
        (path, [{"op": "replace", "path": "/spec/partitions", "value": 5}]),
    ]
    for where, operations in writes:
        answer = await api.patch(where, operations)
        assert answer.status == 200, answer.body
        assert "managedFields" not in answer.body["metadata"], operations
    replaced = await api.call("PUT", path, answer.body | {"spec": {**answer.body["spec"], "partitions": 6}})
    assert (replaced.status, replaced.body["spec"]["partitions"]) == (200, 6)
    assert "managedFields" not in replaced.body["metadata"]


async def test_its_fences_hold(api, ns):
    path = await untracked_topic(api, ns)
    found = parse_topic((await api.get(path)).body)
    election = patches.elections(
        found.ref, {0: PartitionChange(found.partitions[0], elected(found.partitions[0]))}, controller_epoch=3
    )
    assert (await api.patch(f"{path}/status", election)).status == 200
    assert (await api.patch(f"{path}/status", election)).status == 422, "it was decided on another entry"
    stale = await api.patch(f"{path}/status", {"status": {"controllerEpoch": 2}}, MERGE_PATCH)
    assert any("controllerEpoch never decreases" in message for _, message in causes(stale))
    backwards = await api.patch(f"{path}/status", {"status": {"partitions": {"0": entry(0, 4, 10)}}}, MERGE_PATCH)
    assert any("every change raises partitionEpoch" in message for _, message in causes(backwards))


async def test_it_may_be_removed_where_there_is_none(api, ns):
    path = await untracked_topic(api, ns)
    answer = await api.patch(path, [RESET])
    assert answer.status == 200, answer.body
    assert "managedFields" not in (await api.get(path)).body["metadata"]


async def test_it_is_removed_of_the_version_that_was_looked_at_and_of_no_other(api, ns, real):
    obj = await placed_topic(api, ns)
    path = TOPICS.format(ns=ns) + "/orders"
    operations = patches.untracked(obj, resource_version=obj["metadata"]["resourceVersion"])
    applied = {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "metadata": {"name": "orders", "labels": {"a": "b"}},
    }
    applied["spec"] = {"partitions": 3}
    answer = await api.patch(path, applied, APPLY_PATCH, fieldManager="argocd-controller")
    assert answer.status == 200, answer.body
    assert (await api.patch(path, operations)).status == 422
    now = (await api.get(path)).body
    assert "Apply" in {each["operation"] for each in now["metadata"]["managedFields"]}
    assert patches.untracked(now, resource_version=now["metadata"]["resourceVersion"]) == []


async def test_a_patch_of_the_status_does_not_remove_it(api, ns, real):
    await placed_topic(api, ns)
    answer = await api.patch(TOPICS.format(ns=ns) + "/orders/status", [RESET])
    assert answer.status == 200, answer.body
    assert answer.body["metadata"]["managedFields"]


async def test_who_applies_a_topic_later_owns_what_he_applies(api, ns, real):
    path = await untracked_topic(api, ns)
    wanted = {**topic(), "spec": {"partitions": 3, "config": {"retention.ms": "1", "segment.ms": "2"}}}
    answer = await api.patch(path, wanted, APPLY_PATCH, fieldManager="argocd-controller")
    assert answer.status == 200, answer.body
    managers = {each["manager"]: each["operation"] for each in answer.body["metadata"]["managedFields"]}
    assert managers == {"argocd-controller": "Apply", "before-first-apply": "Update"}
    assert patches.untracked(answer.body, resource_version=answer.revision) == []
    del wanted["spec"]["config"]["segment.ms"]
    answer = await api.patch(path, wanted, APPLY_PATCH, fieldManager="argocd-controller")
    assert answer.body["spec"]["config"] == {"retention.ms": "1"}

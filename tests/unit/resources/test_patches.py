from dataclasses import replace

import jsonpatch
import pytest

from kafkalite_core.model.cluster import BrokerState, Recovery
from kafkalite_core.model.partition import IsrEntry, PartitionChange
from kafkalite_core.model.topic import Holding, Stray
from kafkalite_core.resources import patches
from kafkalite_core.resources.brokers import parse_broker, render_registration
from kafkalite_core.resources.clusters import parse_cluster
from kafkalite_core.resources.topics import parse_topic
from tests.unit.resources.builders import broker_object, cluster_object, partition_json, registration, topic_object


@pytest.fixture
def obj():
    partitions = {"0": partition_json(), "1": partition_json(1)}
    return topic_object(status={"topicId": "id-1", "controllerEpoch": 3, "partitions": partitions})


def apply(obj, operations):
    return jsonpatch.apply_patch(obj, operations)


def refused(obj, operations):
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        apply(obj, operations)
    return True


def shrunk(entry):
    return replace(
        entry, isr=tuple(e for e in entry.isr if e.id == entry.leader), partition_epoch=entry.partition_epoch + 1
    )


def elected(entry):
    return replace(entry, leader=1, leader_epoch=5, isr=(IsrEntry(1, 8),), partition_epoch=entry.partition_epoch + 1)


def test_a_leader_that_leaves_names_its_successor_without_the_controllers_epoch(obj):
    topic = parse_topic(obj)
    entry = topic.partitions[0]
    successor = replace(
        entry,
        leader=entry.isr[1].id,
        leader_epoch=entry.leader_epoch + 1,
        partition_epoch=entry.partition_epoch + 1,
        isr=entry.isr[1:],
    )
    operations = patches.leader_proposal(topic.ref, 0, entry, successor)
    after = apply(obj, operations)
    assert parse_topic(after).partitions[0] == successor
    assert after["status"]["controllerEpoch"] == 3
    assert refused(after, operations)


def test_consent_to_a_recovery_of_the_store_is_tested(obj):  # S11
    topic = parse_topic(obj)
    entry = topic.partitions[0]
    change = {0: PartitionChange(entry, shrunk(entry))}
    operations = patches.elections(topic.ref, change, controller_epoch=4, recovery_request="true")
    with pytest.raises((jsonpatch.JsonPatchException, jsonpatch.JsonPointerException)):
        apply(obj, operations)
    consenting = {**obj, "metadata": {**obj["metadata"], "annotations": {"kafkalite.io/recover-store": "true"}}}
    assert parse_topic(apply(consenting, operations)).partitions[0] == shrunk(entry)


def test_isr_change_lands_on_the_state_it_was_decided_on_only(obj):
    topic = parse_topic(obj)
    entry = topic.partitions[0]
    operations = patches.leader_proposal(topic.ref, 0, entry, shrunk(entry))
    after = apply(obj, operations)
    assert parse_topic(after).partitions[0] == shrunk(entry)
    assert after["status"]["controllerEpoch"] == 3
    assert refused(after, operations), "a second arrival of the same patch"
    for path, value in [("leader", 1), ("leaderEpoch", 5), ("partitionEpoch", 12)]:
        changed = jsonpatch.apply_patch(
            obj, [{"op": "replace", "path": f"/status/partitions/0/{path}", "value": value}]
        )
        assert refused(changed, operations), path


def test_a_delayed_patch_misses_the_topic_that_was_made_again(obj):
    topic = parse_topic(obj)
    operations = patches.leader_proposal(topic.ref, 0, topic.partitions[0], shrunk(topic.partitions[0]))
    assert refused({**obj, "metadata": {**obj["metadata"], "uid": "uid-2"}}, operations)
    assert refused({**obj, "status": {**obj["status"], "topicId": "id-2"}}, operations)


def test_changes_of_other_partitions_do_not_conflict(obj):
    topic = parse_topic(obj)
    one = patches.leader_proposal(topic.ref, 0, topic.partitions[0], shrunk(topic.partitions[0]))
    two = patches.leader_proposal(topic.ref, 1, topic.partitions[1], shrunk(topic.partitions[1]))
    assert parse_topic(apply(apply(obj, one), two)).partitions[1].partition_epoch == 12


def test_a_leader_does_not_raise_its_own_epoch(obj):
    topic = parse_topic(obj)
    entry = topic.partitions[0]
    raised = replace(entry, leader_epoch=entry.leader_epoch + 1, partition_epoch=entry.partition_epoch + 1)
    with pytest.raises(AssertionError, match="never raises its own epoch"):
        patches.leader_proposal(topic.ref, 0, entry, raised)


def test_election_writes_the_controller_epoch_and_is_all_or_nothing(obj):
    topic = parse_topic(obj)
    changes = {n: PartitionChange(e, elected(e)) for n, e in topic.partitions.items() if e.leader == 0}
    changes[1] = PartitionChange(topic.partitions[1], replace(topic.partitions[1], min_isr=1, partition_epoch=12))
    operations = patches.elections(topic.ref, changes, controller_epoch=4)
    after = parse_topic(apply(obj, operations))
    assert (after.controller_epoch, after.partitions[0].leader, after.partitions[1].min_isr) == (4, 1, 1)
    raced = jsonpatch.apply_patch(obj, [{"op": "replace", "path": "/status/partitions/1/partitionEpoch", "value": 12}])
    assert refused(raced, operations)


def test_unclean_election_tests_the_generation(obj):
    topic = parse_topic(obj)
    changes = {0: PartitionChange(topic.partitions[0], elected(topic.partitions[0]))}
    operations = patches.elections(topic.ref, changes, controller_epoch=4, unclean_generation=1)
    apply(obj, operations)
    assert refused({**obj, "metadata": {**obj["metadata"], "generation": 2}}, operations)


@pytest.mark.parametrize(
    "changes",
    [
        {"partition_epoch": 11},
        {"partition_epoch": 12, "leader_epoch": 3},
        {"partition_epoch": 12, "leader": 1},
        {"partition_epoch": 12, "leader": 2, "leader_epoch": 5},
        {"partition_epoch": 12, "replicas": (0,)},
    ],
)
def test_changes_that_break_a_fence_are_never_built(obj, changes):
    entry = parse_topic(obj).partitions[0]
    with pytest.raises(AssertionError):
        PartitionChange(entry, replace(entry, **changes))


@pytest.mark.parametrize("status", [None, {"conditions": [{"type": "Ready", "status": "False"}]}])
def test_first_status_tests_the_version(status):
    obj = topic_object(status=status)
    topic = parse_topic(obj)
    ref = replace(topic.ref, topic_id="new")
    entry = parse_topic(topic_object(status={"partitions": {"0": partition_json()}})).partitions[0]
    operations = patches.first_status(
        ref, {0: entry}, resource_version=topic.resource_version, has_status=status is not None, controller_epoch=2
    )
    after = apply(obj, operations)
    assert parse_topic(after).ref.topic_id == "new"
    assert after["status"]["inSync"] == "2/3"
    assert after["status"].get("conditions") == (status or {}).get("conditions")
    assert refused({**obj, "metadata": {**obj["metadata"], "resourceVersion": "8"}}, operations)


def test_added_partitions(obj):
    topic = parse_topic(obj)
    operations = patches.added_partitions(topic.ref, {2: topic.partitions[0]}, resource_version="7", controller_epoch=4)
    assert list(parse_topic(apply(obj, operations)).partitions) == [0, 1, 2]
    assert refused({**obj, "metadata": {**obj["metadata"], "resourceVersion": "8"}}, operations)


def test_fence_names_the_incarnation():
    obj = broker_object(1, status={"registration": render_registration(registration(7))})
    operations = patches.fence(parse_broker(obj), reason="ContainerExited", since="t")
    assert parse_broker(apply(obj, operations)).fenced
    successor = broker_object(1, status={"registration": render_registration(registration(8))})
    assert refused(successor, operations)


def test_registration_tests_the_whole_object():
    obj = broker_object(1)
    strays = [Stray(topic="t", topic_id="i", partition=0, leader_epoch=1, partition_epoch=1, end_offset=3)]
    after = apply(obj, patches.registration(obj, registration(7), strays))
    assert parse_broker(after).strays == tuple(strays)
    assert (parse_broker(obj).strays_unlisted, parse_broker(after).strays_unlisted) == (None, 0)
    fenced = {**after, "status": {**after["status"], "fencing": {"fencedEpoch": 7}}}
    again = apply(fenced, patches.registration(fenced, registration(9)))
    assert parse_broker(again).alive
    assert again["status"]["fencing"] == {"fencedEpoch": 7}
    assert refused(
        {**fenced, "metadata": {**fenced["metadata"], "resourceVersion": "4"}},
        patches.registration(fenced, registration(9)),
    )


def test_who_registers_with_a_new_disk_has_nothing_of_the_former_one():
    obj = broker_object(1)
    full = apply(obj, patches.registration(obj, registration(7), [], [], 5))
    assert parse_broker(full).strays_unlisted == 5
    empty = registration(9, directory_id="new", trusted_since=9)
    assert parse_broker(apply(full, patches.registration(full, empty))).strays_unlisted == 0
    fewer = patches.registration_update(parse_broker(full), registration(7), [], None, 3)
    assert parse_broker(apply(full, fewer)).strays_unlisted == 3
    kept = patches.registration_update(parse_broker(full), registration(7))
    assert parse_broker(apply(full, kept)).strays_unlisted == 5


def test_registration_update_keeps_the_registration():
    obj = broker_object(1, status={"registration": render_registration(registration(7))})
    broker = parse_broker(obj)
    held = Holding(topic="t", topic_id="i", partition=0, leader_epoch=1, partition_epoch=1, log_epoch=1, end_offset=3)
    reported = apply(obj, patches.registration_update(broker, registration(7), None, [held]))
    assert parse_broker(reported).holdings == (held,)
    assert parse_broker(apply(reported, patches.registration(reported, registration(9)))).holdings == ()
    running = registration(7, state=BrokerState.RUNNING)
    assert parse_broker(apply(obj, patches.registration_update(broker, running, []))).registration == running
    with pytest.raises(AssertionError):
        patches.registration_update(broker, registration(8))


def recovering(logs=3, incarnation="new"):
    return Recovery(
        incarnation=incarnation, started_at="2026-01-01T00:00:00Z", remaining_logs=logs, remaining_segments=5
    )


@pytest.mark.parametrize("status", [None, {}, {"registration": render_registration(registration(7))}])
def test_a_recovery_is_told_beside_the_registration_which_ends_it(status):
    obj = broker_object(1, status=status)
    begun = apply(obj, patches.recovery_begun(obj, recovering()))
    assert parse_broker(begun).recovery == recovering()
    assert parse_broker(begun).recovering
    assert parse_broker(begun) == parse_broker(obj), "of the broker that others look at nothing is different"
    further = apply(begun, patches.recovery_progress(obj["metadata"]["uid"], recovering(2)))
    assert parse_broker(further).recovery == recovering(2)
    registered = apply(further, patches.registration(further, registration(9)))
    assert "recovery" not in registered["status"]
    assert refused(registered, patches.recovery_progress(obj["metadata"]["uid"], recovering(1))), "it is late"


def test_what_is_told_of_a_recovery_does_not_land_on_anything_newer():
    obj = broker_object(1, status={})
    late = patches.recovery_begun(obj, recovering())
    newer = apply(obj, patches.recovery_begun(obj, recovering(9, "newer")))
    assert refused({**newer, "metadata": {**newer["metadata"], "resourceVersion": "4"}}, late)
    assert refused(newer, patches.recovery_progress(obj["metadata"]["uid"], recovering()))
    assert refused(newer, patches.recovery_progress("another object", recovering(1, "newer")))


def test_counters_are_drawn_once():
    obj = cluster_object(status={"clusterId": "c", "nextBrokerEpoch": 5, "nextProducerId": 1000})
    cluster = parse_cluster(obj)
    epoch = patches.next_broker_epoch(cluster)
    assert parse_cluster(apply(obj, epoch)).next_broker_epoch == 6
    assert refused(apply(obj, epoch), epoch)
    block = patches.producer_id_block(cluster)
    assert parse_cluster(apply(obj, block)).next_producer_id == 2000
    with pytest.raises(AssertionError, match="first status"):
        patches.next_broker_epoch(parse_cluster(cluster_object()))


def test_take_control_initialises_only_what_is_missing():
    fresh = cluster_object()
    after = apply(fresh, patches.take_control(fresh, holder="op-1", epoch=1, cluster_id="abc"))
    cluster = parse_cluster(after)
    assert (cluster.cluster_id, cluster.controller_epoch, cluster.next_broker_epoch) == ("abc", 1, 1)
    again = apply(after, patches.take_control(after, holder="op-2", epoch=2, cluster_id="other"))
    assert again["status"]["clusterId"] == "abc"
    assert again["status"]["controller"] == {"holder": "op-2", "epoch": 2}


def test_summary_cannot_touch_safety_fields():
    with pytest.raises(AssertionError):
        patches.status_summary("u", {"partitions": {}}, resource_version="1", has_status=True)
    obj = topic_object()
    operations = patches.status_summary("uid-1", {"inSync": "0/0"}, resource_version="7", has_status=False)
    assert apply(obj, operations)["status"] == {"inSync": "0/0"}


UPDATE = {"manager": "kubectl-create", "operation": "Update", "apiVersion": "kafkalite.io/v1alpha1", "fieldsV1": {}}
APPLY = {**UPDATE, "manager": "argocd-controller", "operation": "Apply"}


@pytest.mark.parametrize(("entries", "removed"), [([UPDATE], True), ([UPDATE, APPLY], False), ([APPLY], False)])
def test_who_wrote_which_field_is_forgotten_unless_somebody_applies(entries, removed):
    operations = patches.untracked(topic_object(managedFields=entries), resource_version="7")
    assert bool(operations) == removed
    if removed:
        assert apply(topic_object(managedFields=entries), operations)["metadata"]["managedFields"] == [{}]
        assert apply(topic_object(), operations)["metadata"]["managedFields"] == [{}], "gone meanwhile: not refused"
        assert refused(topic_object(managedFields=[*entries, APPLY], version="8"), operations)
        assert refused(topic_object(managedFields=entries, uid="uid-2"), operations)


@pytest.mark.parametrize("metadata", [{}, {"managedFields": []}, {"managedFields": None}])
def test_a_topic_of_which_nothing_is_recorded_is_not_written(metadata):
    assert patches.untracked(topic_object(**metadata), resource_version="7") == []

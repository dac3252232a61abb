import json
import os
from dataclasses import replace

import msgspec
import pytest

from kafkalite_core.model.cluster import Adopted
from kafkalite_core.model.partition import IsrEntry, in_sync
from kafkalite_core.model.topic import Condition, Holding, Stray
from kafkalite_core.resources.brokers import (
    cluster_of_broker,
    parse_broker,
    render_holding,
    render_registration,
    render_stray,
)
from kafkalite_core.resources.clusters import parse_cluster
from kafkalite_core.resources.conditions import parse_conditions, set_condition
from kafkalite_core.resources.fields import Fields, ResourceError
from kafkalite_core.resources.leases import parse_lease, render_lease
from kafkalite_core.resources.naming import broker_labels
from kafkalite_core.resources.patches import fence
from kafkalite_core.resources.pods import container_exits, is_ready, render_termination_message
from kafkalite_core.resources.topics import parse_partition, parse_topic, parse_topic_spec, render_partition
from tests.unit.resources.builders import broker_object, cluster_object, partition_json, registration, topic_object


def test_topic_with_status():
    status = {"topicId": "id-1", "controllerEpoch": 12, "partitions": {"10": partition_json(), "2": partition_json(1)}}
    topic = parse_topic(topic_object(spec={"topicName": "Orders", "config": {"retention.ms": 5}}, status=status))
    assert (topic.ref.name, topic.ref.object_name, topic.ref.uid, topic.ref.topic_id) == (
        "Orders",
        "orders",
        "uid-1",
        "id-1",
    )
    assert list(topic.partitions) == [2, 10]
    assert topic.partitions[2].isr == (IsrEntry(0, 7), IsrEntry(1, 8))
    assert topic.config == {"retention.ms": "5"}
    assert topic.cluster == "kafkalite"
    assert topic.controller_epoch == 12
    assert in_sync(topic.partitions) == "4/6"


@pytest.mark.parametrize(
    ("condition", "asked"),
    [
        ({"type": "Ready", "status": "False", "reason": "StoreWentBack"}, True),
        ({"type": "Ready", "status": "True", "reason": "Serving"}, False),
        ({"type": "Healthy", "status": "False", "reason": "StoreWentBack"}, False),
    ],
)
def test_the_operator_asks_for_reports_by_its_condition(condition, asked):  # S11
    assert parse_topic(topic_object(status={"topicId": "id", "conditions": [condition]})).store_went_back is asked


@pytest.mark.parametrize(("type_", "status", "reason", "known", "wanted"), [
    ("DurableFlush", "False", "Relaxed", True, True), ("DurableFlush", "False", "Tightening", True, False),
    ("DurableFlush", "True", "Flushed", False, False), ("Ready", "False", "Relaxed", False, False),
])  # fmt: skip
def test_the_operator_says_that_it_reckons_with_a_relaxed_flush(type_, status, reason, known, wanted):  # S4
    condition = {"type": type_, "status": status, "reason": reason}
    read = parse_topic(topic_object(status={"topicId": "id", "conditions": [condition]}))
    assert (read.flush_lag_known, read.flush_may_lag) == (known, wanted)


def test_topic_without_status_has_no_id_and_no_partition():
    topic = parse_topic(topic_object())
    assert (topic.ref.topic_id, topic.partitions, topic.ref.name) == ("", {}, "orders")


def test_topic_spec_with_manual_assignment():
    spec = parse_topic_spec(topic_object(spec={"replicaAssignment": {"0": [2, 1]}, "clusterRef": {"name": "c"}}))
    assert spec.replica_assignment == {0: (2, 1)}
    assert spec.cluster == "c"


def test_partition_round_trip():
    value = partition_json()
    assert render_partition(parse_partition(Fields(value, "p"))) == value
    moving = value | {"elr": [2], "elrBrokerEpochs": [9], "adding": [2], "removing": [0]}
    assert render_partition(parse_partition(Fields(moving, "p"))) == moving


def test_empty_lists_of_a_partition_are_read_and_not_written():
    """An operator of before wrote them."""
    value = partition_json()
    empty = {name: [] for name in ("elr", "elrBrokerEpochs", "adding", "removing")}
    assert render_partition(parse_partition(Fields(value | empty, "p"))) == value


@pytest.mark.parametrize("name", ["isr", "elr"])
@pytest.mark.parametrize("epochs", [[], [7], [7, 8, 9]])
def test_members_and_their_epochs_have_to_fit(name, epochs):
    entry = partition_json() | {name: [0, 1], f"{name}BrokerEpochs": epochs}
    with pytest.raises(ResourceError, match=rf"p\.{name}BrokerEpochs has not one number for each broker of {name}"):
        parse_partition(Fields(entry, "p"))


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"metadata": {}},
        {"metadata": {"name": 3}},
        {"metadata": {"name": "x"}, "spec": []},
        {"metadata": {"name": "x"}, "spec": {"partitions": "three"}},
        {"metadata": {"name": "x"}, "spec": {"partitions": True}},
        {"metadata": {"name": "x"}, "spec": {"config": {"a": []}}},
        {"metadata": {"name": "x"}, "spec": {"replicaAssignment": {"a": [1]}}},
        {"metadata": {"name": "x"}, "spec": {}, "status": {"partitions": {"0": {"leader": 1}}}},
        {"metadata": {"name": "x"}, "spec": {}, "status": {"partitions": {"0": 7}}},
        {
            "metadata": {"name": "x"},
            "spec": {},
            "status": {"partitions": {"0": partition_json() | {"isr": [{"id": 0, "epoch": 4}]}}},
        },
        {
            "metadata": {"name": "x"},
            "spec": {},
            "status": {"partitions": {"0": partition_json() | {"replicas": "012"}}},
        },
        "text",
    ],
)
def test_malformed_topics_raise_a_resource_error(broken):
    with pytest.raises(ResourceError):
        parse_topic(broken)


def test_the_error_names_the_object_and_the_field():
    with pytest.raises(
        ResourceError, match=r"KafkaLiteTopic default/orders\.spec\.partitions is not a whole number: 'x'"
    ):
        parse_topic(topic_object(spec={"partitions": "x"}))


def test_an_isr_of_an_earlier_broker_names_no_broker_epochs_and_others_have_to_fit():
    held = {"topic": "t", "topicId": "id", "partition": 1, "leaderEpoch": 2, "partitionEpoch": 5, "logEpoch": 1}
    held |= {"endOffset": 9, "isr": [1, 2]}
    obj = broker_object(2, status={"holdings": [held]})
    (told,) = parse_broker(obj).holdings
    assert told.isr == (IsrEntry(1, -1), IsrEntry(2, -1))
    assert render_holding(told) == held
    held["isrBrokerEpochs"] = [7]
    with pytest.raises(ResourceError, match="isrBrokerEpochs has not one number for each broker of isr"):
        parse_broker(obj)


def test_broker_round_trip():
    stray = Stray(topic="t", topic_id="id", partition=3, leader_epoch=2, partition_epoch=5, end_offset=99, deleted=True)
    known = Stray(topic="t", topic_id="id", partition=4, leader_epoch=2, partition_epoch=5, end_offset=9, log_epoch=-1)
    told = replace(known, isr=(IsrEntry(1, 7), IsrEntry(2, 9)), isr_epoch=4, isr_leader_epoch=2, relaxed_flush=True)
    holding = Holding(
        topic="t", topic_id="id", partition=1, leader_epoch=2, partition_epoch=5, log_epoch=-1, end_offset=9
    )
    isr = (IsrEntry(1, 7), IsrEntry(2, -1))
    contradicted = replace(holding, isr=isr, isr_epoch=-1, isr_leader_epoch=1)
    held_there = (holding, replace(holding, agrees=True), contradicted, replace(holding, hosted=False, isr=isr))
    former = Adopted(broker_epoch=5, trusted_since=2, clean_since=6)
    registered = registration(7, rack="a", adopted=(former,))
    status = {
        "registration": render_registration(registered),
        "fencing": {"fencedEpoch": 6},
        "strays": [render_stray(one) for one in (stray, known, told)],
        "holdings": [render_holding(held) for held in held_there],
    }
    obj = broker_object(2, status=status, cordoned=True)
    broker = parse_broker(obj)
    assert broker.registration == registered
    assert (broker.id, broker.fenced_epoch, broker.cordoned, broker.alive) == (2, 6, True, True)
    assert broker.strays == (stray, known, told)
    assert broker.holdings == held_there
    assert "hosted" not in render_holding(holding), "what older versions would not know is said only when it differs"
    assert cluster_of_broker(obj) == "kafkalite"


def test_broker_before_registration_is_fenced():
    assert parse_broker(broker_object()).fenced


def test_broker_with_an_unknown_state_raises():
    status = {"registration": render_registration(registration()) | {"state": "Dancing"}}
    with pytest.raises(ResourceError, match="Dancing"):
        parse_broker(broker_object(status=status))


def test_cluster_defaults_and_pause():
    cluster = parse_cluster(cluster_object())
    assert (cluster.cluster_id, cluster.replicas, cluster.lease_duration_s, cluster.paused) == ("", 3, 5.0, False)
    assert parse_cluster(cluster_object(annotations={"kafkalite.io/paused": "true"})).paused


def test_cluster_status():
    status = {"clusterId": "c", "controller": {"holder": "h", "epoch": 4}, "nextBrokerEpoch": 9, "nextProducerId": 2000}
    cluster = parse_cluster(cluster_object(status=status))
    assert (cluster.controller_epoch, cluster.next_broker_epoch, cluster.next_producer_id) == (4, 9, 2000)


def test_lease_round_trip():
    obj = render_lease(
        "ns", "n", holder="h", renewed="r", acquired="a", duration_s=5, transitions=2, resource_version="8"
    )
    lease = parse_lease(obj)
    assert (lease.holder, lease.renewed, lease.duration_s, lease.resource_version) == ("h", "r", 5, "8")


def pod(state=None, last=None, ready="True"):
    return {
        "metadata": {"name": "kafkalite-broker-1", "labels": broker_labels("kafkalite", 1)},
        "status": {
            "conditions": [{"type": "Ready", "status": ready}],
            "containerStatuses": [
                {"name": "sidecar", "state": {"terminated": {"message": '{"incarnation": "other"}'}}},
                {"name": "broker", "state": state or {}, "lastState": last or {}},
            ],
        },
    }


def terminated(message, code=137):
    return {"terminated": {"exitCode": code, "reason": "Error", "message": message}}


def test_an_exit_names_its_incarnation():
    message = render_termination_message("inc-1", 7, "fsync failed")
    assert json.loads(message) == {"incarnation": "inc-1", "brokerEpoch": 7, "reason": "fsync failed"}
    (found,) = container_exits(pod(terminated(message)))
    assert (found.broker_id, found.incarnation, found.exit_code, found.reason) == (
        1,
        "inc-1",
        137,
        "fsync failed",
    )


def test_the_fence_of_a_broker_that_ended_on_a_damaged_name_can_be_sent():
    """What the file system returns of bytes that are no UTF-8 has halves of surrogate pairs."""
    reason = f"DiskFailure: {os.fsdecode(b'or' + bytes([0xE4]) + b'ers-0')}: Structure needs cleaning"
    (found,) = container_exits(pod(terminated(render_termination_message("inc-1", 7, reason))))
    broker = parse_broker(broker_object(status={"registration": render_registration(registration())}))
    sent = msgspec.json.decode(msgspec.json.encode(fence(broker, reason=found.reason, since="2026-01-01T00:00:00Z")))
    assert sent[-1]["value"]["reason"] == "DiskFailure: or?ers-0: Structure needs cleaning"


def test_an_exit_is_also_seen_after_the_restart_and_once():
    message = render_termination_message("inc-1", None)
    assert [e.incarnation for e in container_exits(pod({"running": {}}, terminated(message)))] == ["inc-1"]
    assert len(container_exits(pod(terminated(message), terminated(message)))) == 1


@pytest.mark.parametrize(
    "message", ["", "killed", "[]", '{"incarnation": ""}', '{"incarnation": 5}', "{" * 5000, "[" * 4096]
)
def test_an_exit_without_incarnation_is_no_evidence(message):
    assert container_exits(pod(terminated(message))) == []


@pytest.mark.parametrize(
    ("metadata", "counts"),
    [
        ({}, True),
        ({"ownerReferences": [{"kind": "StatefulSet", "name": "kafkalite-broker", "controller": True}]}, True),
        ({"ownerReferences": [{"kind": "StatefulSet", "name": "another", "controller": True}]}, False),
        ({"ownerReferences": [{"kind": "Job", "name": "kafkalite-broker", "controller": True}]}, False),
        ({"ownerReferences": [{"kind": "Job", "name": "watcher"}]}, True),
        ({"name": "somebody"}, False),
        ({"labels": broker_labels("another", 1)}, False),
        ({"labels": {}}, False),
    ],
)
def test_only_the_pod_of_a_broker_tells_of_its_end(metadata, counts):
    told = pod(terminated(render_termination_message("inc-1", 7)))
    told["metadata"] |= metadata
    assert bool(container_exits(told)) is counts


def test_readiness():
    assert is_ready(pod())
    assert not is_ready(pod(ready="False"))


def test_condition_keeps_its_time_while_the_status_is_the_same():
    first = set_condition([], Condition(type="Ready", status="False", reason="A"), generation=1, now="t1")
    second = set_condition(first, Condition(type="Ready", status="False", reason="B"), generation=2, now="t2")
    third = set_condition(second, Condition(type="Ready", status="True", reason="C"), generation=2, now="t3")
    assert [c[0]["lastTransitionTime"] for c in (first, second, third)] == ["t1", "t1", "t3"]
    assert second[0]["observedGeneration"] == 2
    assert parse_conditions({"conditions": third}) == (Condition(type="Ready", status="True", reason="C"),)


def test_other_conditions_stay_in_their_places():
    conditions = [{"type": "A", "status": "True"}, {"type": "B", "status": "True"}, {"type": "C", "status": "True"}]
    result = set_condition(conditions, Condition(type="B", status="False", reason="R"), generation=1, now="t")
    assert [entry["type"] for entry in result] == ["A", "B", "C"]
    assert parse_conditions({"conditions": "nonsense"}) == ()

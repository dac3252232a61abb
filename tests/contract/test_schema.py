"""Schema and CEL rules of specifications: what a user's mistake is answered with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kafkalite_core.resources.manifests import cluster_settings
from kafkalite_core.resources.statefulset import stateful_set
from tests.contract.conftest import (
    BROKERS,
    CLUSTERS,
    MERGE_PATCH,
    TOPICS,
    broker_object,
    causes,
    cluster,
    load_crds,
    topic,
)

NOT_CHECKED = (
    "<nil>",
    (
        "Invalid value: null: some validation rules were not checked because the object was invalid; "
        "correct the existing errors to complete validation"
    ),
)


async def test_the_schema_says_what_is_wrong(api, ns):
    body = topic("bad", partitions=0, deletionPolicy="X", topicName="a b")
    body["spec"]["replicas"] = "3"
    answer = await api.call("POST", TOPICS.format(ns=ns), body)
    assert sorted(causes(answer)) == [
        NOT_CHECKED,
        ("spec.deletionPolicy", 'Unsupported value: "X": supported values: "Delete", "Retain"'),
        ("spec.partitions", "Invalid value: 0: spec.partitions in body should be greater than or equal to 1"),
        ("spec.replicas", 'Invalid value: "string": spec.replicas in body must be of type integer: "string"'),
        ("spec.topicName", "Invalid value: \"a b\": spec.topicName in body should match '^[a-zA-Z0-9._-]+$'"),
    ]
    assert answer.body["message"].startswith('KafkaLiteTopic.kafkalite.io "bad" is invalid: [')
    assert f"<nil>: {NOT_CHECKED[1]}" in answer.body["message"]
    reasons = {cause["field"]: cause["reason"] for cause in answer.body["details"]["causes"]}
    assert reasons == {
        "<nil>": "FieldValueInvalid",
        "spec.deletionPolicy": "FieldValueNotSupported",
        "spec.partitions": "FieldValueInvalid",
        "spec.replicas": "FieldValueTypeInvalid",
        "spec.topicName": "FieldValueInvalid",
    }


async def test_rules_are_checked_beside_a_schema_that_does_not_hold(api, ns):
    """Unless what is wrong is the form of the object: then they are not, and the answer says so."""
    config = {"min.insync.replicas": "10"}
    answer = await api.call("POST", TOPICS.format(ns=ns), topic("bad", partitions=0, config=config))
    assert sorted(field for field, _ in causes(answer)) == ["spec.config", "spec.partitions"]
    answer = await api.call("POST", TOPICS.format(ns=ns), topic("bad", clusterRef={}, config=config))
    assert sorted(causes(answer)) == [NOT_CHECKED, ("spec.clusterRef.name", "Required value")]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"partitions": 257}, "spec.partitions"),
        ({"replicas": 17}, "spec.replicas"),
        ({"topicName": ""}, "spec.topicName"),
        ({"clusterRef": {}}, "spec.clusterRef.name"),
        ({"replicaAssignment": {"0": []}}, "spec.replicaAssignment.0"),
        ({"replicaAssignment": {"0": list(range(17))}}, "spec.replicaAssignment.0"),
        ({"config": {"a": 1}}, "spec.config.a"),
        ({"config": {"min.insync.replicas": "0"}}, "spec.config"),
        ({"config": {"min.insync.replicas": "4"}}, "spec.config"),
        ({"config": {"min.insync.replicas": "two"}}, "spec.config"),
        ({"config": {"min.insync.replicas": "1.5"}}, "spec.config"),
        ({"config": {"min.insync.replicas": ""}}, "spec.config"),
    ],
)
async def test_bad_topics_are_refused(api, ns, spec, field):
    answer = await api.call("POST", TOPICS.format(ns=ns), topic("bad", **spec))
    assert [where for where, what in causes(answer) if (where, what) != NOT_CHECKED] == [field]
    assert (await api.get(f"{TOPICS.format(ns=ns)}/bad")).status == 404


async def test_a_single_error_reads_as_on_the_real_server(api, ns):
    await api.create(TOPICS.format(ns=ns), topic())
    answer = await api.patch(f"{TOPICS.format(ns=ns)}/orders", {"spec": {"partitions": 1}}, MERGE_PATCH)
    assert answer.body["message"] == (
        'KafkaLiteTopic.kafkalite.io "orders" is invalid: '
        'spec.partitions: Invalid value: "object": partitions can only grow'
    )
    assert answer.body["details"] == {
        "name": "orders",
        "group": "kafkalite.io",
        "kind": "KafkaLiteTopic",
        "causes": [
            {
                "reason": "FieldValueInvalid",
                "message": 'Invalid value: "object": partitions can only grow',
                "field": "spec.partitions",
            }
        ],
    }


REF_STAYS = "clusterRef is immutable, it can neither be added nor removed"
NAME_STAYS = "topicName is immutable, it can neither be added nor removed"


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ({"clusterRef": {"name": "a"}}, {"clusterRef": {"name": "b"}}, "clusterRef is immutable"),
        ({"clusterRef": {"name": "a"}}, {"clusterRef": None}, REF_STAYS),
        ({}, {"clusterRef": {"name": "a"}}, REF_STAYS),
        ({"topicName": "A"}, {"topicName": "B"}, "topicName is immutable"),
        ({"topicName": "A"}, {"topicName": None}, NAME_STAYS),
        ({}, {"topicName": "A"}, NAME_STAYS),
    ],
)
async def test_identity_of_a_topic_is_immutable(api, ns, before, after, message):
    await api.create(TOPICS.format(ns=ns), topic(**before))
    answer = await api.patch(f"{TOPICS.format(ns=ns)}/orders", {"spec": after}, MERGE_PATCH)
    assert [what.endswith(f": {message}") for _, what in causes(answer)] == [True], answer.body


async def test_a_topic_cannot_be_named_like_a_folder(api, ns):
    for name in (".", ".."):
        [(field, message)] = causes(await api.call("POST", TOPICS.format(ns=ns), topic(topicName=name)))
        assert field == "spec.topicName"
        assert message.endswith(": a topic cannot be named . or ..")


async def test_lowering_replicas_below_min_isr_is_refused(api, ns):
    await api.create(TOPICS.format(ns=ns), topic(config={"min.insync.replicas": "3"}))
    path = f"{TOPICS.format(ns=ns)}/orders"
    [(field, message)] = causes(await api.patch(path, {"spec": {"replicas": 2}}, MERGE_PATCH))
    assert field == "spec.config"
    assert "min.insync.replicas must be a whole number from 1 to spec.replicas" in message
    both = {"spec": {"replicas": 2, "config": {"min.insync.replicas": "2"}}}
    assert (await api.patch(path, both, MERGE_PATCH)).status == 200


async def test_identity_of_a_broker_is_immutable(api, ns):
    path = BROKERS.format(ns=ns)
    await api.create(path, broker_object())
    broker = f"{path}/c-broker-0"
    for change, message in (
        ({"brokerId": 1}, "brokerId is immutable"),
        ({"clusterRef": {"name": "d"}}, "clusterRef is immutable"),
    ):
        said = {what.rpartition(": ")[2] for _, what in causes(await api.patch(broker, {"spec": change}, MERGE_PATCH))}
        assert said == {message, BROKER_NAME}
    assert (await api.patch(broker, {"spec": {"cordoned": True}}, MERGE_PATCH)).status == 200


BROKER_NAME = "a broker is named after its cluster and its id, <cluster>-broker-<id>"


@pytest.mark.parametrize(
    ("name", "broker_id"),
    [("c-broker-0", 1), ("c-broker-01", 1), ("c-broker-1", 11), ("backup-of-c-broker-1", 1), ("d-broker-1", 1)],
)
async def test_a_broker_under_a_name_that_is_not_its_own_is_refused(api, ns, name, broker_id):
    """Such an object would be a second one of a broker that is there."""
    [(field, message)] = causes(await api.call("POST", BROKERS.format(ns=ns), broker_object(name, broker_id)))
    assert (field, message) == ("<nil>", f'Invalid value: "object": {BROKER_NAME}')


async def test_brokers_go_as_far_as_a_cluster_does(api, ns):
    await api.create(BROKERS.format(ns=ns), broker_object("c-broker-63", 63))
    answer = await api.call("POST", BROKERS.format(ns=ns), broker_object("c-broker-64", 64))
    assert [where for where, what in causes(answer) if (where, what) != NOT_CHECKED] == ["spec.brokerId"]


ASSIGNMENT_KEY = 'replicaAssignment goes by partition number, such as "0"'


@pytest.mark.parametrize("key", ["p0", "00", "-1", "1.0", "", " 0", "0\n", "1000", "9" * 4400])
async def test_an_assignment_of_what_is_no_partition_is_refused(api, ns, key):
    """Nobody could read such a topic, and its status would not be heard of any more."""
    path = TOPICS.format(ns=ns)
    await api.create(path, topic(replicaAssignment={"0": [0], "255": [1]}))
    answers = [
        await api.call("POST", path, topic("bad", replicaAssignment={key: [0]})),
        await api.patch(f"{path}/orders", {"spec": {"replicaAssignment": {key: [0]}}}, MERGE_PATCH),
    ]
    refused = ("spec.replicaAssignment", f'Invalid value: "object": {ASSIGNMENT_KEY}')
    assert [causes(answer) for answer in answers] == [[refused], [refused]]


@pytest.mark.parametrize(
    ("pod", "where"),
    [
        ({"spec": "x"}, "spec"),
        ({"metadata": []}, "metadata"),
        ({"metadata": {"labels": {"a": 1}}}, "metadata.labels.a"),
        ({"metadata": {"annotations": "x"}}, "metadata.annotations"),
        ({"spec": {"containers": {}}}, "spec.containers"),
        ({"spec": {"containers": [None]}}, "spec.containers[0]"),
        ({"spec": {"containers": [{"name": ["a"]}]}}, "spec.containers[0].name"),
        ({"spec": {"containers": [{"image": "x"}]}}, "spec.containers[0].name"),
        ({"spec": {"containers": [{"name": "broker", "env": [{"name": 1}]}]}}, "spec.containers[0].env[0].name"),
        ({"spec": {"containers": [{"name": "broker", "resources": []}]}}, "spec.containers[0].resources"),
        ({"spec": {"volumes": [{"name": {}}]}}, "spec.volumes[0].name"),
    ],
)
async def test_a_pod_template_that_cannot_be_merged_is_refused(api, ns, pod, where):
    answer = await api.call("POST", CLUSTERS.format(ns=ns), cluster(template={"pod": pod}))
    fields = [field for field, what in causes(answer) if (field, what) != NOT_CHECKED]
    assert fields == [f"spec.template.pod.{where}"]


@pytest.mark.parametrize(
    "pod",
    [
        {"spec": None, "metadata": None},
        {"metadata": {"labels": None, "annotations": None}, "spec": {"containers": None, "volumes": None}},
        {"spec": {"containers": [{"name": "broker", "env": None, "ports": [{"containerPort": 1}], "resources": None}]}},
        {"spec": {"containers": [{"name": "broker", "resources": {"limits": {"cpu": 0.5, "memory": "1Gi"}}}]}},
        {"metadata": {"finalizers": []}, "spec": {"nodeSelector": {"disk": "fast"}, "dnsConfig": None}},
    ],
)
async def test_the_rest_of_a_pod_template_is_kept_as_it_is(api, ns, pod):
    made = await api.create(CLUSTERS.format(ns=ns), cluster(template={"pod": pod}))
    assert made.body["spec"]["template"]["pod"] == pod


@pytest.mark.parametrize("size", ["1e999999999", "1e100", "1e1.5", "9" * 33, "10 Gi"])
async def test_a_size_that_no_disk_has_is_refused(api, ns, size):
    answer = await api.call("POST", CLUSTERS.format(ns=ns), cluster(storage={"size": size}))
    assert [where for where, what in causes(answer) if (where, what) != NOT_CHECKED] == ["spec.storage.size"]


@pytest.mark.parametrize(
    ("name", "spec", "field", "message"),
    [
        (
            "c" * 45,
            {},
            "<nil>",
            "the name of a cluster has at most 44 characters, since pods and Services are named after it",
        ),
        (
            "c",
            {"failureDetection": {"leaseDurationSeconds": 2, "renewIntervalSeconds": 2}},
            "spec.failureDetection",
            "leaseDurationSeconds must be greater than renewIntervalSeconds",
        ),
    ],
)
async def test_bad_clusters_are_refused(api, ns, name, spec, field, message):
    [(where, what)] = causes(await api.call("POST", CLUSTERS.format(ns=ns), cluster(name, **spec)))
    assert where == field
    assert message in what


CLUSTER_NAME = (
    "Services are named after a cluster: its name has a-z, 0-9 and hyphens, a letter first and no hyphen last"
)


@pytest.mark.parametrize("name", ["1st", "a.b", "2024"])
async def test_a_cluster_that_no_service_may_be_named_after_is_refused(api, ns, name):
    answer = await api.call("POST", CLUSTERS.format(ns=ns), {**cluster(name), "status": {"clusterId": "x"}})
    assert causes(answer) == [("<nil>", f'Invalid value: "object": {CLUSTER_NAME}')]


def listeners(*names, kind="internal"):
    return [{"name": name, "type": kind, "port": 9092 + place} for place, name in enumerate(names)]


@pytest.mark.parametrize(
    "names",
    [
        ("plain",),
        ("client-a", "client-b", "CLIENT_C"),
        ("a", "a-b", "ab", "a-b-c"),
        ("tcp-prometheusx", "prometheus", "tcp"),
        ("2024-01-01-a", "1a"),
        ("_", "--"),
        ("n" * 14 + "a", "n" * 14 + "bxx", "n" * 14),
        tuple(f"{'n' * 13}{place:02}{'x' * 17}" for place in range(16)),
        ("plain", "9094", "123456789-12345-a"),
        ("plain", "tcp-prometheus", "_TCP_Prometheus-2"),
        ("A", "a", "a_b", "a-b", "a--b"),
        ("external-clients-a", "external-clients-b"),
    ],
)
async def test_listeners_of_any_name_are_taken_and_their_ports_have_names(api, ns, names):
    body = cluster(listeners=listeners(*names))
    await api.create(CLUSTERS.format(ns=ns), body)
    assert not port_names_clash(names)


def port_names_clash(names):
    """What Kubernetes would say of the StatefulSet."""
    body = cluster(listeners=listeners(*names))
    body["metadata"] |= {"namespace": "n", "uid": "u", "resourceVersion": "1"}
    [container] = stateful_set(cluster_settings(body), 1)["spec"]["template"]["spec"]["containers"]
    ports = [port["name"] for port in container["ports"]]
    return len(set(ports)) < len(ports) or not all(re.search("[a-z]", port) for port in ports)


METRICS_PORT = "metrics.port is the port of a listener; without listeners there is one on 9092"


@pytest.mark.parametrize(
    "spec",
    [
        {"metrics": {"port": 9092}},
        {"metrics": {"port": 9092}, "listeners": []},
        {"metrics": {"port": 9093}, "listeners": listeners("a", "b")},
        {"listeners": [{"name": "a", "type": "internal", "port": 9404}]},
    ],
)
async def test_metrics_on_the_port_of_a_listener_are_refused(api, ns, spec):
    answer = await api.call("POST", CLUSTERS.format(ns=ns), cluster(**spec))
    assert causes(answer) == [("spec.metrics.port", f'Invalid value: "object": {METRICS_PORT}')]


@pytest.mark.parametrize(
    "spec",
    [
        {"metrics": {"port": 9405}},
        {"metrics": {"port": 9092}, "listeners": [{"name": "a", "type": "internal", "port": 9404}]},
        {"metrics": {"port": 9092}, "listeners": listeners("a", kind="hostport")},
    ],
)
async def test_metrics_on_a_port_of_their_own_are_taken(api, ns, spec):
    await api.create(CLUSTERS.format(ns=ns), cluster(**spec))


def rules(schema):
    """Every CEL rule in a schema."""
    yield from schema.get("x-kubernetes-validations", ())
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from rules(schema[key])
    for child in schema.get("properties", {}).values():
        yield from rules(child)


def messages(rule):
    """Everything that a rule may say: its message, or the answers between which its messageExpression chooses."""
    return re.findall(r"[?:] '([^']+)'", rule.get("messageExpression", "")) or [rule["message"]]


@pytest.mark.parametrize("definition", load_crds(), ids=lambda value: value["spec"]["names"]["kind"])
def test_every_rule_is_tried(definition):
    """Here, as a fence, or as one of configurations. A rule is known by its messages, which the tests of refused writers name in full."""
    here = Path(__file__)
    files = (here, here.with_name("test_fences.py"), here.with_name("test_config_rules.py"))
    tried = "".join(file.read_text() for file in files)
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    found = [message for rule in rules(schema) for message in messages(rule)]
    assert len(found) > 5
    assert [message for message in found if not re.search(re.escape(message) + '[\x27"]', tried)] == []

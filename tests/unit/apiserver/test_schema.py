"""Structural schemas and rules, held to what Kubernetes 1.34's own library says about the same objects."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from kafkalite_core.model.partition_counts import PartitionCounts
from kafkalite_core.resources.partition_counts import render_counts
from kafkalite_local.apiserver.cel_rules import check_rules, compile_rules
from kafkalite_local.apiserver.cel_views import views
from kafkalite_local.apiserver.schema import MISSING, Schema, apply_defaults, compile_schema, prune, validate

if TYPE_CHECKING:
    from kafkalite_local.apiserver.errors import FieldError

CRDS = Path(__file__).resolve().parents[3] / "crds"


def compiled(name: str) -> Schema:
    definition = yaml.safe_load((CRDS / f"{name}.yaml").read_text())
    return compile_schema(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"])


TOPIC = compiled("kafkalitetopics")


def judge(new, old=MISSING, schema: Schema = TOPIC) -> list[str]:
    errors: list[FieldError] = []
    validate(schema, new, old, "", errors)
    if not errors:
        check_rules(schema, new, old, errors)
    return sorted(str(error) for error in errors)


def topic(spec, status=None):
    value = {"apiVersion": "kafkalite.io/v1alpha1", "kind": "KafkaLiteTopic", "metadata": {"name": "x"}}
    if spec is not MISSING:
        value["spec"] = spec
    return value if status is None else {**value, "status": status}


GOOD = {"partitions": 1, "replicas": 3}

# Recorded from ValidateCustomResource of apiextensions-apiserver 0.34.4.
SCHEMA_CASES = [
    (
        {
            "partitions": 0,
            "replicas": "3",
            "deletionPolicy": "X",
            "topicName": "a b",
            "config": {"a": 1},
            "replicaAssignment": {"0": []},
        },
        [
            'spec.config.a: Invalid value: "integer": spec.config.a in body must be of type string: "integer"',
            'spec.deletionPolicy: Unsupported value: "X": supported values: "Delete", "Retain"',
            "spec.partitions: Invalid value: 0: spec.partitions in body should be greater than or equal to 1",
            "spec.replicaAssignment.0: Invalid value: 0: spec.replicaAssignment.0 in body should have at least 1 items",
            'spec.replicas: Invalid value: "string": spec.replicas in body must be of type integer: "string"',
            "spec.topicName: Invalid value: \"a b\": spec.topicName in body should match '^[a-zA-Z0-9._-]+$'",
        ],
    ),
    (
        {"partitions": 300, "topicName": "", "clusterRef": {}},
        [
            "spec.clusterRef.name: Required value",
            "spec.partitions: Invalid value: 300: spec.partitions in body should be less than or equal to 256",
            "spec.replicas: Required value",
            'spec.topicName: Invalid value: "": spec.topicName in body should be at least 1 chars long',
        ],
    ),
    (MISSING, ["spec: Required value"]),
    ([], ['spec: Invalid value: "array": spec in body must be of type object: "array"']),
    (None, ['spec: Invalid value: "null": spec in body must be of type object: "null"']),
    (
        {"partitions": 1.5, "replicas": True, "clusterRef": "x", "replicaAssignment": {"0": list(range(17))}},
        [
            'spec.clusterRef: Invalid value: "string": spec.clusterRef in body must be of type object: "string"',
            'spec.partitions: Invalid value: "number": spec.partitions in body must be of type integer: "number"',
            "spec.replicaAssignment.0: Too many: 17: must have at most 16 items",
            'spec.replicas: Invalid value: "boolean": spec.replicas in body must be of type integer: "boolean"',
        ],
    ),
    (
        {**GOOD, "config": {"min.insync.replicas": "4"}},
        ['spec.config: Invalid value: "object": min.insync.replicas must be a whole number from 1 to spec.replicas'],
    ),
]


@pytest.mark.parametrize(("spec", "expected"), SCHEMA_CASES)
def test_errors_read_as_those_of_kubernetes(spec, expected):
    assert judge(topic(spec)) == expected


def entry(isr: int, leader: int = 1, **changes):
    base = {"leader": leader, "leaderEpoch": 4, "partitionEpoch": 11, "replicas": [1, 2, 0]}
    return {**base, "isr": [isr], "isrBrokerEpochs": [7], **changes}


def test_rules_read_as_those_of_kubernetes():
    old = topic(GOOD, {"controllerEpoch": 3, "topicId": "a", "partitions": {"0": entry(1), "1": entry(1)}})
    new = topic(GOOD, {"controllerEpoch": 1, "partitions": {"0": entry(5)}})
    assert judge(new, old) == sorted(
        [
            'status: Invalid value: "object": controllerEpoch never decreases',
            'status.partitions[0]: Invalid value: "object": the leader must be a member of the ISR',
            (
                'status.partitions[0]: Invalid value: "object": every change raises partitionEpoch; leaderEpoch never '
                "falls, and rises when the leader changes"
            ),
        ]
    )
    assert judge(topic(GOOD), old) == ['<nil>: Invalid value: "object": status never disappears']
    assert judge(topic({**GOOD, "partitions": 1}), topic({**GOOD, "partitions": 2, "topicName": "a"})) == [
        'spec.partitions: Invalid value: "object": partitions can only grow',
        'spec: Invalid value: "object": topicName is immutable, it can neither be added nor removed',
    ]
    assert judge(topic({**GOOD, "topicName": "b"}), topic({**GOOD, "topicName": "a"})) == [
        'spec.topicName: Invalid value: "string": topicName is immutable'
    ]


def test_conditions_are_a_map_by_type():
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"}
    assert judge(topic(GOOD, {"conditions": [condition]})) == []
    assert judge(topic(GOOD, {"conditions": [condition, condition]})) == [
        'status.conditions[1]: Duplicate value: {"type":"Ready"}'
    ]
    assert judge(topic(GOOD, {"conditions": [{**condition, "lastTransitionTime": "soon"}], "inSync": "x" * 33})) == [
        (
            'status.conditions[0].lastTransitionTime: Invalid value: "soon": '
            'status.conditions[0].lastTransitionTime in body must be of type date-time: "soon"'
        ),
        "status.inSync: Too long: may not be more than 32 bytes",
    ]


def test_what_did_not_change_is_not_judged_again():
    bad = topic({**GOOD, "partitions": 999})
    assert judge({**bad, "status": {}}, bad) == []
    assert judge(topic({**GOOD, "partitions": 998}), bad) != []
    assert judge(topic({**GOOD, "partitions": True}), topic(GOOD)) != [], "true is not 1"


def test_pruning_and_defaults():
    value = topic({"colour": 1, "clusterRef": {"name": "c", "x": 1}, "config": {"any.key": "v"}})
    value["metadata"]["anything"] = {"goes": "here"}
    TOPIC.properties["metadata"] = compile_schema({"x-kubernetes-preserve-unknown-fields": True})
    unknown: list[str] = []
    prune(TOPIC, value, MISSING, "", unknown)
    apply_defaults(TOPIC, value)
    assert unknown == ["spec.colour", "spec.clusterRef.x"]
    assert value["spec"] == {
        "clusterRef": {"name": "c"},
        "config": {"any.key": "v"},
        "partitions": 1,
        "replicas": 3,
        "deletionPolicy": "Delete",
    }
    assert value["metadata"]["anything"] == {"goes": "here"}


VALUE = {
    "epoch": 3,
    "name": "n",
    "list": [{"id": 1}, {"id": 2}],
    "map": {"0": {"deep": {"er": 1}}, "1": {"deep": {"er": 2}}},
    "unused": {"x": 1},
}


@pytest.mark.parametrize(
    ("rule", "seen"),
    [
        ("has(self.map)", {"map": {}}),
        ("has(self.list)", {"list": []}),
        ("'0' in self.map", {"map": {"0": True, "1": True}}),
        ("self.map.all(k, k.matches('^[0-9]$'))", {"map": {"0": True, "1": True}}),
        ("self.map.size() == 2", {"map": {"0": True, "1": True}}),
        ("self.map['1'].deep.er == 2", {"map": VALUE["map"]}),
        ("has(self.map) && self.map.all(k, self.map[k].deep.er > 0)", {"map": VALUE["map"]}),
        ("self.list.all(m, m.id > 0)", {"list": VALUE["list"]}),
        ("self.list.exists(m, m.id == 1) && has(self.list)", {"list": VALUE["list"]}),
        ("self.epoch == 3 && self.name.size() == 1", {"epoch": 3, "name": "n"}),
        ("self.map.transformList(k, v, v.deep.er).size() == 2", {"map": VALUE["map"]}),
        ("self == self", VALUE),
        ("self.all(k, k != 'x')", dict.fromkeys(VALUE, True)),
    ],
)
def test_a_rule_is_shown_what_it_can_see(rule, seen):
    assert views(rule)["self"].of(VALUE) == seen
    if "transformList" in rule:
        return  # the interpreter does not know it; the view must not cut it short all the same
    program = compile_rules([{"rule": rule}])[0].condition.program
    assert program.execute({"self": seen}) is program.execute({"self": VALUE}) is True


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("self.name.lowerAscii().replace('b', 'xy') == 'axyc'", None),
        ("'ÄA_'.lowerAscii().replace('_', '-') == 'Äa-'", None),
        ("self.name.substring(1) == 'bc'", None),
        ("self.name.substring(1, 2) == 'b'", None),
        ("self.name.substring(3) == ''", None),
        ("self.name.substring(0) == 'b'", "no"),
        ("self.name.substring(4) == ''", "index out of range: 4"),
        ("self.name.substring(2, 1) == ''", "index out of range: 2"),
        ("self.name.indexOf('c') == 2 && self.name.indexOf('x') == -1", None),
        ("self.numbers.indexOf(4) == 1 && self.numbers.indexOf(9) == -1", None),
        ("self.numbers[self.numbers.indexOf(9)] == 3", "index out of bounds: -1"),
    ],
)
def test_functions_of_the_libraries(rule, told):
    schema = Schema(type="object", rules=compile_rules([{"rule": rule, "message": "no"}]), has_rules=True)
    errors: list[FieldError] = []
    check_rules(schema, {"name": "abc", "numbers": [3, 4, 4]}, MISSING, errors)
    assert [told in str(error) for error in errors] == ([] if told is None else [True])


def test_the_counts_of_a_clusters_partitions():
    schema = compiled("kafkaliteclusters")
    counts = render_counts(PartitionCounts(total=9, under_replicated=4, offline=2, under_min_isr=1))

    def cluster(partitions):
        value = {"apiVersion": "kafkalite.io/v1alpha1", "kind": "KafkaLiteCluster", "metadata": {"name": "x"}}
        return {**value, "spec": {}, "status": {"partitions": partitions}}

    value = cluster({**counts, "other": 1})
    prune(schema, value, MISSING, "", [])
    assert value["status"]["partitions"] == counts
    assert judge(cluster(counts), schema=schema) == []
    for name in counts:
        assert [error.partition(":")[0] for error in judge(cluster({**counts, name: -1}), schema=schema)] == [
            f"status.partitions.{name}"
        ]
        assert judge(cluster({**counts, name: "1"}), schema=schema)


def test_the_columns_of_a_cluster_show_what_its_status_counts():
    definition = yaml.safe_load((CRDS / "kafkaliteclusters.yaml").read_text())
    shown = {
        column["name"]: column["jsonPath"]
        for column in definition["spec"]["versions"][0]["additionalPrinterColumns"]
        if not column.get("priority")
    }
    names = {f".status.partitions.{name}" for name in render_counts(PartitionCounts())}
    assert shown["Offline"] == ".status.partitions.offline"
    assert shown["Under-replicated"] == ".status.partitions.underReplicated"
    assert {path for path in shown.values() if ".partitions." in path} <= names


@pytest.mark.parametrize("file", sorted(CRDS.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_field_is_described_for_explain(file):
    definition = yaml.safe_load(file.read_text())

    def undescribed(schema, path):
        for name, child in schema.get("properties", {}).items():
            if "description" not in child and path + name != "metadata":
                yield path + name
            yield from undescribed(child, f"{path}{name}.")
        for key in ("items", "additionalProperties"):
            if isinstance(schema.get(key), dict):
                yield from undescribed(schema[key], path)

    (version,) = definition["spec"]["versions"]
    assert list(undescribed(version["schema"]["openAPIV3Schema"], "")) == []

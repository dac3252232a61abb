"""values.schema.json refuses what nobody meant, and says where it is."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.helm.conftest import CHART, Helm

MISTAKES: list[tuple[dict[str, Any], str, str]] = [
    ({"replica": 3}, "at ''", "additional properties 'replica' not allowed"),
    ({"image": {"repo": "x"}}, "at '/image'", "additional properties 'repo' not allowed"),
    ({"replicas": "two"}, "at '/replicas'", "got string, want integer"),
    ({"replicas": -1}, "at '/replicas'", "minimum: got -1, want 0"),
    ({"watchNamespaces": "kafka"}, "at '/watchNamespaces'", "got string, want array"),
    ({"watchNamespaces": ["Kafka"]}, "at '/watchNamespaces/0'", "does not match pattern"),
    ({"watchAllNamespaces": "yes"}, "at '/watchAllNamespaces'", "got string, want boolean"),
    ({"image": {"tag": 1.0}}, "at '/image/tag'", "got number, want string"),
    ({"image": {"digest": "sha256:abc"}}, "at '/image/digest'", "does not match pattern"),
    ({"image": {"repository": "kafkalite operator"}}, "at '/image/repository'", "does not match pattern"),
    ({"image": {"pullPolicy": "Sometimes"}}, "at '/image/pullPolicy'", "value must be one of 'Always'"),
    ({"imagePullSecrets": [{"name": "registry"}]}, "at '/imagePullSecrets/0'", "got object, want string"),
    ({"logLevel": "INFO"}, "at '/logLevel'", "value must be one of 'debug'"),
    ({"extraEnv": [{"name": "A", "value": 1}]}, "at '/extraEnv/0/value'", "got number, want string"),
    ({"extraEnv": {"A": "1"}}, "at '/extraEnv'", "got object, want array"),
    ({"resources": {"requests": {"memory": "128MB"}}}, "at '/resources/requests/memory'", "does not match pattern"),
    ({"podAnnotations": {"a": True}}, "at '/podAnnotations/a'", "got boolean, want string"),
    ({"tolerations": {"key": "a"}}, "at '/tolerations'", "got object, want array"),
    ({"podDisruptionBudget": {"minAvailable": 1}}, "at '/podDisruptionBudget'", "'minAvailable' not allowed"),
    ({"livenessProbe": {"httpGet": {}}}, "at '/livenessProbe'", "'httpGet' not allowed"),
    ({"metrics": {"port": 70000}}, "at '/metrics/port'", "maximum: got 70,000, want 65,535"),
    ({"metrics": {"serviceMonitor": {"interval": 30}}}, "at '/metrics/serviceMonitor/interval'", "want string"),
    ({"metrics": {"dashboard": {"labels": {"grafana_dashboard": 1}}}}, "at '/metrics/dashboard/labels/grafana_dashboard'", "want string"),
    ({"metrics": {"prometheusRule": {"brokerSelector": '{a="b"}'}}}, "at '/metrics/prometheusRule/brokerSelector'", "not match"),
    ({"networkPolicy": {"listenerPorts": []}}, "at '/networkPolicy/listenerPorts'", "minItems"),
    ({"networkPolicy": {"clientsFrom": [{"labels": {}}]}}, "at '/networkPolicy/clientsFrom/0'", "'labels' not allowed"),
    ({"cluster": {"name": "a" * 45}}, "at '/cluster/name'", "maxLength"),
    ({"cluster": {"name": "1st"}}, "at '/cluster/name'", "does not match pattern"),
    ({"fullnameOverride": "1st"}, "at '/fullnameOverride'", "does not match pattern"),
    ({"nameOverride": "a.b"}, "at '/nameOverride'", "does not match pattern"),
    ({"cluster": {"spec": None}}, "at '/cluster'", "missing property 'spec'"),
    ({"defaultCluster": {"spec": None}}, "at '/defaultCluster'", "missing property 'spec'"),
    ({"rbac": None}, "at ''", "missing property 'rbac'"),
    ({"defaultCluster": {"spec": {"brokers": 3}}}, "at '/defaultCluster/spec'", "'brokers' not allowed"),
    ({"cluster": {"spec": {"replicas": 0}}}, "at '/cluster/spec/replicas'", "minimum: got 0, want 1"),
    ({"cluster": {"spec": {"config": {"num.partitions": 3}}}}, "at '/cluster/spec/config/num.partitions'", "want string"),
    ({"cluster": {"spec": {"storage": {"size": "10GB"}}}}, "at '/cluster/spec/storage/size'", "does not match pattern"),
    ({"cluster": {"spec": {"storage": {"size": "1e999999999"}}}}, "at '/cluster/spec/storage/size'", "does not match pattern"),
    ({"cluster": {"spec": {"template": {"pod": {"spec": "x"}}}}}, "at '/cluster/spec/template/pod/spec'", "got string, want null or object"),
    ({"rbac": {"readNodes": "yes"}}, "at '/rbac/readNodes'", "want boolean"),
    ({"cluster": {"spec": {"listeners": [{"name": "a", "type": "ingress", "port": 1}]}}}, "at '/cluster/spec/listeners/0/type'", "value must be one of"),
    ({"cluster": {"spec": {"listeners": [{"name": "a", "type": "nodeport", "port": 1, "configuration": {"nodePort": 1}}]}}}, "at '/cluster/spec/listeners/0/configuration'", "'nodePort' not allowed"),
    ({"topics": [{"name": "a"}]}, "at '/topics'", "got array, want object"),
    ({"topics": {"a": {"partition": 3}}}, "at '/topics/a'", "'partition' not allowed"),
    ({"topics": {"a": {"partitions": "6"}}}, "at '/topics/a/partitions'", "got string, want integer"),
    ({"topics": {"A_b": {}}}, "invalid propertyName 'A_b'", "does not match pattern"),
    ({"topics": {"a": {"clusterRef": "main"}}}, "at '/topics/a/clusterRef'", "got string, want object"),
]  # fmt: skip


@pytest.mark.parametrize(("values", "where", "why"), MISTAKES, ids=lambda value: str(value)[:60])
def test_a_mistake_is_refused_and_its_place_is_named(helm: Helm, values: dict, where: str, why: str):
    said = helm.refused(values)
    assert "values don't meet the specifications of the schema" in said
    [line] = [line for line in said.splitlines() if where in line]
    assert why in line or why in said[said.index(line) :]


def schema_node(schema: dict, path: list[str]) -> dict:
    node = schema
    for name in path:
        node = node["properties"][name]
        if "$ref" in node:
            node = schema["definitions"][node["$ref"].rpartition("/")[2]] | node
    return node


def test_schema_and_values_know_the_same_keys():
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    optional = {".global", ".podSecurityContext", ".securityContext", ".extraEnv"}

    def compare(value: Any, path: list[str]) -> None:
        node = schema_node(schema, path)
        where = "." + ".".join(path)
        assert node.get("description") or not path, f"{where} has no description"
        if "properties" not in node or where.endswith(("spec", "Probe", "resources")):
            return
        assert node["additionalProperties"] is False, where
        assert {f"{where.rstrip('.')}.{name}" for name in node["properties"]} - optional <= {
            f"{where.rstrip('.')}.{name}" for name in value
        } | optional, where
        for name, child in value.items():
            compare(child, [*path, name])

    compare(values, [])


def test_every_group_of_values_has_a_comment():
    text = (CHART / "values.yaml").read_text()
    groups = [group for group in text.split("\n\n") if yaml.safe_load(group)]
    assert len(groups) > 20
    assert [group for group in groups if "# " not in group] == []


def test_a_tag_that_moves_is_refused(helm: Helm):
    for values in ({"image": {"tag": "latest"}}, {"brokers": {"image": {"tag": "latest"}}}):
        assert "the tag latest moves" in helm.refused(values)

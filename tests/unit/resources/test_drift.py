"""What somebody changed of an applied object, and how it is put back."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite_core.resources.drift import differences, put_back
from kafkalite_core.resources.manifests import cluster_settings, infrastructure


def merged(there, patch):
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(there) if isinstance(there, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def stored(wanted):
    """As the API server has it: with defaults, quantities rewritten."""
    obj = copy.deepcopy(wanted)
    spec = obj.get("spec", {})
    if obj["kind"] == "Service":
        spec |= {"clusterIP": spec.get("clusterIP", "10.0.0.1"), "sessionAffinity": "None", "ipFamilies": ["IPv4"]}
        for port in spec["ports"]:
            port.setdefault("protocol", "TCP")
            port.setdefault("targetPort", port["port"])
    if obj["kind"] == "StatefulSet":
        spec |= {"revisionHistoryLimit": 10}
        spec["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"] = "1234567"
    obj["metadata"]["labels"] = {**obj["metadata"]["labels"], "team": "a"}
    return obj


LISTENERS = [
    {"name": "plain", "type": "internal", "port": 9092},
    {"name": "ext", "type": "nodeport", "port": 9094},
]
SETTINGS = cluster_settings(
    {
        "apiVersion": "kafkalite.io/v1alpha1",
        "kind": "KafkaLiteCluster",
        "metadata": {"name": "c", "namespace": "ns", "uid": "uid", "resourceVersion": "1", "generation": 1},
        "spec": {"replicas": 3, "listeners": LISTENERS},
    },
    default_image="image",
)
WANTED = infrastructure(SETTINGS, range(3))
BY_KIND = {each["kind"]: each for each in WANTED}


@pytest.mark.parametrize("wanted", WANTED, ids=lambda each: f"{each['kind']}-{each['metadata']['name']}")
def test_what_the_api_server_adds_is_no_change(wanted):
    assert differences(stored(wanted), wanted) == []
    assert put_back(stored(wanted), wanted) == wanted


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("StatefulSet", "spec.replicas", 0),
        ("StatefulSet", "spec.updateStrategy", {"type": "RollingUpdate"}),
        ("PodDisruptionBudget", "spec.maxUnavailable", 3),
        ("PodDisruptionBudget", "spec.selector", {"matchLabels": {"app": "x"}}),
        ("Service", "spec.selector", {"app": "x"}),
        ("Service", "spec.ports", []),
        ("ConfigMap", "data", {}),
        ("Service", "metadata.labels", {}),
    ],
)
def test_what_somebody_changes_is_found_and_put_back(kind, path, value):
    wanted = BY_KIND[kind]
    there = stored(wanted)
    place, name = there, path.split(".")[-1]
    for each in path.split(".")[:-1]:
        place = place[each]
    place[name] = value
    assert path in differences(there, wanted)
    assert differences(merged(there, put_back(there, wanted)), wanted) == []


def test_a_budget_has_one_limit():
    wanted = BY_KIND["PodDisruptionBudget"]
    there = stored(wanted)
    del there["spec"]["maxUnavailable"]
    there["spec"]["minAvailable"] = 0
    assert differences(there, wanted)
    after = merged(there, put_back(there, wanted))
    assert after["spec"]["maxUnavailable"] == 1
    assert "minAvailable" not in after["spec"]


def test_a_selector_with_one_label_more_finds_nobody():
    wanted = BY_KIND["Service"]
    there = stored(wanted)
    there["spec"]["selector"]["more"] = "x"
    assert differences(there, wanted) == ["spec.selector"]
    assert merged(there, put_back(there, wanted))["spec"]["selector"] == wanted["spec"]["selector"]


def test_so_does_a_budget_with_an_expression_beside_its_labels():
    wanted = BY_KIND["PodDisruptionBudget"]
    there = stored(wanted)
    there["spec"]["selector"]["matchExpressions"] = [{"key": "nobody", "operator": "Exists"}]
    assert differences(there, wanted) == ["spec.selector"]
    assert merged(there, put_back(there, wanted))["spec"]["selector"] == wanted["spec"]["selector"]


json = st.recursive(
    st.none() | st.integers(0, 3) | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
    max_leaves=6,
)


@given(st.sampled_from(WANTED), st.sampled_from(["spec", "metadata", "data"]), json)
def test_whatever_is_there_it_is_compared_and_put_back(wanted, name, value):
    there = {**stored(wanted), name: value}
    differences(there, wanted)
    assert differences(merged(there, put_back(there, wanted)), wanted) == []

"""Where pods run, and the rack that a broker reads."""

import pytest

from kafkalite_core.resources.manifests import cluster_settings
from kafkalite_core.resources.places import NO_RACK, pod_place, rack_of_node, rack_read
from kafkalite_core.resources.statefulset import stateful_set
from tests.unit.resources.builders import cluster_object

ZONE = "topology.kubernetes.io/zone"


def pod(*, node="n1", labels=None, annotations=None):
    metadata = {"name": "kafkalite-broker-0", "uid": "u", "labels": labels or {}, "annotations": annotations or {}}
    return {"kind": "Pod", "metadata": metadata, "spec": {"nodeName": node}, "status": {"hostIP": "10.0.0.1"}}


@pytest.mark.parametrize(
    ("made", "wants"),
    [
        (pod(), True),
        (pod(node=""), False),  # not scheduled yet
        (pod(labels={ZONE: "a"}), False),  # Kubernetes 1.35 has done it
        (pod(labels={"other": "a"}), True),
        (pod(annotations={"kafkalite.io/rack": "a"}), False),
        (pod(annotations={"kafkalite.io/rack": NO_RACK}), False),
    ],
)
def test_who_waits_for_the_operator(made, wants):
    place = pod_place(made)
    assert place.wants_rack(ZONE) is wants
    assert not place.wants_rack("")
    assert (place.name, place.uid, place.host) == ("kafkalite-broker-0", "u", "10.0.0.1")


def test_the_rack_of_a_node():
    node = {"kind": "Node", "metadata": {"name": "n1", "labels": {ZONE: "zone-a"}}}
    assert rack_of_node(node, ZONE) == "zone-a"
    assert rack_of_node(node, "example.com/rack") == NO_RACK


@pytest.mark.parametrize(
    ("label", "annotation", "rack"),
    [("", "", None), ("a", "", "a"), ("", "b\n", "b"), ("a", "b", "a"), ("", NO_RACK, "")],
)
def test_what_a_broker_reads(label, annotation, rack):
    assert rack_read(label, annotation) == rack


def test_the_pod_has_both_where_the_broker_looks():
    spec = {"rack": {"topologyKey": ZONE}}
    pod_spec = stateful_set(cluster_settings(cluster_object(spec=spec)), 1)["spec"]["template"]["spec"]
    [volume] = [each for each in pod_spec["volumes"] if each["name"] == "rack"]
    assert {item["path"]: item["fieldRef"]["fieldPath"] for item in volume["downwardAPI"]["items"]} == {
        "label": f"metadata.labels['{ZONE}']",
        "annotation": "metadata.annotations['kafkalite.io/rack']",
    }
    [container] = pod_spec["containers"]
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert {"name": "KAFKALITE_RACK_DIR", "value": mounts["rack"]} in container["env"]
    assert not mounts["rack"].startswith(mounts["config"] + "/"), "nothing can be mounted inside a read-only volume"
    assert "initContainers" not in pod_spec
    plain = stateful_set(cluster_settings(cluster_object()), 1)["spec"]["template"]["spec"]
    assert [each["name"] for each in plain["volumes"]] == ["config"]

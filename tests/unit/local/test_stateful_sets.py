import copy

import pytest

from kafkalite_local.kubelet.stateful_sets import plan, revision_of, unsupported

STATEFUL_SET = {
    "metadata": {"name": "k-broker", "namespace": "ns", "uid": "u", "generation": 4},
    "spec": {
        "replicas": 3,
        "serviceName": "k-brokers",
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "OnDelete"},
        "selector": {"matchLabels": {"app": "k"}},
        "template": {
            "metadata": {"labels": {"app": "k"}, "annotations": {"a": "b"}},
            "spec": {"volumes": [{"name": "config", "configMap": {"name": "c"}}], "containers": [{"name": "broker"}]},
        },
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}],
    },
}


def pods_of(stateful_set, *, ready=()):
    pods = plan(stateful_set, [], []).pods
    for number, pod in enumerate(pods):
        pod["metadata"]["uid"] = f"p{number}"
        pod["status"] = {"conditions": [{"type": "Ready", "status": "True" if number in ready else "False"}]}
    return pods


def scaled(replicas):
    stateful_set = copy.deepcopy(STATEFUL_SET)
    stateful_set["spec"]["replicas"] = replicas
    return stateful_set


def test_pods_are_what_kubernetes_would_make():
    planned = plan(STATEFUL_SET, [], [])
    assert [pod["metadata"]["name"] for pod in planned.pods] == ["k-broker-0", "k-broker-1", "k-broker-2"]
    pod = planned.pods[1]
    assert pod["metadata"]["labels"] == {
        "app": "k",
        "statefulset.kubernetes.io/pod-name": "k-broker-1",
        "apps.kubernetes.io/pod-index": "1",
        "controller-revision-hash": revision_of(STATEFUL_SET),
    }
    (owner,) = pod["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("StatefulSet", "u", True)
    assert pod["spec"]["hostname"] == "k-broker-1"
    assert pod["spec"]["subdomain"] == "k-brokers"
    assert pod["spec"]["nodeName"] == "local"
    assert pod["spec"]["volumes"][0] == {"name": "data", "persistentVolumeClaim": {"claimName": "data-k-broker-1"}}
    assert [claim["metadata"]["name"] for claim in planned.claims] == [f"data-k-broker-{n}" for n in range(3)]
    assert planned.claims[0]["metadata"]["labels"] == {"app": "k"}
    assert STATEFUL_SET["spec"]["template"]["spec"].keys() == {"volumes", "containers"}, "the template is not changed"


def test_nothing_to_do_and_the_status_says_so():
    planned = plan(STATEFUL_SET, pods_of(STATEFUL_SET, ready={0, 2}), [])
    assert (planned.pods, planned.claims, planned.deletions) == ([], [], [])
    revision = revision_of(STATEFUL_SET)
    assert planned.status == {
        "observedGeneration": 4,
        "replicas": 3,
        "readyReplicas": 2,
        "availableReplicas": 2,
        "currentReplicas": 3,
        "updatedReplicas": 3,
        "currentRevision": revision,
        "updateRevision": revision,
        "collisionCount": 0,
    }


def test_a_missing_pod_is_made_again_with_its_old_claim():
    pods = pods_of(STATEFUL_SET)
    planned = plan(STATEFUL_SET, [pods[0], pods[2]], ["data-k-broker-1"])
    assert [pod["metadata"]["name"] for pod in planned.pods] == ["k-broker-1"]
    assert planned.claims == []


def test_a_pod_waits_until_a_claim_that_is_deleted_is_gone():
    pods = pods_of(STATEFUL_SET)
    planned = plan(STATEFUL_SET, [pods[2]], ["data-k-broker-1"], leaving=["data-k-broker-1"])
    assert [pod["metadata"]["name"] for pod in planned.pods] == ["k-broker-0"]
    assert [claim["metadata"]["name"] for claim in planned.claims] == ["data-k-broker-0"]


def test_a_terminating_pod_keeps_its_place():
    pods = pods_of(STATEFUL_SET, ready={0, 1, 2})
    pods[1]["metadata"]["deletionTimestamp"] = "now"
    planned = plan(STATEFUL_SET, pods, [])
    assert planned.pods == []
    assert (planned.status["replicas"], planned.status["readyReplicas"]) == (2, 2)


def test_scaling_down_takes_the_highest_ordinals():
    pods = pods_of(STATEFUL_SET)
    planned = plan(scaled(1), pods, [])
    assert [pod["metadata"]["name"] for pod in planned.deletions] == ["k-broker-2", "k-broker-1"]
    pods[2]["metadata"]["deletionTimestamp"] = "now"
    assert [pod["metadata"]["name"] for pod in plan(scaled(1), pods, []).deletions] == ["k-broker-1"]


def test_a_failed_pod_is_replaced():
    pods = pods_of(STATEFUL_SET)
    pods[0]["status"]["phase"] = "Failed"
    assert [pod["metadata"]["name"] for pod in plan(STATEFUL_SET, pods, []).deletions] == ["k-broker-0"]


def test_a_changed_template_deletes_nothing_and_is_seen():
    pods = pods_of(STATEFUL_SET)
    changed = copy.deepcopy(STATEFUL_SET)
    changed["spec"]["template"]["metadata"]["annotations"]["a"] = "c"
    changed["status"] = {"currentRevision": revision_of(STATEFUL_SET)}
    planned = plan(changed, pods[:2], [])
    assert planned.deletions == []
    assert planned.pods[0]["metadata"]["labels"]["controller-revision-hash"] == revision_of(changed)
    assert (planned.status["currentReplicas"], planned.status["updatedReplicas"]) == (2, 0)
    assert planned.status["currentRevision"] != planned.status["updateRevision"]


def test_pods_of_others_do_not_count():
    pods = pods_of(STATEFUL_SET)
    for pod in pods:
        pod["metadata"]["ownerReferences"][0]["uid"] = "another"
    assert len(plan(STATEFUL_SET, pods, []).pods) == 3


@pytest.mark.parametrize(
    ("path", "value", "word"),
    [
        ("podManagementPolicy", "OrderedReady", "Parallel"),
        ("updateStrategy", {}, "OnDelete"),
        ("replicas", 999, "at most"),
    ],
)
def test_what_is_not_implemented_is_said(path, value, word):
    stateful_set = copy.deepcopy(STATEFUL_SET)
    stateful_set["spec"][path] = value
    assert word in unsupported(stateful_set)
    assert unsupported(STATEFUL_SET) == ""


def test_pods_of_a_predecessor_that_was_deleted_without_them_are_adopted():
    pods = pods_of(STATEFUL_SET)
    for pod in pods:
        del pod["metadata"]["ownerReferences"]
    successor = {**STATEFUL_SET, "metadata": {**STATEFUL_SET["metadata"], "uid": "v"}}
    planned = plan(successor, pods, [])
    assert planned.adoptions == pods
    assert not planned.pods
    assert planned.status["replicas"] == 3
    pods[0]["metadata"]["labels"]["app"] = "other"
    pods[1]["metadata"]["deletionTimestamp"] = "now"
    pods[2]["metadata"]["ownerReferences"] = [{"uid": "x", "controller": True}]
    assert not plan(successor, pods, []).adoptions

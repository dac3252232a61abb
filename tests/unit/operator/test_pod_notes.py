"""What pods tell of the places and the ends of brokers, whatever a pod says."""

import pytest

from kafkalite_core.resources.naming import broker_labels, broker_name
from kafkalite_core.resources.pods import render_termination_message
from kafkalite_operator import pod_notes
from kafkalite_operator.store import Store
from kafkalite_runtime.kube.kinds import CLUSTERS, PODS
from tests.unit.resources.builders import cluster_object

KEY = ("default", "kafkalite")
ENDED = render_termination_message("inc-1", 7)


def pod(broker_id=1, message=ENDED, *, namespace="default", cluster="kafkalite", version="5", **metadata):
    name = broker_name(cluster, broker_id)
    terminated = {"exitCode": 137, "reason": "Error", "message": message}
    return {
        "metadata": {
            "name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}", "resourceVersion": version,
            "labels": broker_labels(cluster, broker_id), **metadata,
        },
        "spec": {"nodeName": "node-a"},
        "status": {"containerStatuses": [{"name": "broker", "lastState": {"terminated": terminated}}]},
    }  # fmt: skip


@pytest.fixture
def store():
    found = Store(lambda: 100.0, "image")
    found.apply(CLUSTERS, "ADDED", cluster_object())
    return found


def exits(store):
    return store.snapshot(KEY, controller_epoch=1, observing_since=None, balance_due=False).exits


def places(store):
    return [place.name for place in store.pod_notes.places_of(*KEY)]


@pytest.mark.parametrize(
    "other", [{"namespace": "elsewhere"}, {"cluster": "another"}, {"name": "forged"}, {"broker_id": 2}]
)
def test_a_pod_tells_of_the_end_of_its_own_broker_only(store, other):
    store.apply(PODS, "ADDED", pod(**other))
    assert (1, "inc-1") not in exits(store)
    assert store.pod_notes.exit_of(KEY, 1, "inc-1") is None
    store.apply(PODS, "ADDED", pod())
    assert exits(store)[1, "inc-1"] == "exit code 137, Error"


@pytest.mark.parametrize(
    "bad",
    [
        pod(0, "[" * 4096),
        pod(0) | {"spec": 5},
        pod(0) | {"status": {"containerStatuses": [5]}},
        pod(0, ownerReferences=[{"controller": "yes"}]),
    ],
)
def test_no_pod_keeps_the_others_from_being_read(store, bad):
    store.relist(PODS, [bad, pod()], "9", None)
    assert (1, "inc-1") in exits(store)
    assert "kafkalite-broker-1" in places(store)


def test_places_go_with_their_pods_and_exits_stay_for_as_long_as_their_cluster(store):
    store.relist(PODS, [pod(), pod(2), pod(cluster="unknown"), pod(namespace="elsewhere")], "9", None)
    store.relist(PODS, [pod(2)], "4", "default")
    assert places(store) == ["kafkalite-broker-1", "kafkalite-broker-2"], "it is younger than the list"
    store.relist(PODS, [pod(2)], "9", "default")
    assert places(store) == ["kafkalite-broker-2"]
    assert store.pod_notes.places_of("elsewhere", "kafkalite"), "that list says nothing of it"
    assert (1, "inc-1") in exits(store), "it may not have been fenced yet"
    assert store.pod_notes.exit_of(("default", "unknown"), 1, "inc-1") is None
    store.forget(CLUSTERS, cluster_object()["metadata"]["uid"])
    assert store.pod_notes.exit_of(KEY, 1, "inc-1") is None


def test_the_oldest_of_many_exits_of_a_cluster_is_forgotten(store, monkeypatch):
    monkeypatch.setattr(pod_notes, "EXITS_MAX", 2)
    for n in range(3):
        store.apply(PODS, "MODIFIED", pod(message=render_termination_message(f"inc-{n}", n)))
    store.apply(PODS, "ADDED", pod(cluster="another", message=render_termination_message("inc-9", 9)))
    assert list(exits(store)) == [(1, "inc-1"), (1, "inc-2")]

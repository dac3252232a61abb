"""Broker objects that an earlier cluster of that name has left belong to the present one."""

import copy

import pytest

from kafkalite_core.resources.manifests import broker_object, cluster_settings
from kafkalite_operator.owning import Owning
from kafkalite_operator.store import Store
from kafkalite_runtime.kube.errors import KubeInvalid
from kafkalite_runtime.kube.kinds import BROKERS, CLUSTERS
from tests.unit.operator.fakes import NAMESPACE, eventually
from tests.unit.operator.test_operator import running_cluster

NAME = "kafkalite-broker-1"
CLUSTER = {
    "apiVersion": "kafkalite.io/v1alpha1",
    "kind": "KafkaLiteCluster",
    "metadata": {"name": "kafkalite", "namespace": NAMESPACE, "uid": "new", "resourceVersion": "5"},
    "spec": {},
}


class Client:
    """Answers as an API server that has these objects; a patch of another version is refused."""

    def __init__(self):
        self.patched = []
        self.refuses = False

    async def json_patch(self, kind, namespace, name, operations, **_):
        assert (kind, namespace) == (BROKERS, NAMESPACE)
        self.patched.append((name, operations))
        if self.refuses:
            raise KubeInvalid(422, "Invalid", "the server says no")
        answer = broker(2)
        answer["metadata"] |= {"ownerReferences": operations[-1]["value"], "resourceVersion": "9"}
        return answer


def broker(broker_id, owners=(), **metadata):
    made = copy.deepcopy(broker_object(cluster_settings(CLUSTER), broker_id))
    made["metadata"] |= {"uid": f"b{broker_id}", "resourceVersion": "7", "ownerReferences": list(owners), **metadata}
    return made


def world(*brokers):
    store, client = Store(lambda: 0.0, "image"), Client()
    store.apply(CLUSTERS, "ADDED", CLUSTER)
    for each in brokers:
        store.apply(BROKERS, "ADDED", each)
    return Owning(client, store), client, cluster_settings(CLUSTER)


async def test_who_has_no_owner_is_the_clusters():
    friend = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "y"}
    owning, client, settings = world(broker(2, [friend]))
    assert owning.due(settings)
    await owning.own(settings)
    [(name, operations)] = client.patched
    assert name == "kafkalite-broker-2"
    assert [each["op"] for each in operations] == ["test", "test", "add"]
    assert [each["value"] for each in operations[:2]] == ["b2", "7"]
    assert operations[2]["value"] == [friend, settings.owner()]
    assert not owning.due(settings), "the answer is known"


@pytest.mark.parametrize(
    "metadata",
    [
        {"owners": [cluster_settings(CLUSTER).owner()]},
        {"owners": [cluster_settings(CLUSTER).owner() | {"uid": "of the one before"}]},
        {"owners": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "y", "controller": True}]},
        {"deletionTimestamp": "2026-01-01T00:00:00Z"},
    ],
    ids=["owned", "about to be collected", "somebody else's", "being deleted"],
)
def test_every_other_one_is_left_alone(metadata):
    owning, _, settings = world(broker(1, **metadata))
    assert not owning.due(settings)


async def test_one_that_has_changed_meanwhile_keeps_no_other_from_it():
    owning, client, settings = world(broker(1), broker(2))
    client.refuses = True
    await owning.own(settings)
    assert [name for name, _ in client.patched] == ["kafkalite-broker-1", "kafkalite-broker-2"]
    assert owning.due(settings)


@pytest.mark.timeout(240)
async def test_an_orphan_is_owned_again(harness):
    """As `--cascade=orphan` leaves it: the garbage collector takes the reference away."""
    await running_cluster(harness)
    cluster = await harness.client.get(CLUSTERS, NAMESPACE, "kafkalite")
    orphan = [{"op": "remove", "path": "/metadata/ownerReferences"}]
    before = await harness.client.json_patch(BROKERS, NAMESPACE, NAME, orphan)
    assert "ownerReferences" not in before["metadata"]

    async def owned():
        metadata = (await harness.client.get(BROKERS, NAMESPACE, NAME))["metadata"]
        uids = [each["uid"] for each in metadata.get("ownerReferences") or []]
        return (metadata["uid"], uids) == (before["metadata"]["uid"], [cluster["metadata"]["uid"]])

    await eventually(owned)

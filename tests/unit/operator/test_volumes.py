"""The claims of brokers as they are read, and those that may not grow."""

import copy

import pytest
import structlog

from kafkalite_core.resources import naming
from kafkalite_core.resources.manifests import cluster_settings
from kafkalite_operator.store import Store
from kafkalite_operator.volumes import Volumes
from kafkalite_runtime.kube.client import KubeList
from kafkalite_runtime.kube.errors import KubeForbidden
from kafkalite_runtime.kube.kinds import BROKERS, CLUSTERS, PODS
from tests.unit.resources.builders import broker_object, cluster_object

NAME = naming.broker_name("kafkalite", 0)


class Client:
    """One claim, which may not grow as long as `refuses`."""

    def __init__(self):
        self.refuses, self.asked, self.listed = True, 0, []
        self.claim = {
            "metadata": {"name": f"data-{NAME}", "uid": "claim-1"},
            "spec": {"resources": {"requests": {"storage": "1Gi"}}},
            "status": {"capacity": {"storage": "1Gi"}},
        }

    async def list(self, *_, **__):
        return KubeList(self.listed or [self.claim], "5")

    async def json_patch(self, kind, namespace, name, operations, **_):
        self.asked += 1
        if self.refuses:
            raise KubeForbidden(403, "Forbidden", f"only dynamically provisioned pvc can be resized ({self.asked})")
        self.claim["spec"]["resources"]["requests"]["storage"] = operations[-1]["value"]
        return self.claim


@pytest.fixture
def settings():
    return cluster_settings(cluster_object(spec={"storage": {"size": "2Gi"}}))


@pytest.fixture
def store():
    found = Store(lambda: 100.0, "image")
    found.apply(CLUSTERS, "ADDED", cluster_object())
    found.apply(BROKERS, "ADDED", broker_object(0))
    return found


async def test_a_volume_that_may_not_grow_is_told_once_and_not_waited_for(store, settings):
    client, told = Client(), []
    volumes = Volumes(client, store, type("Events", (), {"record": lambda _, *said: told.append(said[2])})())
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            await volumes.ensure(settings, [0])
            assert not volumes.growing(settings), "the next look is not sooner for it"
        warned = [entry for entry in logs if entry["log_level"] == "warning"]
    assert (client.asked, len(warned)) == (3, 1)
    assert "dynamically provisioned" in store.volumes[settings.cluster.uid][0].refused
    client.refuses = False
    await volumes.ensure(settings, [0])
    assert volumes.growing(settings)
    assert told == ["VolumeGrows"]


async def test_every_claim_is_known_whoever_asks_and_whatever_it_says(store, settings):
    client = Client()
    volumes = Volumes(client, store, None)
    client.refuses = False
    odd = {"metadata": {"name": "data-kafkalite-broker-1", "uid": "claim-odd"}, "status": {"conditions": "none"}}
    left = {**copy.deepcopy(client.claim), "metadata": {"name": "data-kafkalite-broker-7", "uid": "claim-7"}}
    client.listed = [client.claim, odd, left]
    client.claim["spec"]["resources"]["requests"]["storage"] = "2Gi"
    client.claim["status"]["capacity"]["storage"] = "2Gi"
    for looks in (volumes.look(settings), volumes.ensure(settings, [0, 1])):
        await looks
        assert [each.uid for each in store.volumes[settings.cluster.uid]] == ["claim-1", "claim-odd", "claim-7"]
    assert client.asked == 0
    assert not volumes.growing(settings), "what broker 7 has left stays as it is"


async def test_the_last_node_of_a_volume_is_remembered_for_as_long_as_its_claim_is_the_same(store, settings):
    client = Client()
    volumes = Volumes(client, store, None)
    labels = naming.broker_labels("kafkalite", 0)
    pod = {
        "metadata": {"name": NAME, "namespace": "default", "uid": "p", "resourceVersion": "1", "labels": labels},
        "spec": {"nodeName": "node-a"},
    }

    async def last_node():
        await volumes.look(settings)
        return store.volumes[settings.cluster.uid][0].last_node

    assert await last_node() == ""
    store.apply(PODS, "ADDED", pod)
    assert await last_node() == "node-a"
    store.apply(PODS, "DELETED", pod)
    assert await last_node() == "node-a"
    client.claim["metadata"]["uid"] = "claim-2"
    assert await last_node() == ""

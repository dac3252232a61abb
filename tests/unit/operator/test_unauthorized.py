"""A read without a valid token (401) says nothing of what the operator may do: it is tried again, and told by nothing."""

import pytest

from kafkalite_core.controller.snapshot import Snapshot
from kafkalite_core.model.pods import Pod
from kafkalite_core.resources.manifests import cluster_settings
from kafkalite_core.resources.naming import broker_labels
from kafkalite_operator.listeners import Listeners
from kafkalite_operator.new_brokers import NewBrokers
from kafkalite_operator.nodes import Nodes
from kafkalite_operator.racks import Racks
from kafkalite_operator.replacements import Replacements
from kafkalite_operator.store import Store
from kafkalite_operator.volumes import Volumes
from kafkalite_runtime.kube.client import KubeList
from kafkalite_runtime.kube.errors import KubeForbidden, KubeUnauthorized
from kafkalite_runtime.kube.kinds import CLUSTERS, PODS
from tests.unit.controller.builders import make_broker
from tests.unit.resources.builders import cluster_object

UNAUTHORIZED = KubeUnauthorized(401, "Unauthorized", "the token has expired")
FORBIDDEN = KubeForbidden(403, "Forbidden", "no Role permits it")
OUTSIDE = {
    "name": "ext",
    "type": "nodeport",
    "port": 9094,
    "configuration": {"preferredNodePortAddressType": "ExternalIP"},
}
SPEC = {
    "listeners": [{"name": "plain", "type": "internal", "port": 9092}, OUTSIDE],
    "rack": {"topologyKey": "zone"},
    "nodeLoss": "replace",
    "storage": {"size": "2Gi"},
}
CLAIM = {
    "metadata": {"name": "data-kafkalite-broker-0", "uid": "claim-0"},
    "spec": {"resources": {"requests": {"storage": "1Gi"}}},
}


class Client:
    """Lists are answered; whatever names one object is not."""

    def __init__(self, answer):
        self.answer = answer

    async def list(self, kind, *_, **__):
        return KubeList([CLAIM] if kind.plural == "persistentvolumeclaims" else [], "5")

    async def refuse(self, *_, **__):
        raise self.answer

    get = create = json_patch = refuse


class Told:
    """Events and conditions."""

    def __init__(self):
        self.said = []

    def record(self, *event):
        self.said.append(event[2])

    def of(self, _settings):
        return {}

    async def write(self, _settings, *, condition=None, **_):
        self.said.append(condition.reason)


@pytest.fixture
def told():
    return Told()


@pytest.fixture
def settings():
    return cluster_settings(cluster_object(spec=SPEC))


@pytest.fixture
def store(settings):
    store = Store(lambda: 100.0, "image")
    store.apply(CLUSTERS, "ADDED", cluster_object(spec=SPEC))
    metadata = {
        "name": "kafkalite-broker-0",
        "namespace": "default",
        "uid": "pod-0",
        "labels": broker_labels("kafkalite"),
    }
    status = {"phase": "Running", "hostIP": "10.0.0.1"}
    store.apply(PODS, "ADDED", {"metadata": metadata, "spec": {"nodeName": "node-0"}, "status": status})
    return store


def looks(client, store, settings, told):
    """By name, what is done."""
    volumes, nodes = Volumes(client, store, told), Nodes(client)
    parts = {"executor": None, "nodes": nodes, "volumes": volumes, "events": told}
    broker = make_broker(0, fenced=99)
    pod = Pod(name="kafkalite-broker-0", uid="pod-0", node="node-0", ready=False)
    seen = Snapshot(cluster=settings.cluster, brokers={0: broker}, pods={0: pod})
    return {
        "racks": lambda: Racks(client, store, nodes, told).label(settings),
        "listeners": lambda: Listeners(client, store, nodes, told).look(settings, [0]),
        "lost nodes": lambda: Replacements(client, store, **parts).look(settings, seen),
        "growth": lambda: volumes.ensure(settings, [0]),
        "new broker": lambda: NewBrokers(client, store, told, None).make(settings, 0),
    }


@pytest.mark.parametrize("what", ["racks", "listeners", "lost nodes", "growth", "new broker"])
async def test_what_is_not_authorized_is_tried_again_and_told_by_nothing(store, settings, told, what):
    with pytest.raises(KubeUnauthorized):
        await looks(Client(UNAUTHORIZED), store, settings, told)[what]()
    refused = [each.refused for each in store.volumes.get(settings.cluster.uid, ()) if each.refused]
    assert (told.said, store.nodes_refused, refused) == ([], set(), [])


@pytest.mark.parametrize("what", ["racks", "listeners", "lost nodes", "growth", "new broker"])
async def test_what_is_forbidden_is_told(store, settings, told, what):
    try:
        await looks(Client(FORBIDDEN), store, settings, told)[what]()
    except KubeForbidden:
        assert what in {"racks", "new broker"}
    refused = [each.refused for each in store.volumes.get(settings.cluster.uid, ()) if each.refused]
    assert told.said or store.nodes_refused or refused

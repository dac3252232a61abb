"""A namespace in which the operator may not read what brokers are made of: the cluster says so, not only the log."""

import pytest

from kafkalite_operator import controller, lease_reader
from kafkalite_runtime.kube.client import KubeClient
from kafkalite_runtime.kube.errors import KubeForbidden, KubeNotFound
from kafkalite_runtime.kube.kinds import CLUSTERS, CONFIG_MAPS, LEASES, SERVICES, STATEFUL_SETS
from tests.unit.operator.conftest import SPEC
from tests.unit.operator.fakes import NAMESPACE, eventually

pytestmark = pytest.mark.timeout(240)
CLUSTER = "kafkalite"


@pytest.fixture
def forbidden(monkeypatch):
    """Kinds that the operator may not read in the namespace of the cluster."""
    kinds, get, list_ = set(), KubeClient.get, KubeClient.list

    def check(kind, namespace):
        if kind in kinds and namespace == NAMESPACE:
            raise KubeForbidden(403, "Forbidden", f'{kind.plural} is forbidden: User "operator" cannot read it')

    async def refusing_get(self, kind, namespace, name, **more):
        if name != "kafkalite-operator":
            check(kind, namespace)
        return await get(self, kind, namespace, name, **more)

    async def refusing_list(self, kind, namespace=None, **more):
        check(kind, namespace)
        return await list_(self, kind, namespace, **more)

    monkeypatch.setattr(KubeClient, "get", refusing_get)
    monkeypatch.setattr(KubeClient, "list", refusing_list)
    monkeypatch.setattr(lease_reader, "LASTING_S", 0.0)
    monkeypatch.setattr(controller, "RESYNC_S", 0.2)
    return kinds


async def start(harness):
    harness.start_operator()
    body = {"apiVersion": "kafkalite.io/v1alpha1", "kind": "KafkaLiteCluster", "metadata": {"name": CLUSTER}}
    await harness.client.create(CLUSTERS, NAMESPACE, body | {"spec": SPEC})


async def told(harness, type_, status, reason):
    """The message of the condition, once it says that."""

    async def said():
        found = (await harness.client.get(CLUSTERS, NAMESPACE, CLUSTER)).get("status") or {}
        condition = next((each for each in found.get("conditions") or [] if each["type"] == type_), {})
        return (condition.get("status"), condition.get("reason")) == (status, reason) and condition

    return (await eventually(said))["message"]


async def test_a_namespace_that_is_watched_and_not_listed_for_brokers(harness, forbidden):
    forbidden |= {CONFIG_MAPS, LEASES, STATEFUL_SETS, SERVICES}
    await start(harness)
    leases = await told(harness, "LeasesRead", "False", "LeasesNotRead")
    assert "leases is forbidden" in leases
    assert "name it in brokers.namespaces of the chart" in leases
    assert "ConfigMap kafkalite-identity refused: 403" in await told(
        harness, "ObjectsApplied", "False", "ObjectRefused"
    )
    forbidden.clear()
    await told(harness, "ObjectsApplied", "True", "Applied")
    await told(harness, "LeasesRead", "True", "Read")


async def test_objects_that_may_not_be_read_any_more_are_told(harness, forbidden):
    await start(harness)

    async def made():
        try:
            return await harness.client.get(STATEFUL_SETS, NAMESPACE, "kafkalite-broker")
        except KubeNotFound:
            return None

    await eventually(made)
    forbidden.add(STATEFUL_SETS)
    message = await told(harness, "ObjectsApplied", "False", "ObjectRefused")
    assert "StatefulSet kafkalite-broker refused: 403 Forbidden: statefulsets is forbidden" in message
    forbidden.clear()
    await told(harness, "ObjectsApplied", "True", "Applied")

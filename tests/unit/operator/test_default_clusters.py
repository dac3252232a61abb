"""The cluster that is made for a topic without one, and what is said when it cannot be made."""

import pytest

from kafkalite_operator.settings import OperatorSettings
from kafkalite_runtime.kube.kinds import CLUSTERS, EVENTS, TOPICS
from tests.unit.operator.conftest import SPEC
from tests.unit.operator.fakes import NAMESPACE, eventually

pytestmark = pytest.mark.timeout(240)


async def test_a_default_cluster_that_is_refused_is_told_on_the_topic(harness, monkeypatch):
    """The default passes the schema of the chart's values, which knows no rules, and not those of the definition."""
    slow = {**SPEC, "failureDetection": {"leaseDurationSeconds": 5, "renewIntervalSeconds": 10}}
    settings = OperatorSettings(namespace=NAMESPACE, identity="operator-1", metrics_port=0, default_cluster=slow)
    monkeypatch.setattr(harness, "settings", lambda _: settings)
    harness.start_operator()
    head = {"apiVersion": "kafkalite.io/v1alpha1", "metadata": {"name": "orders", "namespace": NAMESPACE}}
    await harness.client.create(TOPICS, NAMESPACE, {**head, "kind": "KafkaLiteTopic", "spec": {"partitions": 1}})

    async def ready():
        found = await harness.client.get(TOPICS, NAMESPACE, "orders")
        told = {each["type"]: each for each in (found.get("status") or {}).get("conditions") or []}
        return told.get("Ready", {"reason": ""})

    async def refused():
        found = await ready()
        return found["reason"] == "DefaultClusterRefused" and found

    message = (await eventually(refused))["message"]
    assert "the API server refuses the default cluster 'kafkalite': 422 Invalid" in message
    assert "renewIntervalSeconds" in message
    assert "defaultCluster.spec of the chart" in message

    async def event():
        listed = (await harness.client.list(EVENTS, NAMESPACE)).items
        return [each for each in listed if each["reason"] == "DefaultClusterRefused" and each["type"] == "Warning"]

    assert await eventually(event)
    metadata = {"name": "kafkalite", "namespace": NAMESPACE}
    await harness.client.create(
        CLUSTERS, NAMESPACE, {**head, "kind": "KafkaLiteCluster", "metadata": metadata, "spec": SPEC}
    )

    async def goes_on():
        return (await ready())["reason"] not in {"DefaultClusterRefused", ""}

    await eventually(goes_on)

"""The cluster that is made for a topic without one, and what is said when it cannot be made."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from kafkalite_core.controller.conditions import orphan_conditions
from kafkalite_operator.default_clusters import DefaultClusters
from kafkalite_operator.settings import OperatorSettings
from kafkalite_runtime.kube.errors import KubeConflict, KubeInvalid, KubeUnavailable
from kafkalite_runtime.kube.kinds import CLUSTERS, EVENTS, TOPICS
from tests.unit.controller.builders import topic_view
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


INVALID = KubeInvalid(422, "Invalid", "no")
ORPHAN = topic_view(partitions={}, topic_id="")


class Made:
    """What a process does about one topic; the API server gives `answer`."""

    def __init__(self):
        self.told, self.started, self.answer, self.there = [], [], INVALID, None
        work = SimpleNamespace(start=lambda _, one: self.started.append(one), offer=self.offer)
        executor = SimpleNamespace(refresh=self.refresh, update_topic_status=lambda action: action)
        client = SimpleNamespace(create=self.create)
        self.parts = DefaultClusters(client, None, executor=executor, work=work, events=None, spec=SPEC)

    async def create(self, *_):
        raise self.answer

    async def refresh(self, *_):
        return self.there

    def offer(self, _, make, *__, **___):
        self.told.append({each.reason for each in make().conditions if each.type == "Ready"}.pop())

    async def look(self, view):
        self.parts.look(view)
        if self.started:
            try:
                await self.started.pop()
            except type(self.answer):
                return


async def test_who_takes_over_does_not_take_the_refusal_back_before_it_has_an_answer():
    refused = replace(ORPHAN, conditions=orphan_conditions(ORPHAN, cluster_follows=True, refused=str(INVALID)))
    made = Made()
    made.answer = KubeUnavailable("503", ambiguous=True, status=503)
    await made.look(refused)
    await made.look(refused)
    made.answer = INVALID
    await made.look(refused)
    await made.look(refused)
    assert made.told == [], "it says that already"
    made.answer = KubeConflict(409, "Conflict", "resourcequotas: the object has been modified")
    await made.look(refused)
    await made.look(refused)
    assert made.told == [], "nothing of that name is there"


async def test_what_is_new_is_told_that_the_cluster_is_being_made_and_then_that_it_is_refused():
    made = Made()
    await made.look(ORPHAN)
    await made.look(ORPHAN)
    assert made.told == ["WaitingForCluster", "DefaultClusterRefused"]

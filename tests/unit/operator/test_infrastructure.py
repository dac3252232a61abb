"""What the operator applied and somebody else has changed; what must not be deleted before its successor may be made."""

import copy

import pytest

from kafkalite_core.resources.naming import stateful_set_name
from kafkalite_operator import controller as module
from kafkalite_operator.stateful_sets import StatefulSets
from kafkalite_runtime.kube.errors import KubeConflict, KubeForbidden, KubeNotFound
from kafkalite_runtime.kube.kinds import (
    CLUSTERS,
    CONFIG_MAPS,
    EVENTS,
    POD_DISRUPTION_BUDGETS,
    SERVICES,
    STATEFUL_SETS,
)
from tests.unit.operator.conftest import SPEC
from tests.unit.operator.fakes import NAMESPACE, eventually

pytestmark = pytest.mark.timeout(240)
CLUSTER = "kafkalite"
SET = stateful_set_name(CLUSTER)


@pytest.fixture
async def running(harness, monkeypatch):
    """A cluster whose objects are looked at again at once, and not only after half a minute."""
    monkeypatch.setattr(module, "RESYNC_S", 0.2)
    harness.start_operator()
    body = {"apiVersion": "kafkalite.io/v1alpha1", "kind": "KafkaLiteCluster", "metadata": {"name": CLUSTER}}
    await harness.client.create(CLUSTERS, NAMESPACE, body | {"spec": SPEC})
    await eventually(lambda: exists(harness))
    return harness


async def exists(harness):
    try:
        return await harness.client.get(STATEFUL_SETS, NAMESPACE, SET)
    except KubeNotFound:
        return None


@pytest.mark.parametrize(
    ("kind", "name", "patch"),
    [
        (STATEFUL_SETS, SET, {"spec": {"replicas": 0}}),
        (POD_DISRUPTION_BUDGETS, SET, {"spec": {"maxUnavailable": None, "minAvailable": 0}}),
        (SERVICES, f"{CLUSTER}-broker-1", {"spec": {"selector": {"more": "x"}}}),
        (CONFIG_MAPS, None, {"data": None}),
    ],
    ids=lambda each: getattr(each, "kind", ""),
)
async def test_what_somebody_changes_is_put_back_and_told(running, kind, name, patch):
    client = running.client
    if name is None:
        name = (await client.list(kind, NAMESPACE)).items[0]["metadata"]["name"]
    before = await client.get(kind, NAMESPACE, name)
    await client.merge_patch(kind, NAMESPACE, name, patch)

    async def is_back():
        now = await client.get(kind, NAMESPACE, name)
        return all(now.get(part) == before.get(part) for part in ("spec", "data"))

    await eventually(is_back)

    async def told():
        listed = await client.list(EVENTS, NAMESPACE)
        return [e for e in listed.items if e["reason"] == "ObjectApplied" and f"{name} put back" in e["message"]]

    await eventually(told)


class Refusing:
    """An API server whose policy takes no StatefulSet any more; `taken`: only the name speaks against it."""

    def __init__(self, *, taken=False):
        self.calls, self.taken = [], taken

    async def create(self, kind, namespace, body, *, dry_run=False, **_):
        self.calls.append("dry run" if dry_run else "create")
        if not self.taken:
            raise KubeForbidden(403, "Forbidden", "denied by a policy")
        if dry_run:
            raise KubeConflict(409, "AlreadyExists", "the name is taken")

    async def delete(self, *_, **__):
        self.calls.append("delete")

    async def get(self, *_, **__):
        raise KubeNotFound(404, "NotFound", "gone")


def sets():
    claim = {"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}
    existing = {
        "metadata": {"name": SET, "namespace": NAMESPACE, "uid": "uid"}, "spec": {"volumeClaimTemplates": [claim]},
    }  # fmt: skip
    wanted = copy.deepcopy(existing)
    wanted["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"] = "2Gi"
    return existing, wanted


async def test_a_stateful_set_whose_successor_would_be_refused_stays():
    client = Refusing()
    with pytest.raises(KubeForbidden):
        await StatefulSets(client).update(*sets())
    assert client.calls == ["dry run"]


async def test_one_that_may_be_made_again_is():
    client = Refusing(taken=True)
    assert "made again" in await StatefulSets(client).update(*sets())
    assert client.calls == ["dry run", "delete", "create"]


async def test_a_deletion_that_was_begun_is_brought_to_its_end():
    existing, wanted = sets()
    existing["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    client = Refusing(taken=True)
    await StatefulSets(client).update(existing, wanted)
    assert client.calls == ["delete", "create"]


async def test_volumes_grow_though_another_object_is_refused(running, monkeypatch):
    controller = running.operators["operator-1"][0].controller
    grown = []

    async def refuse(*_):
        raise KubeForbidden(403, "Forbidden", "denied by a policy")

    async def grow(_, ids):
        grown.append(list(ids))

    monkeypatch.setattr(controller._infrastructure, "ensure", refuse)
    monkeypatch.setattr(controller._volumes, "ensure", grow)
    settings = next(iter(controller._store.clusters().values()))
    with pytest.raises(KubeForbidden):
        await controller._ensure_all(settings, [0, 1, 2], None)
    assert grown[-1] == [0, 1, 2]

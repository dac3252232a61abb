"""What the operator applied and somebody else has changed; what must not be deleted before its successor may be made."""

import copy

import pytest

from kafkalite_core.resources.naming import broker_labels, stateful_set_name
from kafkalite_operator import controller as module
from kafkalite_operator import infrastructure
from kafkalite_operator.stateful_sets import StatefulSets
from kafkalite_runtime.kube.client import KubeClient
from kafkalite_runtime.kube.errors import (
    KubeConflict,
    KubeError,
    KubeForbidden,
    KubeInvalid,
    KubeNotFound,
    KubeThrottled,
    KubeUnauthorized,
    KubeUnavailable,
)
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


async def start(harness):
    harness.start_operator()
    body = {"apiVersion": "kafkalite.io/v1alpha1", "kind": "KafkaLiteCluster", "metadata": {"name": CLUSTER}}
    return await harness.client.create(CLUSTERS, NAMESPACE, body | {"spec": SPEC})


@pytest.fixture
async def running(harness, monkeypatch):
    """A cluster whose objects are looked at again at once, and not only after half a minute."""
    monkeypatch.setattr(module, "RESYNC_S", 0.2)
    await start(harness)
    await eventually(lambda: exists(harness))
    return harness


async def applied(harness, status, reason):
    """The message of the condition, once it says that."""

    async def said():
        found = (await harness.client.get(CLUSTERS, NAMESPACE, CLUSTER)).get("status") or {}
        condition = next((each for each in found.get("conditions") or [] if each["type"] == "ObjectsApplied"), {})
        return (condition.get("status"), condition.get("reason")) == (status, reason) and condition

    return (await eventually(said))["message"]


async def events(harness, reason):
    return [e["message"] for e in (await harness.client.list(EVENTS, NAMESPACE)).items if e["reason"] == reason]


def stateful_set_of_somebody(**metadata):
    pod = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "x", "image": "x"}]}}
    spec = {"serviceName": "x", "replicas": 2, "selector": {"matchLabels": {"app": "x"}}, "template": pod}
    claim = {"metadata": {"name": "x"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {}}}
    spec["volumeClaimTemplates"] = [claim]
    metadata = {"name": SET, "namespace": NAMESPACE, **metadata}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        ({}, "it has no owner and not the labels kafkalite.io/cluster=kafkalite,app.kubernetes.io/component=broker"),
        ({"labels": {"kafkalite.io/cluster": "other", "app.kubernetes.io/component": "broker"}}, "not the labels"),
        ({"labels": broker_labels(CLUSTER), "ownerReferences": []}, "ConfigMap other controls it"),
    ],
)
async def test_what_somebody_else_has_made_is_left_alone_and_told(harness, metadata, why):
    if "ownerReferences" in metadata:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other", "namespace": NAMESPACE}}
        uid = (await harness.client.create(CONFIG_MAPS, NAMESPACE, body))["metadata"]["uid"]
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": uid, "controller": True}
        metadata = {**metadata, "ownerReferences": [owner]}
    before = await harness.client.create(STATEFUL_SETS, NAMESPACE, stateful_set_of_somebody(**metadata))
    await start(harness)
    message = await applied(harness, "False", "ObjectForeign")
    assert f"StatefulSet {SET}: it is somebody else's and is left alone" in message
    assert why in message
    assert await harness.client.get(STATEFUL_SETS, NAMESPACE, SET) == before
    [told] = await eventually(lambda: events(harness, "ObjectForeign"))
    assert why in told
    await harness.client.delete(STATEFUL_SETS, NAMESPACE, SET)
    assert await applied(harness, "True", "Applied")
    assert (await exists(harness))["metadata"]["uid"] != before["metadata"]["uid"]


async def test_what_an_earlier_cluster_of_that_name_has_left_is_taken_over(harness):
    """As after `kubectl delete --cascade=orphan`: the labels say whose it is."""
    metadata = {"name": SET, "namespace": NAMESPACE, "labels": broker_labels(CLUSTER)}
    body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": {"minAvailable": 1}}
    left = await harness.client.create(POD_DISRUPTION_BUDGETS, NAMESPACE, body)
    cluster = await start(harness)

    async def taken():
        found = await harness.client.get(POD_DISRUPTION_BUDGETS, NAMESPACE, SET)
        owners = [each["uid"] for each in found["metadata"].get("ownerReferences") or []]
        return owners == [cluster["metadata"]["uid"]] and found["metadata"]["uid"] == left["metadata"]["uid"]

    await eventually(taken)
    assert not await events(harness, "ObjectForeign")


async def test_what_a_deleted_cluster_has_left_is_told_when_nobody_collects_it(harness, monkeypatch):
    monkeypatch.setattr(infrastructure, "COLLECTED_S", 0.0)
    ensure_one = infrastructure.Infrastructure._ensure_one

    async def uncollected(self, settings, wanted):
        if wanted["kind"] != "StatefulSet":
            await ensure_one(self, settings, wanted)
            return
        owner = {"kind": "KafkaLiteCluster", "name": CLUSTER, "uid": "of the earlier one", "controller": True}
        infrastructure.check_owner(settings, {"metadata": {"ownerReferences": [owner]}}, wanted)

    monkeypatch.setattr(infrastructure.Infrastructure, "_ensure_one", uncollected)
    await start(harness)
    message = await applied(harness, "False", "NotYetCollected")
    assert "it belongs to the cluster of that name that was deleted" in message
    await eventually(lambda: events(harness, "NotYetCollected"))


async def test_an_object_that_cannot_be_read_holds_no_other_one_up(harness, monkeypatch):
    get, name = KubeClient.get, f"{CLUSTER}-config"

    async def failing(self, kind, *arguments, **options):
        if kind is CONFIG_MAPS and name in arguments:
            raise KubeUnavailable("500 InternalError: decryption failed", ambiguous=False, status=500)
        return await get(self, kind, *arguments, **options)

    monkeypatch.setattr(KubeClient, "get", failing)
    await start(harness)
    await eventually(lambda: exists(harness))
    assert not await events(harness, "ObjectRefused")


@pytest.mark.parametrize(
    "error",
    [
        KubeError(400, "BadRequest", "json: cannot unmarshal number into Go struct field EnvVar.value of type string"),
        KubeUnavailable("500 InternalError: failed calling webhook", ambiguous=True, status=500),
    ],
)
async def test_whatever_the_api_server_has_against_an_object_is_told(harness, monkeypatch, error):
    create, refuses = KubeClient.create, [True]

    async def refusing(self, kind, *arguments, **options):
        if kind is STATEFUL_SETS and refuses:
            raise error
        return await create(self, kind, *arguments, **options)

    monkeypatch.setattr(KubeClient, "create", refusing)
    await start(harness)
    assert f"StatefulSet {SET} refused: {error}" in await applied(harness, "False", "ObjectRefused")
    assert await eventually(lambda: events(harness, "ObjectRefused")) == [f"StatefulSet {SET} refused: {error}"]
    refuses.clear()
    await applied(harness, "True", "Applied")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (KubeError(400, "BadRequest", ""), "ObjectRefused"),
        (KubeInvalid(422, "Invalid", ""), "ObjectRefused"),
        (KubeForbidden(403, "Forbidden", ""), "ObjectRefused"),
        (KubeUnavailable("", ambiguous=True, status=500), "ObjectRefused"),
        (KubeUnavailable("", ambiguous=False, status=500), None),
        (KubeUnauthorized(401, "Unauthorized", ""), None),
        (KubeUnavailable("", ambiguous=True, status=503), None),
        (KubeUnavailable("", ambiguous=True), None),
        (KubeConflict(409, "Conflict", ""), None),
        (KubeNotFound(404, "NotFound", ""), None),
        (KubeThrottled(429, "TooManyRequests", "", 1.0), None),
    ],
)
def test_what_says_something_of_an_object_and_what_does_not(error, reason):
    condition = infrastructure.condition_of(error)
    assert (condition and condition.reason) == reason


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

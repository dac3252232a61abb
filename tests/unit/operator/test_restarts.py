"""Restarts, from a change of the cluster to the last Event, against the embedded API server; pods by hand."""

import asyncio
import contextlib
from dataclasses import replace

import pytest

from kafkalite_core.model.pods import Blocked, Rolling
from kafkalite_core.resources import naming
from kafkalite_operator import resize_notes
from kafkalite_operator.pods import PodStore
from kafkalite_operator.restarts import rolling_events, served_revision
from kafkalite_runtime.kube.errors import KubeConflict, KubeForbidden, KubeNotFound
from kafkalite_runtime.kube.kinds import BROKERS, CLUSTERS, EVENTS, PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS
from tests.unit.operator.fakes import NAMESPACE, eventually
from tests.unit.operator.test_operator import condition, running_cluster, topic

pytestmark = pytest.mark.timeout(240)
SET = "kafkalite-broker"


class Machinery:
    """The StatefulSet controller and a kubelet, as far as restarts go: pods come back, and brokers with them."""

    def __init__(self, harness):
        self.harness, self.client = harness, harness.client
        self.made: list[int] = []
        self.obeys = asyncio.Event()
        self.obeys.set()
        self._task = asyncio.create_task(self._run())

    async def stop(self):
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self):
        while True:
            stateful_set = await self.get(STATEFUL_SETS, SET)
            if stateful_set is not None and self.obeys.is_set():
                with contextlib.suppress(KubeNotFound, KubeConflict):
                    await self._observe(stateful_set)
                for broker_id in self.harness.brokers:
                    if await self.get(PODS, f"{SET}-{broker_id}") is None:
                        await self._make(stateful_set, broker_id)
            await asyncio.sleep(0.02)

    async def get(self, kind, name):
        with contextlib.suppress(KubeNotFound):
            return await self.client.get(kind, NAMESPACE, name)
        return None

    async def _observe(self, stateful_set):
        generation = stateful_set["metadata"].get("generation", 1)
        if (stateful_set.get("status") or {}).get("observedGeneration") != generation:
            status = {"status": {"observedGeneration": generation, "replicas": 3}}
            await self.client.merge_patch(STATEFUL_SETS, NAMESPACE, SET, status, subresource="status")

    async def _make(self, stateful_set, broker_id):
        template = stateful_set["spec"]["template"]
        broker = self.harness.brokers[broker_id]
        if broker.registration is not None and broker_id in self.made:
            await broker.freeze()
            await broker.start()
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{SET}-{broker_id}",
                "namespace": NAMESPACE,
                "labels": naming.broker_labels("kafkalite"),
                "annotations": template["metadata"]["annotations"],
            },
            "spec": {"containers": template["spec"]["containers"]},
        }
        await self.client.create(PODS, NAMESPACE, body)
        ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
        await self.client.merge_patch(PODS, NAMESPACE, f"{SET}-{broker_id}", ready, subresource="status")
        self.made.append(broker_id)

    async def revisions(self):
        listed = (await self.client.list(PODS, NAMESPACE)).items
        return {pod["metadata"]["name"]: pod["metadata"]["annotations"][naming.ANNOTATION_REVISION] for pod in listed}


@pytest.fixture
async def machinery(harness):
    await running_cluster(harness)
    machinery = Machinery(harness)
    await eventually(lambda: sorted(machinery.made) == [0, 1, 2])
    await eventually(lambda: rolling(harness))
    yield machinery
    await machinery.stop()


async def change(harness, **spec):
    await harness.client.merge_patch(CLUSTERS, NAMESPACE, "kafkalite", {"spec": spec})


async def rolling(harness):
    status = (await harness.client.get(CLUSTERS, NAMESPACE, "kafkalite")).get("status") or {}
    return status.get("rolling")


async def reasons(harness):
    return {event["reason"] for event in (await harness.client.list(EVENTS, NAMESPACE)).items}


async def test_a_change_restarts_every_broker_once_and_tells_of_it(harness, machinery):
    before = await machinery.revisions()
    await change(harness, config={"log.retention.check.interval.ms": "5000"})

    async def done():
        status = await rolling(harness)
        return len(machinery.made) == 6 and not status["inProgress"]

    await eventually(done)
    after = await machinery.revisions()
    assert all(before[name] != after[name] for name in before)
    assert sorted(machinery.made) == [0, 0, 1, 1, 2, 2]
    assert all(entry.leader in {0, 1, 2} for entry in (await topic(harness)).partitions.values())
    wanted = {"RollingRestartStarted", "RollingRestart", "BrokerRestarted", "RollingRestartDone"}

    async def told():
        return wanted <= await reasons(harness)

    await eventually(told)
    # A change that brokers follow by themselves restarts nobody.
    await change(harness, config={"log.retention.ms": "5000"})

    async def seen():
        obj = await harness.client.get(CLUSTERS, NAMESPACE, "kafkalite")
        return obj["status"]["observedGeneration"] == obj["metadata"]["generation"]

    await eventually(seen)
    assert await machinery.revisions() == after


async def test_nothing_is_deleted_before_the_stateful_set_is_known_to_make_new_pods(harness, machinery):
    machinery.obeys.clear()
    before = await machinery.revisions()
    await change(harness, config={"log.retention.check.interval.ms": "5000"})

    async def patched():
        found = await machinery.get(STATEFUL_SETS, SET)
        return found["spec"]["template"]["metadata"]["annotations"][naming.ANNOTATION_REVISION] not in before.values()

    await eventually(patched)
    operator = harness.operators["operator-1"][0]
    uid = (await harness.client.get(CLUSTERS, NAMESPACE, "kafkalite"))["metadata"]["uid"]
    await eventually(lambda: operator.store.served.get(uid) == "")
    assert await machinery.revisions() == before
    machinery.obeys.set()

    async def all_new():
        return len(machinery.made) == 6 and not set((await machinery.revisions()).values()) & set(before.values())

    await eventually(all_new)


async def test_a_held_broker_stays(harness, machinery):
    await harness.client.merge_patch(BROKERS, NAMESPACE, f"{SET}-1", {"spec": {"hold": True}})
    before = await machinery.revisions()
    await change(harness, config={"log.retention.check.interval.ms": "5000"})

    async def only_the_held_one_is_left():
        status = await rolling(harness)
        return status["pending"] == [f"{SET}-1"] and not status["inProgress"]

    await eventually(only_the_held_one_is_left)
    assert (await machinery.revisions())[f"{SET}-1"] == before[f"{SET}-1"]
    assert sorted(machinery.made) == [0, 0, 1, 2, 2]


def with_memory(value):
    resources = {"requests": {"memory": "64Mi"}, "limits": {"memory": value}}
    return {"pod": {"spec": {"containers": [{"name": "broker", "resources": resources}]}}}


async def test_where_pods_that_run_cannot_be_resized_they_are_restarted(harness, machinery):
    await change(
        harness, template=with_memory("1Gi")
    )  # the container has resources from now on: every pod is made anew

    async def settled():
        return len(machinery.made) == 6 and not (await rolling(harness))["inProgress"]

    await eventually(settled)
    await change(harness, template=with_memory("2Gi"))  # another value of the same: the embedded server cannot do it

    async def restarted():
        return len(machinery.made) == 9 and not (await rolling(harness))["inProgress"]

    await eventually(restarted)
    assert "BrokerNotResized" in await reasons(harness)


async def test_where_they_can_nobody_is_restarted(harness, machinery, monkeypatch):
    await change(harness, template=with_memory("1Gi"))

    async def settled():
        return len(machinery.made) == 6 and not (await rolling(harness))["inProgress"]

    await eventually(settled)
    resized = []

    async def json_patch(kind, namespace, name, operations, *, subresource="", **more):
        if (kind, subresource) == (PODS, "resize"):
            resized.append(name)
            subresource = ""
        return await patch(kind, namespace, name, operations, subresource=subresource, **more)

    client = harness.operators["operator-1"][0]._acting
    patch = client.json_patch
    monkeypatch.setattr(client, "json_patch", json_patch)
    await change(harness, template=with_memory("2Gi"))

    async def told():
        return "BrokerResized" in await reasons(harness)

    await eventually(told)
    pods = (await harness.client.list(PODS, NAMESPACE)).items
    assert {p["spec"]["containers"][0]["resources"]["limits"]["memory"] for p in pods} == {"2Gi"}
    assert sorted(resized) == [f"{SET}-{i}" for i in range(3)]
    assert len(machinery.made) == 6
    assert not (await rolling(harness))["inProgress"]


async def test_where_a_quota_refuses_them_nobody_is_restarted_and_it_is_tried_again(harness, machinery, monkeypatch):
    await change(harness, template=with_memory("1Gi"))

    async def settled():
        return len(machinery.made) == 6 and not (await rolling(harness))["inProgress"]

    await eventually(settled)
    full, asked = [True], []

    async def json_patch(kind, namespace, name, operations, *, subresource="", **more):
        if (kind, subresource) == (PODS, "resize"):
            asked.append(name)
            if full[0]:
                raise KubeForbidden(403, "Forbidden", f'pods "{name}" is forbidden: exceeded quota: q')
            subresource = ""
        return await patch(kind, namespace, name, operations, subresource=subresource, **more)

    client = harness.operators["operator-1"][0]._acting
    patch = client.json_patch
    monkeypatch.setattr(client, "json_patch", json_patch)
    await change(harness, template=with_memory("2Gi"))

    async def refused():
        status, reason, message = await condition(harness, "PodsResized", "kafkalite", CLUSTERS) or ("", "", "")
        return (status, reason) == ("False", "Refused") and "exceeded quota: q" in message

    await eventually(refused)
    assert sorted(asked) == [f"{SET}-{i}" for i in range(3)], "not in every round"
    full[0] = False
    monkeypatch.setattr(resize_notes, "AGAIN_S", 0.0)
    notes = harness.operators["operator-1"][0].store.resize_notes
    for of_cluster in notes._notes.values():
        of_cluster.update({pod: replace(note, again_at=0.0) for pod, note in of_cluster.items()})

    async def told():
        return (await condition(harness, "PodsResized", "kafkalite", CLUSTERS) or ("", ""))[1] == "Resized"

    await eventually(told)
    assert len(machinery.made) == 6


async def test_volumes_grow_and_the_stateful_set_is_made_again_with_its_pods(harness, machinery):
    for broker_id in range(3):
        body = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": f"data-{SET}-{broker_id}", "labels": naming.broker_labels("kafkalite")},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}},
        }
        await harness.client.create(PERSISTENT_VOLUME_CLAIMS, NAMESPACE, body)
    old = await machinery.get(STATEFUL_SETS, SET)
    await change(harness, storage={"size": "20Gi"})

    async def grown():
        claims = (await harness.client.list(PERSISTENT_VOLUME_CLAIMS, NAMESPACE)).items
        return {claim["spec"]["resources"]["requests"]["storage"] for claim in claims} == {"20Gi"}

    await eventually(grown)

    async def made_again():
        found = await machinery.get(STATEFUL_SETS, SET)
        return found is not None and found["metadata"]["uid"] != old["metadata"]["uid"] and found

    found = await eventually(made_again)
    assert found["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"] == {"storage": "20Gi"}
    assert sorted(machinery.made) == [0, 1, 2], "the pods went on"


# --- parts -----------------------------------------------------------------------------------------------------------


def pod(version, *, uid="p", ready=True, name=f"{SET}-0", **metadata):
    return {
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": uid,
            "resourceVersion": str(version),
            "labels": naming.broker_labels("kafkalite"),
            **metadata,
        },
        "status": {"conditions": [{"type": "Ready", "status": str(ready)}]},
    }


def known(store):
    return {i: (p.uid, p.ready) for i, p in store.of(NAMESPACE, "kafkalite").items()}


def test_the_newest_version_of_a_pod_counts_whatever_the_order():
    now = [0.0]
    store = PodStore(lambda: now[0])
    assert store.apply("ADDED", pod(5, ready=False))
    now[0] = 7.0
    assert not store.apply("MODIFIED", pod(6, ready=False)), "nothing that matters"
    assert store.of(NAMESPACE, "kafkalite")[0].unready_since == 0.0
    assert store.apply("MODIFIED", pod(8))
    assert not store.apply("MODIFIED", pod(7, ready=False)), "late"
    assert known(store) == {0: ("p", True)}
    assert store.apply("MODIFIED", pod(9, ready=False))
    assert store.of(NAMESPACE, "kafkalite")[0].unready_since == 7.0
    assert store.apply("DELETED", pod(10))
    assert not store.apply("MODIFIED", pod(9)), "it does not come back"
    assert known(store) == {}


def test_a_list_takes_away_what_is_older_than_it_and_not_in_it():
    store = PodStore(lambda: 0.0)
    store.apply("ADDED", pod(5))
    store.apply("ADDED", pod(20, uid="q", name=f"{SET}-1"))
    assert store.relist([pod(6, uid="r", name=f"{SET}-2")], "10", None)
    assert known(store) == {1: ("q", True), 2: ("r", True)}
    assert not store.relist([pod(6, uid="r", name=f"{SET}-2")], "10", None)
    assert not store.relist([], "30", "elsewhere")
    assert known(store).keys() == {1, 2}


def test_a_list_of_a_store_that_went_back_holds_against_all_that_was_seen_before():  # S11
    now = [10.0]
    store = PodStore(lambda: now[0])
    store.apply("ADDED", pod(90))
    store.apply("ADDED", pod(91, uid="q", name=f"{SET}-1"))
    store.apply("DELETED", pod(92, uid="q", name=f"{SET}-1"))
    back = [pod(20, uid="q", name=f"{SET}-1"), pod(30, ready=False)]
    assert not store.relist(back, "40", None, asked_at=10.0), "it may have been read before"
    assert known(store) == {0: ("p", True)}
    now[0] = 20.0
    assert store.relist(back, "40", None, asked_at=15.0)
    assert known(store) == {0: ("p", False), 1: ("q", True)}
    now[0] = 30.0
    store.apply("MODIFIED", pod(95))  # by a watch of before
    assert store.relist([], "41", None, asked_at=25.0)
    assert known(store).keys() == {0}
    assert store.relist([], "41", None, asked_at=31.0)
    assert known(store) == {}


def test_pods_of_others_are_passed_over_and_a_successor_replaces_one_that_stops():
    store = PodStore(lambda: 0.0)
    assert not store.apply("ADDED", pod(1, name="something-0"))
    store.apply("MODIFIED", pod(2, deletionTimestamp="now"))
    store.apply("ADDED", pod(3, uid="q"))
    assert known(store) == {0: ("q", True)}


def test_the_revision_is_served_when_the_controller_has_seen_the_template():
    obj = {
        "metadata": {"generation": 3},
        "spec": {"template": {"metadata": {"annotations": {naming.ANNOTATION_REVISION: "t.c"}}}},
        "status": {"observedGeneration": 3},
    }
    assert served_revision(obj) == "t.c"
    assert served_revision({**obj, "status": {"observedGeneration": 2}}) == ""
    assert served_revision({**obj, "status": {}}) == ""
    assert served_revision({**obj, "metadata": {"generation": 3, "deletionTimestamp": "now"}}) == ""
    assert served_revision({**obj, "spec": {"template": {}}}) == ""


def test_events_tell_of_changes_and_not_of_what_stays():
    idle, going = Rolling(), Rolling(in_progress=True, pending=("a", "b"), restarting=("a",))
    blocked = Rolling(in_progress=True, pending=("b",), blocked_by=(Blocked("b", "t-0", "why"),))
    assert [reason for reason, _ in rolling_events(idle, going)] == ["RollingRestartStarted", "RollingRestart"]
    assert rolling_events(going, going) == []
    assert rolling_events(going, blocked) == [("RollingRestartWaits", "b waits: t-0 why")]
    assert rolling_events(blocked, blocked) == []
    recovers = [Blocked("a", "", f"broker 1 recovers its logs: {left} left") for left in (100, 9)]
    first, later = (replace(blocked, blocked_by=(*blocked.blocked_by, each)) for each in recovers)
    assert [reason for reason, _ in rolling_events(blocked, first)] == ["RollingRestartWaits"]
    assert rolling_events(first, later) == [], "how far it is, is told in the status"
    assert rolling_events(later, blocked) == [], "it waits for less"
    other = replace(blocked, blocked_by=(Blocked("b", "t-0", "something else"),))
    assert rolling_events(later, other) == [("RollingRestartWaits", "b waits: t-0 something else")]
    held = Rolling(pending=("c",))
    assert rolling_events(going, held)[0][1].endswith("held back: c")

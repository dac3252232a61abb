"""Brokers whose node or volume is gone, against the embedded API server; StatefulSet controller and kubelet by hand."""

import asyncio
import contextlib
import uuid
from dataclasses import replace

import pytest

from kafkalite_core.model.partition import IsrEntry
from kafkalite_core.resources import naming, patches
from kafkalite_core.resources.brokers import parse_broker
from kafkalite_operator import removal, replacements
from kafkalite_operator.nodes import Nodes
from kafkalite_runtime.kube.client import KubeClient
from kafkalite_runtime.kube.errors import KubeConflict, KubeForbidden, KubeInvalid, KubeNotFound
from kafkalite_runtime.kube.kinds import (
    BROKERS,
    CLUSTERS,
    EVENTS,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    STATEFUL_SETS,
    TOPICS,
)
from tests.unit.operator.conftest import SPEC
from tests.unit.operator.fakes import NAMESPACE, eventually
from tests.unit.operator.test_operator import running_cluster, topic

pytestmark = pytest.mark.timeout(240)
SET = "kafkalite-broker"
VICTIM = f"{SET}-1"
CLAIM = f"data-{VICTIM}"


class Machinery:
    """The StatefulSet controller, the kubelets and the brokers' disks: a broker's disk is that of its claim."""

    def __init__(self, harness):
        self.harness, self.client = harness, harness.client
        self.dead: set[str] = set()
        """Names of nodes whose kubelet is gone."""
        self._disks: dict[str, str] = {}
        self._task = asyncio.create_task(self._run())

    async def stop(self):
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def get(self, kind, name, namespace=NAMESPACE):
        with contextlib.suppress(KubeNotFound):
            return await self.client.get(kind, namespace, name)
        return None

    async def _run(self):
        while True:
            with contextlib.suppress(KubeNotFound, KubeConflict, KubeInvalid):
                stateful_set = await self.get(STATEFUL_SETS, SET)
                for broker_id in self.harness.brokers if stateful_set is not None else ():
                    await self._one(stateful_set, broker_id)
            await asyncio.sleep(0.02)

    async def _one(self, stateful_set, broker_id):
        pod = await self.get(PODS, f"{SET}-{broker_id}")
        if pod is None:
            if broker_id < stateful_set["spec"]["replicas"]:
                await self._make(stateful_set, broker_id)
        elif "deletionTimestamp" in pod["metadata"]:
            if pod["spec"]["nodeName"] not in self.dead:
                await self.harness.brokers[broker_id].freeze()
                await self.client.delete(PODS, NAMESPACE, pod["metadata"]["name"], grace_period_s=0)
        elif broker_id >= stateful_set["spec"]["replicas"]:
            await self.client.delete(PODS, NAMESPACE, pod["metadata"]["name"])

    async def _make(self, stateful_set, broker_id):
        name, broker = f"{SET}-{broker_id}", self.harness.brokers[broker_id]
        claim = await self.get(PERSISTENT_VOLUME_CLAIMS, f"data-{name}")
        if claim is None:
            claim = await self.client.create(
                PERSISTENT_VOLUME_CLAIMS,
                NAMESPACE,
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "metadata": {"name": f"data-{name}", "labels": naming.broker_labels("kafkalite")},
                    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}},
                },
            )
        node = f"node-{broker_id}" if f"node-{broker_id}" not in self.dead else "node-0"
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": NAMESPACE,
                "labels": naming.broker_labels("kafkalite"),
                "annotations": stateful_set["spec"]["template"]["metadata"]["annotations"],
            },
            "spec": {"containers": [{"name": "broker", "image": "none"}], "nodeName": node},
        }
        await self.client.create(PODS, NAMESPACE, body)
        directory = self._disks.setdefault(claim["metadata"]["uid"], str(uuid.uuid4()))
        if broker.directory != directory:
            first = broker.registration is None or not self._disks.get(str(broker_id))
            broker.directory, broker.trusted_since = directory, None if not first else broker.trusted_since
            await broker.freeze()
            await broker.start()
        elif broker._renewing is None:
            await broker.start()
        self._disks[str(broker_id)] = directory
        ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
        await self.client.merge_patch(PODS, NAMESPACE, name, ready, subresource="status")

    async def identity(self, broker_id=1):
        """Uids of claim and pod, and the id of the disk."""
        claim = await self.get(PERSISTENT_VOLUME_CLAIMS, f"data-{SET}-{broker_id}")
        pod = await self.get(PODS, f"{SET}-{broker_id}")
        if claim is None or pod is None:
            return None
        broker = parse_broker(await self.client.get(BROKERS, NAMESPACE, f"{SET}-{broker_id}"))
        return claim["metadata"]["uid"], pod["metadata"]["uid"], broker.registration.directory_id


@pytest.fixture
async def machinery(harness, monkeypatch):
    monkeypatch.setattr(replacements, "LOOK_S", 0.1)
    monkeypatch.setattr("kafkalite_operator.controller.LOOK_S", 0.1)
    monkeypatch.setitem(SPEC, "nodeLossSeconds", 10)
    for i in range(3):
        await make_node(harness, f"node-{i}")
    await running_cluster(harness)
    machinery = Machinery(harness)

    async def whole():
        return [i for i in range(3) if await machinery.identity(i) is not None and harness.brokers[i]._renewing]

    await eventually(lambda: whole_is(whole, [0, 1, 2]))
    await in_sync(harness)
    yield machinery
    await machinery.stop()


async def whole_is(whole, wanted):
    return await whole() == wanted


async def make_node(harness, name, ready="True"):
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    await harness.client.create(NODES, None, body)
    status = {"status": {"conditions": [{"type": "Ready", "status": ready}]}}
    await harness.client.merge_patch(NODES, None, name, status, subresource="status")


async def in_sync(harness):
    """Every replica joins the ISR, as leaders would propose it."""

    async def joined():
        found = await topic(harness)
        brokers = {i: parse_broker(await harness.client.get(BROKERS, NAMESPACE, f"{SET}-{i}")) for i in range(3)}
        wanted = {}
        for number, old in found.partitions.items():
            isr = tuple(IsrEntry(i, brokers[i].epoch) for i in old.replicas if brokers[i].alive)
            if old.has_leader and set(isr) != set(old.isr):
                wanted[number] = (old, replace(old, isr=isr, elr=(), partition_epoch=old.partition_epoch + 1))
        for number, (old, new) in wanted.items():
            with contextlib.suppress(KubeInvalid):
                await harness.client.json_patch(
                    TOPICS,
                    NAMESPACE,
                    found.ref.object_name,
                    patches.leader_proposal(found.ref, number, old, new),
                    subresource="status",
                )
        return not wanted and all(len(each.isr) == 3 for each in found.partitions.values())

    await eventually(joined)


async def declare(harness, broker_id=1):
    annotations = {"metadata": {"annotations": {naming.ANNOTATION_REPLACE: "true"}}}
    await harness.client.merge_patch(BROKERS, NAMESPACE, f"{SET}-{broker_id}", annotations)


async def cluster_status(harness):
    return (await harness.client.get(CLUSTERS, NAMESPACE, "kafkalite")).get("status") or {}


async def phase(harness):
    return ((await cluster_status(harness)).get("replacing") or {}).get("phase")


async def phase_is(harness, wanted):
    return await phase(harness) == wanted


async def reason_of(harness, kind=CLUSTERS, name="kafkalite"):
    obj = await harness.client.get(kind, NAMESPACE, name)
    found = (obj.get("status") or {}).get("conditions") or []
    return next((each["reason"] for each in found if each["type"] == "Replacing"), None)


async def reason_is(harness, wanted, *about):
    return await reason_of(harness, *about) == wanted


async def told(harness, reason):
    return [e["message"] for e in (await harness.client.list(EVENTS, NAMESPACE)).items if e["reason"] == reason]


async def fenced(harness, broker_id=1):
    return parse_broker(await harness.client.get(BROKERS, NAMESPACE, f"{SET}-{broker_id}")).fenced


async def test_a_broker_that_is_declared_gone_gets_a_new_volume(harness, machinery):
    before = await machinery.identity()
    others = [await machinery.identity(0), await machinery.identity(2)]
    await declare(harness)

    async def rebuilt():
        return await phase_is(harness, "Rebuilding")

    await eventually(rebuilt)
    after = await machinery.identity()
    assert all(old != new for old, new in zip(before, after, strict=True)), (before, after)
    assert [await machinery.identity(0), await machinery.identity(2)] == others
    obj = await harness.client.get(BROKERS, NAMESPACE, VICTIM)
    assert naming.ANNOTATION_REPLACE not in (obj["metadata"].get("annotations") or {})
    status = (await cluster_status(harness))["replacing"]
    assert (status["broker"], status["replicas"], status["inSync"]) == (1, 3, 0)
    assert status["directoryId"] == after[2]
    assert await eventually(lambda: reason_is(harness, "Rebuilding", BROKERS, VICTIM))
    await in_sync(harness)
    await eventually(lambda: phase_is(harness, None))
    await eventually(lambda: reason_is(harness, "NotReplacing"))
    await eventually(lambda: reason_is(harness, "NotReplacing", BROKERS, VICTIM))
    assert await machinery.identity() == after
    for reason in ("ReplacementStarted", "VolumeDeleted", "ReplaceRequestDone", "BrokerReplaced", "ReplacementDone"):
        assert await eventually(lambda reason=reason: told(harness, reason)), reason


async def test_the_last_copy_of_records_is_not_deleted(harness, machinery):
    spec = {"partitions": 1, "replicas": 1, "replicaAssignment": {"0": [1]}}
    body = {"apiVersion": "kafkalite.io/v1alpha1", "kind": "KafkaLiteTopic", "metadata": {"name": "alone"}}
    await harness.client.create(TOPICS, NAMESPACE, {**body, "spec": spec})

    async def alone():
        found = await harness.client.get(TOPICS, NAMESPACE, "alone")
        return ((found.get("status") or {}).get("partitions") or {}).get("0")

    await eventually(alone)
    before = await machinery.identity()
    await declare(harness)
    await eventually(lambda: phase_is(harness, "Waiting"))
    await eventually(lambda: reason_is(harness, "Blocked", BROKERS, VICTIM))
    blocked = (await cluster_status(harness))["replacing"]["blockedBy"]
    [about] = [each for each in blocked if "partition" in each]  # its claim may not have been read yet
    assert about["partition"] == "alone-0"
    assert "kafkalite.io/elect-unclean=0" in about["reason"]
    assert any("alone-0" in message for message in await eventually(lambda: told(harness, "ReplacementBlocked")))
    assert await machinery.identity() == before
    assert not await fenced(harness)
    consent = {"metadata": {"annotations": {naming.ANNOTATION_ELECT_UNCLEAN: "0"}}}
    await harness.client.merge_patch(TOPICS, NAMESPACE, "alone", consent)

    async def elected():
        entry = await alone()
        identity = await machinery.identity()
        return identity and identity[0] != before[0] and entry["leader"] == 1 and entry["leaderEpoch"] > 0

    await eventually(elected)
    assert await eventually(lambda: told(harness, "UncleanLeaderElection"))


async def test_an_operator_that_dies_between_two_calls_is_succeeded_and_nothing_new_is_deleted(
    harness, machinery, monkeypatch
):
    before = await machinery.identity()
    delete, claim_gone = KubeClient.delete, asyncio.Event()

    async def half(self, kind, namespace, name, **options):
        if kind is PODS and name == VICTIM and "uid" in options:
            claim_gone.set()
            await asyncio.Event().wait()
        await delete(self, kind, namespace, name, **options)

    monkeypatch.setattr(KubeClient, "delete", half)
    await declare(harness)
    await asyncio.wait_for(claim_gone.wait(), 60)
    await harness.stop_operator(kill=True)
    monkeypatch.setattr(KubeClient, "delete", delete)
    assert await machinery.get(PERSISTENT_VOLUME_CLAIMS, CLAIM) is None
    assert (await machinery.get(PODS, VICTIM))["metadata"]["uid"] == before[1]
    harness.start_operator("operator-2")
    await eventually(lambda: phase_is(harness, "Rebuilding"))
    after = await machinery.identity()
    await in_sync(harness)
    await eventually(lambda: phase_is(harness, None))
    assert await machinery.identity() == after


async def lose(harness, machinery, node="node-1", broker_id=1):
    """The node ends with everything on it, and its object with it."""
    machinery.dead.add(node)
    await harness.brokers[broker_id].freeze()
    await harness.client.delete(NODES, None, node)


async def test_a_lost_node_is_waited_for_unless_the_cluster_says_otherwise(harness, machinery):
    before = await machinery.identity()
    await lose(harness, machinery)
    await eventually(lambda: fenced(harness))
    assert await phase(harness) is None
    await harness.client.merge_patch(CLUSTERS, NAMESPACE, "kafkalite", {"spec": {"nodeLoss": "replace"}})

    async def elsewhere():
        identity, pod = await machinery.identity(), await machinery.get(PODS, VICTIM)
        return identity and identity[2] != before[2] and pod["spec"]["nodeName"] == "node-0"

    await eventually(elsewhere)
    messages = await eventually(lambda: told(harness, "VolumeDeleted"))
    assert any("its node node-1 is gone" in message and "does not answer" in message for message in messages)
    await in_sync(harness)
    await eventually(lambda: phase_is(harness, None))


async def test_who_may_not_read_nodes_says_so(harness, machinery, monkeypatch):
    async def forbidden(*_):
        raise KubeForbidden(403, "Forbidden", "nodes is forbidden")

    monkeypatch.setattr(Nodes, "state", forbidden)
    before = await machinery.identity()
    await lose(harness, machinery)
    await harness.client.merge_patch(CLUSTERS, NAMESPACE, "kafkalite", {"spec": {"nodeLoss": "replace"}})
    await eventually(lambda: reason_is(harness, "NodesNotReadable"))
    assert await machinery.identity() == before
    await harness.client.merge_patch(CLUSTERS, NAMESPACE, "kafkalite", {"spec": {"nodeLoss": "wait"}})
    await eventually(lambda: reason_is(harness, "NotReplacing"))


async def test_a_volume_that_is_lost_is_told_and_with_replace_replaced(harness, machinery):
    before = await machinery.identity()
    await harness.brokers[1].freeze()
    lost = {"status": {"phase": "Lost"}}
    await harness.client.merge_patch(PERSISTENT_VOLUME_CLAIMS, NAMESPACE, CLAIM, lost, subresource="status")
    await harness.client.merge_patch(CLUSTERS, NAMESPACE, "kafkalite", {"spec": {"storage": {"size": "11Gi"}}})
    await eventually(lambda: reason_is(harness, "VolumeLost"))
    assert (await machinery.identity())[0] == before[0]
    await harness.client.merge_patch(CLUSTERS, NAMESPACE, "kafkalite", {"spec": {"nodeLoss": "replace"}})
    await eventually(lambda: phase_is(harness, "Rebuilding"))
    assert (await machinery.identity())[0] != before[0]


async def test_a_removal_does_not_wait_for_a_lost_node(harness, machinery, monkeypatch):
    """The cluster is told to replace lost nodes while the removal waits for the pod: it hears of it at once."""
    monkeypatch.setattr(removal, "PATIENCE_S", 600.0)
    empty = {"spec": {"replicas": 2, "replicaAssignment": {str(n): [0, 1] for n in range(3)}}}
    await harness.client.merge_patch(TOPICS, NAMESPACE, (await topic(harness)).ref.object_name, empty)

    async def moved():
        return all(set(each.replicas) == {0, 1} for each in (await topic(harness)).partitions.values())

    await eventually(moved)
    await lose(harness, machinery, "node-2", 2)
    await harness.client.merge_patch(CLUSTERS, NAMESPACE, "kafkalite", {"spec": {"replicas": 2}})

    async def stuck():
        pod = await machinery.get(PODS, f"{SET}-2")
        return pod is not None and "deletionTimestamp" in pod["metadata"]

    await eventually(stuck)
    await harness.client.merge_patch(CLUSTERS, NAMESPACE, "kafkalite", {"spec": {"nodeLoss": "replace"}})

    async def removed():
        return await machinery.get(BROKERS, f"{SET}-2") is None and await machinery.get(PODS, f"{SET}-2") is None

    await eventually(removed)
    assert await eventually(lambda: told(harness, "PodForced"))


# -- a lost race ------------------------------------------------------------------------------------------------------


async def test_a_lost_race_on_the_stateful_set_is_no_refusal(harness, machinery, monkeypatch):
    patch, races = KubeClient.json_patch, []

    async def raced(self, kind, namespace, name, operations, **options):
        if kind is STATEFUL_SETS and not races:
            races.append(name)
            path = "/metadata/annotations/" + naming.ANNOTATION_HASH.replace("/", "~1")
            await patch(self, kind, namespace, name, [{"op": "add", "path": path, "value": "of another replica"}])
        return await patch(self, kind, namespace, name, operations, **options)

    monkeypatch.setattr(KubeClient, "json_patch", raced)
    await harness.client.merge_patch(CLUSTERS, NAMESPACE, "kafkalite", {"spec": {"metrics": {"port": 9500}}})

    async def applied():
        found = await machinery.get(STATEFUL_SETS, SET)
        return races and found["metadata"]["annotations"][naming.ANNOTATION_HASH] != "of another replica"

    await eventually(applied)
    assert await eventually(lambda: told(harness, "ObjectApplied"))
    assert not await told(harness, "ObjectRefused")


async def test_a_stateful_set_that_is_refused_says_so(harness, machinery, monkeypatch):
    patch = KubeClient.json_patch

    async def refusing(self, kind, namespace, name, operations, **options):
        if kind is STATEFUL_SETS:
            raise KubeInvalid(422, "Invalid", "spec.template is not what it should be")
        return await patch(self, kind, namespace, name, operations, **options)

    monkeypatch.setattr(KubeClient, "json_patch", refusing)
    await harness.client.merge_patch(CLUSTERS, NAMESPACE, "kafkalite", {"spec": {"metrics": {"port": 9500}}})
    assert any("not what it should be" in text for text in await eventually(lambda: told(harness, "ObjectRefused")))

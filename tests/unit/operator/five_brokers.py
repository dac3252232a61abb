"""A cluster of five brokers that is scaled down."""

from kafkalite_core.resources.naming import data_claim_name
from kafkalite_runtime.kube.errors import KubeNotFound
from kafkalite_runtime.kube.kinds import BROKERS, CLUSTERS, EVENTS, PERSISTENT_VOLUME_CLAIMS, STATEFUL_SETS, TOPICS
from tests.unit.operator.conftest import SPEC
from tests.unit.operator.fakes import NAMESPACE, eventually

CLUSTER = "kafkalite"


async def get(harness, kind, name):
    try:
        return await harness.client.get(kind, NAMESPACE, name)
    except KubeNotFound:
        return None


async def five(harness, *, delete_claim=False, assignment=None, running=5, **more):
    """Five brokers, one topic on the first three of them, and the claims that a StatefulSet would have made."""
    harness.start_operator()
    spec = {**SPEC, "replicas": 5, "storage": {"size": "1Gi", "deleteClaim": delete_claim}, **more}
    metadata = {"name": CLUSTER, "namespace": NAMESPACE}
    head = {"apiVersion": "kafkalite.io/v1alpha1", "metadata": metadata}
    await harness.client.create(CLUSTERS, NAMESPACE, {**head, "kind": "KafkaLiteCluster", "spec": spec})
    assignment = assignment or {"0": [0, 1, 2]}
    topic = {"partitions": len(assignment), "replicas": 3, "replicaAssignment": assignment}
    metadata = {"name": "orders", "namespace": NAMESPACE}
    head = {"apiVersion": "kafkalite.io/v1alpha1", "metadata": metadata}
    await harness.client.create(TOPICS, NAMESPACE, {**head, "kind": "KafkaLiteTopic", "spec": topic})
    for broker_id in range(5):
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": data_claim_name(CLUSTER, broker_id), "namespace": NAMESPACE},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }
        await harness.client.create(PERSISTENT_VOLUME_CLAIMS, NAMESPACE, claim)
    await harness.start_brokers(running)
    await eventually(lambda: serves(harness))


async def serves(harness):
    found = await get(harness, TOPICS, "orders")
    made = await get(harness, STATEFUL_SETS, f"{CLUSTER}-broker")
    return bool((found.get("status") or {}).get("partitions")) and made


async def scale(harness, replicas):
    await harness.client.merge_patch(CLUSTERS, NAMESPACE, CLUSTER, {"spec": {"replicas": replicas}})


async def pods(harness):
    return (await get(harness, STATEFUL_SETS, f"{CLUSTER}-broker"))["spec"]["replicas"]


async def progressing(harness):
    found = await get(harness, CLUSTERS, CLUSTER)
    told = found["status"].get("conditions", [])
    return next((each for each in told if each["type"] == "Progressing"), {"reason": "", "message": ""})


async def scaling_down(harness):
    return (await progressing(harness))["reason"] == "ScalingDown"


async def names(harness, kind):
    listed = await harness.client.list(kind, NAMESPACE)
    return {item["metadata"]["name"] for item in listed.items}


async def events(harness, reason):
    return [e["message"] for e in (await harness.client.list(EVENTS, NAMESPACE)).items if e["reason"] == reason]


async def gone(harness, broker_id):
    return not await get(harness, BROKERS, f"{CLUSTER}-broker-{broker_id}")


async def fewer(harness):
    return await pods(harness) == 4


def noticed(harness, broker_id):
    """Whether the operator has heard the broker since its last replica went."""
    controller = harness.operators["operator-1"][0].controller
    broker = controller._store.brokers_of((NAMESPACE, CLUSTER)).get(broker_id)
    return broker is not None and any(each.noticed(broker) for each in controller._emptied.values())

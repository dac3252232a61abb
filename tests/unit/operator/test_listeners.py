"""Listeners for clients outside, and racks, by the whole operator against the embedded API server."""

import pytest

from kafkalite_core.resources.clusters import parse_cluster
from kafkalite_operator.nodes import WHAT_TO_DO
from kafkalite_runtime.kube.errors import KubeForbidden, KubeNotFound
from kafkalite_runtime.kube.kinds import CLUSTERS, EVENTS, NODES, PODS, SERVICES
from tests.unit.operator.fakes import NAMESPACE, eventually

pytestmark = pytest.mark.timeout(240)

PLAIN = {"name": "plain", "type": "internal", "port": 9092}
OUTSIDE = {"name": "ext", "type": "loadbalancer", "port": 9094}
ZONE = "topology.kubernetes.io/zone"


async def make_cluster(harness, **spec):
    body = {
        "apiVersion": "kafkalite.io/v1alpha1",
        "kind": "KafkaLiteCluster",
        "metadata": {"name": "kafkalite", "namespace": NAMESPACE},
        "spec": {"replicas": 2, **spec},
    }
    harness.start_operator()
    return await harness.client.create(CLUSTERS, NAMESPACE, body)


async def the_cluster(harness):
    return await harness.client.get(CLUSTERS, NAMESPACE, "kafkalite")


async def condition(harness, type_):
    obj = await the_cluster(harness)
    found = [each for each in obj.get("status", {}).get("conditions", []) if each["type"] == type_]
    return (found[0]["status"], found[0]["reason"], found[0]["message"]) if found else None


def told(harness, type_, status, words=""):
    async def check():
        found = await condition(harness, type_)
        return found if found is not None and found[0] == status and words in found[2] else None

    return eventually(check)


async def names(harness):
    listed = await harness.client.list(SERVICES, NAMESPACE, label_selector="kafkalite.io/listener")
    return {each["metadata"]["name"] for each in listed.items}


async def made(harness, *wanted):
    async def check():
        return await names(harness) == set(wanted)

    await eventually(check)


async def spec(harness, **changes):
    await harness.client.merge_patch(CLUSTERS, NAMESPACE, "kafkalite", {"spec": changes})


async def make_pod(harness, broker_id, *, node="node-1", **metadata):
    labels = {
        "app.kubernetes.io/name": "kafkalite",
        "app.kubernetes.io/component": "broker",
        "kafkalite.io/cluster": "kafkalite",
        **metadata.pop("labels", {}),
    }
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"kafkalite-broker-{broker_id}", "namespace": NAMESPACE, "labels": labels, **metadata},
        "spec": {"nodeName": node, "containers": [{"name": "broker", "image": "none"}]},
    }
    made = await harness.client.create(PODS, NAMESPACE, body)
    status = {"status": {"hostIP": f"10.0.0.{broker_id + 1}"}}
    return await harness.client.merge_patch(PODS, NAMESPACE, made["metadata"]["name"], status, subresource="status")


async def make_node(harness, name="node-1", labels=None, addresses=()):
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels or {}}, "spec": {}}
    await harness.client.create(NODES, None, body)
    listed = [{"type": kind, "address": address} for kind, address in addresses]
    await harness.client.merge_patch(NODES, None, name, {"status": {"addresses": listed}}, subresource="status")


def answered(harness, name, ip):
    status = {"status": {"loadBalancer": {"ingress": [{"ip": ip}]}}}
    return harness.client.merge_patch(SERVICES, NAMESPACE, name, status, subresource="status")


async def test_a_listener_with_load_balancers_comes_changes_and_goes(harness):
    await make_cluster(harness, listeners=[PLAIN, OUTSIDE])
    waiting = await told(harness, "ListenersReady", "False", "kafkalite-broker-1-ext has no address yet")
    assert waiting[1] == "WaitingForAddresses"
    await made(harness, "kafkalite-bootstrap-ext", "kafkalite-broker-0-ext", "kafkalite-broker-1-ext")
    await answered(harness, "kafkalite-broker-0-ext", "192.0.2.1")

    async def half():
        endpoints = parse_cluster(await the_cluster(harness)).endpoints.get("ext", {})
        return endpoints == {0: ("192.0.2.1", 9094)}

    await eventually(half)  # one broker that is reached is better than none
    await answered(harness, "kafkalite-broker-1-ext", "192.0.2.2")
    await told(harness, "ListenersReady", "True", "ext at 192.0.2.1:9094,192.0.2.2:9094")

    configuration = {"advertisedHostTemplate": "kafka-{nodeId}.example.com", "annotations": {"a": "{nodeId}"}}
    await spec(harness, listeners=[PLAIN, {**OUTSIDE, "configuration": configuration}])
    await told(harness, "ListenersReady", "True", "kafka-1.example.com:9094")

    async def annotated():
        found = await harness.client.get(SERVICES, NAMESPACE, "kafkalite-broker-1-ext")
        return found["metadata"]["annotations"].get("a")

    assert await eventually(annotated) == "1"
    await spec(harness, listeners=[PLAIN, OUTSIDE])

    async def annotation_gone():
        return await annotated() is None

    await eventually(annotation_gone)

    await spec(harness, listeners=[PLAIN])

    async def gone():
        obj = await the_cluster(harness)
        return not await names(harness) and not obj["status"]["listeners"]

    await eventually(gone)
    assert await condition(harness, "ListenersReady") is None
    assert await harness.client.get(SERVICES, NAMESPACE, "kafkalite-broker-0"), "those of the brokers stay"


async def test_a_paused_cluster_tells_where_its_brokers_are_and_takes_nothing_away(harness):
    await make_cluster(harness, replicas=1, listeners=[PLAIN, OUTSIDE])
    await made(harness, "kafkalite-bootstrap-ext", "kafkalite-broker-0-ext")
    await told(harness, "ListenersReady", "False", "kafkalite-broker-0-ext has no address yet")
    paused = {"metadata": {"annotations": {"kafkalite.io/paused": "true"}}}
    await harness.client.merge_patch(CLUSTERS, NAMESPACE, "kafkalite", paused)
    await told(harness, "ReconciliationPaused", "True")
    await answered(harness, "kafkalite-broker-0-ext", "192.0.2.1")
    await told(harness, "ListenersReady", "True", "ext at 192.0.2.1:9094")

    other = {"name": "two", "type": "loadbalancer", "port": 9095}
    await spec(harness, listeners=[PLAIN, other])
    await told(harness, "ListenersReady", "False", "kafkalite-broker-0-two")
    assert "ext" in [each["name"] for each in (await the_cluster(harness))["status"]["listeners"]], "brokers serve it"
    assert await names(harness) == {"kafkalite-bootstrap-ext", "kafkalite-broker-0-ext"}
    await harness.client.merge_patch(
        CLUSTERS, NAMESPACE, "kafkalite", {"metadata": {"annotations": {"kafkalite.io/paused": None}}}
    )
    await made(harness, "kafkalite-bootstrap-two", "kafkalite-broker-0-two")


async def test_a_paused_cluster_keeps_the_addresses_of_what_nobody_makes_again(harness):
    await make_cluster(harness, listeners=[PLAIN, OUTSIDE])
    await made(harness, "kafkalite-bootstrap-ext", "kafkalite-broker-0-ext", "kafkalite-broker-1-ext")
    for number in range(2):
        await answered(harness, f"kafkalite-broker-{number}-ext", f"192.0.2.{number + 1}")
    await told(harness, "ListenersReady", "True", "ext at 192.0.2.1:9094,192.0.2.2:9094")
    paused = {"metadata": {"annotations": {"kafkalite.io/paused": "true"}}}
    await harness.client.merge_patch(CLUSTERS, NAMESPACE, "kafkalite", paused)
    await told(harness, "ReconciliationPaused", "True")
    await harness.client.delete(SERVICES, NAMESPACE, "kafkalite-broker-1-ext")
    other = {"name": "two", "type": "loadbalancer", "port": 9095}
    await spec(harness, listeners=[PLAIN, OUTSIDE, other])
    await told(harness, "ListenersReady", "False", "Service kafkalite-broker-1-ext has no address yet")
    obj = await the_cluster(harness)
    assert parse_cluster(obj).endpoints["ext"] == {0: ("192.0.2.1", 9094), 1: ("192.0.2.2", 9094)}
    [ext] = [each for each in obj["status"]["listeners"] if each["name"] == "ext"]
    assert ext["bootstrapServers"] == "192.0.2.1:9094,192.0.2.2:9094"


async def test_a_node_port_is_told_with_the_node_that_the_pod_is_on(harness):
    listener = {"name": "ext", "type": "nodeport", "port": 9094}
    await make_cluster(harness, replicas=1, listeners=[PLAIN, listener])
    await told(harness, "ListenersReady", "False", "kafkalite-broker-0-ext has no nodePort yet")
    await made(harness, "kafkalite-bootstrap-ext", "kafkalite-broker-0-ext")
    ports = {"spec": {"ports": [{"name": "ext", "port": 9094, "targetPort": 9094, "nodePort": 31000}]}}
    await harness.client.merge_patch(SERVICES, NAMESPACE, "kafkalite-broker-0-ext", ports)
    await told(harness, "ListenersReady", "False", "the address of the node of pod kafkalite-broker-0 is not known")
    await make_pod(harness, 0)
    await told(harness, "ListenersReady", "True", "ext at 10.0.0.1:31000")
    await make_node(harness, addresses=[("InternalIP", "10.0.0.1"), ("ExternalIP", "192.0.2.7")])
    preferred = {"preferredNodePortAddressType": "ExternalIP"}
    await spec(harness, listeners=[PLAIN, {**listener, "configuration": preferred}])
    await told(harness, "ListenersReady", "True", "ext at 192.0.2.7:31000")


async def test_a_service_that_is_refused_holds_nothing_else_up(harness, monkeypatch):
    from kafkalite_operator import infrastructure
    from kafkalite_runtime.kube.errors import KubeInvalid

    ensure_one = infrastructure.Infrastructure._ensure_one

    async def refusing(self, settings, wanted):
        if wanted["metadata"]["name"] == "kafkalite-bootstrap-ext":
            raise KubeInvalid(422, "Invalid", "provided port is already allocated")
        await ensure_one(self, settings, wanted)

    monkeypatch.setattr(infrastructure.Infrastructure, "_ensure_one", refusing)
    await make_cluster(harness, listeners=[PLAIN, OUTSIDE])
    await told(harness, "ListenersReady", "False")

    async def said():
        listed = await harness.client.list(EVENTS, NAMESPACE)
        return [each for each in listed.items if each["reason"] == "ObjectRefused"]

    [event] = await eventually(said)
    assert "kafkalite-bootstrap-ext refused" in event["message"]
    assert "already allocated" in event["message"]
    await made(harness, "kafkalite-broker-0-ext", "kafkalite-broker-1-ext")


async def test_the_rack_is_copied_from_the_node_to_pods_that_have_none(harness):
    await make_node(harness, "node-1", {ZONE: "zone-a"})
    await make_node(harness, "node-2")
    await make_cluster(harness, listeners=[PLAIN], rack={"topologyKey": ZONE})
    await make_pod(harness, 0)

    async def rack(broker_id):
        pod = await harness.client.get(PODS, NAMESPACE, f"kafkalite-broker-{broker_id}")
        return pod["metadata"].get("annotations", {}).get("kafkalite.io/rack")

    assert await eventually(lambda: rack(0)) == "zone-a"
    await told(harness, "RacksKnown", "True")
    await make_pod(harness, 1, node="node-2")
    assert await eventually(lambda: rack(1)) == "-"
    await told(harness, "RacksKnown", "False", "node-2")
    await harness.client.delete(PODS, NAMESPACE, "kafkalite-broker-1", grace_period_s=0)

    async def deleted():
        try:
            await harness.client.get(PODS, NAMESPACE, "kafkalite-broker-1")
        except KubeNotFound:
            return True
        return False

    await eventually(deleted)
    await make_pod(harness, 1, node="node-2", labels={ZONE: "zone-b"})
    await spec(harness, rack=None)

    async def condition_gone():
        return await condition(harness, "RacksKnown") is None

    await eventually(condition_gone)
    assert await rack(1) is None, "Kubernetes 1.35 had told it"


async def test_an_operator_that_may_not_read_nodes_says_what_to_do(harness, monkeypatch):
    from kafkalite_operator.nodes import Nodes

    async def refused(self, name):
        raise KubeForbidden(403, "Forbidden", f'nodes "{name}" is forbidden')

    monkeypatch.setattr(Nodes, "get", refused)
    await make_cluster(harness, listeners=[PLAIN], rack={"topologyKey": ZONE})
    await make_pod(harness, 0)
    found = await told(harness, "RacksKnown", "False", "rbac.readNodes")
    assert found[1] == "Forbidden"
    assert WHAT_TO_DO in found[2]

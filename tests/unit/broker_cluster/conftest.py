"""A broker's shells against the embedded API server, with a client that loses requests and answers on demand."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kafkalite_broker.cluster.link import ClusterLink
from kafkalite_broker.cluster.settings import BrokerConfig, BrokerSettings
from kafkalite_core.membership.registration import Identity
from kafkalite_core.model.listener import Listener
from kafkalite_core.model.partition import IsrEntry, Partition
from kafkalite_core.resources.topics import render_partition
from kafkalite_local.apiserver.server import ApiServer
from kafkalite_runtime.kube import BROKERS, CLUSTERS, TOPICS, KubeClient, KubeUnavailable
from kafkalite_runtime.kube.config import KubeConfig

NAMESPACE = "default"
ENTRY = Partition(
    leader=0, leader_epoch=1, partition_epoch=3, min_isr=1, replicas=(0, 1), isr=(IsrEntry(0, 1), IsrEntry(1, 2))
)
TOPIC_ID = "5f0c0000-0000-4000-8000-000000000001"


class FaultyClient(KubeClient):
    """`faults` names what happens to the next writes: "ok", "lose request", "lose answer", "refuse" (not sent).

    `outage` makes every call fail as if nothing listened, `outage_of` those whose path ends with it. Each answer takes
    `answer_s` longer.
    """

    def __init__(self, config):
        super().__init__(config)
        self.faults = []
        self.outage = False
        self.outage_of = ()
        self.answer_s = 0.0
        self.writes = 0
        self.calls = 0

    async def _call(self, method, path, **arguments):
        self.calls += 1
        if self.outage or path.endswith(self.outage_of):
            raise KubeUnavailable("connection refused", ambiguous=False)
        if self.answer_s:
            await asyncio.sleep(self.answer_s)
        if method == "GET":
            return await super()._call(method, path, **arguments)
        self.writes += 1
        fault = self.faults.pop(0) if self.faults else "ok"
        if fault == "refuse":
            raise KubeUnavailable("connection refused", ambiguous=False)
        if fault == "lose request":
            raise KubeUnavailable("time-out", ambiguous=True)
        answer = await super()._call(method, path, **arguments)
        if fault == "lose answer":
            raise KubeUnavailable("time-out", ambiguous=True)
        return answer

    async def watch(self, *arguments, **options):
        if self.outage:
            raise KubeUnavailable("connection refused", ambiguous=False)
        stream = super().watch(*arguments, **options)
        try:
            async for event in stream:
                if self.outage:
                    raise KubeUnavailable("connection reset", ambiguous=False)
                yield event
        finally:
            await stream.aclose()


class World:
    """An API server, a client for the test itself, and helpers that play the operator."""

    def __init__(self, config):
        self.config = config
        self.client = FaultyClient(config)
        self.clients = [self.client]

    def new_client(self):
        client = FaultyClient(self.config)
        self.clients.append(client)
        return client

    async def create_cluster(self, name="kafkalite", **status):
        body = {
            "apiVersion": "kafkalite.io/v1alpha1",
            "kind": "KafkaLiteCluster",
            "metadata": {"name": name},
            "spec": {},
        }
        await self.client.create(CLUSTERS, NAMESPACE, body)
        status = {"clusterId": "MkU3OEVBNTcwNTJENDM2Qk", "nextBrokerEpoch": 1, "nextProducerId": 0, **status}
        await self.client.merge_patch(CLUSTERS, NAMESPACE, name, {"status": status}, subresource="status")

    async def cluster(self, name="kafkalite"):
        return await self.client.get(CLUSTERS, NAMESPACE, name)

    async def change_cluster(self, name="kafkalite", **status):
        await self.client.merge_patch(CLUSTERS, NAMESPACE, name, {"status": status}, subresource="status")

    async def create_broker(self, broker_id=0, cluster="kafkalite"):
        body = {
            "apiVersion": "kafkalite.io/v1alpha1",
            "kind": "KafkaLiteBroker",
            "metadata": {"name": f"{cluster}-broker-{broker_id}"},
            "spec": {"clusterRef": {"name": cluster}, "brokerId": broker_id},
        }
        return await self.client.create(BROKERS, NAMESPACE, body)

    async def broker(self, broker_id=0):
        return await self.client.get(BROKERS, NAMESPACE, f"kafkalite-broker-{broker_id}")

    async def fence(self, broker_id=0):
        found = await self.broker(broker_id)
        epoch = found["status"]["registration"]["brokerEpoch"]
        fencing = {"status": {"fencing": {"fencedEpoch": epoch, "reason": "test"}}}
        await self.client.merge_patch(BROKERS, NAMESPACE, found["metadata"]["name"], fencing, subresource="status")
        return epoch

    async def forget_holdings(self, broker_id=0):
        name = f"kafkalite-broker-{broker_id}"
        written = {"status": {"holdings": []}}
        before = await self.client.merge_patch(BROKERS, NAMESPACE, name, written, subresource="status")
        async with asyncio.timeout(60):
            while not (found := await self.broker(broker_id))["status"]["holdings"]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert found["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]

    async def create_topic(self, name="orders", entry=ENTRY, cluster=None, topic_name=None):
        spec = {"partitions": 1, "replicas": 2}
        if cluster is not None:
            spec["clusterRef"] = {"name": cluster}
        if topic_name is not None:
            spec["topicName"] = topic_name
        body = {
            "apiVersion": "kafkalite.io/v1alpha1",
            "kind": "KafkaLiteTopic",
            "metadata": {"name": name},
            "spec": spec,
        }
        created = await self.client.create(TOPICS, NAMESPACE, body)
        if entry is None:
            return created
        status = {"topicId": TOPIC_ID, "controllerEpoch": 1, "partitions": {"0": render_partition(entry)}}
        return await self.client.merge_patch(TOPICS, NAMESPACE, name, {"status": status}, subresource="status")

    async def set_entry(self, entry, name="orders"):
        rendered = dict.fromkeys(("elr", "adding", "removing")) | render_partition(entry)
        status = {"partitions": {"0": rendered}}
        return await self.client.merge_patch(TOPICS, NAMESPACE, name, {"status": status}, subresource="status")


@asynccontextmanager
async def running_world(folder):
    server = ApiServer(Path(folder) / "control-plane.db", bookmark_interval_s=0.5)
    await server.start()
    world = World(KubeConfig(server=server.address, token=server.token))
    try:
        yield world
    finally:
        for client in world.clients:
            await client.close()
        await server.stop()


@pytest.fixture
async def world(tmp_path):
    async with running_world(tmp_path) as found:
        yield found


@pytest.fixture
def settings(tmp_path):
    broker = BrokerConfig(
        cluster="kafkalite",
        namespace=NAMESPACE,
        listeners=(Listener(name="plain", type="hostport", port=19092, host="127.0.0.1"),),
        metrics_port=19404,
        lease_duration_s=5,
        renew_interval_s=1,
    )
    return BrokerSettings(
        cluster="kafkalite",
        namespace=NAMESPACE,
        pod_name="kafkalite-broker-0",
        pod_uid="",
        broker_id=0,
        node_name="",
        incarnation="incarnation-1",
        data_directory=tmp_path / "data",
        config_path=tmp_path / "broker.json",
        termination_path=tmp_path / "termination",
        broker=broker,
    )


def identity_of(settings, **changes):
    identity = Identity(
        broker_id=settings.broker_id,
        incarnation=settings.incarnation,
        directory_id="disk-1",
        trusted=True,
        clean_epoch=None,
        host="127.0.0.1",
        port=19092,
        metrics_url=settings.metrics_url,
    )
    return replace(identity, **changes)


async def eventually(condition, *, limit_s=30.0):
    """Wait until the condition holds; it is looked at whenever the loop comes round."""
    async with asyncio.timeout(limit_s):
        while not condition():  # noqa: ASYNC110 - the condition is anything
            await asyncio.sleep(0.01)


class Told:
    """What a link told its broker."""

    def __init__(self):
        self.partitions = set()
        self.brokers = 0
        self.epochs = []
        self.superseded = []
        self.failed = []

    def callbacks(self):
        return {
            "on_partitions_changed": lambda changed: self.partitions.update((ref.name, n) for ref, n in changed),
            "on_brokers_changed": lambda: setattr(self, "brokers", self.brokers + 1),
            "on_registered": self.epochs.append,
            "on_superseded": self.superseded.append,
            "on_failed": self.failed.append,
        }


@pytest.fixture
async def linked(world, settings):
    """Makes started links; all are stopped at the end."""
    links = []

    async def make(**changes):
        told, client = Told(), world.new_client()
        link = ClusterLink(client, replace(settings, **changes), **told.callbacks())
        links.append(link)
        await link.start()
        return link, told, client

    yield make
    for link in links:
        await link.stop()

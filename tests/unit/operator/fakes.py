"""Brokers that do nothing but what the operator looks at: they register, renew their Lease, and end."""

import asyncio
import contextlib
import time
import uuid
from dataclasses import replace
from datetime import UTC, datetime

from kafkalite_core.model.cluster import BrokerState, Registration
from kafkalite_core.model.topic import Stray
from kafkalite_core.resources import naming, patches
from kafkalite_core.resources.brokers import parse_broker
from kafkalite_core.resources.clusters import parse_cluster
from kafkalite_core.resources.leases import render_lease
from kafkalite_core.resources.pods import render_termination_message
from kafkalite_runtime.kube.errors import KubeConflict, KubeInvalid, KubeNotFound, KubeUnavailable
from kafkalite_runtime.kube.kinds import BROKERS, CLUSTERS, LEASES, PODS

NAMESPACE = "default"


async def eventually(check, timeout_s=60.0, every_s=0.01):
    """Wait until `check()` returns something true; it may be a coroutine function."""
    deadline = time.monotonic() + timeout_s
    while True:
        result = check()
        if asyncio.iscoroutine(result):
            result = await result
        if result:
            return result
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(every_s)


class FakeBroker:
    def __init__(self, client, broker_id, cluster="kafkalite", directory=None, namespace=NAMESPACE):
        self.client = client
        self._lease_turn = asyncio.Lock()
        self.namespace = namespace
        self.id = broker_id
        self.cluster = cluster
        self.name = naming.broker_name(cluster, broker_id)
        self.directory = directory or str(uuid.uuid4())
        self.trusted_since = None
        self.registration = None
        self.incarnation = ""
        self._renewing = None

    async def start(self, state=BrokerState.RUNNING, renew=True):
        """Register a new incarnation as soon as its object and a cluster id are there."""
        self.incarnation = str(uuid.uuid4())
        epoch = await self._draw_epoch()
        obj = await eventually(lambda: self._get(BROKERS, self.name))
        self.trusted_since = self.trusted_since or epoch
        self.registration = Registration(
            broker_epoch=epoch,
            incarnation=self.incarnation,
            directory_id=self.directory,
            trusted_since=self.trusted_since,
            clean_since=epoch,
            host="127.0.0.1",
            port=1000 + self.id,
            state=state,
        )
        while True:
            try:
                await self._patch(patches.registration(obj, self.registration))
                break
            except (KubeInvalid, KubeUnavailable):
                obj = await self._get(BROKERS, self.name)
                applied = parse_broker(obj).registration
                if applied is not None and applied.incarnation == self.incarnation:
                    break  # only the answer came late
        if renew:
            await self.renew()
            self._renewing = asyncio.create_task(self._renew_for_ever())
        return self

    async def _get(self, kind, name):
        with contextlib.suppress(KubeNotFound):
            return await self.client.get(kind, self.namespace, name)
        return None

    async def _draw_epoch(self):
        while True:
            cluster = await eventually(self._initialised_cluster)
            with contextlib.suppress(KubeInvalid, KubeUnavailable):  # an epoch that is drawn and not used does no harm
                operations = patches.next_broker_epoch(cluster)
                await self.client.json_patch(CLUSTERS, self.namespace, self.cluster, operations, subresource="status")
                return cluster.next_broker_epoch

    async def _initialised_cluster(self):
        obj = await self._get(CLUSTERS, self.cluster)
        if obj is None:
            return None
        cluster = parse_cluster(obj)
        return cluster if cluster.cluster_id else None

    async def _patch(self, operations):
        return await self.client.json_patch(BROKERS, self.namespace, self.name, operations, subresource="status")

    async def become(self, state):
        broker = parse_broker(await self._get(BROKERS, self.name))
        self.registration = replace(self.registration, state=state)
        await self._patch(patches.registration_update(broker, self.registration))

    async def holds_strays(self, topic, topic_id, *, partitions, leader_epoch, partition_epoch, isr=()):
        """It says that it has directories of a topic that is gone, as every broker does for itself."""
        known = {"topic": topic, "topic_id": topic_id, "leader_epoch": leader_epoch, "partition_epoch": partition_epoch}
        noted = {"isr": isr, "isr_epoch": partition_epoch, "isr_leader_epoch": leader_epoch} if isr else {}
        strays = [Stray(**known, **noted, partition=number, end_offset=100) for number in range(partitions)]
        broker = parse_broker(await self._get(BROKERS, self.name))
        await self._patch(patches.registration_update(broker, self.registration, strays=strays))

    async def renew(self):
        async with self._lease_turn:  # one after the other: each is based on what the last one wrote
            await self._renew()

    async def _renew(self):
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        existing = await self._get(LEASES, self.name)
        version = existing["metadata"]["resourceVersion"] if existing else ""
        body = render_lease(
            self.namespace,
            self.name,
            holder=self.incarnation,
            renewed=now,
            acquired=now,
            duration_s=5,
            resource_version=version,
        )
        if existing:
            await self.client.replace(LEASES, self.namespace, self.name, body)
        else:
            await self.client.create(LEASES, self.namespace, body)

    async def _renew_for_ever(self):
        while True:
            await asyncio.sleep(0.3)
            with contextlib.suppress(Exception):
                await self.renew()

    async def freeze(self):
        """As SIGSTOP: no sign of life any more, and no exit."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
            self._renewing = None

    async def die(self, message=None):
        """As SIGKILL: the pod's status tells of the exit. Returns when the status was written (monotonic)."""
        await self.freeze()
        message = message if message is not None else render_termination_message(self.incarnation, 1)
        pod = await self._get(PODS, self.name)
        if pod is None:
            body = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": self.name,
                    "namespace": self.namespace,
                    "labels": naming.broker_labels(self.cluster, self.id),
                },
                "spec": {"containers": [{"name": "broker", "image": "none"}]},
            }
            with contextlib.suppress(KubeConflict):
                await self.client.create(PODS, self.namespace, body)
        terminated = {"exitCode": 137, "reason": "Error", "message": message}
        status = {
            "status": {
                "phase": "Running",
                "containerStatuses": [
                    {
                        "name": "broker",
                        "image": "none",
                        "imageID": "",
                        "ready": False,
                        "restartCount": 1,
                        "state": {"terminated": terminated},
                        "lastState": {},
                    }
                ],
            }
        }
        written_at = time.monotonic()
        await self.client.merge_patch(PODS, self.namespace, self.name, status, subresource="status")
        return written_at

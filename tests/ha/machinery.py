"""What nodes and brokers do while the operator carries out a long procedure, as far as the operator can see it.

The API server is a real one without nodes: this stands in for the controller of StatefulSets (which brings pods back,
of the template of that moment), for kubelets (a pod runs, and tells how it ended), for who provides volumes
(`disks`), and for the leaders, who take who has come back into their ISRs. It goes on whoever of the operators lives,
and obeys nobody but the API server.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kafkalite_core.model.partition import IsrEntry
from kafkalite_core.resources import naming, patches
from kafkalite_core.resources.brokers import parse_broker
from kafkalite_core.resources.pods import render_termination_message
from kafkalite_core.resources.topics import parse_topic
from kafkalite_runtime.kube.errors import KubeError, KubeNotFound
from kafkalite_runtime.kube.kinds import BROKERS, PODS, STATEFUL_SETS, TOPICS
from tests.ha.disks import Disks
from tests.ha.world import CLUSTER
from tests.unit.operator.fakes import FakeBroker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from kafkalite_core.model.partition import Partition, Topic
    from tests.ha.world import World

TURN_S = 0.03
SET = naming.stateful_set_name(CLUSTER)


class Machinery:
    """See the module. `begin` it, and `end` it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._client = world.client
        self._disks = Disks(world)
        self._uids: dict[int, str] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        """From now on until `end`."""
        self._tasks = [asyncio.create_task(self._for_ever(turn)) for turn in self._turns()]

    def _turns(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        return self._pods, self._disks.turn, self._leaders

    async def end(self) -> None:
        """Nothing moves any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @staticmethod
    async def _for_ever(turn: Callable[[], Awaitable[None]]) -> None:
        while True:
            with contextlib.suppress(KubeError):  # somebody else was faster: the next turn sees what there is
                await turn()
            await asyncio.sleep(TURN_S)

    # -- pods ----------------------------------------------------------------------------------------------------------

    async def _pods(self) -> None:
        stateful_set = await self._world.get(STATEFUL_SETS, SET)
        if stateful_set is None or "deletionTimestamp" in stateful_set["metadata"]:
            return
        await self._observe(stateful_set)
        pods = {pod["metadata"]["name"]: pod for pod in (await self._client.list(PODS, self._world.ns)).items}
        count = stateful_set["spec"]["replicas"]
        for broker_id in range(count):
            pod = pods.pop(naming.broker_name(CLUSTER, broker_id), None)
            if pod is None or pod["metadata"]["uid"] != self._uids.get(broker_id):
                await self._come(stateful_set, broker_id, pod)
        for name in pods:
            await self._go(int(name.rpartition("-")[2]))

    async def _observe(self, stateful_set: dict[str, Any]) -> None:
        generation = stateful_set["metadata"]["generation"]
        if (stateful_set.get("status") or {}).get("observedGeneration") != generation:
            status = {"status": {"observedGeneration": generation, "replicas": stateful_set["spec"]["replicas"]}}
            await self._client.merge_patch(STATEFUL_SETS, self._world.ns, SET, status, subresource="status")

    async def _come(self, stateful_set: dict[str, Any], broker_id: int, pod: dict[str, Any] | None) -> None:
        """A pod of the present template, and a new process of the broker in it."""
        broker = self._world.brokers.get(broker_id)
        if broker is not None:
            await broker.freeze()
        claim = await self._disks.claim(stateful_set, broker_id)
        if claim is None:
            return
        if pod is None:
            pod = await self._client.create(PODS, self._world.ns, _pod(stateful_set, broker_id))
        ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
        name = naming.broker_name(CLUSTER, broker_id)
        await self._client.merge_patch(PODS, self._world.ns, name, ready, subresource="status")
        directory = self._disks.directory(claim)
        if broker is None or broker.directory != directory:
            broker = FakeBroker(self._client, broker_id, directory=directory, namespace=self._world.ns)
            self._world.brokers[broker_id] = broker
        await broker.start()
        self._uids[broker_id] = pod["metadata"]["uid"]

    async def _go(self, broker_id: int) -> None:
        """A pod of which the StatefulSet has no more use ends, its kubelet tells how, and it is gone."""
        broker = self._world.brokers[broker_id]
        await broker.die(render_termination_message(broker.incarnation, 0))
        await self._client.delete(PODS, self._world.ns, broker.name)
        self._uids.pop(broker_id, None)

    # -- leaders -------------------------------------------------------------------------------------------------------

    async def _leaders(self) -> None:
        brokers = [parse_broker(obj) for obj in (await self._client.list(BROKERS, self._world.ns)).items]
        here = {broker.id: IsrEntry(broker.id, broker.epoch) for broker in brokers if broker.alive}
        for item in (await self._client.list(TOPICS, self._world.ns)).items:
            topic = parse_topic(item)
            for number, entry in topic.partitions.items():
                joined = _joined(entry, here)
                if joined is not None:
                    await self._write(topic, number, entry, joined)

    async def _write(self, topic: Topic, number: int, entry: Partition, isr: tuple[IsrEntry, ...]) -> None:
        proposed = replace(entry, isr=isr, partition_epoch=entry.partition_epoch + 1)
        operations = patches.leader_proposal(topic.ref, number, entry, proposed)
        with contextlib.suppress(KubeNotFound):
            await self._client.json_patch(TOPICS, self._world.ns, topic.ref.name, operations, subresource="status")


def _joined(entry: Partition, here: Mapping[int, IsrEntry]) -> tuple[IsrEntry, ...] | None:
    """The ISR with everybody in it who is there; None when it is that already, or nobody leads."""
    leader = here.get(entry.leader)
    wanted = tuple(here[broker_id] for broker_id in entry.replicas if broker_id in here)
    if leader is None or leader not in entry.isr or set(wanted) <= set(entry.isr):
        return None
    others = tuple(one for one in entry.isr if one.id not in {member.id for member in wanted})
    return (*wanted, *others)


def _pod(stateful_set: dict[str, Any], broker_id: int) -> dict[str, Any]:
    template = stateful_set["spec"]["template"]
    claims = [
        {
            "name": claim["metadata"]["name"],
            "persistentVolumeClaim": {"claimName": naming.data_claim_name(CLUSTER, broker_id)},
        }
        for claim in stateful_set["spec"].get("volumeClaimTemplates") or []
    ]
    spec = {**template["spec"], "volumes": [*(template["spec"].get("volumes") or []), *claims]}
    name = naming.broker_name(CLUSTER, broker_id)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**template["metadata"], "name": name}, "spec": spec}

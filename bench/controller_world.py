"""Brokers that are only registered, and an observer of what the operator writes."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections import Counter, defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kafkalite_core.model.cluster import BrokerState, Registration
from kafkalite_core.resources import naming, patches
from kafkalite_core.resources.clusters import parse_cluster
from kafkalite_core.resources.leases import render_lease
from kafkalite_runtime.kube.errors import KubeError, KubeGone, KubeInvalid, KubeNotFound, KubeUnavailable
from kafkalite_runtime.kube.kinds import BROKERS, CLUSTERS, LEASES, TOPICS

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite_runtime.kube.client import KubeClient
    from kafkalite_runtime.kube.kinds import Kind

NAMESPACE = "default"
CLUSTER = "kafkalite"
RENEW_S = 1.0
ASK_AGAIN_S = 0.1


class TimeUpError(Exception):
    """Something did not come in its time."""


async def until(what: str, done: Callable[[], object], limit_s: float, say: Callable[[str], None]) -> None:
    """Wait for something that an observer sees, with a line every few seconds. Raises TimeUpError."""
    began = told = time.monotonic()
    while not done():
        now = time.monotonic()
        if now - began > limit_s:
            raise TimeUpError(f"{what}: not within {limit_s:.0f} s")
        if now - told > 5.0:
            told = now
            say(f"  {what}: waiting for {now - began:.0f} s")
        await asyncio.sleep(0.02)


class SimulatedBroker:
    """Registers as a broker does, renews its Lease every second, and does nothing else."""

    def __init__(self, client: KubeClient, broker_id: int) -> None:
        self._client = client
        self.id = broker_id
        self._name = naming.broker_name(CLUSTER, broker_id)
        self._incarnation = str(uuid.uuid4())
        self._renewing: asyncio.Task[None] | None = None
        self.epoch = -1

    async def start(self) -> None:
        """Register once the operator has made the object, and begin to renew."""
        obj = await self._asked(lambda: self._client.get(BROKERS, NAMESPACE, self._name))
        self.epoch = await self._draw_epoch()
        registration = Registration(
            broker_epoch=self.epoch,
            incarnation=self._incarnation,
            directory_id=str(uuid.uuid4()),
            trusted_since=self.epoch,
            clean_since=self.epoch,
            host="127.0.0.1",
            port=9092 + self.id,
            state=BrokerState.RUNNING,
        )
        operations = patches.registration(obj, registration)
        await self._client.json_patch(BROKERS, NAMESPACE, self._name, operations, subresource="status")
        await self._renew(create=True)
        self._renewing = asyncio.create_task(self._renew_for_ever())

    async def fall_silent(self) -> None:
        """As a machine that stops: no renewal any more, and nobody tells of an exit."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)

    async def _asked(self, call: Callable[[], Any], limit_s: float = 120.0) -> dict[str, Any]:
        deadline = time.monotonic() + limit_s
        while True:
            with contextlib.suppress(KubeNotFound):
                answer: dict[str, Any] = await call()
                return answer
            if time.monotonic() > deadline:
                raise TimeUpError(f"the operator has not made {self._name} within {limit_s:.0f} s")
            await asyncio.sleep(ASK_AGAIN_S)

    async def _draw_epoch(self) -> int:
        while True:
            cluster = parse_cluster(await self._client.get(CLUSTERS, NAMESPACE, CLUSTER))
            if cluster.cluster_id:
                with contextlib.suppress(KubeInvalid):
                    operations = patches.next_broker_epoch(cluster)
                    await self._client.json_patch(CLUSTERS, NAMESPACE, CLUSTER, operations, subresource="status")
                    return cluster.next_broker_epoch
            await asyncio.sleep(ASK_AGAIN_S)

    async def _renew(self, *, create: bool = False) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        if create:
            body = render_lease(
                NAMESPACE, self._name, holder=self._incarnation, renewed=now, acquired=now, duration_s=5
            )
            await self._client.create(LEASES, NAMESPACE, body)
        else:
            await self._client.merge_patch(LEASES, NAMESPACE, self._name, {"spec": {"renewTime": now}})

    async def _renew_for_ever(self) -> None:
        while True:
            began = time.monotonic()
            with contextlib.suppress(KubeError, KubeUnavailable):
                await self._renew()
            await asyncio.sleep(max(0.1, RENEW_S - (time.monotonic() - began)))


class Observer:
    """Follows every topic, broker and cluster by watch: what is placed, led by whom, told, and how much is written."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._tasks: list[asyncio.Task[None]] = []
        self.topics: dict[str, dict[str, Any]] = {}
        self.brokers: dict[str, dict[str, Any]] = {}
        self.changes: Counter[str] = Counter()
        self.led_by: dict[tuple[str, str], int] = {}
        self._led: defaultdict[int, set[tuple[str, str]]] = defaultdict(set)
        self.led_since: dict[tuple[str, str], float] = {}
        self.fenced_at: dict[str, float] = {}

    async def start(self) -> None:
        """Begin to watch."""
        self._tasks = [
            asyncio.create_task(self._follow(TOPICS, self._on_topic)),
            asyncio.create_task(self._follow(BROKERS, self._on_broker)),
            asyncio.create_task(self._follow(CLUSTERS, lambda _: None)),
        ]

    async def stop(self) -> None:
        """End the watches."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def placed(self) -> int:
        """Topics with partitions."""
        return sum(bool((obj.get("status") or {}).get("partitions")) for obj in self.topics.values())

    def told(self) -> int:
        """Topics that say Ready."""
        return sum(_ready(obj) for obj in self.topics.values())

    def led(self, broker_id: int) -> list[tuple[str, str]]:
        """Partitions that the broker leads."""
        return list(self._led[broker_id])

    async def _follow(self, kind: Kind, handle: Callable[[dict[str, Any]], None]) -> None:
        version = ""
        while True:
            try:
                if not version:
                    listed = await self._client.list(kind, NAMESPACE, deadline_s=60.0)
                    version = listed.resource_version
                    for obj in listed.items:
                        handle(obj)
                watch = self._client.watch(kind, NAMESPACE, resource_version=version, silence_limit_s=60.0)
                async with contextlib.aclosing(watch) as events:
                    async for event in events:
                        version = event.object["metadata"]["resourceVersion"]
                        if event.type != "BOOKMARK":
                            self.changes[kind.plural] += 1
                            handle(event.object)
            except KubeGone:
                version = ""
            except KubeUnavailable:
                await asyncio.sleep(ASK_AGAIN_S)

    def _on_topic(self, obj: dict[str, Any]) -> None:
        now, name = time.monotonic(), obj["metadata"]["name"]
        self.topics[name] = obj
        for number, entry in ((obj.get("status") or {}).get("partitions") or {}).items():
            before = self.led_by.get((name, number))
            if before != entry["leader"]:
                if before is not None:
                    self._led[before].discard((name, number))
                self._led[entry["leader"]].add((name, number))
                self.led_by[name, number] = entry["leader"]
                self.led_since[name, number] = now

    def _on_broker(self, obj: dict[str, Any]) -> None:
        name = obj["metadata"]["name"]
        self.brokers[name] = obj
        if ((obj.get("status") or {}).get("fencing") or {}).get("fencedEpoch") is not None:
            self.fenced_at.setdefault(name, time.monotonic())


def _ready(obj: dict[str, Any]) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or []
    return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)

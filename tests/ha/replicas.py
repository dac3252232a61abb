"""The operator in the loop of a test, whose process ends at a call of the test's choice: cheap enough for every call."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafkalite_core.model.errors import KafkaLiteError
from kafkalite_operator.main import Operator
from kafkalite_operator.settings import OperatorSettings
from kafkalite_runtime.kube.client import JsonObject, KubeClient
from kafkalite_runtime.kube.errors import KubeUnavailable
from kafkalite_runtime.kube.kinds import BROKERS, CLUSTERS, PODS, TOPICS
from kafkalite_runtime.kube.reflector import Reflector
from tests.ha.gate import BOOKKEEPING
from tests.ha.world import SPEC

if TYPE_CHECKING:
    from kafkalite_runtime.kube.config import KubeConfig


@dataclass(frozen=True, slots=True)
class Fault:
    """What befalls the `number`-th deciding write of a replica (from 1).

    Attributes:
        number: Which one.
        applied: Whether the server carries it out.
        lives: Whether the replica goes on, without the answer; otherwise it ends there.
    """

    number: int
    applied: bool
    lives: bool

    def __str__(self) -> str:
        return f"write {self.number} {'applied' if self.applied else 'lost'}, {'lives' if self.lives else 'dies'}"


class FaultyCalls:
    """What lies between a replica's controller and the API: it counts the writes, and does what the fault says."""

    def __init__(self, client: KubeClient, fault: Fault | None) -> None:
        self._fault = fault
        self._call = client._call
        self.writes = 0
        self.struck = asyncio.Event()
        self._dead = False
        client._call = self.call  # type: ignore[method-assign]

    async def call(self, method: str, path: str, **options: Any) -> JsonObject:
        """As the client's own."""
        if self._dead:
            await asyncio.Event().wait()
        if method == "GET" or any(part in path for part in BOOKKEEPING):
            return await self._call(method, path, **options)
        self.writes += 1
        if self._fault is None or self.writes != self._fault.number:
            return await self._call(method, path, **options)
        self._dead = not self._fault.lives
        if self._fault.applied:
            with contextlib.suppress(KafkaLiteError):  # refused: there is no answer to that either
                await self._call(method, path, **options)
        self.struck.set()
        if self._dead:
            await asyncio.Event().wait()
        raise KubeUnavailable(f"{method} {path}: connection lost", ambiguous=True)


class Replica(Operator):
    """One process of a pod; the successor in the same pod need not wait for the Lease. It watches without kopf."""

    def __init__(self, config: KubeConfig, namespace: str, name: str, fault: Fault | None = None) -> None:
        settings = OperatorSettings(
            namespace=namespace,
            identity=f"pod_{name}",
            instance="pod",
            metrics_port=0,
            watch_namespaces=(namespace,),
            default_cluster=SPEC | {"failureDetection": {"leaseDurationSeconds": 300, "renewIntervalSeconds": 1}},
        )
        self.client = KubeClient(config)
        super().__init__(settings, self.client)
        self.calls = FaultyCalls(self._acting, fault)
        self._stopping = asyncio.Event()
        self._running = asyncio.create_task(self.run(self._stopping))

    async def _watch(self) -> None:
        (namespace,) = self.settings.watch_namespaces
        async with asyncio.TaskGroup() as group:
            for kind in (TOPICS, CLUSTERS, BROKERS, PODS):
                group.create_task(self._reflector(kind, namespace).run())

    def _reflector(self, kind: Any, namespace: str) -> Reflector:
        def on_list(items: list[JsonObject]) -> None:
            for item in items:
                self.controller.on_object(kind, "ADDED", item)

        def on_event(type_: str, obj: JsonObject) -> None:
            self.controller.on_object(kind, type_, obj)

        return Reflector(self.client, kind, namespace, "", on_list, on_event, lambda: 0.0)

    async def stop(self) -> None:
        """As SIGTERM."""
        self._stopping.set()
        await self._running
        await self.client.close()

    async def kill(self) -> None:
        """As SIGKILL: it does not give the Lease back."""
        self.elector._elector.release = lambda: asyncio.sleep(0)  # type: ignore[method-assign, assignment, return-value]
        self._running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._running
        await self.client.close()

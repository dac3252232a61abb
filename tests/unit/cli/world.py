"""A namespace of an embedded API server with a cluster in it, made as operator, brokers and kubelet would leave it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import uuid
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from kafkalite_core.resources.leases import render_lease
from kafkalite_local.apiserver.kubeconfig import write_kubeconfig
from kafkalite_local.apiserver.server import ApiServer
from kafkalite_runtime.kube import (
    BROKERS,
    CLUSTERS,
    EVENTS,
    LEASES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    STATEFUL_SETS,
    TOPICS,
    Kind,
    KubeClient,
)
from kafkalite_runtime.kube.config import KubeConfig

if TYPE_CHECKING:
    from pathlib import Path

DEFINITIONS = Kind(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
NAMESPACES = Kind("", "v1", "namespaces", "Namespace", namespaced=False)
OPERATOR = "kafkalite-operator"


class Server:
    """The embedded API server on a thread of its own: the command line runs an event loop itself."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.kubeconfig = home / "kubeconfig"
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    def start(self) -> None:
        self._thread.start()
        assert self._started.wait(60)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)
        assert not self._thread.is_alive()

    def do(self, work):
        """Run `work(client)`."""
        return asyncio.run_coroutine_threadsafe(work(self._client), self._loop).result(60)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = ApiServer(self.home / "control-plane.db")
        await server.start()
        write_kubeconfig(self.kubeconfig, server.url, server.token)
        self._client = KubeClient(KubeConfig.from_file(self.kubeconfig))
        self._started.set()
        await self._stop.wait()
        await self._client.close()
        await server.stop()


def ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def entry(replicas, *, isr=None, leader=None, epoch=1, **more):
    members = list(replicas if isr is None else isr)
    pairs = [each if isinstance(each, tuple) else (each, 10 + each) for each in members]
    first = pairs[0][0] if pairs else -1
    return {
        "leader": first if leader is None else leader,
        "leaderEpoch": epoch,
        "partitionEpoch": epoch,
        "minIsr": 1,
        "replicas": list(replicas),
        "isr": [broker_id for broker_id, _ in pairs],
        "isrBrokerEpochs": [broker_epoch for _, broker_epoch in pairs],
        "elr": [],
        "elrBrokerEpochs": [],
        "adding": [],
        "removing": [],
        **more,
    }


class World:
    """Everything is well until a test says otherwise."""

    def __init__(self, server: Server, *, brokers: int = 3, name: str = "kafkalite") -> None:
        self.kubeconfig, self.name, self.do = server.kubeconfig, name, server.do
        self.namespace = f"n-{uuid.uuid4().hex[:8]}"
        self.arguments = ("--kubeconfig", str(self.kubeconfig), "-n", self.namespace)
        self.operator = f"operator-of-{self.namespace}"
        self.do(lambda client: client.create(NAMESPACES, None, {"metadata": {"name": self.namespace}}))
        self.uid = self.cluster(brokers)["metadata"]["uid"]
        self.lease(OPERATOR, self.operator)
        self.stateful_set(brokers)
        for number in range(brokers):
            self.broker(number)
            self.pod(number)
            self.claim(number)

    def kubectl(self, words):
        """As a command that was given `arguments` offers it for pasting."""
        return f"kubectl --kubeconfig {self.kubeconfig} -n {self.namespace} {words}"

    def kafkalite(self, words):
        """As `kubectl`."""
        return f"kafkalite {words} --kubeconfig {self.kubeconfig} -n {self.namespace}"

    def get(self, kind, name):
        return self.do(lambda client: client.get(kind, self.namespace, name))

    def delete(self, kind, name):
        self.do(lambda client: client.delete(kind, self.namespace, name, grace_period_s=0))

    def patch(self, kind, name, body, *, status=False):
        return self.do(
            lambda client: client.merge_patch(kind, self.namespace, name, body, subresource="status" if status else "")
        )

    def make(self, kind, name, body, status=None, **metadata):
        """Create an object, then write its status."""
        whole = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
        whole["metadata"] = {"name": name, "namespace": self.namespace, **metadata}

        async def work(client):
            made = await client.create(kind, self.namespace, whole)
            if status is not None:
                made = await client.merge_patch(kind, self.namespace, name, {"status": status}, subresource="status")
            return made

        return self.do(work)

    @contextlib.contextmanager
    def before_the_rules_of(self, kind):
        """Objects that are made herein were stored when their definition did not refuse them yet."""
        name = f"{kind.plural}.{kind.group}"

        def define(versions):
            self.do(lambda client: client.merge_patch(DEFINITIONS, None, name, {"spec": {"versions": versions}}))

        ruled = self.do(lambda client: client.get(DEFINITIONS, None, name))["spec"]["versions"]
        anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        define([{**version, "schema": {"openAPIV3Schema": anything}} for version in ruled])
        try:
            yield
        finally:
            define(ruled)

    def cluster(self, brokers, *, name="", **spec):
        controller = {"holder": self.operator, "epoch": 1}
        status = {"observedGeneration": 1, "clusterId": "c", "bootstrap": "127.0.0.1:1", "controller": controller}
        return self.make(CLUSTERS, name or self.name, {"spec": {"replicas": brokers, **spec}}, status)

    def stateful_set(self, replicas, **metadata):
        labels = {"app": "b"}
        spec = {
            "replicas": replicas,
            "serviceName": "b",
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "broker", "image": "i"}]}},
        }
        return self.make(STATEFUL_SETS, f"{self.name}-broker", {"spec": spec}, **metadata)

    def lease(self, name, holder, *, age_s=0.0):
        """Made, or written anew. Those that are to be fresh live for hours: no test waits for them."""
        duration_s = 5 if age_s else 40_000
        body = render_lease(
            self.namespace, name, holder=holder, renewed=ago(age_s), acquired=ago(age_s), duration_s=duration_s
        )
        with contextlib.suppress(Exception):
            self.delete(LEASES, name)
        self.do(lambda client: client.create(LEASES, self.namespace, body))

    def broker_name(self, number):
        return f"{self.name}-broker-{number}"

    def registration(self, number, **more):
        return {
            "brokerEpoch": 10 + number,
            "incarnation": f"i-{number}",
            "directoryId": f"d-{number}",
            "trustedSince": 1,
            "cleanSince": 1,
            "host": "127.0.0.1",
            "port": 1,
            "rack": "",
            "state": "Running",
            "metrics": "",
            **more,
        }

    def broker(self, number, *, name="", spec=None, status=None, **registration):
        whole = {"clusterRef": {"name": self.name}, "brokerId": number, **(spec or {})}
        told = {"registration": self.registration(number, **registration)} if status is None else status
        made = self.make(BROKERS, name or self.broker_name(number), {"spec": whole}, told)
        self.lease(name or self.broker_name(number), f"i-{number}")
        return made

    def tell(self, number, *, fencing=None, strays=None, **registration):
        """Change what a broker says of itself, or its fence."""
        status = {"registration": registration} if registration else {}
        if fencing is not None:
            status["fencing"] = fencing
        if strays is not None:
            status["strays"] = strays
        self.patch(BROKERS, self.broker_name(number), {"status": status}, status=True)

    def recovers(self, number, *, logs, segments=0, incarnation="new"):
        left = {"remainingLogs": logs, "remainingSegments": segments}
        told = {"incarnation": incarnation, "startedAt": "2026-01-01T00:00:00Z", **left}
        self.patch(BROKERS, self.broker_name(number), {"status": {"recovery": told}}, status=True)

    def fence(self, number, reason="LeaseExpired: no Lease renewal for 9.0 s"):
        self.tell(number, fencing={"fencedEpoch": 10 + number, "reason": reason, "since": "2026-01-01T00:00:00Z"})

    def pod(self, number, *, ready=True, phase="Running", waiting=None, terminated=None, restarts=0, **status):
        state = {"waiting": waiting} if waiting else {"running": {}}
        container = {
            "name": "broker",
            "image": "i",
            "imageID": "",
            "ready": ready,
            "restartCount": restarts,
            "state": state,
            **({"lastState": {"terminated": terminated}} if terminated else {}),
        }
        told = {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [container] if phase == "Running" else [],
            **status,
        }
        name = self.broker_name(number)
        with contextlib.suppress(Exception):
            self.delete(PODS, name)
        claim = {"name": "data", "persistentVolumeClaim": {"claimName": f"data-{name}"}}
        spec = {"nodeName": "local", "containers": [{"name": "broker", "image": "i"}], "volumes": [claim]}
        labels = {"app.kubernetes.io/component": "broker"}
        return self.make(PODS, name, {"spec": spec}, told, labels=labels)

    def claim(self, number, *, phase="Bound", **spec):
        name = f"data-{self.broker_name(number)}"
        with contextlib.suppress(Exception):
            self.delete(PERSISTENT_VOLUME_CLAIMS, name)
        body = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
        self.make(PERSISTENT_VOLUME_CLAIMS, name, {"spec": body}, {"phase": phase})

    def topic(self, name, *entries, conditions=(), annotations=None, **spec):
        """With the status of one that serves, unless there are no entries and no conditions."""
        body = {"partitions": max(1, len(entries)), "replicas": len(entries[0]["replicas"]) if entries else 3, **spec}
        status = {
            "observedGeneration": 1,
            "controllerEpoch": 1,
            **({"topicId": str(uuid.uuid4())} if entries else {}),
            **({"partitions": {str(number): each for number, each in enumerate(entries)}} if entries else {}),
            "conditions": [{"message": "", "reason": "x", **each} for each in conditions],
        }
        return self.make(TOPICS, name, {"spec": body}, status, annotations=annotations or {})

    def warn(self, kind, name, reason, message):
        body = {
            "involvedObject": {"kind": kind, "name": name, "namespace": self.namespace},
            "type": "Warning",
            "reason": reason,
            "message": message,
            "lastTimestamp": "2026-01-01T00:00:00Z",
        }
        self.make(EVENTS, f"{name}.{uuid.uuid4().hex[:8]}", body)


def obey(monkeypatch):
    """An operator and brokers that move replicas the moment somebody wishes for it."""
    real = KubeClient.json_patch

    async def json_patch(self, kind, namespace, name, operations, **more):
        found = await real(self, kind, namespace, name, operations, **more)
        if kind is TOPICS and not more.get("subresource"):
            now = found["status"]["partitions"]
            then = {
                number: entry(ids, epoch=now[number]["partitionEpoch"] + 1)
                for number, ids in found["spec"].get("replicaAssignment", {}).items()
                if now[number]["replicas"] != ids
            }
            body = {"status": {"partitions": then, "observedGeneration": found["metadata"]["generation"]}}
            found = await self.merge_patch(TOPICS, namespace, name, body, subresource="status")
        return found

    monkeypatch.setattr(KubeClient, "json_patch", json_patch)


def one(found, code):
    [finding] = found[code]
    return finding


def only(found, *codes):
    assert set(found) == set(codes), {code: [each["what"] for each in each] for code, each in found.items()}

"""The kubelet's main part: which pods belong here, and a worker for each."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from kafkalite_local.kubelet import log_rotation, volumes
from kafkalite_local.kubelet.node import register_node
from kafkalite_local.kubelet.pod_spec import MARKER
from kafkalite_local.kubelet.stateful_sets import StatefulSetController
from kafkalite_local.kubelet.static_pods import StaticPods, is_mirror
from kafkalite_local.kubelet.worker import Node, PodWorker
from kafkalite_local.pod_names import claim_key, pod_key
from kafkalite_local.processes import Watched
from kafkalite_runtime.home import NODE_NAME, Home, ProcessRecord
from kafkalite_runtime.kube import (
    CONFIG_MAPS,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    STATEFUL_SETS,
    EventRecorder,
    Kind,
    KubeClient,
    KubeConflict,
    KubeError,
    KubeNotFound,
    KubeUnavailable,
    Reflector,
)
from kafkalite_runtime.kube.config import KubeConfig
from kafkalite_runtime.logging import get_logger

JsonObject = dict[str, Any]
DRAIN_GRACE_S = 15.0
RETRY_S = 0.5
_log = get_logger(__name__)


class Kubelet:
    """One per home folder. `run()` until `shut_down()` (pods go on) or `drain()` (pods are stopped first)."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self._client = KubeClient(KubeConfig.from_file(home.kubeconfig))
        self._recorder = EventRecorder(self._client, "kubelet")
        self._controller = StatefulSetController(
            self._client, self._recorder, lambda claim: volumes.provision(claim, home)
        )
        self._static = StaticPods(self._client, home.manifests, self._on_manifests, self._on_mirror)
        self._node: Node | None = None
        self._pods: dict[str, JsonObject] = {}
        self._static_pods: dict[str, JsonObject] = {}
        self._mirror_uids: dict[str, str | None] = {}
        self._workers: dict[str, PodWorker] = {}
        self._working: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._released: set[tuple[str, str]] = set()
        self._draining = False
        self._done = asyncio.Event()

    # -- life ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Adopt what runs, then follow the API server and the manifest folder."""
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session:
            self._node = Node(
                home=self.home,
                client=self._client,
                recorder=self._recorder,
                session=session,
                base_env={key: value for key, value in os.environ.items() if not key.startswith("KAFKALITE_")},
            )
            self._resume()
            try:
                for loop in self._loops():
                    self._launch(loop)
                await self._done.wait()
            finally:
                for task in list(self._tasks):
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)
                await self._recorder.close()
                await self._client.close()

    def shut_down(self) -> None:
        """Stop; the pods' processes go on and are adopted by the next kubelet."""
        self._done.set()

    async def drain(self) -> None:
        """Stop all pods, those of the API first and the static ones (the operator) after them; then end."""
        if self._draining:
            return
        self._draining = True
        for static in (False, True):
            stopping = [worker for worker in self._workers.values() if worker.static is static]
            for worker in stopping:
                grace_s = worker.pod["spec"].get("terminationGracePeriodSeconds")
                worker.stop(min(DRAIN_GRACE_S, float(grace_s if grace_s is not None else DRAIN_GRACE_S)), wake=True)
            working = [self._working[worker.key] for worker in stopping]
            if working:
                await asyncio.wait(working)
        self._done.set()

    def _loops(self) -> list[Coroutine[Any, Any, None]]:
        return [
            self._reflector(PODS, self._on_pods, self._on_pod).run(),
            self._reflector(STATEFUL_SETS, self._on_stateful_sets, self._on_stateful_set).run(),
            self._reflector(CONFIG_MAPS, self._on_config_maps, self._on_config_map).run(),
            self._reflector(PERSISTENT_VOLUME_CLAIMS, self._on_claims, self._on_claim).run(),
            self._controller.run(),
            self._static.poll(),
            self._static.run(),
            self._rotate_logs(),
            register_node(self._client),
        ]

    def _reflector(
        self, kind: Kind, on_list: Callable[[list[JsonObject]], None], on_event: Callable[[str, JsonObject], None]
    ) -> Reflector:
        return Reflector(self._client, kind, None, "", on_list, on_event, time.monotonic)

    def _launch(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # A kubelet with a dead part would look alive. The supervisor starts a whole one, which adopts the pods.
            _log.error("a part of the kubelet failed", exc_info=error)
            self._done.set()

    async def _rotate_logs(self) -> None:
        while True:
            await asyncio.sleep(log_rotation.CHECK_S)
            log_rotation.rotate(self.home.logs)

    def _resume(self) -> None:
        """Start workers for the pods that an earlier kubelet ran, without waiting for the API server."""
        self._static.load()
        self._released = volumes.noted_deleted(self.home)
        for path in sorted(self.home.pods.glob("*/pod.json")):
            try:
                pod: JsonObject = msgspec.json.decode(path.read_bytes())
                self._pods[pod_key(pod["metadata"])] = pod
            except (OSError, msgspec.DecodeError, KeyError) as error:
                _log.warning("checkpoint not readable", path=str(path), error=str(error))
        self._kill_strangers()
        self._reconcile()

    def _kill_strangers(self) -> None:
        """End processes that no record names: their kubelet died between starting and noting them."""
        known = {record.pid for path in self.home.pod_records.glob("*.json") if (record := ProcessRecord.read(path))}
        needle = f"{MARKER}={self.home.root}#".encode()
        for process in Path("/proc").iterdir():
            if not process.name.isdigit() or int(process.name) in known:
                continue
            with contextlib.suppress(OSError):
                if needle in (process / "environ").read_bytes():
                    _log.warning("killing a process that no record names", pid=int(process.name))
                    os.kill(int(process.name), signal.SIGKILL)

    # -- pods ------------------------------------------------------------------------------------------------

    def _on_manifests(self, pods: dict[str, JsonObject]) -> None:
        self._static_pods = {pod_key(pod["metadata"]): pod for pod in pods.values()}
        if self._node is not None:
            self._reconcile()

    def _on_mirror(self, name: str, uid: str | None) -> None:
        self._mirror_uids[name] = uid
        for worker in self._workers.values():
            if worker.static and worker.pod["metadata"]["name"] == name:
                worker.writer.set_uid(uid)

    def _on_pods(self, pods: list[JsonObject]) -> None:
        mine = [pod for pod in pods if pod["spec"].get("nodeName") == NODE_NAME]
        self._static.seen_all([pod for pod in mine if is_mirror(pod)])
        self._pods = {pod_key(pod["metadata"]): pod for pod in mine if not is_mirror(pod)}
        self._controller.pods = {_name(pod): pod for pod in pods}
        self._controller.wake()
        self._reconcile()

    def _on_pod(self, type_: str, pod: JsonObject) -> None:
        deleted = type_ == "DELETED"
        if deleted:
            self._controller.pods.pop(_name(pod), None)
        else:
            self._controller.pods[_name(pod)] = pod
        self._controller.wake()
        if pod["spec"].get("nodeName") != NODE_NAME:
            return
        if is_mirror(pod):
            self._static.seen(None if deleted else pod, pod["metadata"]["name"])
            return
        key = pod_key(pod["metadata"])
        if deleted:
            self._pods.pop(key, None)
        else:
            self._pods[key] = pod
        self._reconcile(key)

    def _reconcile(self, only: str | None = None) -> None:
        """Have a worker for every pod that should run, and stop the others."""
        if self._draining or self._done.is_set():
            return
        wanted = self._pods | self._static_pods
        for key in [only] if only is not None else {*wanted, *self._workers}:
            pod, worker = wanted.get(key), self._workers.get(key)
            if worker is None:
                if pod is not None:
                    self._begin(key, pod)
            elif pod is None or pod["metadata"]["uid"] != worker.uid:
                worker.stop()
            else:
                worker.update(pod)
                if "deletionTimestamp" in pod["metadata"]:
                    worker.stop()

    def _begin(self, key: str, pod: JsonObject) -> None:
        assert self._node is not None
        worker = PodWorker(self._node, pod, static=key in self._static_pods)
        if worker.static:
            worker.writer.set_uid(self._mirror_uids.get(pod["metadata"]["name"]))
        if "deletionTimestamp" in pod["metadata"]:
            worker.stop()
        self._workers[key] = worker
        self._working[key] = self._launch(self._work(worker))

    async def _work(self, worker: PodWorker) -> None:
        await self._clear_predecessor(worker)
        await worker.run()
        if not self._draining:
            await self._remove(worker)
        del self._workers[worker.key], self._working[worker.key]
        self._release_claims()
        self._reconcile(worker.key)

    async def _clear_predecessor(self, worker: PodWorker) -> None:
        """A process of an earlier pod of this name must be gone before a new one opens the same data."""
        record = ProcessRecord.read(self.home.pod_records / f"{worker.key}.json")
        if record is None or record.details.get("uid") == worker.uid:
            return
        predecessor = Watched(record, self.home.exits)
        predecessor.send(signal.SIGTERM)
        try:
            async with asyncio.timeout(DRAIN_GRACE_S):
                await predecessor.wait()
        except TimeoutError:
            predecessor.send(signal.SIGKILL)
            await predecessor.wait()
        (self.home.pod_records / f"{worker.key}.json").unlink(missing_ok=True)

    async def _remove(self, worker: PodWorker) -> None:
        """Take the object of a stopped pod out of the API."""
        worker.forget()
        if worker.static:
            return
        metadata = worker.pod["metadata"]
        while True:
            try:
                await self._client.delete(
                    PODS, metadata.get("namespace") or "default", metadata["name"], uid=worker.uid, grace_period_s=0
                )
            except (KubeNotFound, KubeConflict):
                return
            except (KubeError, KubeUnavailable) as error:
                _log.info("pod not removed", pod=worker.key, error=str(error))
                await asyncio.sleep(RETRY_S)
                continue
            return

    # -- what pods need --------------------------------------------------------------------------------------

    def _on_config_maps(self, config_maps: list[JsonObject]) -> None:
        assert self._node is not None
        self._node.config_maps.clear()
        self._node.config_maps.update({_name(each): each for each in config_maps})
        self._refresh_files(None)

    def _on_config_map(self, type_: str, config_map: JsonObject) -> None:
        assert self._node is not None
        if type_ == "DELETED":
            self._node.config_maps.pop(_name(config_map), None)
            return
        self._node.config_maps[_name(config_map)] = config_map
        self._refresh_files(config_map["metadata"]["name"])

    def _refresh_files(self, config_map: str | None) -> None:
        assert self._node is not None
        for worker in self._workers.values():
            for volume, source in volumes.config_maps_of(worker.pod).items():
                if config_map is None or source["name"] == config_map:
                    volumes.write_config_map(worker.pod, volume, self.home, self._node.config_maps)
                    worker.update(worker.pod)

    def _on_stateful_sets(self, stateful_sets: list[JsonObject]) -> None:
        self._controller.stateful_sets = {_name(each): each for each in stateful_sets}
        self._controller.wake()

    def _on_stateful_set(self, type_: str, stateful_set: JsonObject) -> None:
        if type_ == "DELETED":
            self._controller.stateful_sets.pop(_name(stateful_set), None)
        else:
            self._controller.stateful_sets[_name(stateful_set)] = stateful_set
        self._controller.wake()

    def _on_claims(self, claims: list[JsonObject]) -> None:
        known = {_name(claim): claim for claim in claims}
        for name, claim in self._controller.claims.items():
            if name not in known:
                self._on_claim("DELETED", claim)
        self._controller.claims = {}
        for claim in claims:
            self._on_claim("ADDED", claim)
        self._release_claims()

    def _on_claim(self, type_: str, claim: JsonObject) -> None:
        key = (claim_key(claim["metadata"]), str(claim["metadata"]["uid"]))
        if type_ == "DELETED":
            volumes.note_deleted(*key, self.home)
            self._released.add(key)
            self._controller.claims = {k: v for k, v in self._controller.claims.items() if k != _name(claim)}
            self._release_claims()
        else:
            self._controller.claims[_name(claim)] = claim
            if key in self._released:  # a list from before it was made had taken it for deleted
                self._released.discard(key)
                volumes.forget_deleted(*key, self.home)
            volumes.provision(claim, self.home)
            status, requests = claim.get("status") or {}, (claim["spec"].get("resources") or {}).get("requests")
            if status.get("phase") != "Bound" or status.get("capacity") != (requests or {}):
                self._launch(self._bind(claim))
        self._controller.wake()

    def _release_claims(self) -> None:
        """Free the disk of the claims that are deleted, once no process uses it."""
        wanted = {claim for worker in self._workers.values() for claim in volumes.claims_of(worker.pod)}
        used = {volume for worker in self._workers.values() for volume in worker.volumes}
        for name, uid in sorted(self._released - used):
            # The folder of a newer claim of the name is another one: its pod is no reason to keep the old one.
            if name not in wanted or volumes.owner_of(name, self.home) != uid:
                volumes.reclaim(name, uid, self.home)
                self._released.discard((name, uid))

    async def _bind(self, claim: JsonObject) -> None:
        """Be the provisioner: a folder, and a status that says so."""
        metadata = claim["metadata"]
        status = {
            "phase": "Bound",
            "accessModes": claim["spec"].get("accessModes") or [],
            "capacity": (claim["spec"].get("resources") or {}).get("requests") or {},
        }
        operations = [
            {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
            {"op": "add", "path": "/status", "value": status},
        ]
        try:
            await self._client.json_patch(
                PERSISTENT_VOLUME_CLAIMS, metadata["namespace"], metadata["name"], operations, subresource="status"
            )
        except KubeUnavailable:
            await asyncio.sleep(RETRY_S)
            self._launch(self._bind(claim))
        except KubeError as error:
            _log.info("claim not bound", claim=metadata["name"], error=str(error))


def _name(obj: JsonObject) -> tuple[str, str]:
    return str(obj["metadata"].get("namespace") or "default"), str(obj["metadata"]["name"])


async def run_kubelet(home: Home) -> None:
    """Run until SIGTERM or SIGINT (pods go on) or SIGUSR1 (pods are stopped first)."""
    while not home.kubeconfig.is_file():  # noqa: ASYNC110  (the API server writes it when it starts)
        await asyncio.sleep(0.02)
    kubelet = Kubelet(home)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, kubelet.shut_down)
    drains: set[asyncio.Task[None]] = set()
    loop.add_signal_handler(signal.SIGUSR1, lambda: drains.add(loop.create_task(kubelet.drain())))
    _log.info("kubelet started", home=str(home.root), python=sys.version.split()[0])
    await kubelet.run()

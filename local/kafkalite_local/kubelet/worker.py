"""One pod: starts its process, watches, probes, restarts and stops it, and keeps its status true."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from kafkalite_local.kubelet import volumes
from kafkalite_local.kubelet.container import Container, pod_status, restart_delay_s
from kafkalite_local.kubelet.pod_spec import LaunchError, plan_launch, the_container
from kafkalite_local.kubelet.probes import Probe, follow, port_offset
from kafkalite_local.kubelet.status_writer import StatusWriter
from kafkalite_local.pod_names import log_name, pod_key
from kafkalite_local.processes import Exit, Watched, adopt, now_text, spawn
from kafkalite_runtime.home import Home, ProcessRecord, write_atomically
from kafkalite_runtime.kube import EventRecorder, KubeClient
from kafkalite_runtime.logging import get_logger

JsonObject = dict[str, Any]
DEFAULT_GRACE_S = 30.0
RETRY_LAUNCH_S = 0.5
RETRY_LAUNCH_MAX_S = 30.0
_log = get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class Node:
    """What the workers share."""

    home: Home
    client: KubeClient
    recorder: EventRecorder
    session: aiohttp.ClientSession
    config_maps: dict[tuple[str, str], JsonObject] = field(default_factory=dict)
    base_env: Mapping[str, str] = field(default_factory=dict)

    @property
    def search(self) -> str:
        """Where programs are looked for: beside our own interpreter first."""
        return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


class PodWorker:
    """Runs one pod until it is told to stop; `static` pods are not deleted from the API afterwards."""

    def __init__(self, node: Node, pod: JsonObject, *, static: bool = False) -> None:
        self.node = node
        self.pod = pod
        self.key = pod_key(pod["metadata"])
        self.uid = str(pod["metadata"]["uid"])
        self.static = static
        self.container = Container(name="")
        self._phase = "Pending"
        self._refused = 0
        self._started = str((pod.get("status") or {}).get("startTime") or now_text())
        self._previous: JsonObject = pod.get("status") or {}
        self._stop_deadline: float | None = None
        self._stopping = asyncio.Event()
        self._wake = False
        self._changed = asyncio.Event()
        self._kill: asyncio.Event = asyncio.Event()
        self.writer = StatusWriter(node.client, self.pod, uid=None if static else self.uid)
        self._record_path = node.home.pod_records / f"{self.key}.json"
        self._folder = node.home.pods / self.key
        self.volumes: set[tuple[str, str]] = set()
        """Folders of the claims that its process was started with, and the claims' uids."""

    # -- from outside ----------------------------------------------------------------------------------------

    def update(self, pod: JsonObject) -> None:
        """The object changed; its spec cannot, but metadata can, and a ConfigMap that it lacked may be there now."""
        self.pod = pod
        if (self._folder / "volumes").is_dir():  # else they are written when it starts
            with contextlib.suppress(LaunchError, OSError):
                volumes.write_fields(pod, self.node.home)
        self._changed.set()

    def stop(self, grace_s: float | None = None, *, wake: bool = False) -> None:
        """SIGTERM, then SIGKILL after the grace period; a second call can only shorten it.

        With `wake` a process that was frozen by SIGSTOP is let go on, so that it can end in an orderly way.
        """
        self._wake = self._wake or wake
        if grace_s is None:
            metadata, spec = self.pod["metadata"], self.pod["spec"]
            given = metadata.get("deletionGracePeriodSeconds", spec.get("terminationGracePeriodSeconds"))
            grace_s = float(given if given is not None else DEFAULT_GRACE_S)
        deadline = time.monotonic() + grace_s
        self._stop_deadline = deadline if self._stop_deadline is None else min(deadline, self._stop_deadline)
        self._stopping.set()
        self._changed.set()

    async def run(self) -> None:
        """Until the pod was stopped or has completed. Cancelling it leaves the process alone."""
        self._checkpoint()
        reporting = asyncio.get_running_loop().create_task(self.writer.run(), name=f"status of {self.key}")
        watched = self._adopt()
        try:
            while not self._stopping.is_set() or watched is not None:
                watched = watched or await self._start()
                if watched is None:
                    continue
                await self._supervise(watched)
                watched = None
                if not await self._may_restart():
                    break
            if "waiting" in self.container.state:
                # Until the next kubelet has tried, this stands there: an old failure would be taken for a new one.
                self.container.waiting("ContainerCreating", "stopped")
                self._report()
            await self.writer.settled(timeout_s=2.0)
        finally:
            if watched is not None:
                watched.abandon()
            reporting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reporting

    def forget(self) -> None:
        """Remove what is kept on disk for this pod; its claims stay."""
        volumes.remove_pod_folder(self.pod, self.node.home)
        self._record_path.unlink(missing_ok=True)

    # -- life of a process -----------------------------------------------------------------------------------

    def _adopt(self) -> Watched | None:
        record = ProcessRecord.read(self._record_path)
        if record is None or record.details.get("uid") != self.uid:
            return None
        self._describe_container()
        self._note_volumes()
        self.container.restore(record.details)
        if adopt(self._record_path) is None and record.details.get("ended"):
            # It ended under the eyes of an earlier kubelet, which noted it; this one starts it again.
            self.container.restart_count += 1
            return None
        _log.info("adopted", pod=self.key, pid=record.pid, alive=record.alive())
        self.container.running(record, started_at=self.container.started_at)
        self._phase = "Running"
        watched = Watched(record, self.node.home.exits)
        self._report()
        return watched

    def _describe_container(self) -> None:
        spec = the_container(self.pod)
        self.container.name = str(spec["name"])
        self.container.image = str(spec.get("image") or "")

    def _note_volumes(self) -> None:
        home = self.node.home
        self.volumes = {(name, volumes.owner_of(name, home)) for name in volumes.claims_of(self.pod)}

    async def _start(self) -> Watched | None:
        """A new process; None when it cannot be started now (it is tried again, at once when something changes)."""
        self._changed.clear()
        try:
            self._describe_container()
            volumes.prepare(self.pod, self.node.home, self.node.config_maps)
            self._note_volumes()
            launch = plan_launch(self.pod, home=self.node.home, search=self.node.search, base_env=self.node.base_env)
            self._probes()
            (self._folder / "termination-log").write_bytes(b"")
            record = spawn(launch.argv, env=launch.env, log=self.node.home.log(log_name(self.pod)), name=self.key)
        except (LaunchError, OSError) as error:
            reason = error.reason if isinstance(error, LaunchError) else "RunContainerError"
            self.container.waiting(reason, str(error))
            self._report()
            self._event("Warning", "Failed", str(error))
            self._refused += 1
            await self._pause(min(RETRY_LAUNCH_MAX_S, RETRY_LAUNCH_S * 2.0 ** min(self._refused - 1, 10)))
            return None
        self._refused = 0
        watched = Watched(record, self.node.home.exits)
        self.container.remember_end()
        self.container.running(record, started_at=time.time())
        self._save(record)
        self._phase = "Running"
        self._report()
        self._event("Normal", "Started", f"Started container {self.container.name}")
        _log.info("started", pod=self.key, pid=record.pid, restart_count=self.container.restart_count)
        return watched

    async def _supervise(self, watched: Watched) -> None:
        """Probe it, until it has ended: by itself, because it is told to, or because it is found dead inside."""
        loop = asyncio.get_running_loop()
        self._kill = asyncio.Event()
        probing = loop.create_task(self._probe(), name=f"probes of {self.key}")
        ended = loop.create_task(watched.wait(), name=f"end of {self.key}")
        orders = [loop.create_task(event.wait()) for event in (self._stopping, self._kill)]
        try:
            await asyncio.wait([ended, *orders], return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                await self._terminate(watched, ended)
            self._note_end(watched.record, await ended)
        finally:
            for task in (probing, ended, *orders):
                task.cancel()
            await asyncio.gather(probing, ended, *orders, return_exceptions=True)

    async def _terminate(self, watched: Watched, ended: "asyncio.Task[Exit]") -> None:
        if self._stop_deadline is None:
            grace_s = float(self.pod["spec"].get("terminationGracePeriodSeconds") or DEFAULT_GRACE_S)
            deadline = time.monotonic() + grace_s
        else:
            deadline = self._stop_deadline
        _log.info("stopping", pod=self.key, pid=watched.record.pid, grace_s=round(deadline - time.monotonic(), 1))
        watched.send(signal.SIGTERM)
        if self._wake:
            watched.send(signal.SIGCONT)
        while not ended.done():
            deadline = min(deadline, self._stop_deadline or deadline)
            left = deadline - time.monotonic()
            if left <= 0:
                watched.send(signal.SIGKILL)
                await asyncio.wait([ended])
                return
            await asyncio.wait([ended], timeout=min(left, 0.25))

    def _note_end(self, record: ProcessRecord, exit_: Exit) -> None:
        message = volumes.read_termination_message(self._folder / "termination-log")
        ran_s = time.time() - self.container.started_at
        self.container.terminated(exit_, message, record.started_at, ran_s=ran_s)
        _log.info("ended", pod=self.key, pid=record.pid, exit_code=exit_.code, signal=exit_.signal)
        self._save(record, ended=True)
        self._report()

    async def _may_restart(self) -> bool:
        """Wait for the back-off to pass; False when the pod is stopping or has completed."""
        policy = self.pod["spec"].get("restartPolicy") or "Always"
        code = int(self.container.state["terminated"]["exitCode"])
        if not self._stopping.is_set() and (policy == "Never" or (policy == "OnFailure" and code == 0)):
            self._phase = "Succeeded" if code == 0 else "Failed"
            self._report()
            await self._stopping.wait()
        delay_s = restart_delay_s(self.container.failures)
        if delay_s and not self._stopping.is_set():
            text = f"back-off {delay_s:g}s restarting container {self.container.name}"
            self.container.waiting("CrashLoopBackOff", text)
            self._report()
            self._event("Warning", "BackOff", "Back-off restarting failed container")
            await self._pause(delay_s, stop_only=True)
        if self._stopping.is_set():
            return False
        self.container.restart_count += 1
        return True

    async def _pause(self, seconds: float, *, stop_only: bool = False) -> None:
        event = self._stopping if stop_only else self._changed
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()

    # -- probes ----------------------------------------------------------------------------------------------

    def _probes(self) -> dict[str, Probe | None]:
        spec = the_container(self.pod)
        offset = port_offset(self.pod)
        kinds = ("startup", "readiness", "liveness")
        return {kind: Probe.parse(spec.get(f"{kind}Probe"), spec, offset) for kind in kinds}

    async def _probe(self) -> None:
        probes = self._probes()
        session = self.node.session
        if startup := probes["startup"]:
            started = asyncio.Event()

            def on_startup(healthy: bool, why: str) -> None:
                if healthy:
                    started.set()
                else:
                    self._unhealthy("Startup", why)

            task = asyncio.get_running_loop().create_task(follow(session, startup, on_startup))
            try:
                await started.wait()
            finally:
                task.cancel()
        self.container.was_started = True
        async with asyncio.TaskGroup() as group:
            if readiness := probes["readiness"]:
                group.create_task(follow(session, readiness, self._on_readiness))
            else:
                self._on_readiness(True, "")
            if liveness := probes["liveness"]:
                group.create_task(
                    follow(session, liveness, lambda well, why: None if well else self._unhealthy("Liveness", why))
                )

    def _on_readiness(self, ready: bool, why: str) -> None:
        if not ready:
            self._event("Warning", "Unhealthy", f"Readiness probe failed: {why}")
        if ready != self.container.ready:
            self.container.ready = ready
            self._report()

    def _unhealthy(self, kind: str, why: str) -> None:
        self._event("Warning", "Unhealthy", f"{kind} probe failed: {why}")
        self._event("Normal", "Killing", f"Container {self.container.name} failed its probe and is restarted")
        self._kill.set()

    # -- what is kept and told -------------------------------------------------------------------------------

    def _report(self) -> None:
        status = pod_status(self.pod, self.container, self._started, self._previous, self._phase)
        self._previous = status
        self.writer.set(status)

    def _event(self, type_: str, reason: str, message: str) -> None:
        if not self.static:
            self.node.recorder.record(self.pod, type_, reason, message)

    def _save(self, record: ProcessRecord, *, ended: bool = False) -> None:
        details = self.container.save() | {"uid": self.uid}
        if ended:
            details |= {"ended": True, "lastState": self.container.state}
        ProcessRecord(
            name=record.name,
            pid=record.pid,
            start_time=record.start_time,
            started_at=record.started_at,
            details=details,
        ).write(self._record_path)

    def _checkpoint(self) -> None:
        """Keep the object, so that a kubelet that starts while the API server is away knows what to run."""
        self._folder.mkdir(parents=True, exist_ok=True)
        if not self.static:
            write_atomically(self._folder / "pod.json", msgspec.json.encode(self.pod))

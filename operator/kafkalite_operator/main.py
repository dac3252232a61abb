"""Entry point of the operator process."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import time

import uvloop

from kafkalite_core.model.errors import ConfigError, KafkaLiteError
from kafkalite_operator.acting import ActingClient
from kafkalite_operator.controller import Controller
from kafkalite_operator.elector_thread import ElectorThread
from kafkalite_operator.handlers import Watcher, first_attempt
from kafkalite_operator.metrics import OperatorMetrics
from kafkalite_operator.settings import OperatorSettings
from kafkalite_operator.store import Store
from kafkalite_runtime.complaints import Complaints
from kafkalite_runtime.kube.client import KubeClient
from kafkalite_runtime.kube.errors import KubeForbidden
from kafkalite_runtime.kube.events import EventRecorder
from kafkalite_runtime.kube.kinds import BROKERS, CLUSTERS, TOPICS, Kind
from kafkalite_runtime.logging import configure_logging, get_logger
from kafkalite_runtime.telemetry import TelemetryServer

STUCK_S = 30.0
SERVED_PAUSE_S = 0.3
TRUST_LOOK_S = 5.0
SWITCH_S = 0.001
"""A thread that came back from a system call waits so long for one that computes. The controller's loop makes several
of them for every patch, while kopf's thread works on the events of the patches before."""

GARBAGE = (20_000, 10, 10)
"""When Python looks for cycles: seldom, since most objects that are made here are views of the snapshot, which stay. At
10,000 partitions the search took a sixth of the CPU time while leaders were elected (CPython 3.11: after 700)."""

_log = get_logger(__name__)


class Operator:
    """All tasks of one operator process; tests run it in their own loop."""

    def __init__(self, settings: OperatorSettings, client: KubeClient) -> None:
        self.settings = settings
        self.metrics = OperatorMetrics()
        self._client = client
        self._events = EventRecorder(client, "kafkalite-operator", busy=lambda: self.controller.electing)
        self.store = Store(time.monotonic, settings.default_image)
        self._beat_at = time.monotonic()
        self.elector = ElectorThread(client.config, settings, self._main_loop_age_s)
        self._acting = ActingClient(client.config, self.elector.held)
        self.controller = Controller(
            client=self._acting,
            store=self.store,
            elector=self.elector,
            settings=settings,
            metrics=self.metrics,
            events=self._events,
        )
        self.telemetry = TelemetryServer(
            self.metrics.registry,
            settings.metrics_port,
            settings.metrics_host,
            healthz=self._healthz,
            readyz=self._readyz,
        )
        self.watcher: Watcher | None = None
        self._reached = False

    def _main_loop_age_s(self) -> float:
        return time.monotonic() - self._beat_at

    def _healthz(self) -> bool | str:
        silence = self._main_loop_age_s()
        return True if silence < STUCK_S else f"the event loop last ran {silence:.0f} s ago"

    def _readyz(self) -> bool | str:
        return self._reached or "the API server has not been reached yet"

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop`, then release the Lease."""
        await self.telemetry.start()
        self._beat_at = time.monotonic()
        self.elector.start()
        tasks = [
            asyncio.create_task(self._beat(), name="heartbeat"),
            asyncio.create_task(self.controller.run(), name="controller"),
            asyncio.create_task(self.controller.leases.run(), name="lease reader"),
            asyncio.create_task(self._watch(), name="watcher"),
        ]
        stopping = asyncio.create_task(stop.wait(), name="stop")
        try:
            done, _ = await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stopping}:
                task.result()  # no task ends by itself, so this raises what ended it
        finally:
            stopping.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, stopping, return_exceptions=True)
            await self.elector.stop()
            if self.watcher is not None:
                self.watcher.stop(0.0)
            await self._acting.close()
            await self._events.close()
            await self.telemetry.stop()

    async def _beat(self) -> None:
        while True:
            self._beat_at = time.monotonic()
            await asyncio.sleep(1.0)

    async def _watch(self) -> None:
        self.watcher = Watcher(self.controller.on_object, self._kinds_are_served, self.settings.watch_namespaces)
        self.watcher.start()
        self.store.on_went_back(self.watcher.begin_anew)
        trusted = self._client.config.trust()
        while True:
            await asyncio.sleep(TRUST_LOOK_S)
            now = self._client.config.trust()
            if now is not trusted and self.watcher.begin_anew("the cluster has another certificate authority"):
                trusted = now

    async def _kinds_are_served(self) -> None:
        """Wait until the API serves our kinds: kopf looks for them only once, when it starts."""
        complaints = Complaints(_log)
        while True:
            try:
                for kind in (TOPICS, CLUSTERS, BROKERS):
                    await self._is_served(kind)
            except KafkaLiteError as error:
                complaints.wrong("kinds", "waiting for the API server and its custom resources", error)
                await asyncio.sleep(SERVED_PAUSE_S)
            else:
                self._reached = True
                return

    async def _is_served(self, kind: Kind) -> None:
        """Raises errors of the client. One namespace that may be read is enough: kopf tries the others for ever."""
        refused: KubeForbidden | None = None
        for namespace in self.settings.watch_namespaces or (None,):
            try:
                await self._client.list(kind, namespace, deadline_s=3.0)
            except KubeForbidden as error:
                refused = error
            else:
                return
        if refused is not None:
            raise refused


async def serve(settings: OperatorSettings) -> None:
    """Run until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    client = KubeClient.from_environment(os.environ)
    operator = Operator(settings, client)
    try:
        await operator.run(stop)
    finally:
        await client.close()


def main() -> None:
    """`kafkalite-operator`: exit code 0 after SIGTERM, 2 for wrong settings, 1 for a failure."""
    try:
        settings = OperatorSettings.from_environment(os.environ)
        sys.setswitchinterval(SWITCH_S)
        gc.set_threshold(*GARBAGE)
        configure_logging("operator", settings.log_level, settings.log_json)
        # One line per object that passes through says nothing about a decision.
        logging.getLogger("kopf.objects").setLevel(logging.WARNING)
        for handler in logging.getLogger().handlers:
            handler.addFilter(first_attempt)
        uvloop.run(serve(settings))
        code = 0
    except (ConfigError, OSError) as error:
        print(f"kafkalite-operator: {error}", file=sys.stderr)  # noqa: T201
        code = 2
    except Exception:
        _log.exception("operator failed")
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # kopf's thread holds nothing that needs an orderly end.
    os._exit(code)

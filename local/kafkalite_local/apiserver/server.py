"""The API server as an object: start it, ask for its address, stop it."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from kafkalite_local.apiserver import crds
from kafkalite_local.apiserver.app import Api
from kafkalite_local.apiserver.builtins import CRDS, NAMESPACES
from kafkalite_local.apiserver.collector import Collector
from kafkalite_local.apiserver.deletion import PERMANENT_NAMESPACES
from kafkalite_local.apiserver.kubeconfig import new_token
from kafkalite_local.apiserver.operations import Operations, WriteOptions
from kafkalite_local.apiserver.registry import Registry, attributes
from kafkalite_local.apiserver.store import HISTORY_EVENTS_MAX, Event, Store
from kafkalite_local.apiserver.watching import BOOKMARK_INTERVAL_S

if TYPE_CHECKING:
    from pathlib import Path

Json = dict[str, Any]
_LOG = logging.getLogger(__name__)
_CRD_STORAGE = CRDS.storage


class ApiServer:
    """The embedded API server in this process; it needs a running event loop.

    `database` is the SQLite file; `port` 0 takes a free one. After `start()`, `url` and `token` tell how to reach it.
    """

    def __init__(
        self,
        database: Path,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str = "",
        log_folder: Path | None = None,
        history_events_max: int = HISTORY_EVENTS_MAX,
        bookmark_interval_s: float = BOOKMARK_INTERVAL_S,
    ) -> None:
        self.token = token or new_token()
        self._host = host
        self._port = port
        self._database = database
        self._log_folder = log_folder or database.parent / "logs"
        self._history_events_max = history_events_max
        self._bookmark_interval_s = bookmark_interval_s
        self._registry = Registry()
        self._runner: web.AppRunner | None = None
        self._collecting: asyncio.Task[None] | None = None
        self.failed: asyncio.Future[None] | None = None
        """Raises when the disk or the garbage collector fails: the process must end."""

    @property
    def address(self) -> str:
        """Address of the server, for clients that send the bearer token."""
        return f"http://{self._host}:{self._port}"

    @property
    def url(self) -> str:
        """Address with the token in its path, for kubeconfigs: kubectl sends no bearer token over plain HTTP."""
        return f"{self.address}/{self.token}"

    async def start(self) -> None:
        """Load the database, bring the definitions up to date and listen. Raises OSError for a port in use."""
        listener = socket.create_server((self._host, self._port), backlog=512)
        self._port = listener.getsockname()[1]
        self.failed = asyncio.get_running_loop().create_future()
        self._store = Store(
            self._database, attributes, self._on_disk_failure, history_events_max=self._history_events_max
        )
        self._store.open()
        self._store.subscribe(self._on_event)
        for entry in self._store.entries(_CRD_STORAGE):
            self._registry.define(entry.object)
        await self._prepare_contents()
        self._api = Api(
            self._store,
            self._registry,
            token=self.token,
            log_folder=self._log_folder,
            bookmark_interval_s=self._bookmark_interval_s,
        )
        self._collecting = asyncio.create_task(
            Collector(self._store, self._registry).run(), name="apiserver-garbage-collector"
        )
        self._collecting.add_done_callback(self._on_collector_end)
        self._runner = web.AppRunner(
            self._api.application(), access_log=None, handler_cancellation=True, shutdown_timeout=1.0
        )
        await self._runner.setup()
        await web.SockSite(self._runner, listener).start()
        _LOG.info("serving %s from %s", self.address, self._database)

    async def stop(self) -> None:
        """End the watches, finish the writes, close the database."""
        if self._runner is None:
            return
        self._api.stop()
        await self._runner.cleanup()
        if self._collecting is not None:
            self._collecting.remove_done_callback(self._on_collector_end)
            self._collecting.cancel()
            await asyncio.gather(self._collecting, return_exceptions=True)  # what ended it early has been told
        await self._store.close()
        self._runner = None

    def _on_disk_failure(self, error: BaseException) -> None:
        _LOG.critical("the database failed: %s", error)
        self._fail(error)

    def _on_collector_end(self, task: asyncio.Task[None]) -> None:
        """It ends with the server alone. One without it looks well and deletes nothing that was owned."""
        error = None if task.cancelled() else task.exception()
        _LOG.critical("the garbage collector ended", exc_info=error)
        self._fail(error or RuntimeError("the garbage collector ended"))

    def _fail(self, error: BaseException) -> None:
        if self.failed is not None and not self.failed.done():
            self.failed.set_exception(error)

    def _on_event(self, event: Event) -> None:
        if event.storage != _CRD_STORAGE:
            return
        if event.type == "DELETED":
            self._registry.forget(event.name)
        else:
            self._registry.define(msgspec.json.decode(event.raw))

    async def _prepare_contents(self) -> None:
        """The permanent namespaces, and this version's own definitions."""
        operations = Operations(self._store, self._registry)
        for name in sorted(PERMANENT_NAMESPACES):
            if self._store.head("namespaces", "", name) is None:
                operations.create(NAMESPACES, "", name, {"metadata": {"name": name}}, WriteOptions())
        for definition in crds.project_definitions():
            name = definition["metadata"]["name"]
            head = self._store.head(_CRD_STORAGE, "", name)
            if head is None:
                operations.create(CRDS, "", name, definition, WriteOptions())
            else:
                value = head.copy()
                value["spec"] = definition["spec"]
                operations.mutate(CRDS, head, value)
        await self._store.settled()

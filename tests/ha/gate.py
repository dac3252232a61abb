"""The proxy of the chaos tests, with three more powers: it remembers the writes, holds one back, and cuts a client off."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import yaml
from aiohttp import web

from tests.chaos.api_proxy import WRITES, BreakConnectionError, Proxy
from tests.contract.conftest import connection

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BOOKKEEPING = ("/leases", "/events")
"""Writes that decide nothing."""


@dataclass(frozen=True, slots=True)
class Write:
    """A write that the server answered."""

    client: str
    method: str
    path: str
    body: Any
    status: int
    answer: Any

    @property
    def revision(self) -> int:
        """Where in the server's history it stands; 0 when it was refused."""
        return int(self.answer["metadata"].get("resourceVersion", 0)) if self.status < 300 else 0

    @property
    def decides(self) -> bool:
        """Whether it is more than a heartbeat or an Event."""
        return not any(part in self.path for part in BOOKKEEPING)


@dataclass(slots=True)
class Hold:
    """One request that waits in the proxy, as in a network that is late."""

    client: str
    wanted: Callable[[str, str, Any], bool]
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    status: int = 0
    answer: Any = None


@dataclass(slots=True)
class Cut:
    """At its `number`-th deciding write the client ends, before the server sees the write or after it has answered."""

    number: int
    applied: bool
    then: Callable[[], None]
    seen: int = 0
    done: bool = False


class Gate(Proxy):
    """In front of one API server, in the loop of the test; every client has a port and a kubeconfig of its own."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self._document = yaml.safe_load(kubeconfig.read_text())
        server, _, context = connection(kubeconfig)
        super().__init__(server, ssl=context)
        self._folder = folder
        self._runners: list[web.AppRunner] = []
        self.writes: list[Write] = []
        self.holds: list[Hold] = []
        self.cuts: dict[str, Cut] = {}

    async def open(self, client: str, *, token: str = "") -> Path:
        """A kubeconfig for the client, whose server is this proxy."""
        runner = web.AppRunner(
            self.application(client), access_log=None, handler_cancellation=True, shutdown_timeout=0.1
        )
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self._runners.append(runner)
        document = json.loads(json.dumps(self._document))
        document["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{runner.addresses[0][1]}"}
        if token:
            document["users"][0]["user"] = {"token": token}
        path = self._folder / f"{client}.kubeconfig"
        path.write_text(yaml.safe_dump(document))
        return path

    def hold(self, client: str, wanted: Callable[[str, str, Any], bool]) -> Hold:
        """Hold the next write of that client for which `wanted(method, path, body)` is true."""
        held = Hold(client, wanted)
        self.holds.append(held)
        return held

    async def close(self) -> None:
        """Stop listening; open connections break."""
        self.set_rules(())
        for runner in self._runners:
            await runner.cleanup()
        await super().close()

    async def _serve(self, client: str, request: web.Request, body: bytes) -> web.StreamResponse:
        if self.cuts.get(client, NO_CUT).done:
            raise BreakConnectionError
        if request.method not in WRITES or self._rule(client, request.method, watch=False) is not None:
            return await super()._serve(client, request, body)
        document = json.loads(body) if body else None
        path = urlsplit(request.raw_path).path
        held = next((h for h in self.holds if h.client == client and h.wanted(request.method, path, document)), None)
        if held is not None:
            self.holds.remove(held)
            return await asyncio.shield(asyncio.ensure_future(self._late(held, client, request, body, document)))
        cut = self.cuts.get(client)
        if cut is not None and not any(part in path for part in BOOKKEEPING):
            cut.seen += 1
            if cut.seen >= cut.number:
                cut.done = True
                if cut.applied:
                    await self._remembered(client, request, body, document)
                cut.then()
                raise BreakConnectionError
        status, answer = await self._remembered(client, request, body, document)
        return web.Response(body=answer, status=status, content_type="application/json")

    async def _late(
        self, held: Hold, client: str, request: web.Request, body: bytes, document: Any
    ) -> web.StreamResponse:
        """Pass it on when it is released, whether or not its client still waits."""
        held.arrived.set()
        await held.released.wait()
        held.status, answer = await self._remembered(client, request, body, document)
        held.answer = json.loads(answer)
        held.answered.set()
        return web.Response(body=answer, status=held.status, content_type="application/json")

    async def _remembered(self, client: str, request: web.Request, body: bytes, document: Any) -> tuple[int, bytes]:
        status, answer = await self._ask(request, body)
        decoded: Any = {"metadata": {}}
        with contextlib.suppress(ValueError):
            decoded = json.loads(answer)
        self.writes.append(Write(client, request.method, urlsplit(request.raw_path).path, document, status, decoded))
        return status, answer


NO_CUT = Cut(0, applied=False, then=lambda: None)

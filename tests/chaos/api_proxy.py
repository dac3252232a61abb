"""A proxy in front of the API server that treats each client as it is told: late, wrong, twice, half or not at all.

    python -m tests.chaos.api_proxy --host 127.0.0.1 --upstream 127.0.0.1:24212 --client broker-0:24300 …

Each client has a port of its own, by which it is known. Orders come as JSON lines on standard input, each answered by a
line with the counters: {"rules": [rule …]} replaces the rules in force, {} only asks. It ends when its input ends.

A rule: {"kind", "clients": [names] (all), "writes": true | false (both), "probability": 1.0, "low_s", "high_s"}. Kinds:
  latency      answer after a time                    429, 500     answer with that error, do not ask the server
  cut          answer half a body                     lost-answer  ask the server, then break the connection
  late-write   break the connection, then, after a time, ask the server (which the client no longer expects)
  duplicate    ask twice, answer with the second      reset        break connections, those that are open as well
  stall        no answer, nothing on open watches, for as long as the rule is in force; then break
  slow-watch   what watches deliver comes late        gone         a watch is told 410 at once
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web
from yarl import URL

if TYPE_CHECKING:
    import ssl

WRITES = ("POST", "PUT", "PATCH", "DELETE")
HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}
KINDS = (
    "latency", "429", "500", "cut", "lost-answer", "late-write", "duplicate", "reset", "stall", "slow-watch", "gone",
)  # fmt: skip
FOR_WRITES = ("lost-answer", "late-write", "duplicate")
FOR_WATCHES = ("slow-watch", "gone")
BODY_MAX = 16 << 20


class BreakConnectionError(Exception):
    """The client's connection is to be reset now."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What is done to which requests."""

    kind: str
    clients: tuple[str, ...] = ()
    writes: bool | None = None
    probability: float = 1.0
    low_s: float = 0.0
    high_s: float = 0.0

    @classmethod
    def parse(cls, document: dict[str, Any]) -> Rule:
        """Raises ValueError for a kind that there is not, TypeError for an unknown field."""
        rule = cls(**{**document, "clients": tuple(document.get("clients") or ())})
        if rule.kind not in KINDS:
            raise ValueError(f"no rule of kind {rule.kind!r}")
        return rule

    def concerns(self, client: str, method: str, *, watch: bool) -> bool:
        """Whether a request is one of those that this rule is for."""
        write = method in WRITES
        if self.clients and client not in self.clients:
            return False
        if self.kind in FOR_WATCHES:
            return watch
        if self.kind in FOR_WRITES:
            return write
        if watch and self.kind in {"cut", "latency"}:
            return False
        return self.writes is None or self.writes == write


@dataclass(slots=True)
class Proxy:
    """The rules in force, what they did, and the open connections.

    `upstream` is HOST:PORT, or a whole address with its scheme; `ssl` is for https.
    """

    upstream: str
    random: random.Random = field(default_factory=random.Random)
    counters: Counter[str] = field(default_factory=Counter)
    ssl: ssl.SSLContext | None = None
    _rules: tuple[Rule, ...] = ()
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _open: dict[asyncio.Transport, str] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _session: aiohttp.ClientSession | None = None

    def set_rules(self, rules: tuple[Rule, ...]) -> None:
        """Replace the rules; connections of clients that are to be reset are broken."""
        self._rules = rules
        self._changed.set()
        self._changed = asyncio.Event()
        for rule in rules:
            if rule.kind == "reset":
                for transport, client in list(self._open.items()):
                    if not rule.clients or client in rule.clients:
                        self._count(rule, client)
                        transport.abort()

    def _count(self, rule: Rule, client: str) -> None:
        self.counters[rule.kind] += 1
        self.counters[f"{rule.kind}/{client}"] += 1

    def _rule(self, client: str, method: str, *, watch: bool) -> Rule | None:
        for rule in self._rules:
            if rule.concerns(client, method, watch=watch) and self.random.random() < rule.probability:
                return rule
        return None

    def application(self, client: str) -> web.Application:
        """What listens on the client's port."""
        app = web.Application(client_max_size=BODY_MAX)

        async def handle(request: web.Request) -> web.StreamResponse:
            return await self.handle(client, request)

        app.router.add_route("*", "/{path:.*}", handle)
        return app

    async def close(self) -> None:
        """Stop what goes on."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    # --- requests

    async def handle(self, client: str, request: web.Request) -> web.StreamResponse:
        """Serve one request as the rules say."""
        transport = request.transport
        assert isinstance(transport, asyncio.Transport)
        self._open[transport] = client
        self.counters["requests"] += 1
        try:
            return await self._serve(client, request, await request.read())
        except (BreakConnectionError, aiohttp.ClientError, ConnectionError):
            transport.abort()
            return web.Response()  # goes nowhere
        finally:
            self._open.pop(transport, None)

    async def _serve(self, client: str, request: web.Request, body: bytes) -> web.StreamResponse:
        watch = request.query.get("watch") in {"true", "1"}
        rule = self._rule(client, request.method, watch=watch)
        if rule is None:
            return await self._stream(client, request, body, watch=watch)
        if rule.kind != "slow-watch":
            self._count(rule, client)
        match rule.kind:
            case "429" | "500":
                return _refusal(int(rule.kind))
            case "gone":
                return web.Response(body=json.dumps({"type": "ERROR", "object": _status(410)}).encode() + b"\n")
            case "reset":
                raise BreakConnectionError
            case "stall":
                await self._while_stalled(client, request.method, watch=watch)
                raise BreakConnectionError
            case "latency":
                await asyncio.sleep(self.random.uniform(rule.low_s, rule.high_s))
            case "duplicate":
                await self._ask(request, body)
            case "lost-answer":
                await self._ask(request, body)
                raise BreakConnectionError
            case "late-write":
                self._later(self.random.uniform(rule.low_s, rule.high_s), request, body)
                raise BreakConnectionError
            case "cut":
                await self._half(request, body)
        return await self._stream(client, request, body, watch=watch)

    async def _while_stalled(self, client: str, method: str, *, watch: bool) -> None:
        while any(rule.kind == "stall" and rule.concerns(client, method, watch=watch) for rule in self._rules):
            await self._changed.wait()

    def _later(self, delay_s: float, request: web.Request, body: bytes) -> None:
        async def ask() -> None:
            await asyncio.sleep(delay_s)
            with contextlib.suppress(aiohttp.ClientError, ConnectionError):
                status, _ = await self._ask(request, body)
                self.counters[f"late-write answered {status}"] += 1

        task = asyncio.get_running_loop().create_task(ask())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _upstream(self, request: web.Request, body: bytes) -> Any:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
            self._session = aiohttp.ClientSession(timeout=timeout, auto_decompress=False)
        headers = [(name, value) for name, value in request.headers.items() if name.lower() not in HOP]
        server = self.upstream if "://" in self.upstream else f"http://{self.upstream}"
        url = URL(server + request.raw_path, encoded=True)
        return self._session.request(
            request.method, url, headers=headers, data=body or None, ssl=True if self.ssl is None else self.ssl
        )

    async def _ask(self, request: web.Request, body: bytes) -> tuple[int, bytes]:
        async with self._upstream(request, body) as answer:
            return answer.status, await answer.read()

    async def _half(self, request: web.Request, body: bytes) -> None:
        """Announce the whole body, send half of it, break."""
        async with self._upstream(request, body) as answer:
            content = await answer.read()
            response = web.StreamResponse(status=answer.status)
            response.content_length = len(content)
            response.content_type = "application/json"
            await response.prepare(request)
            await response.write(content[: len(content) // 2])
            await asyncio.sleep(0.01)
        raise BreakConnectionError

    async def _stream(self, client: str, request: web.Request, body: bytes, *, watch: bool) -> web.StreamResponse:
        async with self._upstream(request, body) as answer:
            response = web.StreamResponse(status=answer.status)
            for name, value in answer.headers.items():
                if name.lower() not in HOP:
                    response.headers.add(name, value)
            if "Content-Length" in answer.headers:
                response.content_length = int(answer.headers["Content-Length"])
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                if watch:
                    await self._before_event(client, request.method)
                await response.write(chunk)
            await response.write_eof()
            return response

    async def _before_event(self, client: str, method: str) -> None:
        """What a watch delivers may have to wait."""
        for rule in self._rules:
            if rule.kind == "slow-watch" and rule.concerns(client, method, watch=True):
                self._count(rule, client)
                await asyncio.sleep(self.random.uniform(rule.low_s, rule.high_s))
            elif rule.kind == "stall" and rule.concerns(client, method, watch=True):
                self._count(rule, client)
                await self._while_stalled(client, method, watch=True)
                raise BreakConnectionError


def _status(code: int) -> dict[str, Any]:
    reasons = {410: "Expired", 429: "TooManyRequests", 500: "InternalError"}
    return {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "code": code,
        "reason": reasons[code],
        "message": "as the chaos wants it",
    }


def _refusal(code: int) -> web.Response:
    headers = {"Retry-After": "1"} if code == 429 else {}
    return web.json_response(_status(code), status=code, headers=headers)


# --- the process ------------------------------------------------------------------------------------------------------


async def forward(listen_port: int, host: str, port: int) -> None:
    """Pass TCP connections on, as they are: for probes of what listens in another network namespace."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.wait_for(asyncio.open_connection(host, port), 3)
        except (OSError, TimeoutError):
            writer.transport.abort()
            return
        await asyncio.gather(pump(reader, back), pump(there, writer))

    await asyncio.start_server(accepted, "127.0.0.1", listen_port)


async def serve(options: argparse.Namespace) -> None:
    """Until the input ends."""
    proxy = Proxy(options.upstream, random.Random(options.seed))
    runners = []
    for client in options.client:
        name, _, port = client.rpartition(":")
        runner = web.AppRunner(proxy.application(name), access_log=None, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, options.host, int(port), shutdown_timeout=0.1).start()
        runners.append(runner)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    forwarding = asyncio.create_task(_forward_later(options.forward, options.after))
    print("{}", flush=True)
    while line := await reader.readline():
        order = json.loads(line)
        if "rules" in order:
            proxy.set_rules(tuple(Rule.parse(each) for each in order["rules"]))
        print(json.dumps(proxy.counters), flush=True)
    forwarding.cancel()
    proxy.set_rules(())
    await proxy.close()
    for runner in runners:
        await runner.cleanup()


async def _forward_later(pairs: list[str], after: Path | None) -> None:
    while after is not None and not after.exists():  # noqa: ASYNC110, ASYNC240  (somebody else's file)
        await asyncio.sleep(0.1)
    for pair in pairs:
        listen_port, host, port = pair.split(":")
        await forward(int(listen_port), host, int(port))


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--upstream", required=True, help="HOST:PORT of the API server")
    parser.add_argument("--client", action="append", default=[], metavar="NAME:PORT")
    parser.add_argument("--forward", action="append", default=[], metavar="PORT:HOST:PORT", help="pass TCP on")
    parser.add_argument("--after", type=Path, help="forward only when this file is there")
    parser.add_argument("--seed", type=int, default=0)
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()

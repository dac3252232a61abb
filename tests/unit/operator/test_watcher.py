"""kopf in its thread, against a server that answers as one does whose custom resources are taken away."""

from __future__ import annotations

import asyncio
import json
from typing import Self

import pytest
import yaml
from aiohttp import web

from kafkalite_core.resources.naming import GROUP, VERSION
from kafkalite_operator import handlers
from kafkalite_operator.handlers import Watcher
from kafkalite_runtime.kube.kinds import BROKERS, CLUSTERS, TOPICS
from tests.unit.operator.fakes import eventually

NAMESPACE = "default"
OURS = (TOPICS, CLUSTERS, BROKERS)


class Server:
    """Discovery, empty lists, and watches. The first ones of `silent` kinds are not answered; the first one of `gone`
    is answered with 404, as soon as all the silent ones were asked for. Whoever asks for the first time which kinds
    there are hears nothing of `unnamed`.
    """

    def __init__(self, silent: set[str] = frozenset(), gone: str = "", unnamed: str = "") -> None:
        self.silent = silent
        self.gone = gone
        self.unnamed = unnamed
        self.watched: list[str] = []
        self.asked = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            return await self.watch(request, request.path.rpartition("/")[2])
        return web.json_response(self.document(request.path))

    def document(self, path: str) -> dict:
        if path == "/api":
            return {"versions": ["v1"]}
        if path == "/apis":
            version = {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}
            return {"groups": [{"name": GROUP, "versions": [version], "preferredVersion": version}]}
        if path == "/api/v1":
            return {"resources": [resource("pods", "Pod"), resource("namespaces", "Namespace", namespaced=False)]}
        if path == f"/apis/{GROUP}/{VERSION}":
            unnamed, self.unnamed = self.unnamed, ""
            return {"resources": [resource(kind.plural, kind.kind) for kind in OURS if kind.plural != unnamed]}
        return {"metadata": {"resourceVersion": "7"}, "items": []}

    async def watch(self, request: web.Request, plural: str) -> web.StreamResponse:
        first = plural not in self.watched
        self.watched.append(plural)
        if self.silent <= set(self.watched):
            self.asked.set()
        if first and plural == self.gone:
            await self.asked.wait()
            return web.json_response({"kind": "Status", "code": 404, "message": "page not found"}, status=404)
        if first and plural in self.silent:
            await asyncio.Event().wait()
        answer = web.StreamResponse()
        await answer.prepare(request)
        if not first:
            made = {"metadata": {"name": "orders", "uid": "u", "resourceVersion": "8"}}
            await answer.write(json.dumps({"type": "ADDED", "object": made}).encode() + b"\n")
        await asyncio.Event().wait()
        return answer


def resource(plural: str, kind: str, *, namespaced: bool = True) -> dict:
    names = {"name": plural, "singularName": kind.lower(), "kind": kind}
    return {**names, "namespaced": namespaced, "verbs": ["list", "watch"]}


@pytest.fixture
async def serve(monkeypatch, tmp_path):
    """Start a server and name it in KUBECONFIG."""
    running: list[web.AppRunner] = []

    async def start(server: Server) -> None:
        app = web.Application()
        app.router.add_get("/{path:.*}", server.answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        running.append(runner)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]
        config = {
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me", "namespace": NAMESPACE}}],
            "clusters": [{"name": "here", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [{"name": "me", "user": {"token": "t"}}],
        }
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))

    yield start
    for runner in running:
        await runner.cleanup()


class Watching:
    """A watcher, and what it has delivered."""

    def __init__(self, namespaces: tuple[str, ...] = (NAMESPACE,)) -> None:
        self.heard: set[str] = set()
        self.watcher = Watcher(lambda kind, type_, obj: self.heard.add(kind.plural), self._served, namespaces)

    async def _served(self) -> None:
        pass

    async def __aenter__(self) -> Self:
        self.watcher.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert await asyncio.to_thread(self.watcher.stop, 20.0)

    async def all_heard(self) -> None:
        await eventually(lambda: self.heard >= {kind.plural for kind in OURS}, timeout_s=30.0)


@pytest.mark.parametrize("namespaces", [(NAMESPACE,), ()], ids=["one namespace", "all namespaces"])
async def test_when_a_kind_is_gone_all_are_watched_anew_whatever_the_others_are_doing(serve, namespaces):
    """Streams that were asking when kopf was cancelled went on, without the one that had failed and without an end."""
    await serve(Server(silent={BROKERS.plural, CLUSTERS.plural}, gone=TOPICS.plural))
    async with Watching(namespaces) as watching:
        await watching.all_heard()
        assert watching.watcher.restarts == 1


async def test_kopf_lists_again_when_the_store_went_back(serve, monkeypatch):  # S11
    monkeypatch.setattr(handlers, "RESTART_S", 0.01)
    server = Server()
    await serve(server)
    async with Watching() as watching:
        await eventually(lambda: {kind.plural for kind in OURS} <= set(server.watched), timeout_s=30.0)
        before = len(server.watched)
        assert [watching.watcher.begin_anew() for _ in range(5)] == [True, False, False, False, False]
        await eventually(lambda: len(server.watched) >= before + handlers.KINDS, timeout_s=30.0)
        assert watching.watcher.restarts == 1, "signs come in numbers"


async def test_a_kind_that_was_not_named_yet_is_watched_soon(serve, monkeypatch):
    """kopf looks once which kinds there are."""
    monkeypatch.setattr(handlers, "COUNTED_S", 0.2)
    server = Server(unnamed=TOPICS.plural)
    await serve(server)
    async with Watching() as watching:
        await eventually(lambda: TOPICS.plural in server.watched, timeout_s=30.0)
        assert watching.watcher.restarts == 1


async def test_a_stream_that_was_cancelled_is_missed(serve, monkeypatch):
    """kopf forgets it without a word."""
    monkeypatch.setattr(handlers, "COUNTED_S", 0.2)
    server = Server()
    await serve(server)
    async with Watching() as watching:
        await eventually(lambda: {kind.plural for kind in OURS} <= set(server.watched), timeout_s=30.0)
        loop = watching.watcher._running.get_loop()
        name = f"{handlers.STREAMS}{TOPICS.plural}"
        [stream] = [task for task in asyncio.all_tasks(loop) if task.get_name().startswith(name)]
        loop.call_soon_threadsafe(stream.cancel)
        await watching.all_heard()
        assert watching.watcher.restarts == 1


async def test_all_streams_are_there_for_as_long_as_nothing_ends(serve, monkeypatch):
    monkeypatch.setattr(handlers, "COUNTED_S", 0.01)
    monkeypatch.setattr(handlers, "RESTART_S", 0.01)
    server = Server()
    await serve(server)
    async with Watching((NAMESPACE, "other", "other")) as watching:
        await eventually(lambda: len(server.watched) == 2 * handlers.KINDS, timeout_s=30.0)
        await asyncio.sleep(0.5)  # fifty counts
        assert watching.watcher.restarts == 0


async def test_who_is_stopped_at_once_does_not_begin(serve):
    """The operator's end waits for nothing of kopf, and asks once."""
    server = Server()
    await serve(server)
    async with Watching() as watching:
        watching.watcher.stop(0.0)
        await eventually(lambda: not watching.watcher._thread.is_alive(), timeout_s=10.0)

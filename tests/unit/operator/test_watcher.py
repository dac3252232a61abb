"""kopf in its thread, against a server that answers as one does whose custom resources are taken away."""

from __future__ import annotations

import asyncio
import json

import pytest
import yaml
from aiohttp import web

from kafkalite_core.resources.naming import GROUP, VERSION
from kafkalite_operator.handlers import Watcher
from kafkalite_runtime.kube.kinds import BROKERS, CLUSTERS, TOPICS
from tests.unit.operator.fakes import eventually

NAMESPACE = "default"
OURS = (TOPICS, CLUSTERS, BROKERS)


class Server:
    """Discovery, empty lists, and watches. Those of `silent` kinds are not answered; the first one of `gone` is
    answered with 404, as soon as all the silent ones were asked for.
    """

    def __init__(self, silent: set[str], gone: str) -> None:
        self.silent = silent
        self.gone = gone
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
            return {"resources": [resource(kind.plural, kind.kind) for kind in OURS]}
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


@pytest.mark.parametrize("namespaces", [(NAMESPACE,), ()], ids=["one namespace", "all namespaces"])
async def test_when_a_kind_is_gone_all_are_watched_anew_whatever_the_others_are_doing(serve, namespaces):
    """Streams that were asking when kopf was cancelled went on, without the one that had failed and without an end."""
    server = Server(silent={BROKERS.plural, CLUSTERS.plural}, gone=TOPICS.plural)
    await serve(server)
    heard: set[str] = set()

    async def served() -> None:
        pass

    watcher = Watcher(lambda kind, type_, obj: heard.add(kind.plural), served, namespaces)
    watcher.start()
    try:
        await eventually(lambda: heard >= {kind.plural for kind in OURS}, timeout_s=30.0)
        assert watcher.restarts == 1
    finally:
        stopped = await asyncio.to_thread(watcher.stop, 20.0)
    assert stopped

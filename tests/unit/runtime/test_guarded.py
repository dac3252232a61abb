"""A client that writes only while its owner may."""

import pytest
from aiohttp import web

from kafkalite_runtime.kube.client import KubeClient
from kafkalite_runtime.kube.config import KubeConfig
from kafkalite_runtime.kube.errors import KubeUnavailable
from kafkalite_runtime.kube.guarded import GuardedClient
from kafkalite_runtime.kube.kinds import SERVICES


async def test_it_reads_always_and_writes_only_while_it_may():
    asked = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.method)
        body = {"metadata": {"name": "a", "resourceVersion": "1"}, "items": []}
        if "watch" in request.query:
            event = b'{"type":"ADDED","object":{"metadata":{"resourceVersion":"2"}}}\n'
            return web.Response(body=event)
        return web.json_response(body)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    client = KubeClient(KubeConfig(server=f"http://127.0.0.1:{runner.addresses[0][1]}"))
    may = True
    guarded = GuardedClient(client, lambda: may, "the lease is lost")
    try:
        await guarded.create(SERVICES, "ns", {})
        may = False
        for write in (
            guarded.create(SERVICES, "ns", {}),
            guarded.replace(SERVICES, "ns", "a", {}),
            guarded.merge_patch(SERVICES, "ns", "a", {}),
            guarded.json_patch(SERVICES, "ns", "a", []),
            guarded.delete(SERVICES, "ns", "a"),
        ):
            with pytest.raises(KubeUnavailable, match="not sent, the lease is lost") as refused:
                await write
            assert not refused.value.ambiguous
        assert asked == ["POST"]
        await guarded.get(SERVICES, "ns", "a")
        await guarded.list(SERVICES, "ns")
        assert [event.type async for event in guarded.watch(SERVICES, "ns", resource_version="1")] == ["ADDED"]
        await guarded.close()
        await client.get(SERVICES, "ns", "a")  # it closed nothing
        assert asked == ["POST", "GET", "GET", "GET", "GET"]
    finally:
        await client.close()
        await runner.cleanup()

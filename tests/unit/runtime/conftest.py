import pytest
from aiohttp import web

from kafkalite_runtime.kube import KubeClient
from kafkalite_runtime.kube.config import KubeConfig
from tests.unit.runtime.fake_api import FakeApi


@pytest.fixture
async def api():
    fake = FakeApi()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", fake.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handle_signals=False)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    fake.stop = runner.cleanup
    yield fake
    fake.release.set()
    await runner.cleanup()


@pytest.fixture
async def client(api):
    client = KubeClient(KubeConfig(server=api.url))
    yield client
    await client.close()

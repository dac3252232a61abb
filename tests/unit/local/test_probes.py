import asyncio
import contextlib

import aiohttp
import pytest
from aiohttp import web

from kafkalite_local.kubelet import probes
from kafkalite_local.kubelet.probes import Probe, check, follow


@pytest.fixture
async def target():
    """An HTTP server whose next answers the test decides; the last one repeats."""
    answers = [200]
    release = asyncio.Event()

    async def handle(_request):
        code = answers.pop(0) if len(answers) > 1 else answers[0]
        if code == "hang":
            await release.wait()
        return web.Response(status=code if code != "hang" else 200, text="words")

    app = web.Application()
    app.router.add_get("/x", handle)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/x", answers
    release.set()
    await runner.cleanup()


@pytest.fixture
async def session():
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session:
        yield session


async def verdicts(session, probe, count):
    seen = []
    enough = asyncio.Event()

    def on_verdict(healthy, why):
        seen.append((healthy, why))
        if len(seen) == count:
            enough.set()

    task = asyncio.ensure_future(follow(session, probe, on_verdict))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(30):
            await enough.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return seen


async def test_check(session, target):
    url, answers = target
    assert await check(session, Probe(url=url)) == ""
    answers[:] = [503]
    assert await check(session, Probe(url=url)) == "HTTP 503: words"
    answers[:] = ["hang"]
    assert await check(session, Probe(url=url, timeout_s=0.1)) == "no answer in 0.1 s"
    assert "127.0.0.1:1 " in await check(session, Probe(url="http://127.0.0.1:1/"))


async def test_verdict_changes_are_told_once_and_after_the_threshold(session, target, monkeypatch):
    monkeypatch.setattr(probes, "QUICK_PERIOD_S", 0.01)
    url, answers = target
    answers[:] = [503, 200, 503, 200, 503, 503, 503, 200]
    seen = await verdicts(session, Probe(url=url, period_s=0.02, failure_threshold=3), 3)
    assert seen == [(True, ""), (False, "HTTP 503: words"), (True, "")]


async def test_hurried_probes_do_not_use_up_the_patience(session, target, monkeypatch):
    monkeypatch.setattr(probes, "QUICK_PERIOD_S", 0.01)
    url, answers = target
    answers[:] = [503] * 12 + [200]
    assert await verdicts(session, Probe(url=url, period_s=1, failure_threshold=2), 1) == [(True, "")]

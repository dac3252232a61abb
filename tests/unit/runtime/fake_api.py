"""An API server that does what a test tells it, faults above all."""

import asyncio
import contextlib
import json

from aiohttp import web


class FakeApi:
    """An API server whose every answer the test decides: `answer` is called with the request."""

    def __init__(self):
        self.requests = []
        self.answer = None
        self.release = asyncio.Event()
        self.asked = asyncio.Event()

    async def handle(self, request):
        self.requests.append((request.method, request.path, dict(request.query), await request.read(), request.headers))
        self.asked.set()
        return await self.answer(request)

    @property
    def methods(self):
        return [request[0] for request in self.requests]


def status(code, reason="", message="", **headers):
    body = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return web.json_response(body, status=code, headers=headers)


async def stream(request, *lines, then=None):
    """A chunked answer with one line per event; `then` decides how it ends."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    for line in lines:
        await response.write((line if isinstance(line, str) else json.dumps(line)).encode() + b"\n")
    if then is not None:
        await then(request)
    return response


def event(type_, name, version):
    return {"type": type_, "object": {"metadata": {"name": name, "resourceVersion": version}}}


async def reset(request):
    request.transport.abort()


@contextlib.asynccontextmanager
async def running(coroutine):
    task = asyncio.ensure_future(coroutine)
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

"""The endpoint for Prometheus and for the kubelet's probes."""

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from kafkalite_runtime.sockets import ALL_ADDRESSES, listen_everywhere

Health = Callable[[], bool | str]


class TelemetryServer:
    """Serves `/metrics`, `/healthz` and `/readyz` on the running event loop.

    `host` is an address of this host, or `ALL_ADDRESSES`.
    `healthz` and `readyz` answer True (200), or False or a sentence that says why not (503 with the sentence).
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        port: int,
        host: str = ALL_ADDRESSES,
        healthz: Health = lambda: True,
        readyz: Health = lambda: True,
    ) -> None:
        self._registry = registry
        self._host = host
        self.port = port
        self._healthz = healthz
        self._readyz = readyz
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Bind and serve; with port 0, `port` is the one bound afterwards. Raises OSError when it is taken."""
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/healthz", self._health)
        app.router.add_get("/readyz", self._ready)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            if self._host == ALL_ADDRESSES:
                await web.SockSite(runner, listen_everywhere(self.port)).start()
            else:
                await web.TCPSite(runner, self._host, self.port, reuse_address=True).start()
        except BaseException:
            await runner.cleanup()
            raise
        self._runner = runner
        self.port = runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop serving; harmless when it never started."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _health(self, _request: web.Request) -> web.Response:
        return _answer(self._healthz)

    async def _ready(self, _request: web.Request) -> web.Response:
        return _answer(self._readyz)

    async def _metrics(self, request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(self._registry), headers={"Content-Type": content_type})


def _answer(check: Health) -> web.Response:
    verdict = check()
    if verdict is True:
        return web.Response(text="ok\n")
    return web.Response(status=503, text=f"{verdict or 'not ready'}\n")

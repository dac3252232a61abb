import contextlib

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter

from kafkalite_runtime.telemetry import TelemetryServer


async def fetch(server, path, host="127.0.0.1"):
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{host}:{server.port}{path}") as response,
    ):
        return response.status, await response.text()


async def test_metrics_and_health():
    registry = CollectorRegistry()
    Counter("things", "how many", registry=registry).inc(3)
    verdicts = {"healthz": True, "readyz": "still recovering"}
    server = TelemetryServer(
        registry, 0, "127.0.0.1", healthz=lambda: verdicts["healthz"], readyz=lambda: verdicts["readyz"]
    )
    await server.start()
    try:
        code, text = await fetch(server, "/metrics")
        assert code == 200
        assert "things_total 3.0" in text
        assert await fetch(server, "/healthz") == (200, "ok\n")
        assert await fetch(server, "/readyz") == (503, "still recovering\n")
        verdicts.update(healthz=False, readyz=True)
        assert await fetch(server, "/healthz") == (503, "not ready\n")
        assert await fetch(server, "/readyz") == (200, "ok\n")
        with pytest.raises(OSError, match="in use"):
            await TelemetryServer(registry, server.port, "127.0.0.1").start()
    finally:
        await server.stop()
    await server.stop()
    with pytest.raises(aiohttp.ClientConnectorError):
        await fetch(server, "/healthz")


async def test_a_probe_reaches_it_by_ipv4_and_by_ipv6():
    server = TelemetryServer(CollectorRegistry(), 0)
    await server.start()
    try:
        assert await fetch(server, "/healthz") == (200, "ok\n")
        with contextlib.suppress(aiohttp.ClientConnectorError):  # a kernel without IPv6
            assert await fetch(server, "/healthz", "[::1]") == (200, "ok\n")
    finally:
        await server.stop()

"""An API server whose certificate is of another authority than when the process began."""

import ssl
import subprocess

import pytest
from aiohttp import web

from kafkalite_runtime.kube import TOPICS, KubeClient, KubeUnavailable, config


@pytest.fixture
def authorities(tmp_path):
    """Of two certificates, each its own authority: the folder with them and with what a pod is given."""
    for name in ("old", "new"):
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
                *("-keyout", f"{name}.key", "-out", f"{name}.crt", "-days", "2"),
                *("-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"),
            ],
            cwd=tmp_path,
            check=True,
            capture_output=True,
            timeout=60,
        )
    (tmp_path / "ca.crt").write_bytes((tmp_path / "old.crt").read_bytes())
    (tmp_path / "token").write_text("secret")
    return tmp_path


async def serve(authorities, name, port=0):
    """A server with that certificate that answers lists; what ends it, and its port."""

    async def answer(_request):
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authorities / f"{name}.crt", authorities / f"{name}.key")
    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
    return runner, runner.addresses[0][1]


async def test_a_process_in_a_pod_outlives_a_change_of_the_authority(authorities, monkeypatch):
    """The kubelet shows the new one beside the old one first; then servers show certificates of it."""
    monkeypatch.setattr(config, "SERVICE_ACCOUNT", authorities)
    server, port = await serve(authorities, "old")
    environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(port)}
    client = KubeClient(config.KubeConfig.from_environment(environ))
    try:
        await client.list(TOPICS, "default")
        both = [(authorities / f"{name}.crt").read_text() for name in ("old", "new")]
        (authorities / "ca.crt").write_text("".join(both))
        await server.cleanup()
        server, _ = await serve(authorities, "new", port)
        with pytest.raises(KubeUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
            await client.list(TOPICS, "default")
        monkeypatch.setattr(config, "AUTHORITY_REREAD_S", 0.0)  # a minute later
        await client.list(TOPICS, "default")
    finally:
        await client.close()
        await server.cleanup()

"""The process: `kafkalite-local apiserver --home DIR --port-base N`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kafkalite_local.apiserver.kubeconfig import new_token, read_token, write_kubeconfig
from kafkalite_local.apiserver.server import ApiServer

if TYPE_CHECKING:
    from collections.abc import Sequence

PORT_OFFSET = 120


async def serve(home: Path, host: str, port: int, token: str) -> None:
    """Serve until SIGTERM or SIGINT. Raises OSError for a port in use, sqlite3.Error when the disk fails."""
    server = ApiServer(home / "control-plane.db", host=host, port=port, token=token, log_folder=home / "logs")
    await server.start()
    assert server.failed is not None
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    write_kubeconfig(home / "kubeconfig", server.url, token)
    server.failed.add_done_callback(lambda _failed: stop.set())
    await stop.wait()
    if server.failed.done():
        server.failed.result()
    await server.stop()


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point; exits with a message when it cannot listen.

    The token of an existing kubeconfig is kept, so that a restart disturbs nobody.
    """
    parser = argparse.ArgumentParser(prog="kafkalite-local apiserver", description=__doc__)
    parser.add_argument("--home", type=Path, required=True, help="folder of the control plane's state")
    parser.add_argument("--port-base", type=int, default=9092, help="port of broker 0; this server takes 120 above it")
    parser.add_argument("--port", type=int, help="port of this server")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; keep it on the loopback")
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr)
    token = read_token(arguments.home / "kubeconfig") or new_token()
    port = arguments.port if arguments.port is not None else arguments.port_base + PORT_OFFSET
    import uvloop

    try:
        uvloop.run(serve(arguments.home, arguments.host, port, token))
    except OSError as error:
        sys.exit(f"the API server cannot listen on {arguments.host}:{port}: {error}")


if __name__ == "__main__":
    main()

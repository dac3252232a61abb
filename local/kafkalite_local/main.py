"""Entry points of local mode's processes: `kafkalite-local supervisor|apiserver|kubelet --home DIR --port-base N`."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from kafkalite_runtime.home import API_SERVER, DEFAULT_PORT, KUBELET, SUPERVISOR, Home, Ports
from kafkalite_runtime.logging import configure_logging


def main(argv: Sequence[str] | None = None) -> None:
    """Run one process of local mode in the foreground until it is told to stop."""
    parser = argparse.ArgumentParser(prog="kafkalite-local", description=__doc__)
    parser.add_argument("process", choices=[SUPERVISOR, API_SERVER, KUBELET])
    parser.add_argument("--home", type=Path, required=True, help="folder of the local cluster (.kafkalite)")
    parser.add_argument("--port-base", type=int, default=DEFAULT_PORT, help="port of broker 0; others follow from it")
    options = parser.parse_args(argv)
    home, ports = Home(options.home.absolute()), Ports(options.port_base)
    configure_logging(options.process)
    if options.process == SUPERVISOR:
        from kafkalite_local.supervisor import run_supervisor

        sys.exit(asyncio.run(run_supervisor(home, ports)))
    if options.process == KUBELET:
        from kafkalite_local.kubelet.agent import run_kubelet

        asyncio.run(run_kubelet(home))
        return
    from kafkalite_local.apiserver.main import main as run_api_server

    run_api_server(["--home", str(home.root), "--port", str(ports.api_server)])


if __name__ == "__main__":
    main()

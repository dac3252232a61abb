"""Which API server a command talks to."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kafkalite_cli.errors import Failure
from kafkalite_core.model.errors import ConfigError
from kafkalite_runtime.home import Home
from kafkalite_runtime.kube import KubeClient
from kafkalite_runtime.kube.config import KubeConfig

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Target:
    """An API server; `home` is set when it is the embedded one of this machine."""

    kubeconfig: Path | None
    home: Home | None

    def client(self) -> KubeClient:
        """Raises Failure when the kubeconfig cannot be used."""
        try:
            if self.kubeconfig is None:
                return KubeClient.from_environment(os.environ)
            return KubeClient(KubeConfig.from_file(self.kubeconfig))
        except ConfigError as error:
            raise Failure(str(error)) from error


def choose_target(kubeconfig: Path | None) -> Target:
    """`--kubeconfig`, else the local cluster of this directory, else KUBECONFIG or the pod's service account."""
    home = Home.from_environment(os.environ)
    if kubeconfig is not None:
        same = home.kubeconfig.exists() and kubeconfig.exists() and kubeconfig.samefile(home.kubeconfig)
        return Target(kubeconfig, home if same else None)
    if home.kubeconfig.is_file():
        return Target(home.kubeconfig, home)
    if not os.environ.get("KUBECONFIG") and not os.environ.get("KUBERNETES_SERVICE_HOST"):
        raise Failure(
            f"no cluster: {home.root} does not exist (start one with `kafkalite up`) and KUBECONFIG is not set"
        )
    return Target(None, None)


def with_client(target: Target, work: Callable[[KubeClient], Awaitable[T]]) -> T:
    """Run `work` with a client that is closed afterwards."""

    async def run() -> T:
        client = target.client()
        try:
            return await work(client)
        finally:
            await client.close()

    return asyncio.run(run())

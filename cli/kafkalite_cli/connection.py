"""Which API server a command talks to, and which namespace it looks at."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kafkalite_cli import kubeconfig as kubeconfigs
from kafkalite_cli.errors import Failure
from kafkalite_cli.manifests import plain_words
from kafkalite_cli.options import KubeOptions
from kafkalite_core.model.errors import ConfigError
from kafkalite_runtime.home import Home
from kafkalite_runtime.kube import KubeClient, KubeError, KubeUnavailable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Target:
    """An API server; `home` is set when it is the embedded one of this machine. No files: the pod's service account."""

    files: tuple[Path, ...]
    home: Home | None
    context: str | None = None

    @property
    def kubeconfig(self) -> Path | None:
        """The first of the files."""
        return self.files[0] if self.files else None

    def outage(self, error: KubeUnavailable) -> str:
        """A sentence: what does not answer, and what to do."""
        if self.home is not None:
            todo = f"if the cluster in {self.home.root} is not running, `kafkalite up` starts it"
        elif self.files:
            where = ", ".join(map(str, self.files))
            named = f"context {self.context} of {where}" if self.context is not None else where
            todo = f"{named} names it: see that it runs and can be reached from here"
        else:
            todo = "see that it runs and can be reached from this pod"
        return f"{plain_words(error)}; {todo}"

    def client(self) -> KubeClient:
        """Raises Failure when the kubeconfig cannot be used."""
        try:
            if not self.files:
                return KubeClient.from_environment(os.environ)
            return KubeClient(kubeconfigs.load(self.files, self.context))
        except ConfigError as error:
            raise Failure(str(error)) from error


def choose_target(options: KubeOptions) -> Target:
    """`--kubeconfig`, else the local cluster of this directory, else what kubectl talks to, or the pod's account.

    Whoever names a context means one of kubectl's, never the local cluster; for who calls this program by `kubectl`
    that one comes last. Raises Failure when there is no cluster.
    """
    home = Home.from_environment(os.environ)
    if options.kubeconfig is not None:
        return _of_files((options.kubeconfig,), home, options.context)
    local = Target((home.kubeconfig,), home) if home.kubeconfig.is_file() else None
    if local is not None and options.context is None and not is_plugin():
        return local
    try:
        files = tuple(kubeconfigs.default_files(os.environ))
    except ConfigError as error:
        raise Failure(str(error)) from error
    if files:
        return _of_files(files, home, options.context)
    if local is not None and options.context is None:
        return local
    if options.context is not None:
        raise Failure("--context: there is no kubeconfig; name one with --kubeconfig or KUBECONFIG")
    if not os.environ.get("KUBERNETES_SERVICE_HOST"):
        raise Failure(
            f"no cluster: {home.root} does not exist (start one with `kafkalite up`) and KUBECONFIG is not set"
        )
    return Target((), None)


def is_plugin() -> bool:
    """Whether kubectl has started this program."""
    return Path(sys.argv[0]).name.startswith("kubectl-")


def _of_files(files: tuple[Path, ...], home: Home, context: str | None) -> Target:
    same = home.kubeconfig.exists() and files[0].exists() and files[0].samefile(home.kubeconfig)
    return Target(files, home if same else None, context)


def scope_of(target: Target, client: KubeClient, options: KubeOptions) -> str | None:
    """The namespace to look at, None for all: `--namespace`, else the context's, and all of a local cluster."""
    if options.namespace is not None:
        return options.namespace
    return None if options.all_namespaces or target.home is not None else client.config.namespace


def with_client(target: Target, work: Callable[[KubeClient], Awaitable[T]]) -> T:
    """Run `work` with a client that is closed afterwards. Raises Failure when a login plugin fails."""

    async def run() -> T:
        client = target.client()
        try:
            return await work(client)
        except ConfigError as error:
            raise Failure(str(error)) from error
        finally:
            await client.close()

    return asyncio.run(run())


def ask(options: KubeOptions, work: Callable[[KubeClient, str | None], Awaitable[T]]) -> T:
    """Run `work` with a client and the namespace (None: all). Raises Failure in plain words."""
    target = choose_target(options)
    try:
        return with_client(target, lambda client: work(client, scope_of(target, client, options)))
    except KubeUnavailable as error:
        raise Failure(target.outage(error)) from error
    except KubeError as error:
        raise Failure(plain_words(error)) from error

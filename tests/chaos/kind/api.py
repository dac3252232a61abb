"""The Kubernetes API of the kind cluster, asked as that of a local cluster is: by TLS, in a namespace of our own."""

from __future__ import annotations

import http.client
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kafkalite_runtime.kube.config import KubeConfig
from tests.chaos.api import Api

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.chaos.api import Json

SILENCE_S = 150.0
"""A real API server sends a bookmark once a minute; whoever gives up sooner misses what happens while it lists anew."""


class KindApi(Api):
    """As `Api`, of the cluster whose kubeconfig this is."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        super().__init__(kubeconfig)
        self._config = KubeConfig.from_file(kubeconfig)
        self._namespace = namespace
        if self._config.token:
            self._token = self._config.token

    def watch(self, plural: str, resource_version: str, *, timeout_s: float) -> Iterator[Json]:
        return super().watch(plural, resource_version, timeout_s=max(timeout_s, SILENCE_S))

    def _connect(self, timeout_s: float) -> http.client.HTTPConnection:
        server, context = urlsplit(self._config.server).netloc, self._config.ssl_context
        return http.client.HTTPSConnection(server, timeout=timeout_s, context=context)

    def _send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: Json | None = None,
        content: str = "application/json",
    ) -> http.client.HTTPResponse:
        own = path.replace("/namespaces/default/", f"/namespaces/{self._namespace}/")
        return super()._send(connection, method, own, body, content)

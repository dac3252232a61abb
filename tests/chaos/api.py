"""The Kubernetes API of a local cluster, asked directly: few calls, no connection kept, an answer or an error."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GROUP = "/apis/kafkalite.io/v1alpha1/namespaces/default"
PATHS = {
    "kafkalitetopics": f"{GROUP}/kafkalitetopics",
    "kafkalitebrokers": f"{GROUP}/kafkalitebrokers",
    "kafkaliteclusters": f"{GROUP}/kafkaliteclusters",
    "pods": "/api/v1/namespaces/default/pods",
    "leases": "/apis/coordination.k8s.io/v1/namespaces/default/leases",
}
TIMEOUT_S = 10.0
Json = dict[str, Any]


class ApiRefusedError(RuntimeError):
    """The server answered with an error; `code` is the HTTP status."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"HTTP {code}: {text[:500]}")
        self.code = code


class Api:
    """Of the cluster whose kubeconfig this is. Every call raises OSError or http.client.HTTPException when the server
    is away, ApiRefusedError when it refuses."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig
        self._server = ""
        self._token = ""

    def list(self, plural: str) -> Json:
        """The list object: `items` and the resource version to watch from."""
        return self._call("GET", PATHS[plural])

    def get(self, plural: str, name: str) -> Json:
        """One object."""
        return self._call("GET", f"{PATHS[plural]}/{name}")

    def answers(self, within_s: float) -> bool:
        """Whether the server answers a request in that time."""
        try:
            self._call("GET", PATHS["kafkaliteclusters"], timeout_s=within_s)
        except (OSError, http.client.HTTPException):
            return False
        return True

    def create(self, plural: str, body: Json) -> Json:
        """A new object."""
        return self._call("POST", PATHS[plural], body)

    def delete(self, plural: str, name: str) -> None:
        """Delete an object."""
        self._call("DELETE", f"{PATHS[plural]}/{name}")

    def merge(self, plural: str, name: str, body: Json) -> Json:
        """Merge patch."""
        return self._call("PATCH", f"{PATHS[plural]}/{name}", body, "application/merge-patch+json")

    def watch(self, plural: str, resource_version: str, *, timeout_s: float) -> Iterator[Json]:
        """Events after a resource version, bookmarks included, until the stream ends; silence raises TimeoutError."""
        query = f"watch=true&allowWatchBookmarks=true&resourceVersion={resource_version}"
        connection = self._connect(timeout_s)
        try:
            response = self._send(connection, "GET", f"{PATHS[plural]}?{query}")
            while line := response.readline():
                yield json.loads(line)
        finally:
            connection.close()

    def _call(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        content: str = "application/json",
        timeout_s: float = TIMEOUT_S,
    ) -> Json:
        connection = self._connect(timeout_s)
        try:
            found: Json = json.loads(self._send(connection, method, path, body, content).read() or b"{}")
            return found
        finally:
            connection.close()

    def _connect(self, timeout_s: float) -> http.client.HTTPConnection:
        if not self._server:
            document = yaml.safe_load(self._kubeconfig.read_text(encoding="utf-8"))
            self._token = document["users"][0]["user"]["token"]
            self._server = str(urlsplit(document["clusters"][0]["cluster"]["server"]).netloc)
        return http.client.HTTPConnection(self._server, timeout=timeout_s)

    def _send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: Json | None = None,
        content: str = "application/json",
    ) -> http.client.HTTPResponse:
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = content
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        if response.status >= 400:
            raise ApiRefusedError(response.status, response.read().decode("utf-8", "replace"))
        return response

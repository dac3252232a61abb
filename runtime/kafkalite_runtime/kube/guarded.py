"""A client that writes only while its owner may: for whoever acts by a Lease."""

from collections.abc import Callable
from typing import Any

from kafkalite_runtime.kube.client import JsonObject, KubeClient
from kafkalite_runtime.kube.errors import KubeUnavailable


class GuardedClient(KubeClient):
    """Reads as `client` does and over its connections; refuses to write while `may_write()` is false.

    An action of several requests thereby ends where its permission ended: a process that was stopped in the middle of
    it, and goes on much later, does not carry the rest out. A refused write raises KubeUnavailable that is not
    ambiguous. Closing is left to `client`.
    """

    def __init__(self, client: KubeClient, may_write: Callable[[], bool], why_not: str) -> None:
        super().__init__(client.config)
        self._client = client
        self._may_write = may_write
        self._why_not = why_not

    async def _call(self, method: str, path: str, **options: Any) -> JsonObject:
        if method != "GET" and not self._may_write():
            raise KubeUnavailable(f"{method} {path}: not sent, {self._why_not}", ambiguous=False)
        return await self._client._call(method, path, **options)  # noqa: SLF001

    def _request(self, *arguments: Any) -> Any:
        return self._client._request(*arguments)  # noqa: SLF001

    async def close(self) -> None:
        """Nothing: the connections are the client's."""

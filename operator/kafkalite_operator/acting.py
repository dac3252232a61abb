"""The client that the controller acts with: it writes only while this process holds the Lease.

The Lease decides who tries, never what is right; the tests in every patch do that. But a process that was stopped for a
while and goes on in the middle of an action shall look first, not write first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite_core.model.errors import KafkaLiteError
from kafkalite_runtime.kube.client import KubeClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite_runtime.kube.config import KubeConfig


class LeaseNotHeldError(KafkaLiteError):
    """This process may not act now; nothing was sent."""


class ActingClient(KubeClient):
    """See the module."""

    def __init__(self, config: KubeConfig, held: Callable[[], bool]) -> None:
        super().__init__(config)
        self._held = held

    async def _call(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        if method != "GET" and not self._held():
            raise LeaseNotHeldError(f"{method} {path}: this operator does not hold the Lease any more")
        return await super()._call(method, path, **more)

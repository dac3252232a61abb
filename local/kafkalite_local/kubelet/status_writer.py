"""Brings one pod's status to the API server: the latest always, in order, for as long as it takes."""

import asyncio
import contextlib
from typing import Any

from kafkalite_runtime.kube import PODS, KubeClient, KubeError, KubeThrottled, KubeUnavailable
from kafkalite_runtime.logging import get_logger

JsonObject = dict[str, Any]
RETRY_MIN_S = 0.1
RETRY_MAX_S = 2.0
_log = get_logger(__name__)


class StatusWriter:
    """Writes are conditional on the pod's uid, and absolute, so that repeating one is harmless.

    A status that was overtaken while the API server was away is not written any more; what it said is still in the
    later one (`lastState`, `restartCount`).
    """

    def __init__(self, client: KubeClient, pod: JsonObject, *, uid: str | None) -> None:
        self._client = client
        self._namespace = str(pod["metadata"].get("namespace") or "default")
        self._name = str(pod["metadata"]["name"])
        self._uid = uid
        self._wanted: JsonObject | None = None
        self._written: JsonObject | None = None
        self._news = asyncio.Event()
        self._settled = asyncio.Event()

    def set(self, status: JsonObject) -> None:
        """This is the status from now on."""
        self._wanted = status
        self._settled.clear()
        self._news.set()

    def set_uid(self, uid: str | None) -> None:
        """Which object to write to (a static pod's mirror comes and goes); None: wait."""
        if uid != self._uid:
            self._uid = uid
            self._written = None
            self._news.set()

    async def settled(self, *, timeout_s: float) -> None:
        """Wait until the latest status is written, or the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._settled.wait()

    async def run(self) -> None:
        """Until cancelled."""
        delay_s = RETRY_MIN_S
        while True:
            await self._news.wait()
            self._news.clear()
            wanted, uid = self._wanted, self._uid
            if wanted is None or uid is None or wanted == self._written:
                self._settled.set()
                continue
            try:
                await self._write(wanted, uid)
                self._written, delay_s = wanted, RETRY_MIN_S
            except (KubeUnavailable, KubeThrottled):
                self._news.set()
                await asyncio.sleep(delay_s)
                delay_s = min(RETRY_MAX_S, delay_s * 2)
            except KubeError as error:
                # The object is gone or another one has its name: there is nobody to tell.
                _log.info("status not taken", pod=self._name, error=str(error))
                self._settled.set()
            if self._written is self._wanted:
                self._settled.set()

    async def _write(self, status: JsonObject, uid: str) -> None:
        operations: list[JsonObject] = [
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "add", "path": "/status", "value": status},
        ]
        await self._client.json_patch(PODS, self._namespace, self._name, operations, subresource="status")

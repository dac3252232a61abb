"""Kubernetes Events: what a person sees under `kubectl describe`."""

import asyncio
import contextlib
import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kafkalite_runtime.kube.client import KubeClient
from kafkalite_runtime.kube.errors import KubeError, KubeNotFound, KubeThrottled, KubeUnavailable
from kafkalite_runtime.kube.kinds import EVENTS
from kafkalite_runtime.logging import get_logger

QUEUE_LIMIT = 512
REMEMBERED = 1_024
ATTEMPTS = 5
RETRY_S = 1.0
THROTTLED_LIMIT_S = 10.0
"""An event waits no longer for a server that asks for patience: others wait behind it."""
BUSY_PAUSE_S = 0.1
BUSY_LIMIT_S = 30.0
"""The longest that one Event waits for a caller with more urgent writes."""
MAX_MESSAGE = 1_024

JsonObject = dict[str, Any]
_log = get_logger(__name__)


@dataclass(slots=True)
class _Series:
    namespace: str
    body: JsonObject
    count: int = 0
    created: bool = False
    queued: bool = False


class EventRecorder:
    """Writes Events in the background: best effort, bounded, and never in the way of the caller.

    The same sentence about the same object becomes one Event whose `count` rises. What does not fit into the
    queue is dropped and counted in `dropped`. While `busy()` nothing is written, for half a minute at most: what there
    is to tell of a thousand elections would cost the API server as much as the elections.
    """

    def __init__(self, client: KubeClient, component: str, busy: Callable[[], bool] = lambda: False) -> None:
        self._client = client
        self._component = component
        self._busy = busy
        self._series: OrderedDict[tuple[str, str, str, str], _Series] = OrderedDict()
        self._queue: asyncio.Queue[_Series] = asyncio.Queue(QUEUE_LIMIT)
        self._task: asyncio.Task[None] | None = None
        self.dropped = 0

    def record(self, regarding: JsonObject, type: str, reason: str, message: str) -> None:  # noqa: A002
        """Say `message` about `regarding` (an object with apiVersion, kind, metadata). Never raises.

        Args:
            regarding: the object that the Event is shown with.
            type: Normal or Warning.
            reason: CamelCase, for machines.
            message: a sentence, for people.
        """
        try:
            self._record(regarding, type, reason, message[:MAX_MESSAGE])
        except Exception:
            self.dropped += 1
            _log.exception("event not recorded", reason=reason)

    async def flush(self) -> None:
        """Wait until everything recorded so far was written or given up."""
        await self._queue.join()

    async def close(self) -> None:
        """Stop; what is still queued is lost."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    def _record(self, regarding: JsonObject, type_: str, reason: str, message: str) -> None:
        metadata = regarding["metadata"]
        key = (str(metadata.get("uid") or metadata["name"]), type_, reason, message)
        series = self._series.get(key)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        if series is None:
            series = self._series[key] = self._new_series(regarding, type_, reason, message, now)
            while len(self._series) > REMEMBERED:
                self._series.popitem(last=False)
        else:
            self._series.move_to_end(key)
        series.count += 1
        series.body["count"] = series.count
        series.body["lastTimestamp"] = now
        if series.queued:
            return
        if self._queue.full():
            self.dropped += 1
            return
        series.queued = True
        self._queue.put_nowait(series)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._write_all(), name="event recorder")

    def _new_series(self, regarding: JsonObject, type_: str, reason: str, message: str, now: str) -> _Series:
        metadata = regarding["metadata"]
        namespace = metadata.get("namespace") or "default"
        # The name is fixed before the first attempt, so that a repeated create cannot make two Events.
        digest = hashlib.sha256(f"{metadata.get('uid')}{type_}{reason}{message}{now}".encode()).hexdigest()[:16]
        return _Series(
            namespace,
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": f"{metadata['name'][:200]}.{digest}", "namespace": namespace},
                "involvedObject": {
                    "apiVersion": regarding.get("apiVersion", ""),
                    "kind": regarding.get("kind", ""),
                    "name": metadata["name"],
                    "namespace": metadata.get("namespace", ""),
                    "uid": metadata.get("uid", ""),
                    "resourceVersion": metadata.get("resourceVersion", ""),
                },
                "type": type_,
                "reason": reason,
                "message": message,
                "source": {"component": self._component},
                "reportingComponent": self._component,
                "reportingInstance": "",
                "firstTimestamp": now,
                "lastTimestamp": now,
                "count": 0,
            },
        )

    async def _write_all(self) -> None:
        while True:
            series = await self._queue.get()
            await self._wait_while_busy()
            series.queued = False
            try:
                await self._write(series)
            except Exception:
                self.dropped += 1
                _log.exception("event not written", reason=series.body["reason"])
            finally:
                self._queue.task_done()

    async def _wait_while_busy(self) -> None:
        waited_s = 0.0
        while waited_s < BUSY_LIMIT_S and self._busy():
            await asyncio.sleep(BUSY_PAUSE_S)
            waited_s += BUSY_PAUSE_S

    async def _write(self, series: _Series) -> None:
        error: Exception | None = None
        for _ in range(ATTEMPTS):
            try:
                await self._write_once(series)
                return
            except KubeThrottled as failed:
                error = failed
                await asyncio.sleep(min(max(RETRY_S, failed.retry_after_s), THROTTLED_LIMIT_S))
            except KubeUnavailable as failed:
                error = failed
                await asyncio.sleep(RETRY_S)
            except KubeError as failed:
                error = failed
                break
        self.dropped += 1
        _log.warning("event not written", reason=series.body["reason"], error=str(error))

    async def _write_once(self, series: _Series) -> None:
        name = series.body["metadata"]["name"]
        if series.created:
            change = {"count": series.count, "lastTimestamp": series.body["lastTimestamp"]}
            try:
                await self._client.merge_patch(EVENTS, series.namespace, name, change)
                return
            except KubeNotFound:
                series.created = False  # Events expire on the server; begin again under the same name
        try:
            await self._client.create(EVENTS, series.namespace, series.body)
        except KubeError as error:
            if error.reason != "AlreadyExists":  # an earlier attempt whose answer was lost did it
                raise
        series.created = True

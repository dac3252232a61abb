"""List and watch for ever: keeps a consumer's picture of one kind of object current."""

import asyncio
import random
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

from kafkalite_runtime.kube.client import KubeClient, WatchEvent, watch_s
from kafkalite_runtime.kube.errors import KubeError, KubeGone, KubeThrottled, KubeUnavailable
from kafkalite_runtime.kube.kinds import Kind
from kafkalite_runtime.logging import get_logger

BACKOFF_MIN_S = 0.1
BACKOFF_MAX_S = 2.0
LISTS_MAX = 5
"""Lists in a row for a consumer that wants another one; after the last one it goes on with the events."""

EARLY_S = 0.1
"""A watch that ended so much before its time was not ended by the clock of the server."""

JsonObject = dict[str, Any]
_log = get_logger(__name__)


class Reflector:
    """List once, then follow the changes; list again when the server has forgotten our version (410).

    `on_list` gets every object that exists: what the consumer knows and the list lacks was deleted unseen. When it
    returns True, it could not judge all of it and gets another list at once.
    `on_event` gets (ADDED | MODIFIED | DELETED, object). Both are called on the event loop and must not block.
    `on_ask` is called before each list is asked for.
    `list_after_loss`: list again after every loss of contact too: another server may answer then, with another history.
    So may one that ends a watch in order before its time, or has no time for a watch (429): that is what a server does
    whose store goes back under it, and one that is asked for changes after a version which the store has not given out
    yet says nothing for hours, not even that.

    Pauses grow until a watch has lived for half the time after which the server is asked to end it: a list that is
    answered says nothing of the watch that follows, and one list after each watch that fails would be a storm of them.

    Attributes:
        last_contact: `clock()` of the last sign of life of the API server (list, event, bookmark, regular end of
            a watch); -inf before the first.
        synced: set after the first list was delivered.
        last_error: why contact is missing, for messages; empty while all is well.
    """

    def __init__(
        self,
        client: KubeClient,
        kind: Kind,
        namespace: str | None,
        label_selector: str,
        on_list: Callable[[list[JsonObject]], bool | None],
        on_event: Callable[[str, JsonObject], None],
        clock: Callable[[], float],
        *,
        silence_limit_s: float = 15.0,
        on_ask: Callable[[], None] = lambda: None,
        list_after_loss: bool = False,
    ) -> None:
        self._client = client
        self._kind = kind
        self._namespace = namespace
        self._label_selector = label_selector
        self._on_list = on_list
        self._on_event = on_event
        self._clock = clock
        self._silence_limit_s = silence_limit_s
        self._on_ask = on_ask
        self._list_after_loss = list_after_loss
        self._watching_since = float("inf")
        self._version = ""  # the resourceVersion to continue from; empty: list first
        self.last_contact = float("-inf")
        self.last_error = ""
        self.synced = asyncio.Event()

    async def run(self) -> None:
        """Never returns; cancel it to stop."""
        failures = 0
        while True:
            self._watching_since = float("inf")
            lost: Exception | None = None
            early = False
            try:
                if not self._version:
                    await self._list()
                self._watching_since = self._clock()
                await self._watch()
                watched_s = self._clock() - self._watching_since
                early = self._list_after_loss and watched_s < watch_s(self._silence_limit_s) - EARLY_S
                if early:
                    self._version = ""
            except (KubeError, KubeUnavailable) as error:
                if isinstance(error, KubeGone) or self._list_after_loss:
                    self._version = ""
                lost = error
                self._complain(error)
            lived = self._clock() - self._watching_since >= self._silence_limit_s / 3
            if lived:
                failures = 0
            if lost is not None or early or not lived:
                failures += 1
                await asyncio.sleep(_backoff_s(failures, lost))

    async def _list(self) -> None:
        for _ in range(LISTS_MAX):
            self._on_ask()
            listed = await self._client.list(self._kind, self._namespace, label_selector=self._label_selector)
            self._contact()
            self._version = listed.resource_version
            if not self._on_list(listed.items):
                break
        self.synced.set()

    async def _watch(self) -> None:
        stream = self._client.watch(
            self._kind,
            self._namespace,
            resource_version=self._version,
            label_selector=self._label_selector,
            silence_limit_s=self._silence_limit_s,
        )
        async with aclosing(stream) as events:
            async for event in events:
                self._contact()
                self._version = str(event.object["metadata"]["resourceVersion"])
                if event.type != "BOOKMARK":
                    self._deliver(event)
        self._contact()

    def _complain(self, error: Exception) -> None:
        if self.last_error != str(error):
            _log.info("watch interrupted", kind=self._kind.kind, error=str(error))
        self.last_error = str(error)

    def _deliver(self, event: WatchEvent) -> None:
        event.object.setdefault("apiVersion", self._kind.api_version)
        event.object.setdefault("kind", self._kind.kind)
        self._on_event(event.type, event.object)

    def _contact(self) -> None:
        self.last_contact = self._clock()
        self.last_error = ""


def _backoff_s(failures: int, error: Exception | None) -> float:
    ceiling = min(BACKOFF_MAX_S, BACKOFF_MIN_S * 2 ** min(failures, 10))
    pause_s = random.uniform(max(BACKOFF_MIN_S, ceiling / 2), ceiling)
    return max(pause_s, error.retry_after_s) if isinstance(error, KubeThrottled) else pause_s

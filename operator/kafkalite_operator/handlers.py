"""kopf as transport: handlers that write nothing and hand every object over to the controller's event loop.

kopf runs in a thread with a loop of its own: it gives up on some errors of a stream, and every task of its loop is
cancelled then. None of that may touch the controller, so its end only leads to another start. kopf can be blind for a
minute on a half-open connection; the controller's own lists and the Lease reader make up for that.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import random
import re
import threading
import time
from typing import TYPE_CHECKING, Any, cast

import kopf
import uvloop

from kafkalite_core.resources.naming import GROUP, LABEL_CLUSTER, LABEL_COMPONENT, VERSION
from kafkalite_runtime.complaints import Complaints
from kafkalite_runtime.kube.config import server_of_pod
from kafkalite_runtime.kube.kinds import BROKERS, CLUSTERS, PODS, TOPICS, Kind
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Collection, Coroutine, Iterator

    Deliver = Callable[[Kind, str, dict[str, Any]], None]

RESTART_S = 1.0
IDENTITY = "kafkalite-operator"
CANCEL_AGAIN_S = 1.0
ANEW_S = 10.0
"""Shortest time between two beginnings, of which every object may be a sign when the store went back in time."""
STREAMS = "watcher for "
"""How the names of kopf's tasks begin that watch one kind in one namespace; they end others of their own, in order."""

COUNTED_S = 5.0
"""How often they are counted."""

KINDS = 4

STEADY_S = 60.0
"""When kopf ran that long, its next end is a new trouble."""

_ATTEMPT = re.compile(r"Request attempt #(\d+)")
_log = get_logger(__name__)


class Backoffs:
    """Delays between attempts without an end, so that no outage makes kopf give up."""

    def __iter__(self) -> Iterator[float]:
        for delay in (0.1, 0.2, 0.5):
            yield delay * random.uniform(0.5, 1.0)
        while True:
            yield random.uniform(0.5, 1.5)


class NothingStored(kopf.DiffBaseStorage):
    """No handler of ours asks what changed, and kopf would copy every object of every event to be able to say it."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        """Nothing that is worth a comparison."""
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> None:
        """Nothing was stored."""

    def store(self, **_: Any) -> None:
        """Nothing is written."""


class NoProgress(kopf.ProgressStorage):
    """Handlers of events have no progress to keep, and kopf would look through every object of every event for it."""

    def fetch(self, **_: Any) -> None:
        """Nothing was stored."""

    def store(self, **_: Any) -> None:
        """Nothing is written."""

    def purge(self, **_: Any) -> None:
        """Nothing is there."""

    def touch(self, **_: Any) -> None:
        """Nobody waits for an event that follows."""

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        """Nothing has to be taken out."""
        return essence


def build_registry(deliver: Deliver) -> kopf.OperatorRegistry:
    """Handlers for topics, clusters, brokers and the brokers' pods; all they do is call `deliver`."""
    registry = kopf.OperatorRegistry()
    kopf.on.startup(registry=registry)(configure)
    kopf.on.login(registry=registry, backoff=RESTART_S)(login)  # its own choice is a minute
    for kind in (TOPICS, CLUSTERS, BROKERS):
        kopf.on.event(GROUP, VERSION, kind.plural, registry=registry, id=kind.plural)(_handler(kind, deliver))
    labels: dict[str, Any] = {LABEL_CLUSTER: kopf.PRESENT, LABEL_COMPONENT: "broker"}
    kopf.on.event("v1", "pods", registry=registry, id="pods", labels=labels)(_handler(PODS, deliver))
    return registry


def _handler(kind: Kind, deliver: Deliver) -> Callable[..., Any]:
    async def on_event(event: dict[str, Any], **_: Any) -> None:
        # Objects of the first list come with type None.
        deliver(kind, event["type"] or "ADDED", dict(event["object"]))

    return on_event


async def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
    """The same credentials as the runtime's client: KUBECONFIG, else the pod's service account.

    By address: kopf's own choice is a name, and the cluster's DNS may be away when there is most to see.
    """
    named = kopf.login_with_kubeconfig(**kwargs)
    account = None if named else kopf.login_with_service_account(**kwargs)
    server = server_of_pod(os.environ)
    return dataclasses.replace(account, server=server) if account and server else named or account


def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    """Retry for ever, write nothing, look at nothing but what the handlers are for."""
    settings.networking.request_timeout = 10
    settings.networking.connect_timeout = 3
    settings.networking.error_backoffs = Backoffs()
    settings.watching.server_timeout = 300
    settings.watching.inactivity_timeout = 65
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.persistence.diffbase_storage = NothingStored()
    settings.persistence.progress_storage = NoProgress()
    settings.persistence.finalizer = f"{GROUP}/finalizer"
    settings.queueing.worker_limit = None
    settings.process.ultimate_exiting_timeout = None  # it would kill the process long after kopf was started again


def first_attempt(record: logging.LogRecord) -> bool:
    """A filter of the log: kopf tells of each attempt of a request that failed, and we have it try for ever."""
    found = _ATTEMPT.match(record.getMessage()) if record.name.startswith("kopf") else None
    return found is None or found[1] == "1"


class Watcher:
    """Runs kopf in a daemon thread and starts it again whenever it ends, once the kinds that it is for are served."""

    def __init__(
        self,
        on_object: Deliver,
        served: Callable[[], Coroutine[Any, Any, None]],
        namespaces: tuple[str, ...] = (),
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """`on_object(kind, type, object)` and `served()`, which returns when they are, run on `loop` (default: the
        running one).
        """
        self._on_object = on_object
        self._served = served
        self._namespaces = namespaces
        self._loop = loop or asyncio.get_running_loop()
        self._stop = threading.Event()
        self._running: asyncio.Task[None] | None = None
        self._anew_at = float("-inf")
        self._thread = threading.Thread(target=self._run, name="kopf", daemon=True)
        self.restarts = 0

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Cancel kopf and wait that long; False when it is still stopping."""
        self._stop.set()
        deadline = time.monotonic() + timeout_s
        everything = False
        while True:
            self._cancel(everything=everything)
            if self._thread.is_alive():
                self._thread.join(max(0.0, min(CANCEL_AGAIN_S, deadline - time.monotonic())))
            if not self._thread.is_alive():
                return True
            if time.monotonic() >= deadline:
                return False
            # A task of kopf's that was cancelled in the middle of its own start or stop may have missed it.
            everything = True

    def begin_anew(self, why: str = "the store went back in time") -> bool:
        """Have kopf log in, list, and watch from there; False when it has begun a moment ago.

        When the store went back in time: after a loss of contact it goes on from the last version that it was shown,
        also if the store has not given that out yet; a server says nothing then, nor that it does not, until it has:
        for hours, if the backup is that old.
        When the cluster has another authority: kopf has read it once, and tries for ever with that.
        """
        now = time.monotonic()
        if now - self._anew_at < ANEW_S:
            return False
        self._anew_at = now
        _log.info("kopf begins anew", why=why)
        self._cancel(everything=False)
        return True

    def _cancel(self, *, everything: bool) -> None:
        running = self._running
        if running is not None:
            loop = running.get_loop()
            with contextlib.suppress(RuntimeError):  # its loop was closed meanwhile
                if everything:
                    loop.call_soon_threadsafe(_cancel_all, loop)
                else:
                    loop.call_soon_threadsafe(running.cancel)

    def _deliver(self, kind: Kind, type_: str, obj: dict[str, Any]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._on_object, kind, type_, obj)

    def _run(self) -> None:
        complaints = Complaints(_log)
        while not self._stop.is_set():
            started = time.monotonic()
            try:
                with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                    runner.run(self._operate())
            except (Exception, asyncio.CancelledError) as error:
                if time.monotonic() - started > STEADY_S:
                    complaints.well("kopf")
                wanted = isinstance(error, asyncio.CancelledError) and started < self._anew_at
                if not self._stop.is_set() and not wanted:
                    cause = error if isinstance(error, Exception) else RuntimeError("cancelled")
                    complaints.wrong("kopf", "kopf ended, and is started again", cause, exc_info=cause)
            self._running = None
            if not self._stop.wait(RESTART_S):
                self.restarts += 1

    async def _operate(self) -> None:
        self._running = asyncio.current_task()
        if self._stop.is_set():
            return  # before there was something to cancel
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._served(), self._loop))
        roots = await kopf.spawn_tasks(
            registry=build_registry(self._deliver),
            settings=kopf.OperatorSettings(),
            # Without it kopf asks for the user's name, and in a container the user has none.
            identity=cast("Any", IDENTITY),
            standalone=True,
            clusterwide=not self._namespaces,
            namespaces=self._namespaces,
        )
        try:
            await self._until_it_ends(roots)
        finally:
            await _end(lambda task: task.get_name().startswith(STREAMS))
            await _end(roots.__contains__)
            await _end(lambda _: True)

    async def _until_it_ends(self, roots: Collection[asyncio.Task[Any]]) -> None:
        """Wait for what ends kopf, and raise it. The invariant: each kind is watched in each namespace, or kopf ends.

        kopf looks once which kinds there are, and passes over one that the server already lists and does not name yet.
        It passes over a stream, too, that ends by a cancellation, as all do that look a name up when a session closes.
        """
        wanted = KINDS * max(1, len(set(self._namespaces)))
        most = 0
        while True:
            ended, _ = await asyncio.wait(roots, timeout=COUNTED_S, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()  # none of them ends by itself, so this raises what ended it
            if ended:
                return
            streams = sum(task.get_name().startswith(STREAMS) for task in asyncio.all_tasks())
            most = max(most, streams)  # none ever: it still looks, or names them otherwise
            if most and streams < wanted:
                raise RuntimeError(f"kopf watches {streams} of {wanted} kinds and namespaces")


async def _end(these: Callable[[asyncio.Task[Any]], bool]) -> None:
    """Cancel those of the other tasks of this loop until none of them is left.

    kopf's own end (`kopf.run_tasks`) lets streams run for five seconds, cancels them once and waits for ever. One that
    is asking the server at that moment takes its cancellation for one of kopf's pauses and begins anew: kopf never
    ended, did not watch the kind any more whose stream had failed, and killed the process ten minutes later.
    """
    while found := {task for task in asyncio.all_tasks() - {asyncio.current_task()} if these(task)}:
        for task in found:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):  # the same is wanted
            await asyncio.wait(found, timeout=CANCEL_AGAIN_S)
        for task in found:
            if task.done() and not task.cancelled():
                task.exception()  # kopf has told of it; unasked it would be told again


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks(loop):
        task.cancel()

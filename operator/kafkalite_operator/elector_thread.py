"""The elector on a thread of its own, with its own event loop and connection to the API server.

A round that plans ten thousand partitions anew keeps the main loop busy for as long as it takes; on that loop the
renewal would come too late, and two operators would take the Lease from one another and get nothing done. What the
thread must not do is renew for an operator that hangs: see `BLOCKED_LIMIT_S`.

A process that was stopped (SIGSTOP, a swapped-out machine) finds its last renewal too old when it goes on, because the
clock went on: `held()` is False before anything is renewed, and `ActingClient` asks it before every write.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING

from kafkalite_operator.elector import Elector
from kafkalite_runtime.kube.client import KubeClient
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite_operator.settings import OperatorSettings
    from kafkalite_runtime.kube.config import KubeConfig

RELEASE_LIMIT_S = 2.0
JOIN_LIMIT_S = 3.0
RESTART_S = 0.5
_log = get_logger(__name__)


class ElectorThread:
    """See the module. Made, started, stopped and asked on the main loop."""

    def __init__(self, config: KubeConfig, settings: OperatorSettings, main_loop_age_s: Callable[[], float]) -> None:
        """`main_loop_age_s()`, called on the thread, is the time since the main loop turned last."""
        self._client = KubeClient(config)  # used on the thread alone, where it opens its session
        self._elector = Elector(
            self._client,
            namespace=settings.namespace,
            identity=settings.identity,
            instance=settings.instance,
            main_loop_age_s=main_loop_age_s,
            on_change=self._changed,
        )
        self._main_loop: asyncio.AbstractEventLoop | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: asyncio.Task[None] | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="elector", daemon=True)
        self.identity = settings.identity
        self.acquired = asyncio.Event()
        """Set while the Lease is held, as far as the main loop has heard; `held()` is the truth."""

    def held(self) -> bool:
        """Whether this process may act now."""
        return self._elector.held()

    @property
    def terms(self) -> int:
        """How often the Lease was acquired: a term is served by one holder without a break."""
        return self._elector.terms

    def start(self) -> None:
        """Start the thread; what it has to tell it tells the running loop."""
        self._main_loop = asyncio.get_running_loop()
        self._thread.start()

    async def stop(self) -> None:
        """Give the Lease back and end the thread, within `JOIN_LIMIT_S`."""
        self._stopping.set()
        loop, running = self._loop, self._running
        if loop is not None and running is not None:
            with contextlib.suppress(RuntimeError):  # the loop may close between the check and the call
                loop.call_soon_threadsafe(running.cancel)
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join, JOIN_LIMIT_S)

    # -- the thread ---------------------------------------------------------------------------------------------

    def _changed(self, held: bool) -> None:
        loop = self._main_loop
        if loop is not None and not loop.is_closed():
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self.acquired.set if held else self.acquired.clear)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                asyncio.run(self._main())
            except Exception:
                _log.exception("elector failed, starting again")
                self._stopping.wait(RESTART_S)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._running = asyncio.create_task(self._elector.run(), name="elector")
        try:
            # Asked after the task is known: a stop that came before it could not cancel it.
            if not self._stopping.is_set():
                await asyncio.wait([self._running])
            if not self._running.cancelled() and self._running.done():
                self._running.result()
        finally:
            self._running.cancel()
            if self._stopping.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(RELEASE_LIMIT_S):
                        await self._elector.release()
            await self._client.close()

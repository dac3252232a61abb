"""Asking the API server until it answers, for as long as a client wants to wait."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from kafkalite_broker.cluster.attempts import DEADLINE_S, backoff_s
from kafkalite_broker.cluster.topic_errors import is_passing, refusal, timed_out
from kafkalite_core.model.errors import BrokerError
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.resources.fields import ResourceError
from kafkalite_runtime.kube import KubeError, KubeUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")


class Persistence:
    """Repeats attempts with back-off, and bounds how many are under way at once."""

    def __init__(self, at_once_max: int) -> None:
        self._slots = asyncio.Semaphore(at_once_max)

    async def until_answered(
        self, what: str, deadline_s: float, attempt: Callable[[bool, float], Awaitable[T | None]]
    ) -> T:
        """Repeat `attempt(unsure, limit_s)` until it returns something or fails for good.

        `unsure`: an earlier attempt got no answer and may have been applied. None: decide anew on a newer state.
        """
        end_s = monotonic() + deadline_s
        failures, unsure = 0, False
        error: KubeError | KubeUnavailable | None = None
        while (left_s := end_s - monotonic()) > 0:
            try:
                async with asyncio.timeout(left_s):
                    await self._slots.acquire()
            except TimeoutError:
                break
            try:
                result = await attempt(unsure, max(min(DEADLINE_S, end_s - monotonic()), 0.001))
                if result is not None:
                    return result
                error = None
            except ResourceError as unreadable:
                raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, str(unreadable)) from unreadable
            except (KubeError, KubeUnavailable) as failed:
                if isinstance(failed, KubeError) and not is_passing(failed):
                    raise refusal(failed) from failed
                unsure = unsure or (isinstance(failed, KubeUnavailable) and failed.ambiguous)
                error = failed
            finally:
                self._slots.release()
            failures += 1
            await asyncio.sleep(min(backoff_s(failures, error), max(end_s - monotonic(), 0.0)))
        raise timed_out(what, error, unsure=unsure)

"""Patience with an API server that is away for a moment: a wait of an hour does not end at one restart of it."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from typing import TYPE_CHECKING, TypeVar

from kafkalite_cli.errors import Failure
from kafkalite_cli.manifests import plain_words
from kafkalite_runtime.kube import KubeGone, KubeThrottled, KubeUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

T = TypeVar("T")
OUTAGE_S = 10.0  # an API server that restarts is waited for
POLL_S = 0.2
AWAY = (KubeUnavailable, KubeGone, KubeThrottled)
"""No usable answer: it is away, a list took it too long, or it asks for patience."""


async def through_outage(
    work: Callable[[], Awaitable[T]],
    tell: Callable[[str], None] = lambda _reason: None,
    *,
    until: float = math.inf,
) -> T:
    """What `work` returns. It is done again while there is no usable answer, so whatever it writes must bear that.

    Raises the last error when that lasts for OUTAGE_S, or beyond `until` (monotonic); every other error at once.
    """
    limit = min(until, time.monotonic() + OUTAGE_S)
    while True:
        try:
            return await work()
        except AWAY as error:
            tell(plain_words(error))
            if time.monotonic() > limit:
                raise
        await asyncio.sleep(POLL_S)


@contextlib.contextmanager
def going_on(words: str) -> Iterator[None]:
    """Say what becomes of what was begun, when the API server stays away."""
    try:
        yield
    except AWAY as error:
        raise Failure(f"{plain_words(error)}; {words}") from error

"""What the handlers of topic administration have in common: the world they judge against, time limits, answers."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from kafkalite_broker.cluster.topic_requests import World
from kafkalite_core.model.errors import BrokerError
from kafkalite_core.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable

    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.services import Services

WAIT_MAX_S = 300.0
"""No client waits longer, whatever its time-out says."""

WRITE_S = 1.0
"""A write is given at least this long, also when the client does not want to wait for its effect."""

OBSTACLE_LIMIT_S = 1.0
OBSTACLES_TOLD_MAX = 5

T = TypeVar("T")


class Deadline:
    """When the client's `timeout_ms` is over; counted from the arrival of the request."""

    def __init__(self, request: Request) -> None:
        allowed_s: float = min(max(request.body.timeout_ms, 0) / 1000.0, WAIT_MAX_S)
        self._end_s = request.received_s + allowed_s

    def left_s(self) -> float:
        """Time that is left, 0 when it is over."""
        return max(self._end_s - monotonic(), 0.0)

    def write_s(self) -> float:
        """Time for a write."""
        return max(self.left_s(), WRITE_S)


def world_of(services: Services) -> World:
    """The cluster as this broker knows it now."""
    cluster = services.cluster()
    brokers = services.cache.brokers
    return World(
        config={} if cluster is None else cluster.config,
        replicas=len(brokers) if cluster is None else cluster.replicas,
        brokers=brokers.keys(),
        names=(topic.ref.name for topic in services.cache.topics()),
    )


def duplicates(names: Iterable[str]) -> set[str]:
    """Names that come more than once."""
    seen: set[str] = set()
    return {name for name in names if name in seen or seen.add(name)}  # type: ignore[func-returns-value]


async def outcomes(work: Iterable[Awaitable[T]]) -> list[T | BrokerError]:
    """Do everything at once (the writer bounds the writes); what a client did wrong is a result, a defect is raised."""
    results: list[T | BrokerError] = []
    for result in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(result, BaseException) and not isinstance(result, BrokerError):
            raise result
        results.append(result)
    return results


async def not_in_time(services: Services, names: list[str], what: str) -> dict[str, BrokerError]:
    """The write was accepted and its effect did not show in time: why, in the operator's words, by topic name."""
    told = names[:OBSTACLES_TOLD_MAX]
    reasons = await asyncio.gather(
        *(services.topic_writer.obstacle(name, deadline_s=OBSTACLE_LIMIT_S) for name in told)
    )
    said = dict(zip(told, reasons, strict=True))
    return {
        name: BrokerError(
            ErrorCode.REQUEST_TIMED_OUT, f"{what}" + (f": {reason}" if (reason := said.get(name)) else "")
        )
        for name in names
    }

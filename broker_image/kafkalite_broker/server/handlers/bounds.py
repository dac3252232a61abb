"""The bound on what one request may ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalite_broker.server.dispatch import Request

ENTRIES_MAX = 50_000
"""Topics or partitions named by one request. More would hold the event loop long enough to cost the broker its lease;
real clients name what they use, a few thousand at most."""


def within_bounds(request: Request, entries: int) -> bool:
    """Whether the request may be served; closes the connection otherwise."""
    if entries <= ENTRIES_MAX:
        return True
    request.close(f"a request names {entries} topics or partitions, at most {ENTRIES_MAX} are served")
    return False


def partitions_named(request: Request) -> int:
    """Partitions in a request that lists `topics`, each with `partitions`."""
    return sum(len(topic.partitions) for topic in request.body.topics) + len(request.body.topics)

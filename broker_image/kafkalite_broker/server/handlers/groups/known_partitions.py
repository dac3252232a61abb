"""Offsets can be committed for partitions that exist, and for no others; the coordinator does not know which do."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from kafkalite_core.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.services import Services

    class PartitionAsked(Protocol):
        """A partition in such a request."""

        partition_index: int

    class TopicAsked(Protocol):
        """A topic in such a request."""

        name: str
        partitions: Sequence[Any]


def ask_for_known(
    services: Services, request: Request, respond: Callable[[dict[tuple[str, int], int], Any], Any]
) -> None:
    """Ask the coordinator about the partitions that exist; the others get UNKNOWN_TOPIC_OR_PARTITION.

    Args:
        services: Of the broker.
        request: Its body lists `topics`, each with `partitions`.
        respond: Makes the response of codes by (topic, partition) and of the coordinator's response, which is None
            when it had not to be asked.
    """
    body = request.body
    kept, refused = [], False
    for topic in body.topics:
        known = [entry for entry in topic.partitions if services.partition_of(topic.name, entry.partition_index)]
        refused |= len(known) < len(topic.partitions)
        if known:
            kept.append(topic if len(known) == len(topic.partitions) else replace(topic, partitions=known))
    request.waits()
    if not refused:
        services.groups.ask(request)
    elif not kept:
        request.answer(respond(_unknown(body.topics), None))
    else:
        services.groups.ask_for(request, replace(body, topics=kept), Completed(request, respond))


def _unknown(topics: Sequence[TopicAsked]) -> dict[tuple[str, int], int]:
    return {
        (topic.name, entry.partition_index): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for topic in topics
        for entry in topic.partitions
    }


class Completed:
    """Token of the part of a request that went to the coordinator: adds the partitions that did not."""

    __slots__ = ("_request", "_respond", "_topics")

    def __init__(self, request: Request, respond: Callable[[dict[tuple[str, int], int], Any], Any]) -> None:
        self._request = request
        self._respond = respond
        self._topics = request.body.topics

    def answer(self, response: Any) -> None:
        """The coordinator's answer."""
        codes = _unknown(self._topics)
        for topic in response.topics:
            for entry in topic.partitions:
                codes[topic.name, entry.partition_index] = entry.error_code
        self._request.answer(self._respond(codes, response))

    def failed(self, error: BaseException) -> None:
        """There will be none."""
        self._request.failed(error)

"""FindCoordinator (key 10): which broker coordinates a group. The first question makes `__consumer_offsets`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_broker.cluster.internal_topics import OFFSETS_TOPIC
from kafkalite_broker.server.handlers.bounds import within_bounds
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.find_coordinator import Coordinator, FindCoordinatorResponse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.services import Services

GROUP, TRANSACTION = 0, 1
BATCHED_FROM_VERSION = 4
ELECTION_WAIT_S = 0.25


class FindCoordinatorHandler:
    """Answers from the metadata: the leader of the partition that holds the group."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def __call__(self, request: Request) -> None:
        """Answer for each key; wait a moment for an election when a leader is suspected to be dead."""
        if not within_bounds(request, len(request.body.coordinator_keys)):
            return
        suspects = self._services.partitions.suspects
        if suspects and suspects.concern((OFFSETS_TOPIC,)):
            self._services.background(request.guarded(self._answer_after_election(request)))
            return
        self._answer(request)

    async def _answer_after_election(self, request: Request) -> None:
        await self._services.partitions.suspects.settled((OFFSETS_TOPIC,), ELECTION_WAIT_S)
        self._answer(request)

    def _answer(self, request: Request) -> None:
        body = request.body
        if request.version >= BATCHED_FROM_VERSION:
            found = self._coordinators(request, dict.fromkeys(body.coordinator_keys))
            request.answer(FindCoordinatorResponse(coordinators=found))
            return
        (one,) = self._coordinators(request, (body.key,))
        request.answer(
            FindCoordinatorResponse(
                error_code=one.error_code,
                error_message=one.error_message,
                node_id=one.node_id,
                host=one.host,
                port=one.port,
            )
        )

    def _coordinators(self, request: Request, keys: Iterable[str]) -> list[Coordinator]:
        key_type = request.body.key_type
        if key_type == GROUP:
            return [self._group(key, request.listener) for key in keys]
        if key_type == TRANSACTION:
            # The one answer on which every client gives up at once; on others some ask again until they time out.
            code, message = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "There are no transactions here."
        else:
            code, message = ErrorCode.INVALID_REQUEST, f"There are no coordinators of type {key_type} here."
        return [_refusal(key, code, message) for key in keys]

    def _group(self, group_id: str, listener: str) -> Coordinator:
        topic = self._services.groups.topic
        partition = topic.partition_of(group_id)
        if partition is None:
            topic.ensure()
            return _refusal(group_id, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC} is being made.")
        endpoint = self._services.endpoint(partition.leader, listener) if partition.has_leader else None
        if endpoint is None:
            message = f"The partition of {OFFSETS_TOPIC} that holds the group has no leader now."
            if (
                partition.has_leader
                and self._services.why_unreachable(partition.leader) is ErrorCode.LISTENER_NOT_FOUND
            ):
                message = f"Broker {partition.leader}, which has the group, has no address on listener {listener} yet."
            return _refusal(group_id, ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
        host, port, _ = endpoint
        return Coordinator(
            key=group_id, node_id=partition.leader, host=host, port=port, error_code=ErrorCode.NONE, error_message=None
        )


def _refusal(key: str, code: int, message: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message)

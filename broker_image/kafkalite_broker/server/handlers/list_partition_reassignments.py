"""ListPartitionReassignments (key 46): partitions whose replicas are being moved, or will be when it is their turn.

`kafka-topics` asks for it, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_broker.server.handlers.bounds import within_bounds
from kafkalite_core.controller.reassignment import is_moving, retargeted, target_of
from kafkalite_core.protocol.list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

if TYPE_CHECKING:
    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.services import Services
    from kafkalite_core.model.partition import Partition, Topic


class ListPartitionReassignmentsHandler:
    """Answers from the metadata."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def __call__(self, request: Request) -> None:
        """Answer with all that are under way, or with those among the partitions named."""
        topics = request.body.topics
        named = 0 if topics is None else len(topics) + sum(len(topic.partition_indexes) for topic in topics)
        if not within_bounds(request, named):
            return
        wanted = (
            None if topics is None else {(topic.name, number) for topic in topics for number in topic.partition_indexes}
        )
        found = []
        for topic in self._services.cache.topics():
            moving = [
                _described(number, shown)
                for number, entry in sorted(topic.partitions.items())
                if (wanted is None or (topic.ref.name, number) in wanted)
                and is_moving(shown := self._begun(topic, number, entry))
            ]
            if moving:
                found.append(OngoingTopicReassignment(name=topic.ref.name, partitions=moving))
        request.answer(ListPartitionReassignmentsResponse(error_message=None, topics=found))

    def _begun(self, topic: Topic, number: int, entry: Partition) -> Partition:
        """The entry as it is, or will be as soon as the list of `spec.replicaAssignment` is taken up."""
        target = topic.replica_assignment.get(number)
        if target is None or target == target_of(entry):
            return entry
        possible = target and len(set(target)) == len(target) and set(target) <= self._services.cache.brokers.keys()
        return retargeted(entry, target) if possible else entry


def _described(number: int, entry: Partition) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=number,
        replicas=list(entry.replicas),
        adding_replicas=list(entry.adding),
        removing_replicas=list(entry.removing),
    )

"""What AlterPartitionReassignments asks of one topic, judged on its object as just read, and the patch that says it.

The wish is written where a person would write it: lists of brokers in `spec.replicaAssignment`. To cancel is to wish
for the replicas that the partition had before (KIP-455).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafkalite_broker.cluster.topic_requests import check_assignment
from kafkalite_core.controller.reassignment import is_moving, origin_of, target_of
from kafkalite_core.model.errors import BrokerError
from kafkalite_core.model.limits import REPLICAS_PER_PARTITION_MAX
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.resources import topic_objects
from kafkalite_core.resources.topics import parse_topic, parse_topic_spec

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from kafkalite_core.model.partition import Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignmentWish:
    """New replicas by partition number; None cancels. `factor_may_change` as in KAFKA-14121."""

    replicas: Mapping[int, Sequence[int] | None]
    factor_may_change: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What becomes of a wish.

    Attributes:
        targets: Replicas that accepted partitions shall have.
        errors: Why the others are refused.
        operations: The JSON Patch; empty when the spec says it already.
    """

    targets: dict[int, tuple[int, ...]] = field(default_factory=dict)
    errors: dict[int, BrokerError] = field(default_factory=dict)
    operations: list[dict[str, Any]] = field(default_factory=list)


def judge_reassignment(
    found: dict[str, Any], wish: ReassignmentWish, brokers: Collection[int], *, unsure: bool = False
) -> Judgement:
    """Judge every partition for itself. `unsure`: the wish may have been written already, so a move that it cancels
    may be gone by now.
    """
    topic, spec = parse_topic(found), parse_topic_spec(found)
    targets: dict[int, tuple[int, ...]] = {}
    errors: dict[int, BrokerError] = {}
    cancelled: dict[int, int] = {}
    for number, replicas in sorted(wish.replicas.items()):
        entry = topic.partitions.get(number)
        try:
            if entry is None:
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
            if replicas is None:
                targets[number] = _cancelled(entry, spec.replica_assignment.get(number), unsure=unsure)
                cancelled[number] = entry.partition_epoch
            else:
                targets[number] = _wanted(entry, tuple(replicas), brokers, wish)
        except BrokerError as error:
            errors[number] = error
    operations = topic_objects.reassignment(found, targets, tested=cancelled)
    return Judgement(targets=targets, errors=errors, operations=operations)


def _wanted(
    entry: Partition, replicas: tuple[int, ...], brokers: Collection[int], wish: ReassignmentWish
) -> tuple[int, ...]:
    check_assignment([replicas], brokers)
    if len(replicas) > REPLICAS_PER_PARTITION_MAX:
        message = f"{len(replicas)} replicas are more than the {REPLICAS_PER_PARTITION_MAX} that a partition can have."
        raise BrokerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    have = len(target_of(entry))
    if not wish.factor_may_change and len(replicas) != have:
        message = f"The replication factor is changed from {have} to {len(replicas)}"
        raise BrokerError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    return replicas


def _cancelled(entry: Partition, pinned: tuple[int, ...] | None, *, unsure: bool) -> tuple[int, ...]:
    """The replicas to go back to; of a move that waits for its turn those that there are."""
    waiting = pinned is not None and pinned != target_of(entry)
    if not is_moving(entry) and not waiting and not unsure:
        raise BrokerError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
    return origin_of(entry)

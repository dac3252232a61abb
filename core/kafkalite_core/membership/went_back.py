"""What tells that the store went back in time: how two sightings of one topic compare (S11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalite_core.model.partition import Partition, Topic


def partitions_behind(known: Topic, listed: Topic) -> frozenset[int]:
    """The partitions of which a consistent list shows less than was known: the store went back in time (S11)."""
    if known.ref.topic_id and known.ref.topic_id != listed.ref.topic_id:
        return frozenset(known.partitions)
    return frozenset(
        number for number, entry in known.partitions.items() if _contradicts(listed.partitions.get(number), entry)
    )


def _contradicts(shown: Partition | None, known: Partition) -> bool:
    """What is shown cannot come after what was known. Every change raises partitionEpoch (R1), so another entry with
    the same one is of another history, which has got as far as the one that was lost.
    """
    if shown is None or shown.leader_epoch < known.leader_epoch:
        return True
    if shown.partition_epoch == known.partition_epoch:
        return shown != known
    return shown.partition_epoch < known.partition_epoch


def moved(before: Topic, after: Topic, number: int) -> bool:
    """Its replicas are others than before."""
    old, new = before.partitions.get(number), after.partitions.get(number)
    return (old and old.replicas) != (new and new.replicas)


def surpassed(before: Topic, after: Topic, number: int) -> bool:
    """The entry is above all that was known of it before, or the topic is another one."""
    old, new = before.partitions.get(number), after.partitions.get(number)
    if old is None or new is None or before.ref.topic_id != after.ref.topic_id:
        return True
    return new.leader_epoch > old.leader_epoch and new.partition_epoch > old.partition_epoch

"""Whether data that no replica uses are wanted after all."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite_core.membership.metadata_cache import MetadataCache
    from kafkalite_core.storage.partition_metadata import PartitionMetadata

LogT = TypeVar("LogT")


def is_claimed(cache: MetadataCache, broker_id: int, metadata: PartitionMetadata) -> bool:
    """Whether a topic that lives has that very replica on the broker: its data are adopted when there is room (S10).

    So may a topic that is there and cannot be read, such as one of a later version: nobody knows what it says.
    """
    if metadata.uid in cache.unreadable:
        return True
    topic = cache.topic(metadata.topic)
    if topic is None or topic.ref.topic_id != metadata.topic_id:
        return False
    entry = topic.partitions.get(metadata.partition)
    return entry is not None and broker_id in entry.replicas


def to_set_aside(
    cache: MetadataCache, unclaimed: Iterable[tuple[LogT, PartitionMetadata]]
) -> list[tuple[LogT, PartitionMetadata]]:
    """Of the logs that no replica uses those whose topic is not there; one that cannot be read is (S10)."""
    return [(log, metadata) for log, metadata in unclaimed if metadata.uid not in cache.unreadable]

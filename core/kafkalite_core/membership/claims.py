"""Whether data that were set aside are wanted after all."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalite_core.membership.metadata_cache import MetadataCache
    from kafkalite_core.storage.partition_metadata import PartitionMetadata


def is_claimed(cache: MetadataCache, broker_id: int, metadata: PartitionMetadata) -> bool:
    """Whether a topic that lives has that very replica on the broker: its data are adopted when there is room (S10)."""
    topic = cache.topic(metadata.topic)
    if topic is None or topic.ref.topic_id != metadata.topic_id:
        return False
    entry = topic.partitions.get(metadata.partition)
    return entry is not None and broker_id in entry.replicas

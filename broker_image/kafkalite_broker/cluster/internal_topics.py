"""Topics that brokers make for themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.controller.preferred import setting
from kafkalite_core.model.topic import OFFSETS_TOPIC, TopicSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["INTERNAL_TOPICS", "OFFSETS_TOPIC", "cluster_number", "offsets_topic"]

INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC})
"""Topics that no client may write to."""


def offsets_topic(cluster_name: str, config: Mapping[str, str], brokers: int) -> TopicSpec:
    """`__consumer_offsets` as `offsets.topic.*` ask for it, with no more replicas than there are brokers.

    Its log keys are set on the topic itself, so that no default of the cluster changes what groups rely on.
    """
    return TopicSpec(
        cluster=cluster_name,
        topic_name=OFFSETS_TOPIC,
        partitions=cluster_number(config, "offsets.topic.num.partitions"),
        replicas=max(1, min(cluster_number(config, "offsets.topic.replication.factor"), brokers)),
        config={
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(cluster_number(config, "offsets.topic.segment.bytes")),
        },
    )


def cluster_number(config: Mapping[str, str], name: str) -> int:
    """A whole number of the cluster's configuration; a value that cannot be read is passed over (a condition tells)."""
    value = setting(config, name)
    assert isinstance(value, int), name
    return value
